"""The last look before the first byte, and what a restart makes of what did not end."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from driver.core.dispatch import EndAttempt, Go, LookFacts, NotExecuted, Requeue, last_look, recover
from store.lifecycle import ENDED, OPEN, State

NOW = datetime(2026, 11, 29, 10, 40, tzinfo=UTC)
BEFORE, AFTER = NOW - timedelta(microseconds=1), NOW + timedelta(microseconds=1)
CLEAR = LookFacts(now=NOW, expires_at=None, deadline_at=None, cancelled=False, draining=False, fenced=False)


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        (CLEAR, Go()),
        (replace(CLEAR, expires_at=AFTER, deadline_at=AFTER), Go()),
        (replace(CLEAR, cancelled=True), NotExecuted("cancelled")),
        (replace(CLEAR, expires_at=NOW), NotExecuted("expired")),
        (replace(CLEAR, expires_at=BEFORE), NotExecuted("expired")),
        (replace(CLEAR, deadline_at=NOW), NotExecuted("deadline")),
        (replace(CLEAR, draining=True), NotExecuted("draining")),
        (replace(CLEAR, fenced=True), NotExecuted("fenced")),
        (
            replace(CLEAR, expires_at=BEFORE, deadline_at=BEFORE, cancelled=True, draining=True, fenced=True),
            NotExecuted("fenced"),
        ),
        (
            replace(CLEAR, expires_at=BEFORE, deadline_at=BEFORE, cancelled=True, draining=True),
            NotExecuted("cancelled"),
        ),
        (replace(CLEAR, expires_at=BEFORE, deadline_at=BEFORE, draining=True), NotExecuted("expired")),
        (replace(CLEAR, deadline_at=BEFORE, draining=True), NotExecuted("deadline")),
    ],
)
def test_the_last_look(facts: LookFacts, verdict: Go | NotExecuted) -> None:
    """Each reason alone stops the call; of several, the one that lasts longest is named."""
    assert last_look(facts) == verdict


@pytest.mark.parametrize("state", sorted(OPEN))
def test_what_no_attempt_runs_of_waits_its_turn_again(state: State) -> None:
    """Accepted, waiting for a person, or between two attempts."""
    assert recover(state, runs=False) == Requeue()


def test_an_attempt_without_an_end_is_ended() -> None:
    """Nobody can know what became of it."""
    assert recover(State.STARTED, runs=True) == EndAttempt()


@pytest.mark.parametrize("state", sorted(ENDED))
def test_what_has_ended_is_not_recovered(state: State) -> None:
    """To recover an ended operation is a bug of ours, and says so."""
    with pytest.raises(AssertionError):
        recover(state, runs=False)
