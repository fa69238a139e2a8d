"""The operations that hold no slot, and when each of them is next to be looked at.

Part of `driver.engine`; pure: time arrives as an argument. Everything here can be read again from the
journal: the queue is lost with the process, and nothing else is.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from store.records import OperationId


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An operation without a slot. Its arguments stay in the journal until it has one."""

    operation_id: OperationId
    expires_at: datetime | None
    traceparent: str | None
    due_at: datetime | None = None
    """Before this it does not want a slot: it rests between two attempts."""


class Queue:
    """Operations that wait for a slot, in order, and those that rest first. Each is in it once."""

    def __init__(self) -> None:
        self._ready: dict[OperationId, Waiting] = {}
        self._resting: dict[OperationId, Waiting] = {}

    @property
    def depth(self) -> int:
        """How many operations are here."""
        return len(self._ready) + len(self._resting)

    @property
    def crowded(self) -> bool:
        """Whether an operation waits for its slot right now."""
        return bool(self._ready)

    def put(self, place: Waiting) -> None:
        """Add an operation, behind those that are here."""
        (self._ready if place.due_at is None else self._resting)[place.operation_id] = place

    def take(self) -> Waiting | None:
        """Remove and return the operation whose turn it is; None where none waits."""
        return self._ready.pop(next(iter(self._ready))) if self._ready else None

    def remove(self, operation_id: OperationId) -> Waiting | None:
        """Remove and return this operation; None where it is not here."""
        return self._ready.pop(operation_id, None) or self._resting.pop(operation_id, None)

    def rouse(self, now: datetime) -> None:
        """Let those that have rested long enough wait for a slot."""
        due = [place for place in self._resting.values() if place.due_at is not None and place.due_at <= now]
        for place in sorted(due, key=lambda place: place.due_at or now):
            del self._resting[place.operation_id]
            self._ready[place.operation_id] = place

    def expired(self, now: datetime) -> list[Waiting]:
        """Return those whose commands have expired; they stay here."""
        return [place for place in self._all() if place.expires_at is not None and place.expires_at <= now]

    def next_moment(self) -> datetime | None:
        """Return when the next of them expires or has rested; None where nothing is to come."""
        moments = [place.expires_at for place in self._all() if place.expires_at is not None]
        moments += [place.due_at for place in self._resting.values() if place.due_at is not None]
        return min(moments, default=None)

    def _all(self) -> Iterator[Waiting]:
        yield from self._ready.values()
        yield from self._resting.values()
