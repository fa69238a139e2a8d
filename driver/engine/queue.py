"""The operations that hold no slot, and when each of them is next to be looked at.

Part of `driver.engine`; pure: time arrives as an argument. Everything here can be read again from the
journal: the queue is lost with the process, and nothing else is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from store.records import CommandId, OperationId
from store.values import light


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request about which nobody has decided yet."""

    approval_id: str
    expires_at: datetime


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An operation without a slot. Its arguments stay in the journal until it has one."""

    operation_id: OperationId
    expires_at: datetime | None
    traceparent: str | None
    due_at: datetime | None = None
    """Before this it does not want a slot: it rests between two attempts."""
    unapproved: bool = False
    """A person will have to be asked: that takes a place of those that wait for one."""
    asked: Asked | None = None
    """It wants no slot before this is decided."""
    granted: str | None = None
    """The request that this process life heard a grant of."""
    revived_by: CommandId | None = None
    """The command that asks for another attempt of it, where it has ended."""


class Queue:
    """Operations that wait for a slot, in order, and those that rest, or wait for a person, first.

    Each is in it once.
    """

    def __init__(self) -> None:
        self._ready: dict[OperationId, Waiting] = {}
        self._resting: dict[OperationId, Waiting] = {}
        self._asking: dict[OperationId, Waiting] = {}

    def __len__(self) -> int:
        return len(self._ready) + len(self._resting) + len(self._asking)

    @property
    def depth(self) -> int:
        """How many operations are here that no person holds up."""
        return len(self._ready) + len(self._resting)

    @property
    def unapproved(self) -> int:
        """How many operations wait for a person, or will have to."""
        return len(self._asking) + sum(place.unapproved for place in self._ready.values())

    @property
    def crowded(self) -> bool:
        """Whether an operation waits for its slot right now."""
        return bool(self._ready)

    def put(self, place: Waiting) -> None:
        """Add an operation, behind those that are here."""
        if place.asked is not None:
            self._asking[place.operation_id] = place
        elif place.due_at is not None:
            self._resting[place.operation_id] = place
        else:
            self._ready[place.operation_id] = place

    def take(self) -> Waiting | None:
        """Remove and return the operation whose turn it is; None where none waits."""
        return self._ready.pop(next(iter(self._ready))) if self._ready else None

    def remove(self, operation_id: OperationId) -> Waiting | None:
        """Remove and return this operation; None where it is not here."""
        for part in (self._ready, self._resting, self._asking):
            if operation_id in part:
                return part.pop(operation_id)
        return None

    def grant(self, operation_id: OperationId, approval_id: str) -> bool:
        """Let an operation wait for a slot, now that its request was granted. False where it is not here."""
        place = self._asking.pop(operation_id, None)
        if place is None:
            return False
        self.put(granted(place, approval_id))
        return True

    def rouse(self, now: datetime) -> None:
        """Let those that have rested long enough wait for a slot."""
        due = [place for place in self._resting.values() if place.due_at is not None and place.due_at <= now]
        for place in sorted(due, key=lambda place: place.due_at or now):
            del self._resting[place.operation_id]
            self._ready[place.operation_id] = place

    def expired(self, now: datetime) -> list[Waiting]:
        """Return those that are too late: their commands, or the requests about them. They stay here."""
        return [place for place in self._all() if (end := _end(place)) is not None and end <= now]

    def next_moment(self) -> datetime | None:
        """Return when the next of them expires or has rested; None where nothing is to come."""
        moments = [end for place in self._all() if (end := _end(place)) is not None]
        moments += [place.due_at for place in self._resting.values() if place.due_at is not None]
        return min(moments, default=None)

    def _all(self) -> Iterator[Waiting]:
        yield from self._ready.values()
        yield from self._resting.values()
        yield from self._asking.values()


def granted(place: Waiting, approval_id: str) -> Waiting:
    """Return the place of an operation whose request was granted."""
    return replace(place, unapproved=False, asked=None, granted=approval_id)


def _end(place: Waiting) -> datetime | None:
    """When it is too late for the operation."""
    ends = (place.expires_at, None if place.asked is None else place.asked.expires_at)
    return min((end for end in ends if end is not None), default=None)
