"""Mechanisms that are taken away, one at a time: the machine that is named with each must notice."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

from driver.core.stream import Stream
from store.events import Draft
from store.head import Ledger
from store.lifecycle import RANK, Source
from store.outline import Outline
from store.records import OperationId
from tests.faults.simulation.controls import swapped


def wrong_rank() -> AbstractContextManager[None]:
    """Let a supervisor's guess count more than an operator's word."""
    ranks = MappingProxyType({**RANK, Source.SUPERVISOR: 3, Source.OPERATOR: 1})
    return swapped(import_module("store.lifecycle"), "RANK", ranks)


def old_wall() -> AbstractContextManager[None]:
    """Record a verdict about whatever the wall showed, whatever has happened since."""

    def as_shown(tx: Any, entry: Any) -> bool:  # noqa: ANN401 - whatever the original takes
        record = tx.operation(entry.operation_id)
        return record is not None and record.ended_at is not None

    return swapped(import_module("supervisor.recording"), "_is_as_shown", as_shown)


def pruned_unacknowledged() -> AbstractContextManager[None]:
    """Take every event for acknowledged."""
    return swapped(Outline, "acked_seq", property(lambda self: self.last_seq))


def future_acknowledged() -> AbstractContextManager[None]:
    """Believe the plane that acknowledges what it was never sent."""

    def was_sent(self: Stream, seq: int) -> bool:
        del self, seq
        return True

    return swapped(Stream, "was_sent", was_sent)


def call_unnoticed() -> AbstractContextManager[None]:
    """Look at no parent again when a later call names it."""

    def nothing(ledger: Ledger, parent: OperationId) -> Iterator[Draft]:
        del ledger, parent
        return iter(())

    return swapped(import_module("store.consequences"), "of_call", nothing)


def idle_child_free() -> AbstractContextManager[None]:
    """Know of nobody who relies on what an operation did not do."""

    def nobody(ledger: Ledger, operation_id: OperationId) -> None:
        del ledger, operation_id

    return swapped(import_module("store.view"), "idle_parent", nobody)


@dataclass(frozen=True, slots=True)
class Control:
    """How a mechanism is taken away, which machine must notice, and what that says then."""

    weaken: Callable[[], AbstractContextManager[None]]
    machine: str
    word: str


CONTROLS: Final[MappingProxyType[str, Control]] = MappingProxyType(
    {
        "wrong evidence rank": Control(wrong_rank, "evidence", "another word counts"),
        "verdict about an old wall": Control(old_wall, "journal", "a verdict about another state of things"),
        "pruned before the ack": Control(
            pruned_unacknowledged, "journal", "was pruned and is not acknowledged"
        ),
        "none that outlives its children": Control(
            call_unnoticed, "delegation", "is none, and its children are"
        ),
        "child of a none tried again": Control(idle_child_free, "delegation", "may be tried again, and"),
        "ack of the future believed": Control(future_acknowledged, "lying plane", "was acknowledged unsent"),
    }
)
