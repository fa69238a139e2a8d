"""What a read after a write proves, what it does not, and when it is worth another look."""

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.core.attempts import (
    Answered,
    HttpStatus,
    InputRequired,
    NotSent,
    PeerError,
    Phase,
    Report,
    Silence,
    TaskPending,
)
from driver.core.contracts import Contract, Probe
from driver.core.expressions import Expression
from driver.core.landing import ELSEWHERE, LISTENED_FOR, landed_by
from driver.core.probes import (
    BACKOFF_S_MAX,
    MATCHES_MAX,
    Finding,
    Unclear,
    adds,
    count,
    due,
    is_look,
    is_wanted,
    look_id,
    question,
    scope,
    verdict,
)
from driver.core.redaction import MARKER, Redaction
from driver.core.reports import Redactor
from driver.core.templates import Template
from store.events import OperationUnknown
from store.lifecycle import RANK, Effect, Evidence, Source, State, judge
from store.records import AttemptRecord, JsonObject, JsonValue, OperationId, timestamp
from tests.driver.core.json_values import values
from tests.driver.core.test_admission import TWIN

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
READ = Contract(declared=True, effect="read")
PROBE = Probe(
    tool="find",
    arguments=Template({"marker": "=key"}),
    matches=Expression("result.found"),
    visible_after_s=5.0,
    attempts=6,
    authoritative_absence=True,
)
SEEN = scope("op_1", {"title": "T"}, None)


def seconds(count: float) -> timedelta:
    """So many seconds."""
    return timedelta(seconds=count)


def answered(found: JsonValue) -> Answered:
    """An answer in which the probe's expression finds `found`."""
    return Answered(result={"found": found})


def counted(report: Report, probe: Probe = PROBE) -> int | Unclear:
    """What the probe counts in a report."""
    return count(probe, SEEN, report, Phase.ANSWERED, READ)


# ------------------------------------------------------------ the question


def test_a_question_is_filled_from_the_operation() -> None:
    """The key is the operation's id; its arguments, receipt and id can be asked about, and literals stay."""
    template: JsonObject = {
        "key": "=key",
        "title": "=arguments.title",
        "receipt": "=receipt",
        "deep": [{"id": "=operation_id"}],
        "state": "open",
    }
    probe = dataclasses.replace(PROBE, arguments=Template(template))
    assert question(probe, scope("op_1", {"title": "T"}, 7)) == {
        "key": "op_1",
        "title": "T",
        "receipt": 7,
        "deep": [{"id": "op_1"}],
        "state": "open",
    }


@pytest.mark.parametrize("template", ["=receipt", "=arguments.titel", "=arguments.a.b"])
@pytest.mark.parametrize("nested", [False, True])
def test_a_question_that_finds_nothing_to_ask_about_is_not_put(template: str, *, nested: bool) -> None:
    """`find(id = null)` would be answered about something else, and an empty answer be taken for absence."""
    value: JsonValue = [{"x": template}] if nested else template
    probe = dataclasses.replace(PROBE, arguments=Template({"id": value}))
    found = question(probe, SEEN)
    assert isinstance(found, Unclear)
    assert template in found.detail


def test_erased_arguments_cannot_be_asked_about() -> None:
    """And a question that needs none of them is put all the same."""
    probe = dataclasses.replace(PROBE, arguments=Template({"title": "=arguments.title"}))
    assert isinstance(question(probe, scope("op_1", None, None)), Unclear)
    assert question(PROBE, scope("op_1", None, None)) == {"marker": "op_1"}


def test_an_expression_that_cannot_be_evaluated_is_no_question() -> None:
    """It is told which one, and no value of the call."""
    probe = dataclasses.replace(PROBE, arguments=Template({"n": "=length(receipt)"}))
    found = question(probe, scope("op_1", {"title": "hush"}, None))
    assert isinstance(found, Unclear)
    assert "length(receipt)" in found.detail
    assert "hush" not in found.detail


def test_matches_sees_the_question_and_the_answer() -> None:
    """The same names as the arguments, and `result` beside them."""
    contains = dataclasses.replace(PROBE, matches=Expression("contains(result.found, key)"))
    assert counted(answered(["op_0", "op_1"]), contains) == 1
    assert counted(answered(["op_0"]), contains) == 0


# ------------------------------------------------------------ the answer


@pytest.mark.parametrize(
    ("value", "number"),
    [(0, 0), (1, 1), (2, 2), (1.0, 1), (True, 1), (False, 0), (MATCHES_MAX, MATCHES_MAX)],
)
def test_whole_numbers_and_booleans_count(value: JsonValue, number: int) -> None:
    """A boolean is one match or none."""
    assert counted(answered(value)) == number
    assert type(counted(answered(value))) is int


@pytest.mark.parametrize("value", [None, -1, 0.5, "1", [1], {"n": 1}, MATCHES_MAX + 1, "", []])
def test_whatever_else_an_expression_yields_counts_nothing(value: JsonValue) -> None:
    """Least of all null, which is what a misspelt path yields."""
    found = counted(answered(value))
    assert isinstance(found, Unclear)
    assert verdict(PROBE, found, began=NOW, landed=NOW - seconds(60)).verdict == "undetermined"


FAILURES: Sequence[Report] = (
    Answered(result={"found": 0}, is_error=True),
    Answered(result={"found": 1}, is_error=True),
    PeerError(code=-32603, message="boom"),
    HttpStatus(status=404, result={"found": 0}),
    HttpStatus(status=500, result={"found": 0}),
    HttpStatus(status=302, result={"found": 0}),
    InputRequired(result={"found": 0}),
    TaskPending(handle={"found": 0}),
    NotSent(reason="connect_failed", message="nobody there"),
    NotSent(reason="invalid_arguments", message="no"),
    NotSent(reason="unknown_tool", message="no"),
    NotSent(reason="deadline", message="late"),
    Silence(cause="deadline", message="no answer"),
    Silence(cause="connection_lost", message="gone"),
    Silence(cause="protocol_error", message="garbage"),
    Silence(cause="cancelled", message="stopped"),
    Silence(cause="internal", message="bug"),
    Answered(result={"found": 0, "text": "\ud800"}),
)


@pytest.mark.parametrize("report", FAILURES, ids=lambda report: type(report).__name__)
@pytest.mark.parametrize("phase", list(Phase))
def test_no_failure_is_ever_the_absence_of_an_effect(report: Report, phase: Phase) -> None:
    """Nor its presence: whatever the error says, nothing was counted. Even where absence would be proof."""
    found = count(PROBE, SEEN, report, phase, READ)
    assert isinstance(found, Unclear)
    judged = verdict(PROBE, found, began=NOW, landed=NOW - seconds(3600))
    assert (judged.verdict, judged.matches, judged.effect) == ("undetermined", None, None)
    assert judged.detail


@pytest.mark.parametrize(
    "flaw",
    [
        Answered(result={"found": 0}, output_invalid=True),
        Answered(result={"found": 0, "stdout": "cut", "stdout_truncated": True}),
    ],
    ids=["output_invalid", "stdout_truncated"],
)
def test_an_answer_that_is_not_whole_shows_presence_only(flaw: Answered) -> None:
    """What is missing from it may be what was looked for; what is there is there."""
    assert isinstance(counted(flaw), Unclear)
    assert counted(dataclasses.replace(flaw, result={**flaw.result, "found": 1})) == 1


def test_what_a_contract_withholds_is_not_in_the_detail() -> None:
    """The read's own redaction holds for its errors, too."""
    hiding = Redactor(
        redaction=Redaction(("result.found", "arguments.marker")), arguments={"marker": "op_1x"}
    )
    for report in (
        PeerError(code=-1, message="no such marker: op_1x"),
        NotSent(reason="invalid_arguments", message="bad marker op_1x"),
        Silence(cause="deadline", message="op_1x took too long"),
    ):
        found = count(PROBE, SEEN, report, Phase.WRITTEN, READ, hiding)
        assert isinstance(found, Unclear)
        assert "op_1x" not in found.detail
        assert MARKER in found.detail


# ------------------------------------------------------------ the verdict

counts = st.integers(min_value=0, max_value=50) | st.just(MATCHES_MAX)
times = st.floats(min_value=-1_000, max_value=1_000, allow_nan=False).map(lambda at: NOW + seconds(at))


@given(
    number=counts,
    began=times,
    landed=times | st.none(),
    authoritative=st.booleans(),
    visible_after_s=st.floats(min_value=0, max_value=500),
)
def test_absence_is_proven_only_in_full(
    number: int, began: datetime, landed: datetime | None, visible_after_s: float, *, authoritative: bool
) -> None:
    """Nothing found, vouched for, and asked when everything that had landed must have been visible."""
    probe = dataclasses.replace(PROBE, authoritative_absence=authoritative, visible_after_s=visible_after_s)
    found = verdict(probe, number, began=began, landed=landed)
    proven = (
        number == 0
        and authoritative
        and landed is not None
        and began >= landed + timedelta(seconds=visible_after_s)
    )
    assert (found.verdict == "absent") == proven
    assert (found.effect is Effect.NONE) == proven
    assert found.matches == number
    if number == 1:
        assert (found.verdict, found.effect) == ("occurred", Effect.OCCURRED)
    if number > 1:
        assert (found.verdict, found.effect) == ("duplicated", Effect.OCCURRED)
    if number == 0 and not proven:
        assert (found.verdict, found.effect) == ("undetermined", None)


@given(value=values, began=times, landed=times | st.none())
def test_any_answer_at_all_gives_one_of_four_verdicts(
    value: JsonValue, began: datetime, landed: datetime | None
) -> None:
    """And a detail that an event can hold, whatever a provider says."""
    found = verdict(PROBE, counted(answered(value)), began=began, landed=landed)
    assert found.verdict in ("occurred", "absent", "duplicated", "undetermined")
    assert len(found.detail.encode()) <= 2_000
    assert (found.matches is None) == (found.verdict == "undetermined" and found.matches != 0)


def test_each_doubt_is_named() -> None:
    """A person who reads `undetermined` learns what would have to change."""

    def doubt(probe: Probe, landed: datetime | None) -> str:
        found: Finding = verdict(probe, 0, began=NOW, landed=landed)
        assert found.verdict == "undetermined"
        return found.detail

    careless = dataclasses.replace(PROBE, authoritative_absence=False)
    assert "authoritative_absence" in doubt(careless, NOW - seconds(60))
    assert "may still be executed" in doubt(PROBE, None)
    assert "not be visible before" in doubt(PROBE, NOW - seconds(4))


# ------------------------------------------------------------ evidence

words = st.builds(
    Evidence,
    attempt=st.integers(min_value=1, max_value=3),
    effect=st.sampled_from(Effect),
    source=st.sampled_from([source for source in Source if source is not Source.PROBE]),
)


@given(known=st.lists(words, max_size=8), attempts=st.integers(min_value=0, max_value=3))
def test_a_probe_never_moves_what_somebody_better_has_said(known: list[Evidence], attempts: int) -> None:
    """Where it is recorded, no attempt that it speaks of had a word of a higher rank."""
    for effect in (Effect.NONE, Effect.OCCURRED):
        stronger = [
            any(
                item.attempt == attempt
                and RANK[item.source] > RANK[Source.PROBE]
                and (item.effect is not Effect.UNKNOWN or item.source is Source.OPERATOR)
                for item in known
            )
            for attempt in range(1, max(attempts, 1) + 1)
        ]
        assert adds(known, effect, attempts) == (not all(stronger))


def test_a_second_look_is_no_second_verdict() -> None:
    """The same word adds nothing; nor does `none` after `occurred`, which may have been taken back since."""
    said = [Evidence(1, Effect.OCCURRED, Source.PROBE)]
    assert not adds(said, Effect.OCCURRED, 1)
    assert not adds(said, Effect.NONE, 1)
    denied = [Evidence(1, Effect.NONE, Source.PROBE)]
    assert not adds(denied, Effect.NONE, 1)
    assert adds(denied, Effect.OCCURRED, 1)
    assert judge([*denied, Evidence(1, Effect.OCCURRED, Source.PROBE)], 1).effect is Effect.OCCURRED


def test_a_word_about_one_attempt_of_two_is_kept() -> None:
    """It may be what is missing when the other attempt is judged one day."""
    assert adds([Evidence(2, Effect.NONE, Source.DAEMON)], Effect.NONE, 1)
    assert adds([Evidence(1, Effect.NONE, Source.DAEMON)], Effect.NONE, 2)
    assert not adds([Evidence(1, Effect.NONE, Source.DAEMON)], Effect.NONE, 1)


# ------------------------------------------------------------ when an attempt can no longer land


def attempt(
    outcome: str | None = "unknown", reason: str | None = "execution_timeout", ended: datetime | None = NOW
) -> AttemptRecord:
    """One attempt, ended at `ended`."""
    return AttemptRecord(
        operation_id=OperationId("op_1"),
        attempt=1,
        idempotency_key="op_1",
        key_carrier="meta",
        idempotent=False,
        dedupe_horizon_s=None,
        started_seq=2,
        started_at=timestamp(NOW - seconds(60)),
        deadline_at=timestamp(NOW),
        phase="written",
        outcome=outcome,
        reason=reason,
        ended_at=None if ended is None else timestamp(ended),
        duration_ms=None,
    )


@pytest.mark.parametrize("reason", sorted(LISTENED_FOR))
def test_what_nobody_waits_for_any_more_can_land_while_it_is_listened_for(reason: str) -> None:
    """The daemon has lost patience, and the call knows nothing of that."""
    assert landed_by([attempt(reason=reason)], 60.0) == NOW + seconds(60)
    assert landed_by([attempt(reason=reason)], 0.0) == NOW


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        ("failed", None),
        ("succeeded", None),
        ("not_executed", "connect_failed"),
        ("unknown", "connection_lost"),
        ("unknown", "crash_window"),
        ("unknown", "redirected"),
    ],
)
def test_an_answer_and_a_closed_transport_are_the_end(outcome: str, reason: str | None) -> None:
    """Nothing more comes of such an attempt."""
    assert landed_by([attempt(outcome, reason)], 60.0) == NOW


@pytest.mark.parametrize("reason", sorted(ELSEWHERE))
def test_what_another_life_may_execute_can_always_land(reason: str) -> None:
    """This journal cannot know when that has ended."""
    assert landed_by([attempt(reason=reason)], 60.0) is None


def test_the_last_of_several_attempts_counts() -> None:
    """And one that runs has no end yet; without any, nobody knows who executed it."""
    first, second = attempt(reason="connection_lost"), attempt(ended=NOW + seconds(9))
    assert landed_by([first, second], 60.0) == NOW + seconds(69)
    assert landed_by([first, attempt(ended=None, outcome=None, reason=None)], 60.0) is None
    assert landed_by([], 60.0) is None


def test_every_reason_of_an_unknown_end_is_judged() -> None:
    """A new one must be put where it belongs."""
    reasons = set(get_args(get_type_hints(OperationUnknown)["reason"]))
    closed = {"connection_lost", "crash_window", "redirected"}
    assert reasons == LISTENED_FOR | ELSEWHERE | closed


# ------------------------------------------------------------ the schedule


def timeline(probe: Probe, ended: datetime, landed: datetime | None) -> list[datetime]:
    """All looks of the schedule, if each takes no time and settles nothing."""
    looks: list[datetime] = []
    while (at := due(probe, looks, ended=ended, landed=landed)) is not None:
        assert len(looks) < 200, "the schedule ends"
        looks.append(at)
    return looks


@given(
    attempts=st.integers(min_value=1, max_value=40),
    visible_after_s=st.floats(min_value=0, max_value=5_000),
    late_s=st.floats(min_value=0, max_value=500) | st.none(),
)
def test_the_schedule_is_bounded_and_looks_when_absence_can_be_believed(
    attempts: int, visible_after_s: float, late_s: float | None
) -> None:
    """So many looks and no more, forward in time, at least half of them once they can prove anything."""
    probe = dataclasses.replace(PROBE, attempts=attempts, visible_after_s=visible_after_s)
    landed = None if late_s is None else NOW + timedelta(seconds=late_s)
    looks = timeline(probe, NOW, landed)
    assert len(looks) == attempts
    assert looks == sorted(looks)
    assert looks[0] >= NOW
    if landed is not None:
        visible = landed + timedelta(seconds=visible_after_s)
        late = [at for at in looks if at >= visible]
        assert len(late) >= (attempts + 1) // 2
        assert late[0] <= max(visible, NOW)
        pauses = [after - before for before, after in pairwise(late)]
        assert all(seconds(1) <= pause <= seconds(BACKOFF_S_MAX) for pause in pauses)


def test_the_usual_schedule() -> None:
    """Soon, because most effects can be seen at once; then when no match is proof."""
    looks = timeline(PROBE, NOW, NOW)
    assert [(at - NOW).total_seconds() for at in looks] == [0, 1, 3, 5, 13, 29]
    only_one = dataclasses.replace(PROBE, attempts=1)
    assert timeline(only_one, NOW, NOW) == [NOW + seconds(5)]


def test_asking_early_and_often_does_not_use_up_the_look_that_counts() -> None:
    """However often somebody asks before: one more comes when absence can be believed."""
    visible = NOW + seconds(5)
    impatient = [NOW + seconds(at / 10) for at in range(20)]
    assert due(PROBE, impatient, ended=NOW, landed=NOW) == visible
    assert due(PROBE, [*impatient, visible], ended=NOW, landed=NOW) is None


def test_only_what_nobody_knows_is_looked_for() -> None:
    """A supervisor's word is none of somebody who looked; a settled operation is left alone."""
    unknown = dataclasses.replace(TWIN, write=True, state=State.UNKNOWN, settled=False, effect_by=None)
    assert is_wanted(unknown)
    assert not is_wanted(dataclasses.replace(unknown, write=False))
    assert not is_wanted(dataclasses.replace(unknown, state=State.STARTED))
    for source in Source:
        said = dataclasses.replace(unknown, settled=True, effect_by=source)
        assert is_wanted(said) == (source is Source.SUPERVISOR)
    reported = dataclasses.replace(unknown, state=State.FAILED, settled=True)
    assert not is_wanted(reported)
    assert is_wanted(dataclasses.replace(reported, settled=False))
    assert not is_wanted(dataclasses.replace(unknown, state=State.SUCCEEDED, settled=True))


def test_a_look_has_an_id_that_no_operation_has() -> None:
    """So that what comes of it later lands nowhere."""
    assert is_look(look_id("0" * 32))
    assert not is_look(OperationId("op_" + "0" * 32))


def test_the_scope_takes_another_key() -> None:
    """A control asks for a key that cannot exist."""
    seen: JsonObject = scope("op_1", {}, None, key="other")
    assert seen["key"] == "other"
