"""What the simulation holds to be a lie: tried on histories that are written by hand."""

import json

from store.lifecycle import Effect, Source, State
from store.records import (
    Chain,
    CommandId,
    Digest,
    OperationId,
    OperationRecord,
    Origin,
    RunId,
    StoredEvent,
    Timestamp,
)
from tests.faults.simulation.truth import Truth

KEY = OperationId("op_1")
AT = Timestamp("2030-01-01T00:00:00.000000Z")
NONE = OperationRecord(
    operation_id=KEY,
    command_id=CommandId("cmd-1"),
    run_id=RunId("run-1"),
    origin=Origin.PLANE,
    tool="tools/proving",
    args_digest=Digest(""),
    write=True,
    identical="guard-unsettled",
    repeat=False,
    state=State.FAILED,
    effect=Effect.NONE,
    effect_by=Source.PROVIDER,
    best_effort=False,
    settled=True,
    guards=False,
    reason=None,
    error_means="none",
    receipt=None,
    attempt_count=1,
    metadata=None,
    accepted_seq=1,
    started_seq=1,
    result_seq=2,
    accepted_at=AT,
    started_at=AT,
    ended_at=AT,
    deadline_at=None,
    expires_at=None,
    parent_operation_id=None,
)
"""What failed, and is proven to have done nothing."""


def intent(seq: int, attempt: int) -> StoredEvent:
    """The intent of an attempt of the one operation."""
    return event(seq, "operation.started", attempt=attempt)


def event(seq: int, kind: str, **data: object) -> StoredEvent:
    """An event of the one operation."""
    body = {"kind": kind, "operation_id": KEY, "data": data}
    return StoredEvent(
        seq=seq,
        kind=kind,
        run_id=None,
        command_id=None,
        operation_id=KEY,
        at=AT,
        terminal=False,
        digest=Digest(""),
        chain=Chain(""),
        body=json.dumps(body).encode(),
    )


def rolled_back(*kept: StoredEvent, happened_in: int, later: StoredEvent | None = None) -> list[str]:
    """What is found where a journal that goes on from `kept` says `none`, and an attempt did happen."""
    truth = Truth()
    truth.hears(1, kept)
    truth.happens(KEY, happened_in)
    truth.lose({item.seq: item.body for item in kept})
    if later is not None:
        truth.hears(2, [later])
    truth.judge([NONE])
    return truth.broken


def test_a_none_from_before_a_rollback_speaks_of_the_attempts_until_then() -> None:
    """Of what is lost nobody can know; of all else a `none` is a lie as ever, one that is new above all."""
    failed = event(2, "operation.failed", effect="none")
    again = event(3, "operation.failed", effect="none")
    assert rolled_back(intent(1, 1), failed, happened_in=2, later=again) == []
    assert "I3: " in rolled_back(intent(1, 1), failed, happened_in=1)[0]
    assert "I3: " in rolled_back(intent(1, 1), happened_in=2, later=again)[0]
    verdict = event(3, "operation.reconciled", effect="none", actor="operator:1")
    assert "I3: " in rolled_back(intent(1, 1), failed, happened_in=2, later=verdict)[0]
