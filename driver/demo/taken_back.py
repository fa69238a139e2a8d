"""Act: what nobody can look up. A best-effort verdict, an operator's word above it, and a commit taken back.

Part of `driver.demo`.
"""

from typing import Final

from driver.demo.found_again import SETTLED
from driver.demo.narrator import counted
from driver.demo.repository import GIT_ENV
from driver.demo.stage import Stage
from driver.demo.tally import Count, Outcome, Row

TITLE: Final = "Without a probe: best effort, an operator's word, and a commit taken back"
RUN_ID: Final = "run-4"
BRANCH_COMMAND: Final = "cmd-4"
BRANCH_TOOL: Final = "git_create_branch"
BRANCH: Final = "release"
COMMIT_RUN_ID: Final = "run-5"
COMMIT_COMMAND: Final = "cmd-5"
SUBJECT: Final = "Ship the release"
REVERT: Final = f'Revert "{SUBJECT}"'
COMMIT: Final = 'git commit --quiet --message "$1" && printf %s "$(git rev-parse HEAD)"'
"""For a shell: commits, and prints the commit's name, which is the receipt."""


async def play(stage: Stage) -> Outcome:
    """Play the act, and count what it did."""
    tell, effectd, repository = stage.narrator, stage.service, stage.repository
    await _declare(stage)
    by_supervisor, by_operator = await _settle(stage)
    await repository.stage("RELEASE", "1.0\n")
    async with effectd.daemon():
        tell.step(f'A program commits "{SUBJECT}", and its contract says how that is taken back.')
        said = await effectd.give(
            COMMIT_COMMAND, COMMIT_RUN_ID, "commit", {"message": SUBJECT}, wait=True, provider="repo"
        )
        tell.command(f"effectd plane send repo/commit --id {COMMIT_COMMAND} --wait …", said)
        operation_id = (await effectd.story(COMMIT_COMMAND)).operation_id
        for _ in range(2):
            said = await effectd.compensated(operation_id)
            tell.command(f"effectd compensate {operation_id}", said)
            await effectd.heard("operation.compensated")
        receipts = await effectd.receipts(COMMIT_RUN_ID)
    reverts, commits = await repository.count(REVERT), await repository.count(SUBJECT)
    tell.point(f"Asked twice, taken back once: {counted(reverts, 'commit')} {REVERT}.")
    return Outcome(
        row=Row(
            act="taken back",
            driver="effectd",
            asked=1,
            commits=Count(what=f'commits "{SUBJECT}"', expected=1, found=commits),
            receipts=Count(
                what=f"receipts of {COMMIT_COMMAND}, of its compensation, and of asking twice",
                expected=4,
                found=receipts,
            ),
            known="occurred, then compensated",
        ),
        checks=[
            Count(what=f"commits {REVERT}", expected=1, found=reverts),
            Count(what="verdicts that are marked best-effort", expected=1, found=by_supervisor),
            Count(what="verdicts of an operator above it", expected=1, found=by_operator),
            Count(what=f"branches named {BRANCH}", expected=1, found=await repository.branches(BRANCH)),
        ],
    )


async def _settle(stage: Stage) -> tuple[int, int]:
    """Lose an answer that nobody can look for; return how often each word about it was the last."""
    tell, effectd, repository = stage.narrator, stage.service, stage.repository
    async with effectd.daemon(lose=f"git/{BRANCH_TOOL}"):
        tell.step(f"A drill: the agent's branch {BRANCH!r} is made, and the answer is lost on purpose.")
        arguments = {"repo_path": str(repository.folder), "branch_name": BRANCH}
        said = await effectd.give(BRANCH_COMMAND, RUN_ID, BRANCH_TOOL, arguments, wait=True)
        tell.command(f"effectd plane send git/{BRANCH_TOOL} --id {BRANCH_COMMAND} --wait …", said)
        tell.step("No probe is declared for it. The supervisor says what it can, and marks it best-effort:")
        await effectd.heard(SETTLED, command_id=BRANCH_COMMAND)
        judged = await effectd.story(BRANCH_COMMAND)
        sure = "best effort" if judged.best_effort else "proof"
        tell.quote("effectd show", f"effect {judged.effect}, by {judged.effect_by}, {sure}")
        tell.step("That closes the listing and allows nothing. An operator looks, and says so:")
        said = await effectd.reconciled(judged.operation_id, "occurred", f"git branch lists {BRANCH}")
        tell.command(f'effectd reconcile {judged.operation_id} --effect occurred --note "…"', said)
        told = await effectd.story(BRANCH_COMMAND)
        tell.point(f"The effect {told.effect}, says the {told.effect_by}; a supervisor cannot overrule that.")
    return int(judged.best_effort), int((told.effect, told.effect_by) == ("occurred", "operator"))


async def _declare(stage: Stage) -> None:
    folder = str(stage.repository.folder)
    await stage.service.declare(
        {
            "supervisor": {"interval_s": 0.5, "min_age_s": 0},
            "providers.repo": {"kind": "command", "cwd": folder, "roots": [folder]},
            "providers.repo.env": dict(GIT_ENV),
            "providers.repo.tools.commit": {
                "argv": ["sh", "-c", COMMIT, "commit", "=arguments.message"],
                "receipt": "result.stdout",
            },
            "providers.repo.tools.commit.compensate": {
                "tool": "revert",
                "arguments": {"commit": "=receipt"},
            },
            "providers.repo.tools.revert": {"argv": ["git", "revert", "--no-edit", "=arguments.commit"]},
        }
    )
