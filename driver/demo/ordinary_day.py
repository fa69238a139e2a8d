"""Act: an ordinary day. One commit through effectd, with nothing in its way.

Part of `driver.demo`.
"""

from typing import Final

from driver.demo.narrator import counted
from driver.demo.stage import COMMIT_TOOL, Stage
from driver.demo.tally import Count, Outcome, Row

TITLE: Final = "An ordinary day: one commit through effectd"
COMMAND_ID: Final = "cmd-1"
RUN_ID: Final = "run-1"
SUBJECT: Final = "Fix the login timeout"


async def play(stage: Stage) -> Outcome:
    """Play the act, and count what it did."""
    tell, repository, effectd = stage.narrator, stage.repository, stage.service
    tell.step(f"A control plane (effectd plane, {effectd.url}) and a daemon (effectd run) are started.")
    async with effectd.daemon() as daemon:
        tell.step(
            f"The daemon (process {daemon.pid}) is ready; mcp-server-git starts when it is first called."
        )
        await repository.stage("login.py", "TIMEOUT_S = 10\n")
        tell.step(f'The agent stages login.py; the plane wants one commit: {COMMAND_ID} "{SUBJECT}".')
        arguments = {"repo_path": str(repository.folder), "message": SUBJECT}
        said = await effectd.give(COMMAND_ID, RUN_ID, COMMIT_TOOL, arguments, wait=True)
        tell.command(f"effectd plane send git/{COMMIT_TOOL} --id {COMMAND_ID} --wait …", said)
        tell.step("The journal has each step. The intent was on the disk before the call left:")
        tell.command("effectd tail", await effectd.tail(0), cropped=True)
        view = await effectd.command(COMMAND_ID)
        receipts = await effectd.receipts(RUN_ID)
        code = await daemon.stop()
    commits = await repository.count(SUBJECT)
    tell.point(
        f'{counted(commits, "commit")} "{SUBJECT}", {counted(receipts, "receipt")}. '
        f"Stopped with SIGTERM, the daemon exits {code}."
    )
    return Outcome(
        row=Row(
            act="an ordinary day",
            driver="effectd",
            asked=1,
            commits=Count(what=f'commits "{SUBJECT}"', expected=1, found=commits),
            receipts=Count(what=f"receipts of {COMMAND_ID}", expected=1, found=receipts),
            known=view.state,
        ),
        checks=[Count(what="the exit code of a daemon that was asked to stop", expected=0, found=code)],
    )
