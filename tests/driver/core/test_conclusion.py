"""The receipt holds for all attempts: nothing that may have left is ever `not_executed`."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.core.conclusion import Attempted, Outcome, attempted, conclude, ended
from store.events import OperationFailed, OperationNotExecuted, OperationSucceeded, OperationUnknown
from store.lifecycle import Effect
from store.wire import as_json, from_json

EXPIRED = OperationNotExecuted(reason="expired")


def lost(attempt: int) -> Attempted:
    """Nobody knows what became of it."""
    outcome = OperationUnknown(
        reason="execution_timeout", phase="written", attempts=attempt, message="no answer", receipt={"t": 1}
    )
    return Attempted(attempt=attempt, phase="written", outcome=outcome)


def refused(attempt: int, means: str = "none") -> Attempted:
    """The provider answered with an error."""
    outcome = OperationFailed(
        effect=Effect.NONE if means == "none" else Effect.UNKNOWN,
        error={"code": "-32000", "message": f"no {attempt}"},
        error_means=means,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        result={"error": {"code": -32000}},
        receipt="r",
        attempts=attempt,
        duration_ms=3,
        phase="answered",
    )
    return Attempted(attempt=attempt, phase="answered", outcome=outcome)


def unsent(attempt: int) -> Attempted:
    """Nothing left."""
    outcome = OperationNotExecuted(reason="connect_failed", message="refused")
    return Attempted(attempt=attempt, phase="connecting", outcome=outcome)


def done(attempt: int) -> Attempted:
    """The provider did it."""
    outcome = OperationSucceeded(result={}, receipt=None, attempts=attempt, duration_ms=2, phase="answered")
    return Attempted(attempt=attempt, phase="answered", outcome=outcome)


def test_one_attempt_speaks_for_itself() -> None:
    """Without a second attempt there is nothing to add to its word."""
    for only in (lost(1), refused(1), unsent(1), done(1)):
        assert conclude([only]) is only.outcome or conclude([only]) == only.outcome


def test_without_an_attempt_the_reason_is_the_receipt() -> None:
    """What never began was not executed."""
    assert conclude([], EXPIRED) is EXPIRED


def test_attempts_that_sent_nothing_are_not_executed() -> None:
    """And the newest reason is told."""
    assert conclude([unsent(1), unsent(2)]) == unsent(2).outcome
    assert conclude([unsent(1)], EXPIRED) is EXPIRED


def test_what_may_have_happened_stays_unknown_whatever_came_later() -> None:
    """A later attempt that sent nothing says nothing about the earlier one."""
    last = conclude([lost(1), unsent(2)], EXPIRED)
    assert isinstance(last, OperationUnknown)
    assert (last.reason, last.attempts) == ("execution_timeout", 2)


def test_an_answer_is_never_turned_into_not_executed() -> None:
    """A provider that answered was reached: its answer is the receipt, and names its attempt."""
    last = conclude([refused(1), unsent(2), unsent(3)])
    assert isinstance(last, OperationFailed)
    assert (last.effect, last.attempt, last.attempts, last.error["message"]) == (Effect.NONE, 1, 3, "no 1")


@pytest.mark.parametrize("means", ["none", "reported", "unsettled"])
def test_a_failure_beside_a_doubtful_attempt_is_unsettled(means: str) -> None:
    """The answer was to another attempt."""
    last = conclude([lost(1), refused(2, means)])
    assert isinstance(last, OperationFailed)
    assert (last.effect, last.error_means, last.attempts) == (Effect.UNKNOWN, "unsettled", 2)


def test_a_success_is_the_operations() -> None:
    """Whatever the attempts before it came to."""
    last = conclude([lost(1), unsent(2), done(3)])
    assert isinstance(last, OperationSucceeded)
    assert last.attempts == 3


def unsettled(attempt: int) -> Attempted:
    """An error that proves nothing."""
    return refused(attempt, "unsettled")


MAKERS: tuple[Callable[[int], Attempted], ...] = (lost, unsent, refused, unsettled)


@given(makers=st.lists(st.sampled_from(MAKERS), min_size=1, max_size=6), expired=st.booleans())
def test_no_receipt_claims_more_than_all_attempts_prove(
    makers: list[Callable[[int], Attempted]], *, expired: bool
) -> None:
    """`none` only where each attempt is; `not_executed` only where nothing left."""
    attempts = [make(n) for n, make in enumerate(makers, 1)]
    last = conclude(attempts, EXPIRED if expired else None)
    if any(item.doubtful for item in attempts):
        assert last.effect is Effect.UNKNOWN
        assert not isinstance(last, OperationFailed) or last.error_means == "unsettled"
    if any(item.sent for item in attempts):
        assert not isinstance(last, OperationNotExecuted)


@pytest.mark.parametrize("item", [lost(2), refused(2), refused(2, "unsettled"), unsent(2)])
def test_an_attempt_outlives_the_process_in_its_event(item: Attempted) -> None:
    """What a restart reads back decides as what was written."""
    event = ended(item)
    again = from_json(event.KIND, as_json(event))
    assert again == event
    assert attempted(event) == item


def test_a_success_has_no_such_event() -> None:
    """It ends its operation."""
    with pytest.raises(AssertionError):
        ended(done(1))


def outcomes() -> list[Outcome]:
    """One of each."""
    return [lost(1).outcome, refused(1).outcome, unsent(1).outcome]


@pytest.mark.parametrize("outcome", outcomes())
def test_only_what_was_sent_can_be_doubtful(outcome: Outcome) -> None:
    """Proof that nothing left is proof that nothing happened."""
    item = Attempted(attempt=1, phase=None, outcome=outcome)
    assert item.sent or not item.doubtful
