"""What becomes of an operator's verdict, by what the journal says of the operation."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.core.verdicts import Known, NotRecorded, Record, Verdict, VerdictFacts, rule
from store.lifecycle import ENDED, OPEN, RANK, Effect, Evidence, Source, State, judge

ASKED = Verdict(effect=Effect.NONE, note="looked", evidence=("https://example.test/1",), attempts=1)
LOST = VerdictFacts(state=State.UNKNOWN)
GIVEN = replace(LOST, effect=Effect.NONE, by=Source.OPERATOR, newest=ASKED, newest_seq=9)


def code(asked: Verdict, facts: VerdictFacts, *, override: bool = False) -> str:
    """Why the verdict is not recorded; an empty text where it is."""
    ruling = rule(asked, facts, override=override)
    return ruling.code if isinstance(ruling, NotRecorded) else ""


def test_what_nobody_settled_takes_any_verdict() -> None:
    """`unknown`, and an error answer that proves nothing, need no override."""
    assert rule(ASKED, LOST, override=False) == Record()
    assert rule(ASKED, replace(LOST, state=State.FAILED), override=False) == Record()


def test_an_operation_that_nobody_knows_is_said_so() -> None:
    """It is no conflict."""
    assert code(ASKED, VerdictFacts(state=None), override=True) == "unknown_operation"


@pytest.mark.parametrize("state", sorted(OPEN))
def test_while_an_attempt_may_still_follow_nobody_can_know(state: State) -> None:
    """Not even an override settles what is not over."""
    assert code(ASKED, replace(LOST, state=state), override=True) == "still_running"


@pytest.mark.parametrize("by", [source for source in Source if RANK[source] > RANK[Source.OPERATOR]])
@pytest.mark.parametrize("state", sorted(ENDED))
def test_nothing_that_an_operator_says_overrides_what_is_stronger(state: State, by: Source) -> None:
    """Neither the same effect nor `override` changes that."""
    for effect in (Effect.NONE, Effect.OCCURRED):
        facts = replace(GIVEN, state=state, effect=effect, by=by)
        assert code(ASKED, facts) == code(ASKED, facts, override=True) == "outranked"


@pytest.mark.parametrize("by", [Source.PROBE, Source.SUPERVISOR])
def test_what_is_weaker_needs_no_override(by: Source) -> None:
    """An operator who looked is believed before a probe or a model."""
    assert rule(ASKED, replace(LOST, effect=Effect.OCCURRED, by=by), override=False) == Record()


@pytest.mark.parametrize("override", [False, True])
def test_the_same_verdict_again_is_no_second_one(override: bool) -> None:
    """A repeated request is answered with the event that holds it."""
    assert rule(ASKED, GIVEN, override=override) == Known(9)


@pytest.mark.parametrize(
    "other",
    [
        replace(ASKED, effect=Effect.OCCURRED),
        replace(ASKED, note="looked again"),
        replace(ASKED, evidence=()),
    ],
)
def test_another_verdict_needs_an_override_and_a_reason(other: Verdict) -> None:
    """Whatever of its content differs."""
    assert code(other, GIVEN) == "already_settled"
    assert rule(other, GIVEN, override=True) == Record()
    assert code(replace(other, note=" \n"), GIVEN, override=True) == "note_required"


def test_the_same_words_about_a_later_attempt_are_another_verdict() -> None:
    """A verdict speaks of the attempts that there were: one that came after it is not settled by it."""
    later = replace(ASKED, attempts=2)
    assert code(later, GIVEN) == "already_settled"
    undecided = replace(GIVEN, effect=Effect.UNKNOWN, by=None)
    assert rule(later, undecided, override=False) == Record()


ARRIVALS = st.permutations(
    [
        Evidence(1, Effect.OCCURRED, Source.PROVIDER),
        Evidence(1, Effect.NONE, Source.OPERATOR),
        Evidence(1, Effect.OCCURRED, Source.PROBE),
        Evidence(1, Effect.NONE, Source.SUPERVISOR),
    ]
)


@given(ARRIVALS, st.integers(0, 4))
def test_refusing_what_is_weaker_changes_no_effect(order: list[Evidence], count: int) -> None:
    """Whatever comes first, the operation ends up as if everything had been recorded."""
    arriving = order[:count]
    recorded: list[Evidence] = []
    for word in arriving:
        judged = judge(recorded, 1)
        facts = replace(LOST, effect=judged.effect, by=judged.by)
        asked = replace(ASKED, effect=word.effect)
        if word.source is not Source.OPERATOR or rule(asked, facts, override=False) == Record():
            recorded.append(word)
    assert judge(recorded, 1) == judge(arriving, 1)
