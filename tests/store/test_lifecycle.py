"""States, moves, evidence and standing."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.lifecycle import (
    ENDED,
    MOVES,
    OPEN,
    RANK,
    RANK_MAX,
    Effect,
    Evidence,
    IllegalMove,
    Judgement,
    Source,
    Standing,
    State,
    advance,
    contradictions,
    guards,
    is_listed,
    is_settled,
    judge,
)

EVIDENCE = st.builds(Evidence, st.integers(1, 3), st.sampled_from(Effect), st.sampled_from(Source))
STANDINGS = st.builds(
    Standing,
    write=st.booleans(),
    state=st.sampled_from(State),
    judgement=st.builds(Judgement, st.sampled_from(Effect), st.none() | st.sampled_from(Source)),
    error_means=st.none() | st.sampled_from(["reported", "none", "unsettled"]),
)
KINDS = sorted({kind for _, kind in MOVES})


@pytest.mark.parametrize("state", [None, *State])
@pytest.mark.parametrize("kind", KINDS)
def test_a_move_is_in_the_table_or_raises(state: State | None, kind: str) -> None:
    """There is no other way from one state to another, and the error names both."""
    if (state, kind) in MOVES:
        assert advance(state, kind) is MOVES[state, kind]
    else:
        with pytest.raises(IllegalMove, match=f"{kind} is not legal .* {state or 'absent'}") as raised:
            advance(state, kind)
        assert (raised.value.state, raised.value.kind) == (state, kind)


def test_what_succeeded_is_final() -> None:
    """No event moves an operation that succeeded: a second execution would be a second effect."""
    assert not [kind for state, kind in MOVES if state is State.SUCCEEDED]


def test_every_state_can_be_reached_and_every_open_one_left() -> None:
    """The table has no island and no trap."""
    assert set(MOVES.values()) == set(State)
    assert {state for (state, _), after in MOVES.items() if state in OPEN and after in ENDED} == set(OPEN)


@given(st.lists(EVIDENCE), st.integers(1, 3))
def test_occurred_of_highest_rank_is_never_taken_back(evidence: list[Evidence], attempts: int) -> None:
    """I7: once the provider says that an attempt occurred, nothing weaker says otherwise."""
    proof = Evidence(1, Effect.OCCURRED, Source.PROVIDER)
    weaker = [item for item in evidence if RANK[item.source] < RANK[Source.PROVIDER]]
    for place in (0, len(weaker)):
        assert judge([*weaker[:place], proof, *weaker[place:]], attempts).effect is Effect.OCCURRED


@given(st.lists(EVIDENCE), EVIDENCE, st.integers(1, 3))
def test_weaker_evidence_never_overrides_stronger(
    evidence: list[Evidence], late: Evidence, attempts: int
) -> None:
    """What one attempt is known to have done only moves by evidence of at least the rank that it rests on."""
    own = [item for item in evidence if item.attempt == late.attempt]
    before = judge([Evidence(1, item.effect, item.source) for item in own], 1)
    after = judge([Evidence(1, item.effect, item.source) for item in [*own, late]], 1)
    if before.by is not None and RANK[late.source] < RANK[before.by]:
        assert after == before


@given(st.lists(EVIDENCE), st.integers(1, 3))
def test_none_needs_proof_of_every_attempt(evidence: list[Evidence], attempts: int) -> None:
    """One attempt that nobody vouches for keeps the effect from being `none`."""
    judgement = judge(evidence, attempts)
    if judgement.effect is Effect.NONE:
        assert {item.attempt for item in evidence if item.effect is Effect.NONE} >= set(
            range(1, attempts + 1)
        ) or len({item.attempt for item in evidence}) >= attempts
    if not evidence:
        assert judgement == Judgement(Effect.UNKNOWN, None)


@given(st.permutations([Source.PROBE, Source.OPERATOR, Source.SUPERVISOR]))
def test_the_order_of_arrival_does_not_matter_between_ranks(order: list[Source]) -> None:
    """The strongest decides, whenever it came."""
    effects = {
        Source.OPERATOR: Effect.NONE,
        Source.PROBE: Effect.OCCURRED,
        Source.SUPERVISOR: Effect.OCCURRED,
    }
    judgement = judge([Evidence(1, effects[source], source) for source in order], 1)
    assert judgement == Judgement(Effect.NONE, Source.OPERATOR)


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[list[Evidence], list[Evidence]]:
    """Evidence in two orders, in which the operators' words about one attempt keep theirs."""
    evidence = draw(st.lists(EVIDENCE, max_size=8))
    shuffled = draw(st.permutations(evidence))
    words = {
        attempt: [e for e in evidence if e.attempt == attempt and e.source is Source.OPERATOR]
        for attempt in range(1, 4)
    }
    ordered = [words[e.attempt].pop(0) if e.source is Source.OPERATOR else e for e in shuffled]
    return evidence, ordered


@given(arrivals(), st.integers(1, 3))
def test_the_effect_is_the_same_in_whatever_order_evidence_arrives(
    orders: tuple[list[Evidence], list[Evidence]], attempts: int
) -> None:
    """I7: the effect, and whose word it is, are a function of the evidence; only an override has an order."""
    evidence, other = orders
    assert judge(evidence, attempts) == judge(other, attempts)


@given(
    st.lists(EVIDENCE, max_size=5, unique_by=lambda item: (item.attempt, RANK[item.source])),
    st.integers(1, 3),
)
def test_one_word_of_each_rank_has_one_meaning_in_all_its_permutations(
    evidence: list[Evidence], attempts: int
) -> None:
    """Every order there is, not a sample: with one word of each rank, nothing has an order."""
    assert len({judge(order, attempts) for order in permutations(evidence)}) == 1


def test_between_operators_the_newest_word_stands() -> None:
    """A second one is recorded only as an override of the first."""
    words = [Evidence(1, effect, Source.OPERATOR) for effect in (Effect.OCCURRED, Effect.NONE)]
    assert judge(words, 1) == Judgement(Effect.NONE, Source.OPERATOR)
    assert judge(words[::-1], 1) == Judgement(Effect.OCCURRED, Source.OPERATOR)


@pytest.mark.parametrize("source", [source for source in Source if source is not Source.OPERATOR])
def test_between_other_words_of_one_rank_the_most_careful_stands(source: Source) -> None:
    """What somebody saw happen is not taken back because somebody alike did not see it."""
    words = [Evidence(1, effect, source) for effect in (Effect.OCCURRED, Effect.NONE)]
    assert {judge(order, 1) for order in permutations(words)} == {Judgement(Effect.OCCURRED, source)}


@given(st.lists(EVIDENCE), EVIDENCE)
def test_a_contradiction_is_of_one_attempt_and_of_the_highest_rank(
    known: list[Evidence], late: Evidence
) -> None:
    """Each pair is the opposite of the other; weaker words differ without contradicting."""
    found = contradictions(known, late)
    assert all(item in known for item in found)
    for item in found:
        assert item.attempt == late.attempt
        assert {item.effect, late.effect} == {Effect.NONE, Effect.OCCURRED}
        assert RANK[item.source] == RANK[late.source] == RANK_MAX
        assert late in contradictions([late], item)
    missed = [item for item in known if item not in found and item.attempt == late.attempt]
    if RANK[late.source] == RANK_MAX and late.effect is not Effect.UNKNOWN:
        assert not [
            item
            for item in missed
            if RANK[item.source] == RANK_MAX and item.effect not in (late.effect, Effect.UNKNOWN)
        ]


@given(STANDINGS)
def test_a_read_is_never_listed_and_never_guards(standing: Standing) -> None:
    """Only writes can have an unsettled effect."""
    if not standing.write:
        assert not is_listed(standing)
        assert not guards(standing)


@given(STANDINGS)
def test_what_is_listed_has_ended_is_not_settled_and_guards(standing: Standing) -> None:
    """The three answers about one operation fit together."""
    assert not (is_listed(standing) and is_settled(standing))
    if is_listed(standing):
        assert standing.state in ENDED
        assert guards(standing)
    if standing.state in OPEN:
        assert not is_settled(standing)
        assert guards(standing) is standing.write


@given(STANDINGS)
def test_a_supervisors_verdict_is_inert(standing: Standing) -> None:
    """I8: it takes the operation off the list, and lets no look-alike pass."""
    if standing.write and standing.state is State.UNKNOWN and standing.judgement.by is Source.SUPERVISOR:
        assert not is_listed(standing)
        assert guards(standing)
        assert standing.judgement.best_effort
