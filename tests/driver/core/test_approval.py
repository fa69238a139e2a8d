"""An approval stands for what the person was shown, once, and in time."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from driver.core.approval import (
    Ask,
    DecisionFacts,
    Refused,
    Request,
    TooLate,
    Use,
    UseFacts,
    Valid,
    decide,
    look,
)
from store.lifecycle import State
from store.records import Digest

NOW = datetime(2026, 11, 29, 10, 40, tzinfo=UTC)
REQUEST = Request(
    approval_id="ap_1",
    args_digest=Digest("a" * 64),
    definition_digest=Digest("d" * 64),
    expires_at=NOW + timedelta(seconds=1),
    decision="grant",
)
USE = UseFacts(
    now=NOW,
    newest=REQUEST,
    granted="ap_1",
    args_digest=Digest("a" * 64),
    definition_digest=Digest("d" * 64),
)
DECIDE = DecisionFacts(
    now=NOW,
    confirmed=True,
    state=State.AWAITING_APPROVAL,
    newest=replace(REQUEST, decision=None),
    approval_id="ap_1",
)


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        (USE, Use("ap_1")),
        (replace(USE, newest=None), Ask()),
        (replace(USE, granted=None), Ask()),
        (replace(USE, granted="ap_0"), Ask()),
        (replace(USE, newest=replace(REQUEST, decision=None)), Ask()),
        (replace(USE, newest=replace(REQUEST, decision="deny")), Ask()),
        (replace(USE, args_digest=Digest("b" * 64)), Ask()),
        (replace(USE, definition_digest=Digest("e" * 64)), Ask()),
        (replace(USE, definition_digest=None), Ask()),
        (replace(USE, now=NOW + timedelta(seconds=1)), TooLate()),
        (replace(USE, now=NOW + timedelta(seconds=2), args_digest=Digest("b" * 64)), TooLate()),
    ],
)
def test_an_approval_is_used_for_exactly_what_was_granted(facts: UseFacts, found: object) -> None:
    """Whatever differs is asked again; what is late is too late."""
    assert look(facts) == found


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        (DECIDE, None),
        (replace(DECIDE, state=None, newest=None), "unknown_operation"),
        (replace(DECIDE, state=State.ACCEPTED, newest=None), "not_awaiting_approval"),
        (replace(DECIDE, state=State.NOT_EXECUTED), "not_awaiting_approval"),
        (replace(DECIDE, state=State.STARTED), "not_awaiting_approval"),
        (replace(DECIDE, confirmed=False), "history_not_confirmed"),
        (replace(DECIDE, approval_id="ap_0"), "stale_approval"),
        (replace(DECIDE, newest=REQUEST), "already_decided"),
        (replace(DECIDE, newest=replace(REQUEST, decision="deny")), "already_decided"),
        (replace(DECIDE, now=NOW + timedelta(seconds=1)), "approval_expired"),
    ],
)
def test_a_decision_counts_in_time_and_about_the_newest_request(
    facts: DecisionFacts, code: str | None
) -> None:
    """Each refusal has a code of its own, and says what to do."""
    found = decide(facts)
    if code is None:
        assert found == Valid()
    else:
        assert isinstance(found, Refused)
        assert (found.code, bool(found.message)) == (code, True)
