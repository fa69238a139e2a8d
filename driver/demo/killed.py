"""Act: the same with effectd. It is killed after the effect and before its receipt: one command, one commit.

Part of `driver.demo`.
"""

import signal
from typing import Final

from driver.demo.narrator import counted
from driver.demo.stage import COMMIT_TOOL, Stage
from driver.demo.tally import Count, Outcome, Row

TITLE: Final = "The same with effectd: killed between the effect and its receipt"
COMMAND_ID: Final = "cmd-3"
RUN_ID: Final = "run-3"
SUBJECT: Final = "Speed up the search"
KILL_AT: Final = "dispatch.answered"
"""The worst moment: the provider has answered, and nothing of it is recorded yet."""


async def play(stage: Stage) -> Outcome:
    """Play the act, and count what it did."""
    tell, repository, effectd = stage.narrator, stage.repository, stage.service
    await repository.stage("search.py", "CACHE = True\n")
    last_seq, code = await _first_life(stage)
    tell.command("git log -1 --format=%s", (await repository.commits())[0].subject)
    view = await effectd.command(COMMAND_ID)
    tell.step(f"The commit is there, and nobody was told. The plane does not guess: {view.state}.")
    await repository.stage("index.py", "SHARDS = 4\n")
    tell.step("effectd is started again. Meanwhile the agent has staged index.py.")
    async with effectd.daemon():
        deliveries, receipts = await _second_life(stage, last_seq)
    commits = await repository.count(SUBJECT)
    staged = await repository.staged()
    tell.point(f'{counted(commits, "commit")} "{SUBJECT}"; {", ".join(staged) or "nothing"} is still staged.')
    return Outcome(
        row=Row(
            act="killed in mid-call",
            driver="effectd",
            asked=1,
            commits=Count(what=f'commits "{SUBJECT}"', expected=1, found=commits),
            receipts=Count(what=f"receipts of {COMMAND_ID}", expected=1, found=receipts),
            known="unknown",
        ),
        checks=[
            Count(what="the signal that ended the daemon", expected=signal.SIGKILL, found=-code),
            Count(what=f"deliveries of {COMMAND_ID}", expected=2, found=deliveries),
            Count(what="files that are still staged", expected=1, found=len(staged)),
        ],
    )


async def _first_life(stage: Stage) -> tuple[int, int]:
    """Let the daemon die in mid-call; return the journal's newest event before it, and how it ended."""
    tell, effectd = stage.narrator, stage.service
    async with effectd.daemon(kill_at=KILL_AT) as daemon:
        tell.step(f'The agent stages search.py; the plane wants one commit: {COMMAND_ID} "{SUBJECT}".')
        last_seq = await effectd.last_seq()
        await _give(stage, wait=False)
        code = await daemon.ended()
        tell.point(
            f"SIGKILL to process {daemon.pid}: git has committed, and its answer is not written down yet."
        )
    return last_seq, code


async def _second_life(stage: Stage, last_seq: int) -> tuple[int, int]:
    """Let the plane deliver again, and wait for the receipt; return the deliveries and the receipts."""
    tell, effectd = stage.narrator, stage.service
    tell.command(
        f"effectd plane send git/{COMMIT_TOOL} --id {COMMAND_ID} --wait …", await _give(stage, wait=True)
    )
    answers = [delivery.answer for delivery in (await effectd.story(COMMAND_ID)).deliveries]
    tell.step(
        f"{COMMAND_ID} was delivered {counted(len(answers), 'time')}; answers: {', then '.join(answers)}."
    )
    tell.command("effectd tail", await effectd.tail(last_seq), cropped=True)
    tell.step("Nobody knows whether the commit happened, so nobody claims to, and nothing runs it again:")
    tell.command("effectd ops --unsettled", await effectd.ops_unsettled())
    return len(answers), await effectd.receipts(RUN_ID)


async def _give(stage: Stage, *, wait: bool) -> str:
    arguments = {"repo_path": str(stage.repository.folder), "message": SUBJECT}
    return await stage.service.give(COMMAND_ID, RUN_ID, COMMIT_TOOL, arguments, wait=wait)
