"""Act: the old way. An in-memory driver, three lost receipts, a restart: one command, two commits.

Part of `driver.demo`.
"""

import sys
from contextlib import AbstractAsyncContextManager
from typing import Final

import anyio

from driver.demo.inmemory import DELIVERED, EXIT_UNDELIVERED, RECEIPT_TRIES
from driver.demo.lossy import lossy_plane
from driver.demo.narrator import counted
from driver.demo.processes import Player, player
from driver.demo.repository import GIT_ENV
from driver.demo.stage import COMMIT_TOOL, Stage
from driver.demo.tally import Count, Outcome, Row

TITLE: Final = "The old way: a driver that remembers in memory"
COMMAND_ID: Final = "cmd-2"
SOCKET: Final = "old.sock"
SUBJECT: Final = "Raise the retry limit"


async def play(stage: Stage) -> Outcome:
    """Play the act, and count what it did."""
    tell, repository = stage.narrator, stage.repository
    await repository.stage("retries.py", "RETRIES = 5\n")
    tell.step(f'The agent stages retries.py; the plane wants one commit: {COMMAND_ID} "{SUBJECT}".')
    command: dict[str, object] = {
        "command_id": COMMAND_ID,
        "tool": COMMIT_TOOL,
        "arguments": {"repo_path": str(repository.folder), "message": SUBJECT},
    }
    async with lossy_plane(stage.folder / SOCKET, command, losing=RECEIPT_TRIES, narrator=tell) as plane:
        await _first_life(stage)
        await repository.stage("timeouts.py", "TIMEOUT_S = 30\n")
        tell.step("It is started again, with an empty memory. Meanwhile the agent has staged timeouts.py.")
        await _second_life(stage)
    commits = await repository.count(SUBJECT)
    tell.point(
        f'{counted(commits, "commit")} "{SUBJECT}" for one command; the last one swallowed timeouts.py.'
    )
    return Outcome(
        row=Row(
            act="three lost receipts",
            driver="in memory",
            asked=1,
            commits=Count(what=f'commits "{SUBJECT}"', expected=2, found=commits),
            receipts=Count(what=f"receipts of {COMMAND_ID}", expected=1, found=plane.receipts),
            known="succeeded, once",
        ),
        checks=[Count(what=f"deliveries of {COMMAND_ID}", expected=2, found=plane.deliveries)],
    )


async def _first_life(stage: Stage) -> None:
    async with _driver(stage, anyio.Event()) as driver:
        code = await driver.ended()
        if code != EXIT_UNDELIVERED:
            raise driver.premature(code)


async def _second_life(stage: Stage) -> None:
    told = anyio.Event()
    async with _driver(stage, told) as driver:
        await driver.until(told, "delivered its receipt")


def _driver(stage: Stage, told: anyio.Event) -> AbstractAsyncContextManager[Player]:
    """Return a life of the driver; `told` is set once it has said that its receipt is delivered."""

    def heard(line: str) -> None:
        stage.narrator.quote("driver", line)
        if line.endswith(DELIVERED):
            told.set()

    socket = str(stage.folder / SOCKET)
    command = (sys.executable, "-m", "driver.demo.inmemory", socket, *stage.git_server)
    return player("the in-memory driver", command, heard=heard, env=GIT_ENV)
