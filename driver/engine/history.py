"""What the journal says of the attempts that an operation has had: by these facts a further one is decided.

Part of `driver.engine`; imports `driver.core` and `store`. Works on a view, within one unit of the journal.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, TypeAlias

from driver.core.attempts import Phase
from driver.core.conclusion import Attempted, Outcome, attempted
from driver.core.contracts import Contract
from driver.core.landing import landed_by, unhurried
from driver.core.retry import Case, Clocks, First, MachineClock
from driver.core.revival import proof
from driver.engine.machine import Machine
from store.events import (
    ApprovalRequested,
    AttemptEnded,
    LateResult,
    OperationFailed,
    OperationNotExecuted,
    OperationStarted,
    OperationSucceeded,
    OperationUnknown,
)
from store.lifecycle import Effect, State
from store.records import (
    AttemptRecord,
    CommandRecord,
    EvidenceRecord,
    JsonObject,
    OperationId,
    OperationRecord,
    StoredEvent,
    moment,
)
from store.view import View
from store.wire import data_of

Word: TypeAlias = OperationFailed | OperationNotExecuted | OperationUnknown
"""What an operation can end with, and have another attempt after."""

_WORDS: Final = (OperationFailed.KIND, OperationNotExecuted.KIND, OperationUnknown.KIND)


def runs(view: View, record: OperationRecord) -> bool:
    """Whether an attempt of the operation is begun and not ended."""
    if record.state is not State.STARTED:
        return False
    attempts = view.attempts(record.operation_id)
    return bool(attempts) and attempts[-1].ended_at is None


def rests(view: View, record: OperationRecord) -> bool:
    """Whether the operation is between two attempts."""
    return record.state is State.STARTED and not runs(view, record)


def is_of_earlier_history(view: View, record: OperationRecord) -> bool:
    """Whether the operation is older than the present history: another life may have gone on with it."""
    return bool(view.base) and view.operation_events(record.operation_id)[0] <= view.base


def has_begun(record: OperationRecord, command: CommandRecord) -> bool:
    """Whether the attempt that a command asked for has begun: it is never begun twice."""
    assert command.accepted_seq is not None, "what asks for an attempt was accepted"
    return (record.started_seq or 0) > command.accepted_seq


def past(view: View, record: OperationRecord) -> tuple[Attempted, ...]:
    """Return the attempts that have ended, in order: without ending their operation, or before it went on."""
    if not record.attempt_count:
        return ()
    found: dict[int, Attempted] = {}
    begun = 0
    for event in _telling(view, record):
        if event.kind == OperationStarted.KIND:
            begun += 1
            continue
        data = data_of(event)
        if isinstance(data, AttemptEnded):
            found[data.attempt] = attempted(_whole(view, record, event.seq, data))
        elif isinstance(data, OperationFailed | OperationNotExecuted | OperationUnknown):
            if not begun or begun in found:
                continue  # it is about an earlier attempt, or about none, or says again what was said
            word = _own(view, record, event.seq, data)
            phase = None if isinstance(word, OperationNotExecuted) else word.phase
            found[begun] = Attempted(attempt=begun, phase=phase, outcome=word)
    cleared = _cleared(view, record)
    return tuple(replace(item, cleared=item.attempt in cleared) for item in found.values())


def last_word(view: View, record: OperationRecord) -> Outcome:
    """Return the newest word with which an operation that was revived has ended before."""
    words = [event for event in _telling(view, record) if event.kind in _WORDS]
    data = data_of(words[-1])
    assert isinstance(data, OperationFailed | OperationNotExecuted | OperationUnknown), "others end for good"
    return _own(view, record, words[-1].seq, data)


def clocks(view: View, machine: MachineClock) -> Clocks:
    """Return what time it is, by everything that can tell."""
    return Clocks(wall=view.now, newest=_newest(view), machine=machine)


def case(
    view: View,
    record: OperationRecord,
    contract: Contract,
    attempts: tuple[Attempted, ...],
    machine: MachineClock,
) -> Case:
    """Return the case for another attempt, after `attempts`."""
    made = view.attempts(record.operation_id)
    return Case(
        contract=contract,
        # the careful one of what was recorded and what is declared now
        write=record.write or contract.write,
        attempts=len(attempts),
        first=first_attempt(view, made[0]),
        # what somebody found out since does not count: nobody asked whether the attempt can still land; nor
        # does what was known of one before the journal was rolled back
        doubtful=any(item.outcome.effect is Effect.UNKNOWN for item in attempts)
        or any(item.started_seq <= view.base for item in made),
        now=clocks(view, machine),
        expires_at=None if record.expires_at is None else moment(record.expires_at),
    )


def landed_by_now(
    view: View, attempts: Sequence[AttemptRecord], late_result_s: float, machine: Machine
) -> datetime | None:
    """Return `landed_by` of these attempts, as the wall clock stands now: it may have been set forward."""
    ends: list[datetime] = []
    for attempt in attempts:
        end = landed_by([attempt], late_result_s)
        if end is None:
            return None
        ends.append(unhurried(end, attempt, first_attempt(view, attempt), clocks(view, machine())))
    return max(ends, default=None)


def late_success(view: View, record: OperationRecord) -> OperationSucceeded | None:
    """Return the receipt of an operation of which an attempt turned out to have happened; else None."""
    if record.effect is not Effect.OCCURRED:
        return None
    for item in view.evidence(record.operation_id):
        event = view.event(item.seq) if item.effect is Effect.OCCURRED else None
        if event is not None and event.kind == LateResult.KIND:
            return _restated(view, record, event)
    return None


def _restated(view: View, record: OperationRecord, event: StoredEvent) -> OperationSucceeded:
    """A recorded late answer as its operation's receipt."""
    late = data_of(event)
    assert isinstance(late, LateResult), "an event is what its kind says"
    result = late.result
    if late.result_truncated and (stored := view.result(record.operation_id)) is not None:
        result = json.loads(stored)
    return OperationSucceeded(
        result=result,
        receipt=late.receipt,
        attempts=record.attempt_count,
        attempt=None if late.attempt == record.attempt_count else late.attempt,
        duration_ms=duration_ms(view, record, late.attempt, moment(event.at)),
        phase=Phase.ANSWERED,
    )


def duration_ms(view: View, record: OperationRecord, attempt: int, end: datetime | None = None) -> int:
    """Return how long an attempt took until `end`, by default until now."""
    began = moment(view.attempts(record.operation_id)[attempt - 1].started_at)
    return round(((end or view.now) - began).total_seconds() * 1000)


def arguments_of(view: View, record: OperationRecord) -> JsonObject | None:
    """Return the arguments of a call; None once they were erased."""
    data = view.command_data(record.command_id)
    return None if data is None else data.arguments


def _telling(view: View, record: OperationRecord) -> Iterator[StoredEvent]:
    """Yield the events that begin and end attempts, in order."""
    for seq in view.operation_events(record.operation_id):
        event = view.event(seq)
        if event is not None and event.kind in (OperationStarted.KIND, AttemptEnded.KIND, *_WORDS):
            yield event


def _cleared(view: View, record: OperationRecord) -> frozenset[int]:
    """Return the attempts that evidence above a supervisor's proves not to have happened."""
    evidence, attempts = learned(view, record.operation_id), view.attempts(record.operation_id)
    cleared: set[int] = set()
    for item in attempts:
        words = [word for word in evidence if word.attempt == item.attempt]
        if proof(words, [item], since_seq=view.base).effect is Effect.NONE:
            cleared.add(item.attempt)
    return frozenset(cleared)


def learned(view: View, operation_id: OperationId) -> Sequence[EvidenceRecord]:
    """Return what was learned about an operation, in order, without what was only said again.

    Where nobody grants another attempt, the word before it is recorded anew: in a journal that was rolled
    back it must not pass for one of the present history.
    """
    words = view.evidence(operation_id)
    if not view.base:
        return words
    again: set[int] = set()
    asks = False
    for seq in view.operation_events(operation_id):
        event = view.event(seq)
        if event is None:
            continue
        if event.kind in (ApprovalRequested.KIND, OperationStarted.KIND):
            asks = event.kind == ApprovalRequested.KIND
        elif event.kind in _WORDS:
            if asks and not event.terminal:
                again.add(seq)
            asks = False
    return [word for word in words if word.seq not in again]


def _whole(view: View, record: OperationRecord, seq: int, data: AttemptEnded) -> AttemptEnded:
    """The event with its answer as it was before it was cut, while that is the operation's newest answer."""
    stored = view.result(record.operation_id) if data.result_truncated and record.result_seq == seq else None
    if stored is None:
        return data
    return replace(data, result=json.loads(stored), result_truncated=None, payload_digest=None)


def _own(view: View, record: OperationRecord, seq: int, word: Word) -> Word:
    """The word as it was before the journal put it in its place."""
    if isinstance(word, OperationNotExecuted):
        return replace(word, supersedes=None)
    own = replace(word, supersedes=None, child_run_id=None, child_ops_total=None, child_ops_unresolved=None)
    if isinstance(own, OperationUnknown) or not own.result_truncated or record.result_seq != seq:
        return own
    stored = view.result(record.operation_id)
    if stored is None:
        return own
    return replace(own, result=json.loads(stored), result_truncated=False, payload_digest=None)


def first_attempt(view: View, attempt: AttemptRecord) -> First:
    """Return an attempt, such as the first one, as its intent was recorded."""
    event = view.event(attempt.started_seq)
    data = None if event is None or event.body is None else data_of(event)
    machine = None
    if isinstance(data, OperationStarted) and data.machine_boot_id and data.machine_uptime_s is not None:
        machine = MachineClock(data.machine_boot_id, data.machine_uptime_s)
    return First(
        at=moment(attempt.started_at),
        idempotent=attempt.idempotent,
        key_carrier=attempt.key_carrier,
        dedupe_horizon_s=attempt.dedupe_horizon_s,
        machine=machine,
    )


def _newest(view: View) -> datetime:
    event = view.last_event()
    return view.now if event is None else moment(event.at)
