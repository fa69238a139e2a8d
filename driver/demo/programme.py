"""The programme: the acts in their order, and how they are played.

Part of `driver.demo`. A new act is a module with `TITLE` and `play`, and one line in `ACTS`.
"""

import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, cast

import anyio

from driver.demo import found_again, killed, old_way, ordinary_day, taken_back
from driver.demo.narrator import Narrator
from driver.demo.stage import Stage, stage
from driver.demo.tally import Outcome
from driver.hangup import hangup

INTERRUPTED: Final = 128
"""A shell's exit code for a signal is this and the signal's number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One act: its heading, and what plays it and returns what was counted."""

    title: str
    play: Callable[[Stage], Awaitable[Outcome]]


ACTS: Final = (
    Act(title=ordinary_day.TITLE, play=ordinary_day.play),
    Act(title=old_way.TITLE, play=old_way.play),
    Act(title=killed.TITLE, play=killed.play),
    Act(title=found_again.TITLE, play=found_again.play),
    Act(title=taken_back.TITLE, play=taken_back.play),
)


@dataclass(slots=True)
class Played:
    """How far the demo got: what the acts ended with, and the signal that ended the demo, if any."""

    outcomes: list[Outcome]
    interrupted: signal.Signals | None = None


async def perform(narrator: Narrator, acts: Sequence[Act] = ACTS) -> Played:
    """Play the acts on a stage of their own, which is gone when this returns, also after Ctrl-C.

    Raises a `DemoError` where the story cannot go on.
    """
    played = Played(outcomes=[])
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_heed_signals, played, tasks.cancel_scope)
            await _play(narrator, acts, played)
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise _first(group) from group
    return played


async def _heed_signals(played: Played, scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, *hangup()) as signals:
        async for number in signals:
            played.interrupted = signal.Signals(number)
            scope.cancel()


def _first(error: BaseException) -> BaseException:
    """Return what went wrong, without the groups that say where it was awaited."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


async def _play(narrator: Narrator, acts: Sequence[Act], played: Played) -> None:
    narrator.title(
        "effectd demo",
        "Real processes, a real MCP server, a real git repository; nothing leaves this machine.",
    )
    async with stage(narrator) as made:
        for number, act in enumerate(acts, 1):
            narrator.act(number, act.title)
            played.outcomes.append(await act.play(made))
        narrator.history(await made.repository.commits())
    narrator.table(played.outcomes)
    narrator.verdict(played.outcomes)
    narrator.onward(
        ("effectd init --from .mcp.json", "your own agent's tools, behind effectd"),
        ("docs/first-steps.md", "a story like this one, by hand"),
    )
