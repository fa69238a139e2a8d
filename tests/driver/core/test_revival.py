"""Rule R, where somebody asks: what is refused, by which part of the rule, and that nothing else is."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.core.contracts import Contract
from driver.core.retry import Case
from driver.core.revival import Facts, proof, refusal
from store.lifecycle import OPEN, Effect, Evidence, Judgement, Source, State, judge
from store.records import AttemptRecord, EvidenceRecord, OperationId, timestamp
from tests.driver.core.test_retry import CONTRACT, FIRST, T0, clocks

PLAIN = Contract(declared=True)
OPERATION = OperationId("op_" + "0" * 32)
NOBODY = Judgement(Effect.UNKNOWN, None)
NONE = Judgement(Effect.NONE, Source.OPERATOR)
CASE = Case(
    contract=PLAIN,
    write=True,
    attempts=1,
    first=replace(FIRST, idempotent=False, dedupe_horizon_s=None),
    doubtful=True,
    now=clocks(),
    expires_at=None,
)
FACTS = Facts(
    state=State.UNKNOWN, runs=False, asked=False, erased=False, proven=NOBODY, guessed=False, case=CASE
)
PROVEN = replace(FACTS, proven=NONE, case=replace(CASE, doubtful=False))
DEDUPLICATED = replace(FACTS, case=replace(CASE, contract=CONTRACT, first=FIRST))
LANDS = T0 + timedelta(seconds=60)


def code(facts: Facts) -> str | None:
    """The part of the rule that fails."""
    found = refusal(facts)
    return None if found is None else found.code


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (FACTS, "not_proven_none"),
        (PROVEN, None),
        (DEDUPLICATED, None),
        (replace(FACTS, guessed=True), "best_effort_only"),
        (replace(PROVEN, case=replace(PROVEN.case, lands_until=LANDS)), "may_still_land"),
        (replace(PROVEN, case=replace(PROVEN.case, lands_until=T0)), None),
        (replace(DEDUPLICATED, case=replace(DEDUPLICATED.case, lands_until=LANDS)), None),
        (replace(FACTS, case=replace(CASE, contract=CONTRACT)), "not_deduplicated"),
        (replace(DEDUPLICATED, case=replace(DEDUPLICATED.case, contract=PLAIN)), "not_deduplicated"),
        (
            replace(DEDUPLICATED, case=replace(DEDUPLICATED.case, first=replace(FIRST, key_carrier="none"))),
            "another_key",
        ),
        (replace(DEDUPLICATED, case=replace(DEDUPLICATED.case, now=clocks(95))), "past_horizon"),
        (replace(DEDUPLICATED, case=replace(DEDUPLICATED.case, now=clocks(-5))), "clock_went_back"),
        (replace(PROVEN, state=State.STARTED, runs=True), "still_running"),
        (replace(PROVEN, state=State.STARTED), "not_ended"),
        (replace(PROVEN, state=State.ACCEPTED), "not_ended"),
        (replace(PROVEN, asked=True), "still_running"),
        (replace(PROVEN, state=State.SUCCEEDED), "already_occurred"),
        (replace(DEDUPLICATED, proven=Judgement(Effect.OCCURRED, Source.PROBE)), "already_occurred"),
        (replace(PROVEN, erased=True), "arguments_erased"),
        (replace(PROVEN, case=replace(PROVEN.case, expires_at=CASE.now.wall)), "expired"),
        (replace(FACTS, case=replace(CASE, write=False, lands_until=LANDS)), None),
    ],
)
def test_a_refusal_names_the_part_of_the_rule_that_fails(facts: Facts, expected: str | None) -> None:
    """And where none fails, nothing is refused."""
    assert code(facts) == expected


CASES = st.builds(
    Case,
    contract=st.sampled_from(
        [PLAIN, CONTRACT, replace(CONTRACT, key_carrier=PLAIN.key_carrier, retry="never")]
    ),
    write=st.booleans(),
    attempts=st.just(1),
    first=st.sampled_from([FIRST, CASE.first, replace(FIRST, key_carrier="header:X"), None]),
    doubtful=st.booleans(),
    now=st.sampled_from([-5.0, 0.0, 5.0, 89.0, 91.0, 200.0]).map(clocks),
    expires_at=st.sampled_from([None, T0, T0 + timedelta(seconds=1_000)]),
    lands_until=st.sampled_from([None, T0, LANDS, T0 + timedelta(seconds=500)]),
)


@given(
    st.builds(
        Facts,
        state=st.sampled_from(State),
        runs=st.booleans(),
        asked=st.booleans(),
        erased=st.booleans(),
        proven=st.sampled_from([NOBODY, NONE, Judgement(Effect.OCCURRED, Source.PROVIDER)]),
        guessed=st.booleans(),
        case=CASES,
    )
)
def test_what_is_not_refused_holds_to_the_rule_as_it_is_written(facts: Facts) -> None:
    """A second statement of rule R: over, not landed, proven or deduplicated within the horizon."""
    case = facts.case
    found = refusal(facts)
    if found is not None:
        assert found.message
        return
    at = case.now.wall
    assert facts.state not in OPEN | {State.SUCCEEDED}
    assert not facts.asked
    assert not facts.erased
    assert case.expires_at is None or at < case.expires_at
    if not case.write:
        return
    assert facts.proven.effect is not Effect.OCCURRED
    proven = not case.doubtful and (case.lands_until is None or at >= case.lands_until)
    assert proven or deduplicated(case)


def deduplicated(case: Case) -> bool:
    """Part (b), said again."""
    first, today = case.first, case.contract
    if first is None or not first.idempotent or not today.idempotent:
        return False
    if first.key_carrier != str(today.key_carrier) or first.key_carrier == "none":
        return False
    elapsed = (case.now.wall - first.at).total_seconds()
    return (
        0
        <= elapsed
        < min(first.dedupe_horizon_s or 0, today.dedupe_horizon_s or 0)
        - min(
            today.execution_s,
            today.execution_s
            if case.expires_at is None
            else (case.expires_at - case.now.wall).total_seconds(),
        )
    )


# ------------------------------------------------------------ what the evidence proves


def attempts(count: int) -> list[AttemptRecord]:
    """So many attempts, which began at events 10, 20, 30."""
    return [
        AttemptRecord(
            operation_id=OPERATION,
            attempt=number,
            idempotency_key=OPERATION,
            key_carrier="none",
            idempotent=False,
            dedupe_horizon_s=None,
            started_seq=10 * number,
            started_at=timestamp(T0),
            deadline_at=timestamp(LANDS),
            phase="written",
            outcome="unknown",
            reason="connection_lost",
            ended_at=timestamp(T0),
            duration_ms=None,
        )
        for number in range(1, count + 1)
    ]


def said(attempt: int, seq: int, effect: Effect, source: Source) -> EvidenceRecord:
    """One word."""
    return EvidenceRecord(
        operation_id=OPERATION,
        attempt=attempt,
        seq=seq,
        at=timestamp(T0),
        effect=effect,
        source=source,
        actor=None,
    )


WORDS = st.lists(
    st.builds(said, st.integers(1, 3), st.integers(1, 60), st.sampled_from(Effect), st.sampled_from(Source)),
    max_size=8,
)


@given(WORDS, st.integers(0, 3))
def test_a_supervisors_word_changes_nothing(words: list[EvidenceRecord], count: int) -> None:
    """I8: the proof is the same without it."""
    without = [word for word in words if word.source is not Source.SUPERVISOR]
    assert proof(words, attempts(count)) == proof(without, attempts(count))


@given(WORDS, st.integers(1, 3))
def test_none_is_proven_of_every_attempt_after_it_began(words: list[EvidenceRecord], count: int) -> None:
    """A word about an attempt that had not begun is about nothing."""
    found = proof(words, attempts(count))
    if found.effect is Effect.NONE:
        for number in range(1, count + 1):
            assert any(
                word.attempt == number
                and word.seq > 10 * number
                and word.effect is Effect.NONE
                and word.source is not Source.SUPERVISOR
                for word in words
            )


@given(WORDS, st.integers(0, 3), st.integers(0, 60))
def test_a_none_from_before_a_rollback_proves_nothing(
    words: list[EvidenceRecord], count: int, since: int
) -> None:
    """Only what was said after it can; what has happened stays so."""
    after = [word for word in words if word.seq > since or word.effect is not Effect.NONE]
    assert proof(words, attempts(count), since_seq=since) == proof(after, attempts(count))


@given(WORDS, st.integers(1, 3))
def test_the_proof_is_the_journals_judgement_of_the_same_words(
    words: list[EvidenceRecord], count: int
) -> None:
    """There is one function of the evidence."""
    counted = [
        Evidence(word.attempt, word.effect, word.source)
        for word in words
        if word.source is not Source.SUPERVISOR and word.attempt <= count and word.seq > 10 * word.attempt
    ]
    assert proof(words, attempts(count)) == judge(counted, count)
