"""What the journal says of the attempts that an operation has had: by these facts a further one is decided.

Part of `driver.engine`; imports `driver.core` and `store`. Works on a view, within one unit of the journal.
"""

import json
from dataclasses import replace
from datetime import datetime

from driver.core.attempts import Phase
from driver.core.conclusion import Attempted, attempted
from driver.core.contracts import Contract
from driver.core.retry import Case, Clocks, First, MachineClock
from store.events import AttemptEnded, EventData, LateResult, OperationStarted, OperationSucceeded
from store.lifecycle import Effect, State
from store.records import AttemptRecord, OperationRecord, StoredEvent, moment
from store.view import View
from store.wire import from_json


def runs(view: View, record: OperationRecord) -> bool:
    """Whether an attempt of the operation is begun and not ended."""
    if record.state is not State.STARTED:
        return False
    attempts = view.attempts(record.operation_id)
    return bool(attempts) and attempts[-1].ended_at is None


def rests(view: View, record: OperationRecord) -> bool:
    """Whether the operation is between two attempts."""
    return record.state is State.STARTED and not runs(view, record)


def past(view: View, record: OperationRecord) -> tuple[Attempted, ...]:
    """Return the attempts that have ended without ending the operation, in order."""
    if not record.attempt_count:
        return ()
    found: list[Attempted] = []
    for seq in view.operation_events(record.operation_id):
        event = view.event(seq)
        if event is not None and event.kind == AttemptEnded.KIND:
            data = data_of(event)
            assert isinstance(data, AttemptEnded), "an event is what its kind says"
            found.append(attempted(_whole(view, record, seq, data)))
    return tuple(found)


def case(
    view: View,
    record: OperationRecord,
    contract: Contract,
    attempts: tuple[Attempted, ...],
    machine: MachineClock,
) -> Case:
    """Return the case for another attempt, after `attempts`."""
    first = view.attempts(record.operation_id)[0]
    return Case(
        contract=contract,
        # the careful one of what was recorded and what is declared now
        write=record.write or contract.write,
        attempts=len(attempts),
        first=_first(view, first),
        doubtful=any(item.doubtful for item in attempts),
        now=Clocks(wall=view.now, newest=_newest(view), machine=machine),
        expires_at=None if record.expires_at is None else moment(record.expires_at),
    )


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


def _whole(view: View, record: OperationRecord, seq: int, data: AttemptEnded) -> AttemptEnded:
    """The event with its answer as it was before it was cut, while that is the operation's newest answer."""
    if not data.result_truncated or record.result_seq != seq:
        return data
    stored = view.result(record.operation_id)
    if stored is None:
        return data
    return replace(data, result=json.loads(stored), result_truncated=None, payload_digest=None)


def _first(view: View, attempt: AttemptRecord) -> First:
    event = view.event(attempt.started_seq)
    data = None if event is None else data_of(event)
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


def data_of(event: StoredEvent) -> EventData:
    """Return what an event of an operation that has not ended says."""
    assert event.body is not None, "the events of an operation that has not ended are kept"
    return from_json(event.kind, json.loads(event.body)["data"])
