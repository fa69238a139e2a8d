"""Act: the way back. What the kill left unknown is looked for in the provider, and found.

Part of `driver.demo`; goes on where `driver.demo.killed` ends.
"""

from typing import Final

from driver.demo.killed import COMMAND_ID, RUN_ID, SUBJECT
from driver.demo.service import Service
from driver.demo.stage import COMMIT_TOOL, Stage
from driver.demo.tally import Count, Outcome, Row

TITLE: Final = "The way back: a probe finds the lost commit"
LOG_TOOL: Final = "git_log"
MATCHES: Final = "contains(join(' ', result.content[].text), arguments.message)"
"""JMESPath: is the commit's message in what `git_log` says?"""
PROBED: Final = "operation.probed"
SETTLED: Final = "operation.reconciled"


async def play(stage: Stage) -> Outcome:
    """Play the act, and count what it did."""
    tell, effectd = stage.narrator, stage.service
    await _declare(effectd)
    tell.step(f"The contract of {COMMIT_TOOL} is given a probe: a read that tells whether a commit is there.")
    tell.quote("effectd.toml", f'tool = "{LOG_TOOL}"\nmatches = "{MATCHES}"')
    tell.step("effectd is started again, and looks for what is unsettled and can be looked for.")
    async with effectd.daemon():
        await effectd.heard(SETTLED)
        events = await effectd.events()
        started = max(event.seq for event in events if event.kind == "driver.started")
        tell.command("effectd tail", await effectd.tail(started), cropped=True)
        tell.command(f"effectd show {COMMAND_ID}", await effectd.shown(COMMAND_ID))
        story = await effectd.story(COMMAND_ID)
        receipts = await effectd.receipts(RUN_ID)
    commits = await stage.repository.count(SUBJECT)
    tell.point(f"The effect {story.effect}, says a {story.effect_by}; nothing was run again to find out.")
    return Outcome(
        row=Row(
            act="found again",
            driver="effectd",
            asked=1,
            commits=Count(what=f'commits "{SUBJECT}", after the probe', expected=1, found=commits),
            receipts=Count(what=f"receipts of {COMMAND_ID}, after the probe", expected=1, found=receipts),
            known=f"{story.effect} ({story.effect_by})",
        ),
        checks=[
            Count(
                what="probes that were needed", expected=1, found=sum(item.kind == PROBED for item in events)
            ),
            Count(what="effects that a probe settled", expected=1, found=int(story.effect_by == "probe")),
        ],
    )


async def _declare(effectd: Service) -> None:
    await effectd.declare(
        {
            f"providers.git.tools.{LOG_TOOL}": {"effect": "read"},
            f"providers.git.tools.{COMMIT_TOOL}.probe": {
                "tool": LOG_TOOL,
                "arguments": {"repo_path": "=arguments.repo_path", "max_count": 20},
                "matches": MATCHES,
                "visible_after_s": 0,
            },
        }
    )
