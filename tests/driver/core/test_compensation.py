"""Whether an operation is compensated, and with which arguments."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.core.compensation import Due, Facts, Needless, Refused, arguments, decide
from driver.core.contracts import Compensation
from driver.core.probes import scope
from driver.core.templates import Template
from store.lifecycle import OPEN, Effect, State
from store.records import JsonObject, JsonValue

T0 = datetime(2026, 11, 29, 10, 40, tzinfo=UTC)
FACTS = Facts(
    state=State.SUCCEEDED,
    asked=False,
    declared=True,
    proven=Effect.OCCURRED,
    lands_until=None,
    now=T0,
    certain=False,
)
LATER = T0 + timedelta(seconds=1)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (FACTS, "due"),
        (replace(FACTS, certain=True), "due"),
        (replace(FACTS, declared=False), "no_compensation_declared"),
        (replace(FACTS, state=State.STARTED), "still_running"),
        (replace(FACTS, state=State.ACCEPTED), "still_running"),
        (replace(FACTS, state=State.UNKNOWN, asked=True), "still_running"),
        (replace(FACTS, lands_until=LATER), "may_still_land"),
        (replace(FACTS, lands_until=T0), "due"),
        (replace(FACTS, proven=Effect.NONE), "needless"),
        (replace(FACTS, proven=Effect.NONE, lands_until=LATER), "may_still_land"),
        (replace(FACTS, state=State.UNKNOWN, proven=Effect.UNKNOWN), "due"),
        (replace(FACTS, state=State.UNKNOWN, proven=Effect.UNKNOWN, certain=True), "not_certain"),
    ],
)
def test_the_decision_is_named(facts: Facts, expected: str) -> None:
    """What stands against it has a code; what is proven not to have happened needs nothing."""
    found = decide(facts)
    name = found.code if isinstance(found, Refused) else type(found).__name__.lower()
    assert name == expected


@given(
    st.builds(
        Facts,
        state=st.sampled_from(State),
        asked=st.booleans(),
        declared=st.booleans(),
        proven=st.sampled_from(Effect),
        lands_until=st.sampled_from([None, T0, LATER]),
        now=st.just(T0),
        certain=st.booleans(),
    )
)
def test_nothing_is_taken_back_that_may_still_happen_or_never_did(facts: Facts) -> None:
    """A second statement of the decision."""
    found = decide(facts)
    over = (
        facts.state not in OPEN
        and not facts.asked
        and (facts.lands_until is None or facts.now >= facts.lands_until)
    )
    if isinstance(found, Due | Needless):
        assert facts.declared
        assert over
        assert isinstance(found, Needless) == (facts.proven is Effect.NONE)
    if isinstance(found, Due) and facts.certain:
        assert facts.proven is Effect.OCCURRED


SEEN = scope("op_1", {"n": 7, "none": None}, {"id": "x"})


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ({"key": "=key", "id": "=receipt.id", "n": "=arguments.n"}, {"key": "op_1", "id": "x", "n": 7}),
        ({"why": "=arguments.why || 'undone'"}, {"why": "undone"}),
        ({"literal": [1, None, "text"]}, {"literal": [1, None, "text"]}),
        ({"id": "=receipt.other"}, "expression_failed"),
        ({"deep": [{"id": "=arguments.none"}]}, "expression_failed"),
        ({"id": "=length(arguments.n)"}, "expression_failed"),
    ],
)
def test_arguments_come_from_the_forward_operation(template: JsonObject, expected: JsonValue) -> None:
    """What finds nothing there is no argument: it could take back something else."""
    found = arguments(Compensation(tool="undo", arguments=Template(template)), SEEN)
    assert (found.code if isinstance(found, Refused) else found) == expected


def test_erased_arguments_are_named() -> None:
    """The contract is not to blame."""
    compensation = Compensation(tool="undo", arguments=Template({"n": "=arguments.n"}))
    found = arguments(compensation, scope("op_1", None, None))
    assert isinstance(found, Refused)
    assert found.code == "arguments_erased"
