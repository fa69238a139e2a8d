"""Mechanisms that are taken away in a simulated daemon, one at a time: the lane must notice each.

Only for a process that plays worlds and does nothing else.
"""

import os
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from driver.core.answers import Repeat
from driver.core.commands import ToolCallData
from driver.core.session import LinkSession
from driver.core.signals import FenceReason, Order
from driver.engine.assignments import load
from driver.engine.dispatcher import Dispatcher
from driver.engine.intake import Intake
from driver.engine.lookalikes import Lookalikes
from driver.engine.posture import Posture
from driver.engine.queue import Waiting
from driver.engine.running import Started
from driver.engine.terms import Terms
from driver.engine.waits import give_up
from store.records import OperationRecord, Origin
from store.view import View
from store.writer import Writer
from tests.system.patches import lost_is_not_executed, told_before_commit


@contextmanager
def swapped(owner: Any, name: str, value: object) -> Generator[None]:  # noqa: ANN401 - a class or a module
    """Let an attribute be another one while the block lasts."""
    original: object = owner.__dict__[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextmanager
def kept(owner: Any, *names: str) -> Generator[None]:  # noqa: ANN401 - likewise
    """Put attributes back after the block, whoever changed them."""
    originals: dict[str, object] = {name: owner.__dict__[name] for name in names}
    try:
        yield
    finally:
        for name, value in originals.items():
            setattr(owner, name, value)


@contextmanager
def intent_after_effect() -> Generator[None]:
    """Call first, and record the intent when the answer is there."""

    async def run_waiting(self: Dispatcher, place: Waiting) -> None:
        assignment = await self._journal.read(lambda view: load(view, place, self._terms))
        if assignment is None:
            await self._journal.transact(lambda tx: give_up(tx, place))
            self._release(place.operation_id, None, place)
            return
        running = self._enter(assignment, place)
        refusal = await self._caller.prepare(running)
        running.deadline_at = assignment.deadline(self._clock())
        report = await self._caller.call(running)
        step = await self._journal.transact(lambda tx: self._steps.begin(tx, running, refusal))
        if isinstance(step, Started):
            await self._end(running, running.ended(self._judge(running, report, 0)))
        else:
            self._leave(running, step)

    def no_slots(self: Intake, wanted: int) -> int:
        del self, wanted
        return 0

    with swapped(Dispatcher, "_run_waiting", run_waiting), swapped(Intake, "_take_slots", no_slots):
        yield


@contextmanager
def told_before_durable() -> Generator[None]:
    """Tell everybody of a commit before it is made."""
    with kept(Writer, "__init__"):
        told_before_commit()
        yield


@contextmanager
def dedupe_in_memory() -> Generator[None]:
    """Know only those commands that this life has taken: one that comes again after a crash runs again."""
    original = Intake.deliver

    async def deliver(self: Intake, frames: Any, origin: Origin = Origin.PLANE) -> Any:  # noqa: ANN401
        mine: set[str] = self.__dict__.setdefault("taken", set())
        answers = await original(self, frames, origin)
        for frame, answer in zip(frames, answers, strict=True):
            offer = self._offers.read(frame)
            data = offer.candidate.data
            forgotten = isinstance(answer, Repeat) and frame.command_id not in mine
            mine.add(frame.command_id)
            if forgotten and isinstance(data, ToolCallData) and self._take_slots(1):
                assignment = self._assignment(offer, data, origin, None)
                self._dispatcher.run_started(assignment, assignment.deadline(self._dispatcher._clock()), 0)
        return answers

    with swapped(Intake, "deliver", deliver):
        yield


@contextmanager
def unconfirmed() -> Generator[None]:
    """Act on what an earlier life accepted before the plane has confirmed the history."""

    def may_dispatch(self: Posture) -> bool:
        return not self.draining and self.fence is None

    with swapped(Posture, "may_dispatch", property(may_dispatch)):
        yield


@contextmanager
def lost_is_none() -> Generator[None]:
    """Say of a call whose outcome died with its process that it never happened."""
    with kept(import_module("driver.engine.recovery"), "lost"):
        lost_is_not_executed()
        yield


@contextmanager
def any_retry() -> Generator[None]:
    """Let rule R allow everything."""
    with ExitStack() as stack:
        for name in ("driver.core.retry", "driver.core.revival"):
            stack.enter_context(swapped(import_module(name), "permit", _allow))
        yield


@contextmanager
def retried_twins() -> Generator[None]:
    """Let what was sent again be tried again, too."""

    def of_attempt(self: Lookalikes, view: View, record: OperationRecord, terms: Terms) -> None:
        del self, view, record, terms

    with swapped(Lookalikes, "of_attempt", of_attempt):
        yield


@contextmanager
def believed() -> Generator[None]:
    """Go on where the plane's welcome says that it knows another history."""

    def confirm(self: LinkSession, reason: FenceReason, detail: str) -> list[Order]:
        del reason, detail
        assert self._welcome is not None, "it has just come"
        return self._confirm(self._welcome)

    with swapped(LinkSession, "_fence", confirm):
        yield


@contextmanager
def never_superseded() -> Generator[None]:
    """Connect again where the plane has said that another life has taken over."""
    with ExitStack() as stack:
        for name in ("driver.core.session", "driver.link.link"):
            stack.enter_context(swapped(import_module(name), "CLOSE_SUPERSEDED", -1))
        yield


@contextmanager
def unlocked() -> Generator[None]:
    """Let anybody into the state folder."""

    def open_only(path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    with swapped(import_module("store.folder"), "_lock", open_only):
        yield


def _allow(case: object, at: datetime) -> None:
    del case, at


@dataclass(frozen=True, slots=True)
class Control:
    """How a mechanism is taken away, and in which words the world's judge then says what is broken."""

    weaken: Callable[[], AbstractContextManager[None]]
    marks: tuple[str, ...]

    def noticed(self, broken: Iterable[str]) -> list[str]:
        """Return what was broken by that: a world that fell over for want of it shows nothing."""
        return [text for text in broken if any(mark in text for mark in self.marks)]


CONTROLS: Final[Mapping[str, Control]] = MappingProxyType(
    {
        "intent after effect": Control(intent_after_effect, (" I1: ",)),
        "told before durable": Control(told_before_durable, (" I5: ",)),
        "dedupe in memory": Control(dedupe_in_memory, (" I2: ",)),
        "acts before the welcome": Control(unconfirmed, (" I9: ",)),
        "lost is not executed": Control(lost_is_none, (" I3: ",)),
        "any retry": Control(any_retry, (" I2: ",)),
        "a retry is no resend": Control(retried_twins, (" one call of a tool ",)),
        "another history is no matter": Control(believed, (" intent_ack: ", ": its chain is ")),
        "4001 is a close like any other": Control(never_superseded, (" I10: ",)),
        "a folder without a lock": Control(unlocked, (" I10: ",)),
    }
)
