"""What a model is told: the state first, and no advice to do once more what may have happened."""

import json
from dataclasses import replace

import pytest

from driver.core.attempts import Answered, PeerError
from driver.core.contracts import Contract
from driver.core.redaction import Redaction
from driver.gateway.answers import CODE, OPERATION_ID, OUTCOME, REPLAYED, Reading, result_of
from driver.gateway.outcomes import Alike, Ended, NotTaken, Outcome, Retired, Running
from driver.gateway.words import caution, refused_alike, settled
from store.events import OperationFailed, OperationNotExecuted, OperationSucceeded, OperationUnknown
from store.lifecycle import Effect, Source, State
from store.records import JsonObject, OperationId, OperationRecord
from tests.driver.core.samples import ENDED as RECORD

OP = OperationId("op_" + "0" * 32)
NOTHING = Reading(None, None)
ADVICE = ("try again", "retry", "call it again", "once more")


def told(outcome: Outcome, *, contract: Contract | None = None, wire: bool = True) -> JsonObject:
    """Return the tool result of an outcome."""
    return result_of(outcome, "p/t", contract or Contract(), NOTHING, wire=wire, shown_max=1_000)


def text_of(result: JsonObject) -> str:
    """Return all text of a result."""
    content = result["content"]
    assert isinstance(content, list)
    return "\n".join(str(part["text"]) for part in content if isinstance(part, dict))


def succeeded(raw: JsonObject) -> Ended:
    """Return the end of a call that the provider answered so."""
    data: JsonObject = {"effect": "occurred"}
    report = Answered(result=raw)
    return Ended(operation_id=OP, kind=OperationSucceeded.KIND, data=data, report=report)


UNCERTAIN = [
    Ended(operation_id=OP, kind=OperationUnknown.KIND, data={"reason": reason, "message": "please try again"})
    for reason in ("crash_window", "execution_timeout", "connection_lost", "task_pending", "something_new")
]
UNSETTLED = Ended(
    operation_id=OP,
    kind=OperationFailed.KIND,
    data={
        "effect": "unknown",
        "error_means": "unsettled",
        "error": {"code": "500", "message": "an error: try again later"},
    },
    report=PeerError(code=-1, message="try again"),
)


@pytest.mark.parametrize("outcome", [*UNCERTAIN, UNSETTLED, Running(operation_id=OP)])
def test_nothing_advises_to_do_once_more_what_may_have_happened(outcome: Outcome) -> None:
    """Not in our words, and not in anybody else's."""
    result = told(outcome)
    said = text_of(result).lower()
    assert result["isError"] is True
    assert not any(advice in said for advice in ADVICE)
    assert "not" in said
    assert OP in text_of(result)


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (UNCERTAIN[0], "unknown"),
        (Alike(code="lookalike_unsettled", twin=OP), "refused"),
        (NotTaken(code="draining", message="the daemon is stopping"), "refused"),
        (Retired(operation_id=OP, kind="operation.succeeded", effect="occurred"), "refused"),
        (Running(operation_id=OP), "still_running"),
        (
            Ended(
                operation_id=OP,
                kind=OperationNotExecuted.KIND,
                data={"reason": "approval_denied"},
                decided={"approver": "operator:7", "reason": "no"},
            ),
            "denied",
        ),
        (
            Ended(operation_id=OP, kind=OperationNotExecuted.KIND, data={"reason": "connect_failed"}),
            "not_executed",
        ),
    ],
)
def test_an_answer_that_is_no_success_names_its_state(outcome: Outcome, state: str) -> None:
    """In its first word, and in its `_meta`."""
    result = told(outcome)
    meta = result["_meta"]
    assert isinstance(meta, dict)
    assert result["isError"] is True
    assert text_of(result).startswith(state)
    assert meta[OUTCOME] == state


def test_a_result_is_as_the_provider_gave_it() -> None:
    """Members that no version of the protocol knows included; our own stand beside its `_meta`."""
    raw: JsonObject = {"content": [{"type": "novel", "x": 1}], "extra": [1], "_meta": {"theirs": 1}}
    ended = Ended(
        operation_id=OP,
        kind=OperationSucceeded.KIND,
        data={"effect": "occurred"},
        report=Answered(result=raw),
    )
    meta: JsonObject = {"theirs": 1, OPERATION_ID: OP, OUTCOME: "succeeded"}
    assert told(ended) == {**raw, "_meta": meta}


def test_a_provider_says_nothing_in_our_name() -> None:
    """One that is an effectd itself may repeat an answer of its own: this call was made all the same."""
    raw: JsonObject = {"content": [], "_meta": {REPLAYED: True, CODE: "x", OUTCOME: "refused", "theirs": 1}}
    assert told(succeeded(raw))["_meta"] == {"theirs": 1, OPERATION_ID: OP, OUTCOME: "succeeded"}


def test_what_is_no_tool_result_becomes_one() -> None:
    """A program's or an HTTP answer is both text and structured content."""
    raw: JsonObject = {"exit_code": 0, "stdout": "hi"}
    ended = Ended(
        operation_id=OP,
        kind=OperationSucceeded.KIND,
        data={"effect": "occurred"},
        report=Answered(result=raw),
    )
    result = told(ended, wire=False)
    assert result["structuredContent"] == raw
    assert '"stdout": "hi"' in text_of(result)


def test_a_providers_own_error_is_unchanged_unless_it_leaves_something_open() -> None:
    """Then a sentence of ours comes behind it."""
    raw: JsonObject = {"content": [{"type": "text", "text": "no such title"}], "isError": True}
    data: JsonObject = {"effect": "unknown", "error_means": "reported", "error": {"code": "tool_error"}}
    report = Answered(result=raw, is_error=True)
    reported = Ended(operation_id=OP, kind=OperationFailed.KIND, data=data, report=report)
    assert told(reported)["content"] == raw["content"]
    unsettled = Ended(
        operation_id=OP, kind=OperationFailed.KIND, data={**data, "error_means": "unsettled"}, report=report
    )
    assert "must not be repeated" in text_of(told(unsettled))


@pytest.mark.parametrize("kept", [None, {"content": [], "structuredContent": {"n": "[redacted]"}}])
def test_what_is_left_of_a_result_is_not_held_against_a_schema(kept: JsonObject | None) -> None:
    """A client would tell its model of a fault then, and nothing of what has happened."""
    ended = replace(succeeded({}), report=None, replayed=True)
    contract = Contract(redact=Redaction(("result.structuredContent.n",)))
    result = result_of(ended, "p/t", contract, Reading(None, kept), wire=True, shown_max=1_000)
    assert result["isError"] is True
    assert text_of(result).startswith("succeeded: it has happened")
    assert result["_meta"] == {OPERATION_ID: OP, OUTCOME: "succeeded", REPLAYED: True}
    whole = result_of(ended, "p/t", Contract(), Reading(None, {"content": []}), wire=True, shown_max=1_000)
    assert "isError" not in whole


def test_a_result_that_wants_input_has_no_client_send_the_call_once_more() -> None:
    """A client of the newer era would do so by itself, and the call would be a new one."""
    raw: JsonObject = {"content": [], "resultType": "input_required", "requestState": "s"}
    data: JsonObject = {"effect": "unknown", "error_means": "reported", "error": {"code": "input_required"}}
    report = Answered(result=raw, is_error=True)
    result = told(Ended(operation_id=OP, kind=OperationFailed.KIND, data=data, report=report))
    assert not {"resultType", "requestState"} & set(result)
    assert (result["isError"], text_of(result)[:6]) == (True, "failed")


def test_an_error_that_leaves_something_open_is_told_without_its_sentence() -> None:
    """Though the journal has it: neither its message nor a result that quotes it."""
    kept = Reading(None, {"error": {"code": -1, "message": "timed out, try again"}})
    result = result_of(UNSETTLED, "p/t", Contract(), kept, wire=True, shown_max=1_000)
    assert "try again" not in json.dumps(result)
    assert "must not be repeated" in text_of(result)


def test_a_read_may_be_asked_again() -> None:
    """What only reads has changed nothing, whatever became of its answer."""
    assert "only reads" in text_of(told(UNCERTAIN[0], contract=Contract(effect="read")))


def twin(state: State, effect: Effect, by: Source | None, *, guards: bool) -> OperationRecord:
    """An equal call of before, as the journal has it."""
    return replace(
        RECORD,
        state=state,
        effect=effect,
        effect_by=by,
        best_effort=by is Source.SUPERVISOR,
        settled=by is not None or not guards,
        guards=guards,
    )


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (twin(State.UNKNOWN, Effect.UNKNOWN, None, guards=True), "may have happened, and nobody knows yet"),
        (twin(State.UNKNOWN, Effect.NONE, Source.SUPERVISOR, guards=True), "a guess, and no proof"),
        (
            twin(State.UNKNOWN, Effect.UNKNOWN, Source.SUPERVISOR, guards=True),
            "could not be found out so far",
        ),
        (twin(State.UNKNOWN, Effect.UNKNOWN, Source.OPERATOR, guards=True), "which nobody could find out"),
        (twin(State.UNKNOWN, Effect.OCCURRED, Source.PROBE, guards=False), "has happened, as was found out"),
        (twin(State.FAILED, Effect.UNKNOWN, None, guards=True), "error, and may have happened all the same"),
        (twin(State.FAILED, Effect.UNKNOWN, None, guards=False), "has failed"),
        (twin(State.FAILED, Effect.OCCURRED, Source.OPERATOR, guards=False), "has happened all the same"),
        (twin(State.SUCCEEDED, Effect.OCCURRED, Source.PROVIDER, guards=False), "has succeeded"),
    ],
)
def test_of_an_equal_call_of_before_it_is_said_what_is_known_now(found: OperationRecord, said: str) -> None:
    """Nobody is told that nobody knows, where somebody has found out since; a guess is called one."""
    text = refused_alike("p/t", found, Contract(), undelivered=False)
    assert said in text
    assert not any(advice in text.lower() for advice in ADVICE)
    assert (caution(found) is None) == (not found.guards)


def test_an_error_of_a_call_that_has_happened_is_not_shown() -> None:
    """Whatever it advises: what the journal has found out since is told instead of it."""
    kept: JsonObject = {"content": [{"type": "text", "text": "failed, try again"}], "isError": True}
    alike = Alike(code="answer_undelivered", twin=OP, undelivered=True)
    for effect, shown in ((Effect.OCCURRED, False), (Effect.UNKNOWN, True)):
        record = twin(State.FAILED, effect, None, guards=False)
        result = result_of(alike, "p/t", Contract(), Reading(record, kept), wire=True, shown_max=1_000)
        assert ("failed, try again" in text_of(result)) is shown


@pytest.mark.parametrize("effect", list(Effect))
def test_a_guess_about_a_lost_answer_is_no_leave_to_repeat_the_call(effect: Effect) -> None:
    """Not even where it is that nothing happened."""
    guessed = twin(State.UNKNOWN, effect, Source.SUPERVISOR, guards=True)
    assert "do not repeat the call because of it" in settled("p/t", guessed)
