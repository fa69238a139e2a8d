"""Admission, as tables: which rule decides, in which order, and what the look-alikes do."""

from dataclasses import replace

import pytest

from driver.core.admission import (
    Accept,
    AcceptLost,
    AdmissionFacts,
    Candidate,
    Decision,
    Known,
    RefuseFinally,
    RefusePlainly,
    admit,
    candidate,
)
from driver.core.commands import (
    STARTS_WORK,
    CancelData,
    CommandData,
    CompensateData,
    InvalidData,
    ProbeData,
    RetryData,
    RunCompensateData,
    RunEndData,
    ToolCallData,
)
from driver.core.frames import CommandFrame, InvalidCommand
from driver.core.identity import content_digest
from store.lifecycle import Effect, Source, State
from store.records import (
    CommandId,
    CommandRecord,
    Digest,
    Fence,
    Identical,
    JournalId,
    OperationId,
    OperationRecord,
    Origin,
    RunId,
    Timestamp,
)
from tests.driver.core.samples import ENDED

HERE, ELSEWHERE = JournalId("aa" * 16), JournalId("bb" * 16)
AT = Timestamp("2026-11-29T10:40:19.925541Z")
THIS, OTHER = Digest("11" * 32), Digest("22" * 32)
CALL = ToolCallData(tool="issues/create_issue", arguments={"title": "x"})
CANCEL = CancelData(target_command_id=CommandId("cmd-0"))

FACTS = AdmissionFacts(
    journal_id=HERE,
    fence=None,
    known=None,
    draining=False,
    room=True,
    settling_room=True,
    queue_depth=0,
    queue_max=2,
    write=True,
    run_unsettled_max=2,
)
FENCED = Fence(reason="forked", detail="", at=AT)
KNOWN = CommandRecord(
    command_id=CommandId("cmd-1"),
    run_id=RunId("run-1"),
    kind="tool.call",
    origin=Origin.PLANE,
    content_digest=THIS,
    operation_id=None,
    accepted_seq=1,
    accepted_at=AT,
    receipt_seq=None,
    receipt_kind=None,
    expires_at=None,
)
TWIN = replace(
    ENDED,
    operation_id=OperationId("op_" + "0" * 32),
    command_id=CommandId("cmd-0"),
    tool=CALL.tool,
    args_digest=Digest("33" * 32),
    started_seq=2,
    result_seq=3,
    deadline_at=AT,
)


def asks(data: CommandData | InvalidData = CALL, *journals: JournalId) -> Candidate:
    """A command with this data, delivered to these journals before."""
    return Candidate(content_digest=THIS, data=data, delivered_to=journals)


def verdict(decision: Decision) -> str:
    """The decision in one word."""
    match decision:
        case RefusePlainly(code):
            return f"plainly {code}"
        case RefuseFinally(code):
            return f"finally {code}"
        case _:
            return type(decision).__name__


# ------------------------------------------------------------ the order of the rules

EVERYTHING_WRONG = replace(
    FACTS,
    draining=True,
    room=False,
    settling_room=True,
    queue_depth=2,
    run_unsettled=2,
    run_ended=True,
    unknown_resumes=(RunId("run-0"),),
    twins=(replace(TWIN, guards=True),),
)


@pytest.mark.parametrize(
    ("command", "facts", "expected"),
    [
        (asks(CALL, ELSEWHERE), replace(EVERYTHING_WRONG, fence=FENCED, known=KNOWN), "plainly fenced"),
        (asks(CALL, ELSEWHERE), replace(EVERYTHING_WRONG, known=KNOWN), "Known"),
        (
            asks(CALL, ELSEWHERE),
            replace(EVERYTHING_WRONG, known=replace(KNOWN, content_digest=OTHER)),
            "plainly conflict",
        ),
        (asks(InvalidData(code="invalid", message="m"), ELSEWHERE), EVERYTHING_WRONG, "finally invalid"),
        (
            asks(InvalidData(code="unknown_kind", message="m"), ELSEWHERE),
            EVERYTHING_WRONG,
            "finally unknown_kind",
        ),
        (asks(CALL, HERE, ELSEWHERE), EVERYTHING_WRONG, "AcceptLost"),
        (asks(CANCEL, ELSEWHERE), EVERYTHING_WRONG, "AcceptLost"),
        (asks(CALL, HERE), EVERYTHING_WRONG, "plainly draining"),
        (asks(), replace(EVERYTHING_WRONG, draining=False), "plainly no_room"),
        (asks(), replace(EVERYTHING_WRONG, draining=False, room=True), "plainly overloaded"),
        (asks(), replace(EVERYTHING_WRONG, draining=False, room=True, queue_depth=1), "plainly overloaded"),
        (asks(), replace(FACTS, run_unsettled=2), "plainly overloaded"),
        (asks(), replace(FACTS, run_unsettled=2, write=False), "Accept"),
        (asks(), replace(FACTS, run_unsettled=1, queue_depth=1), "Accept"),
        (
            asks(),
            replace(EVERYTHING_WRONG, draining=False, room=True, queue_depth=0, run_unsettled=0),
            "finally run_ended",
        ),
        (
            asks(),
            replace(FACTS, unknown_resumes=(RunId("run-0"),), twins=(replace(TWIN, guards=True),)),
            "finally unknown_run",
        ),
        (asks(), replace(FACTS, twins=(replace(TWIN, guards=True),)), "finally lookalike_unsettled"),
        (
            asks(),
            replace(FACTS, runs_max=2, twins=(replace(TWIN, guards=True),)),
            "finally lookalike_unsettled",
        ),
        (asks(), replace(FACTS, runs_max=2), "finally invalid"),
        (asks(), replace(FACTS, runs_max=2, identical="once-per-run"), "finally invalid"),
        (asks(), replace(FACTS, runs_max=2, identical="allow"), "Accept"),
        (asks(), replace(FACTS, runs_max=2, write=False), "Accept"),
        (asks(), FACTS, "Accept"),
        (asks(CALL, HERE), FACTS, "Accept"),
        (asks(CANCEL), replace(EVERYTHING_WRONG), "Accept"),
    ],
)
def test_the_first_rule_that_applies_decides(
    command: Candidate, facts: AdmissionFacts, expected: str
) -> None:
    """The rules are asked in one order, and each is silent where it does not apply."""
    assert verdict(admit(command, facts)) == expected


@pytest.mark.parametrize(
    "data",
    [
        RetryData(operation_id=OperationId("op_x")),
        CompensateData(operation_id=OperationId("op_x")),
        RunCompensateData(),
        CALL,
    ],
)
def test_what_starts_work_is_refused_while_there_is_too_much(data: CommandData) -> None:
    """New calls, retries and compensations are refused plainly; nothing about them is remembered."""
    assert data.KIND in STARTS_WORK
    assert verdict(admit(asks(data), replace(FACTS, draining=True))) == "plainly draining"
    assert verdict(admit(asks(data), replace(FACTS, room=False))) == "plainly no_room"
    assert verdict(admit(asks(data), replace(FACTS, queue_depth=2))) == "plainly overloaded"


def test_what_settles_is_taken_whatever_the_load() -> None:
    """A cancel or a run's end comes through a full queue, a full disk, a drain, and into an ended run."""
    for data in (CANCEL, RunEndData()):
        assert admit(asks(data), EVERYTHING_WRONG) == Accept()


def test_looks_have_a_queue_of_their_own() -> None:
    """However many calls wait, one may be asked for; and no more of them than there may be calls."""
    look = ProbeData(operation_id=OperationId("op_x"))
    assert admit(asks(look), replace(FACTS, draining=True, room=False, queue_depth=2)) == Accept()
    assert verdict(admit(asks(look), replace(FACTS, errands=FACTS.queue_max))) == "plainly overloaded"
    assert admit(asks(CANCEL), replace(FACTS, errands=FACTS.queue_max)) == Accept()


def test_what_settles_is_refused_when_its_reserve_is_used_up() -> None:
    """Plainly, and whatever it is; what is known already, and what starts work, is answered as before."""
    full = replace(FACTS, room=False, settling_room=False)
    for data in (CANCEL, RunEndData(), InvalidData(code="invalid", message="no")):
        assert verdict(admit(asks(data), full)) == "plainly overloaded"
    assert verdict(admit(asks(), full)) == "plainly no_room"
    assert admit(asks(), replace(full, known=KNOWN)) == Known()


def test_every_refusal_says_what_to_do() -> None:
    """A message names the obstacle and the way on."""
    texts = [
        admit(asks(), replace(FACTS, fence=FENCED)),
        admit(asks(), replace(FACTS, known=replace(KNOWN, content_digest=OTHER))),
        admit(asks(), replace(FACTS, draining=True)),
        admit(asks(), replace(FACTS, room=False)),
        admit(asks(), replace(FACTS, queue_depth=2)),
        admit(asks(), replace(FACTS, run_ended=True)),
        admit(asks(), replace(FACTS, unknown_resumes=(RunId("run-0"),))),
        admit(asks(), replace(FACTS, twins=(replace(TWIN, guards=True),))),
        admit(asks(CALL, ELSEWHERE), FACTS),
    ]
    messages = [
        item.message for item in texts if isinstance(item, RefusePlainly | RefuseFinally | AcceptLost)
    ]
    assert len(messages) == len(texts)
    hints = (
        "effectd unfence",
        "new command_id",
        "again",
        "again",
        "again",
        "new run",
        "send the call",
        "wait",
        "reconcile",
    )
    assert [hint for hint, message in zip(hints, messages, strict=True) if hint not in message] == []


# ------------------------------------------------------------ look-alikes

ACCEPTED = replace(TWIN, state=State.ACCEPTED, effect=Effect.UNKNOWN, effect_by=None, guards=True)
UNKNOWN = replace(TWIN, state=State.UNKNOWN, effect=Effect.UNKNOWN, effect_by=None, guards=True)
SUPERVISED = replace(UNKNOWN, effect=Effect.OCCURRED, effect_by=Source.SUPERVISOR)
OPERATORS_UNKNOWN = replace(UNKNOWN, effect_by=Source.OPERATOR)
PROBED = replace(UNKNOWN, effect=Effect.OCCURRED, effect_by=Source.PROBE, guards=False)
FAILED = replace(TWIN, state=State.FAILED, effect=Effect.UNKNOWN, effect_by=None, error_means="reported")
NO_EFFECT = replace(TWIN, state=State.FAILED, effect=Effect.NONE)
NOT_EXECUTED = replace(TWIN, state=State.NOT_EXECUTED, effect=Effect.NONE, effect_by=Source.DAEMON)


@pytest.mark.parametrize(
    ("twin", "guarded", "once"),
    [
        (ACCEPTED, "finally lookalike_unsettled", "finally lookalike_unsettled"),
        (
            replace(ACCEPTED, state=State.STARTED),
            "finally lookalike_unsettled",
            "finally lookalike_unsettled",
        ),
        (UNKNOWN, "finally lookalike_unsettled", "finally lookalike_unsettled"),
        (SUPERVISED, "finally lookalike_unsettled", "finally lookalike_unsettled"),
        (
            replace(SUPERVISED, effect=Effect.NONE),
            "finally lookalike_unsettled",
            "finally lookalike_unsettled",
        ),
        (OPERATORS_UNKNOWN, "finally lookalike_unsettled", "finally duplicate_unknown"),
        (TWIN, "Accept", "finally duplicate_completed"),
        (PROBED, "Accept", "finally duplicate_completed"),
        (FAILED, "Accept", "finally duplicate_failed"),
        (NO_EFFECT, "Accept", "Accept"),
        (NOT_EXECUTED, "Accept", "Accept"),
        (replace(PROBED, effect=Effect.NONE), "Accept", "Accept"),
    ],
)
@pytest.mark.parametrize("repeat", [False, True])
def test_look_alikes(twin: OperationRecord, guarded: str, once: str, *, repeat: bool) -> None:
    """`repeat` and `allow` let a look-alike through; nothing overrides `once-per-run`; reads always run."""
    command = asks(replace(CALL, repeat=repeat))
    facts = replace(FACTS, twins=(twin,))

    def under(rule: Identical) -> Decision:
        return admit(command, replace(facts, identical=rule))

    assert verdict(under("guard-unsettled")) == ("Accept" if repeat else guarded)
    assert verdict(under("once-per-run")) == once
    assert verdict(under("allow")) == "Accept"
    for rule in ("guard-unsettled", "once-per-run", "allow"):
        assert admit(command, replace(facts, identical=rule, write=False)) == Accept()


def test_the_twin_that_is_open_is_named_first() -> None:
    """Of several twins the refusal names the one that still runs, and of equals the first (the newest)."""
    completed, newer = (replace(TWIN, operation_id=OperationId(f"op_{digit * 32}")) for digit in "12")
    running = replace(ACCEPTED, operation_id=OperationId("op_" + "3" * 32))
    decision = admit(asks(), replace(FACTS, identical="once-per-run", twins=(newer, completed, running)))
    assert isinstance(decision, RefuseFinally)
    assert (decision.code, decision.twin) == ("lookalike_unsettled", running.operation_id)
    decision = admit(asks(), replace(FACTS, identical="once-per-run", twins=(newer, completed)))
    assert isinstance(decision, RefuseFinally)
    assert (decision.code, decision.twin) == ("duplicate_completed", newer.operation_id)


# ------------------------------------------------------------ candidates


def test_a_command_frame_becomes_a_candidate() -> None:
    """The digest is of the data as received; the data is read by its kind."""
    frame = CommandFrame(
        command_id=CommandId("c"),
        run_id=RunId("r"),
        kind="tool.call",
        data={"tool": "t/x", "arguments": {}, "extra": 1},
        delivered_to=(ELSEWHERE,),
    )
    assert candidate(frame) == Candidate(
        content_digest=content_digest("tool.call", "r", frame.data),
        data=ToolCallData(tool="t/x", arguments={}),
        delivered_to=(ELSEWHERE,),
    )


def test_an_invalid_command_becomes_a_candidate_that_is_refused() -> None:
    """What was wrong as a frame is refused for good, under the digest of what was received."""
    broken = InvalidCommand(
        command_id=CommandId("c"), run_id=RunId("r"), content=("run.end", "r", []), message="why"
    )
    found = candidate(broken)
    assert found.content_digest == content_digest("run.end", "r", [])
    assert admit(found, FACTS) == RefuseFinally("invalid", "why")


def test_known_stays_known_however_often_it_comes() -> None:
    """A redelivery with the same content is known, whatever its data says by today's rules."""
    assert admit(asks(InvalidData(code="invalid", message="m")), replace(FACTS, known=KNOWN)) == Known()
