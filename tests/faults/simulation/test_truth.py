"""What the simulation holds to be a lie: tried on histories that are written by hand."""

import json
from dataclasses import replace

from store.lifecycle import Effect, State
from store.records import Chain, Digest, OperationId, StoredEvent
from tests.driver.core.samples import AT, ENDED
from tests.faults.simulation.truth import Truth

KEY = OperationId("op_1")
NONE = replace(ENDED, operation_id=KEY, state=State.FAILED, effect=Effect.NONE, error_means="none")
"""What failed, and is proven to have done nothing."""


def intent(seq: int, attempt: int) -> StoredEvent:
    """The intent of an attempt of the one operation."""
    return event(seq, "operation.started", attempt=attempt)


def event(seq: int, kind: str, **data: object) -> StoredEvent:
    """An event of the one operation."""
    body = {"seq": seq, "kind": kind, "operation_id": KEY, "data": data}
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


def told(*events: StoredEvent, happened: bool, erased: bool = False, attempt: int = 1) -> list[str]:
    """What is found where callers were told of events, and an attempt happened after that, or did not."""
    truth = Truth()
    truth.hears(1, events)
    if happened:
        truth.happens(KEY, attempt)
    truth.judge([] if erased else [replace(ENDED, operation_id=KEY)])
    return truth.broken


def test_what_an_event_said_must_have_been_true_though_it_was_said_otherwise_since() -> None:
    """A `none` about an attempt that happened is a lie, also where the operation is gone from the journal."""
    failed = event(2, "operation.failed", effect="none")
    other = event(2, "operation.attempt_ended", effect="none", attempt=2)
    for erased in (False, True):
        assert "attempt 1 of op_1 happened" in told(intent(1, 1), failed, happened=True, erased=erased)[0]
    assert told(intent(1, 1), failed, happened=False, erased=True) == []
    assert told(intent(1, 1), other, happened=True) == []


def test_a_verdict_speaks_of_the_attempts_until_the_intent_that_it_names() -> None:
    """Whoever looked before the second attempt had begun says nothing of that; without a name, of both."""
    begun = (intent(1, 1), intent(2, 2))
    verdict = event(3, "operation.reconciled", effect="none", actor="probe:p/find", started_seq=1)
    of_both = event(3, "operation.reconciled", effect="none", actor="probe:p/find", started_seq=2)
    unnamed = event(3, "operation.reconciled", effect="none", actor="operator:1", started_seq=None)
    assert told(*begun, verdict, happened=True, attempt=2) == []
    assert "attempt 1 of op_1 happened" in told(*begun, verdict, happened=True)[0]
    assert "attempt 2 of op_1 happened" in told(*begun, of_both, happened=True, attempt=2)[0]
    assert "attempt 2 of op_1 happened" in told(*begun, unnamed, happened=True, attempt=2)[0]


def test_what_an_event_says_to_have_happened_has_happened_by_then() -> None:
    """That it happens afterwards makes an `occurred` no truer; a supervisor only guesses."""
    verdict = event(2, "operation.reconciled", effect="occurred", actor="operator:1", supersedes=1)
    guess = event(2, "operation.reconciled", effect="occurred", actor="supervisor:bold")
    assert "it has not happened" in told(intent(1, 1), verdict, happened=True)[0]
    assert told(intent(1, 1), guess, happened=True) == []
