"""What the journal knows about one run, read in one moment: everything that a wall is made of.

Part of `supervisor`; imports `store`. Reading is all that happens here, in the journal's thread, so it is
bounded; what may be shown of it, and how much, is decided by `supervisor.wall` elsewhere.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol, TypeAlias

from store.delegation import Delegation
from store.events import (
    AttemptEnded,
    LateResult,
    OperationFailed,
    OperationProbed,
    OperationUnknown,
)
from store.records import (
    AttemptRecord,
    JsonObject,
    JsonValue,
    ObservationRecord,
    OperationRecord,
    RunId,
    RunRecord,
    StoredData,
    moment,
)
from store.view import View
from store.wire import frame_of

OPERATIONS_MAX: Final = 64
"""Operations on one wall: a model must write a line about each, and answers have limits of their own."""
NEIGHBOURS_MAX: Final = 24
"""Settled operations of the run that are shown beside them."""
UNSETTLED_MAX: Final = 1_024
"""Unsettled operations of a run that are looked at in one moment."""
EVENTS_MAX: Final = 32
"""Events of one operation that are read: its newest."""

TELLING: Final = frozenset(
    event.KIND for event in (AttemptEnded, OperationFailed, OperationUnknown, LateResult, OperationProbed)
)
"""The kinds of event that say more about an unsettled operation than its record does."""

Awaits: TypeAlias = Callable[[View, OperationRecord], bool]
"""Whether probes of an operation are still to come: it stays out of the wall until then."""


@dataclass(frozen=True, slots=True)
class Said:
    """One event about an operation: what it says, as recorded."""

    kind: str
    at: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One unsettled operation, and all that was recorded about it."""

    record: OperationRecord
    data: StoredData | None
    attempts: tuple[AttemptRecord, ...]
    said: tuple[Said, ...]
    observed: tuple[ObservationRecord, ...]
    children: Delegation | None
    """The runs that it was delegated to, as of now."""

    @property
    def observed_after(self) -> bool:
        """Whether somebody has looked since its newest attempt ended."""
        return any(
            item.side == "after" and item.attempt == self.record.attempt_count for item in self.observed
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """One run as of one moment."""

    run: RunRecord
    now: datetime
    subjects: tuple[Subject, ...]
    """The oldest unsettled operations that wait for no probe, oldest first."""
    waiting: int
    """How many that are older than the last of these wait for a probe."""
    is_open: bool
    """Whether anything in the run has not ended."""
    newest_end: datetime | None
    """When the youngest of the unsettled operations ended."""
    neighbours: tuple[OperationRecord, ...]
    """The newest settled operations, oldest first."""

    def old_enough_at(self, min_age_s: float) -> datetime | None:
        """Return when its youngest operation reaches that age; None where it has, or the clock went back."""
        if self.newest_end is None or self.newest_end > self.now:
            return None
        at = self.newest_end + timedelta(seconds=min_age_s)
        return at if at > self.now else None


class Shown(Protocol):
    """What anybody may see of one operation."""

    @property
    def arguments(self) -> JsonObject | None:
        """The arguments without what is withheld; None once they were erased."""
        ...

    def cleared(self, value: JsonValue) -> JsonValue:
        """Return a value that somebody wrote about the call, without what it quotes of what is withheld."""
        ...


class Disclosure(Protocol):
    """Who knows what the contracts withhold."""

    def __call__(self, record: OperationRecord, data: StoredData | None) -> Shown:
        """Return what may be shown of the operation. Does no I/O."""
        ...


def gather(view: View, run_id: RunId, awaits: Awaits) -> Material | None:
    """Return what the journal knows about the run; None where there is none."""
    run = view.run(run_id)
    if run is None:
        return None
    unsettled = view.unsettled_of_run(run_id, UNSETTLED_MAX)
    eligible: list[OperationRecord] = []
    waiting = 0
    for record in unsettled:
        if awaits(view, record):
            waiting += 1
        elif len(eligible) < OPERATIONS_MAX:
            eligible.append(record)
        else:
            break
    ends = [moment(record.ended_at) for record in unsettled if record.ended_at is not None]
    return Material(
        run=run,
        now=view.now,
        subjects=tuple(_subject(view, record) for record in eligible),
        waiting=waiting,
        is_open=view.has_open_operations(run_id),
        newest_end=max(ends, default=None),
        neighbours=view.settled_of_run(run_id, NEIGHBOURS_MAX)[::-1],
    )


def _subject(view: View, record: OperationRecord) -> Subject:
    said: list[Said] = []
    for seq in view.operation_events(record.operation_id)[-EVENTS_MAX:]:
        event = view.event(seq)
        if event is not None and event.body is not None and event.kind in TELLING:
            said.append(Said(event.kind, event.at, frame_of(event.body)["data"]))
    return Subject(
        record=record,
        data=view.command_data(record.command_id),
        attempts=view.attempts(record.operation_id),
        said=tuple(said),
        observed=view.observations(record.operation_id),
        children=view.delegation(record.operation_id),
    )
