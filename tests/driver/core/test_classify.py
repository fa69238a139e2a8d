"""The table of outcomes, one test for each row, and the traps between the rows."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.core.attempts import (
    Answered,
    HttpStatus,
    InputRequired,
    NotSent,
    NotSentReason,
    PeerError,
    Phase,
    Report,
    Silence,
    SilenceCause,
    TaskPending,
)
from driver.core.classify import (
    MESSAGE_BYTES_MAX,
    RECEIPT_BYTES_MAX,
    Failed,
    Failure,
    NotExecuted,
    Succeeded,
    Unknown,
    bounded,
    classify,
    classify_late,
)
from driver.core.contracts import Contract, ErrorMeans, HeaderKey
from driver.core.expressions import Expression
from store.lifecycle import Effect
from store.records import JsonObject

WRITE = Contract()
READ = Contract(effect="read")
BEFORE = (Phase.RESERVED, Phase.CONNECTING)
AFTER = (Phase.WRITING, Phase.WRITTEN, Phase.ANSWERED)


def errors_mean(means: ErrorMeans) -> Contract:
    """The undeclared tool's contract, but for what an error means."""
    return Contract(error_means=means)


# ------------------------------------------------------------------ nothing left


@pytest.mark.parametrize("phase", BEFORE)
@pytest.mark.parametrize("reason", ["spawn_failed", "connect_failed"])
def test_what_could_not_be_started_or_reached_was_not_executed(phase: Phase, reason: NotSentReason) -> None:
    """Spawn, connect or handshake failed before the call was written: not executed, effect none."""
    ending = classify(NotSent(reason=reason, message="no"), phase, WRITE)
    assert ending == NotExecuted(reason=reason, message="no")
    assert ending.effect is Effect.NONE


@pytest.mark.parametrize("reason", ["invalid_arguments", "unknown_tool"])
def test_what_the_tool_list_rules_out_was_not_executed(reason: NotSentReason) -> None:
    """Arguments that break the input schema, or a tool that is not there: seen before dispatch."""
    assert classify(NotSent(reason=reason, message="no"), Phase.RESERVED, WRITE) == NotExecuted(
        reason=reason, message="no"
    )


@pytest.mark.parametrize("reason", ["cancelled", "deadline"])
def test_what_was_called_off_before_the_first_byte_was_not_executed(reason: NotSentReason) -> None:
    """Cancelled, or past its deadline, at the last look before the first byte."""
    assert classify(NotSent(reason=reason, message="no"), Phase.CONNECTING, WRITE) == NotExecuted(
        reason=reason, message="no"
    )


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        ("deadline", "deadline"),
        ("cancelled", "cancelled"),
        ("connection_lost", "connect_failed"),
        ("protocol_error", "connect_failed"),
        ("internal", "connect_failed"),
    ],
)
@pytest.mark.parametrize("phase", BEFORE)
def test_silence_before_the_first_byte_was_not_executed(
    phase: Phase, cause: SilenceCause, reason: NotSentReason
) -> None:
    """The recorded phase is the proof that nothing left, whatever ended the wait."""
    assert classify(Silence(cause=cause, message="-"), phase, WRITE) == NotExecuted(
        reason=reason, message="-"
    )


# ------------------------------------------------------------------ answers


def test_a_result_is_success() -> None:
    """An answer without an error: succeeded, effect occurred, the result as it came."""
    ending = classify(Answered(result={"content": [], "x": 1}), Phase.ANSWERED, WRITE)
    assert ending == Succeeded(result={"content": [], "x": 1})
    assert ending.effect is Effect.OCCURRED


def test_a_result_that_breaks_the_output_schema_is_success_still() -> None:
    """Invalid structured content is flagged, and is an answer all the same."""
    ending = classify(Answered(result={}, output_invalid=True), Phase.ANSWERED, WRITE)
    assert ending == Succeeded(result={}, output_invalid=True)


FAILURES: list[tuple[Report, Failure]] = [
    (
        Answered(is_error=True, result={"content": [{"type": "text", "text": "no such repo"}]}),
        Failure("tool_error", "no such repo"),
    ),
    (PeerError(code=-32603, message="boom"), Failure("-32603", "boom")),
    (PeerError(code=-32001, message="timed out"), Failure("-32001", "timed out")),
    (PeerError(code=-32000, message="closed"), Failure("-32000", "closed")),
    (
        InputRequired(result={"resultType": "input_required"}),
        Failure("input_required", "the tool asks for input, and nobody is there to give it"),
    ),
    *(
        (
            HttpStatus(status=status, result={}),
            Failure(f"http_{status}", f"the provider answered with HTTP status {status}"),
        )
        for status in (400, 401, 404, 409, 422, 500, 501)
    ),
]


@pytest.mark.parametrize(("report", "error"), FAILURES)
@pytest.mark.parametrize("means", ["reported", "unsettled"])
def test_a_providers_own_failure_leaves_the_effect_open(
    report: Report, error: Failure, means: ErrorMeans
) -> None:
    """isError, a peer's error (-32000 and -32001 too), InputRequired, HTTP 4xx, 500 and 501: failed."""
    ending = classify(report, Phase.ANSWERED, errors_mean(means))
    assert isinstance(ending, Failed)
    assert (ending.effect, ending.error, ending.error_means) == (Effect.UNKNOWN, error, means)


@pytest.mark.parametrize(("report", "error"), FAILURES)
def test_a_providers_own_failure_proves_no_effect_where_the_contract_says_so(
    report: Report, error: Failure
) -> None:
    """`error_means = "none"`: the operator vouches that an error of this tool means that nothing happened."""
    ending = classify(report, Phase.ANSWERED, errors_mean("none"))
    assert isinstance(ending, Failed)
    assert (ending.effect, ending.error, ending.error_means) == (Effect.NONE, error, "none")


@pytest.mark.parametrize(("means", "kept"), [("none", "reported"), ("unsettled", "unsettled")])
def test_a_program_that_was_interrupted_proves_nothing(means: ErrorMeans, kept: ErrorMeans) -> None:
    """A signal ends it anywhere: not even `error_means = "none"` makes that a proof."""
    report = Answered(result={"stderr": ""}, is_error=True, code="SIGKILL", interrupted=True)
    ending = classify(report, Phase.ANSWERED, errors_mean(means))
    assert isinstance(ending, Failed)
    assert (ending.effect, ending.error.code, ending.error_means) == (Effect.UNKNOWN, "SIGKILL", kept)


@pytest.mark.parametrize(
    ("stderr", "message"),
    [
        ("warning: x\nfatal: no such remote\n\n", "fatal: no such remote"),
        ("y" * 5_000, "y" * 1_997 + "…"),
        (" \n", "the program said nothing on its standard error"),
    ],
)
def test_a_programs_error_is_its_code_and_its_last_line(stderr: str, message: str) -> None:
    """What stands last on standard error explains an exit code, within the bound of all messages."""
    report = Answered(result={"exit_code": 3, "stderr": stderr}, is_error=True, code="exit_3")
    ending = classify(report, Phase.ANSWERED, errors_mean("none"))
    assert isinstance(ending, Failed)
    assert (ending.effect, ending.error) == (Effect.NONE, Failure("exit_3", message))


def test_a_peers_error_is_kept_whole() -> None:
    """Code, message and data of a JSON-RPC error all reach the journal."""
    ending = classify(PeerError(code=7, message="m", data=[1]), Phase.ANSWERED, WRITE)
    assert isinstance(ending, Failed)
    assert ending.result == {"error": {"code": 7, "message": "m", "data": [1]}}


def test_a_task_that_is_not_done_is_unknown_and_its_handle_is_the_receipt() -> None:
    """A task handle in place of a result, at the deadline: unknown/task_pending."""
    ending = classify(TaskPending(handle={"taskId": "t-1"}), Phase.ANSWERED, WRITE)
    assert isinstance(ending, Unknown)
    assert (ending.reason, ending.receipt) == ("task_pending", {"taskId": "t-1"})


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"taskId": "t-1", "status": "failed", "statusMessage": "out of ink"}, "out of ink"),
        ({"taskId": "t-1", "status": "failed"}, "the tool reported an error without a text"),
    ],
)
def test_a_failed_task_is_a_failure_that_explains_itself(state: JsonObject, message: str) -> None:
    """Its state is the answer, where its call has none: the effect is by the contract."""
    report = Answered(result=state, is_error=True, code="task_failed")
    ending = classify(report, Phase.ANSWERED, errors_mean("none"))
    assert isinstance(ending, Failed)
    assert (ending.error, ending.effect) == (Failure("task_failed", message), Effect.NONE)


def test_a_task_that_was_cancelled_may_have_happened() -> None:
    """It stopped somewhere, whatever the contract says that errors mean."""
    report = Answered(result={"status": "cancelled"}, is_error=True, code="task_cancelled", interrupted=True)
    ending = classify(report, Phase.ANSWERED, errors_mean("none"))
    assert isinstance(ending, Failed)
    assert (ending.error_means, ending.effect) == ("reported", Effect.UNKNOWN)


@pytest.mark.parametrize("status", [502, 504, 520, 599, 204])
def test_a_gateways_word_says_nothing(status: int) -> None:
    """HTTP 502, 504 and what nobody listed may come from somebody else: unknown, whatever errors mean."""
    ending = classify(HttpStatus(status=status, result={}), Phase.ANSWERED, errors_mean("none"))
    assert isinstance(ending, Unknown)
    assert ending.reason == "gateway_error"


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
def test_a_redirected_write_is_unknown(status: int) -> None:
    """3xx on a write: unknown/redirected, whatever errors mean."""
    ending = classify(HttpStatus(status=status, result={}), Phase.ANSWERED, errors_mean("none"))
    assert isinstance(ending, Unknown)
    assert ending.reason == "redirected"


def test_a_redirected_read_failed() -> None:
    """3xx on a read is an answer like any other that is no result."""
    assert isinstance(classify(HttpStatus(status=302, result={}), Phase.ANSWERED, READ), Failed)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("means", "recorded"), [("none", "reported"), ("reported", "reported"), ("unsettled", "unsettled")]
)
def test_not_now_never_proves_that_nothing_happened(
    status: int, means: ErrorMeans, recorded: ErrorMeans
) -> None:
    """HTTP 429 and 503: failed, and the effect is unknown even where errors mean none."""
    ending = classify(HttpStatus(status=status, result={}), Phase.ANSWERED, errors_mean(means))
    assert isinstance(ending, Failed)
    assert (ending.effect, ending.error_means) == (Effect.UNKNOWN, recorded)


@pytest.mark.parametrize("means", ["reported", "none", "unsettled"])
def test_a_conflict_about_our_key_is_unsettled(means: ErrorMeans) -> None:
    """HTTP 409 where our key travels: another attempt with it is in flight, so nothing is settled."""
    contract = replace(errors_mean(means), key_carrier=HeaderKey("Idempotency-Key"))
    ending = classify(HttpStatus(status=409, result={}), Phase.ANSWERED, contract)
    assert isinstance(ending, Failed)
    assert (ending.effect, ending.error_means) == (Effect.UNKNOWN, "unsettled")


DRAFT_409: JsonObject = {"json": {"title": "A request is outstanding for this Idempotency-Key"}}
DRAFT_422: JsonObject = {"json": {"title": "Idempotency-Key is already used"}}
BY_LINK: JsonObject = {
    "headers": {"link": '<https://api.example/idempotency>; rel="describedby"'},
    "text": "",
}
IN_TEXT: JsonObject = {"headers": {}, "text": "this IDEMPOTENCY key was used before"}
OTHERWISE: JsonObject = {"headers": {"idempotency-key": "op_1"}, "json": {"detail": "n must be positive"}}
CARRIED = Contract(key_carrier=HeaderKey("Idempotency-Key"))


@pytest.mark.parametrize(
    ("status", "result", "code"),
    [
        (409, DRAFT_409, "idempotency_key_in_flight"),
        (409, BY_LINK, "idempotency_key_in_flight"),
        (409, OTHERWISE, "http_409"),
        (422, DRAFT_422, "idempotency_key_reused"),
        (422, IN_TEXT, "idempotency_key_reused"),
        (422, OTHERWISE, "http_422"),
        (422, {}, "http_422"),
        (400, DRAFT_422, "http_400"),
    ],
)
def test_the_answers_of_the_idempotency_key_draft_have_names_of_their_own(
    status: int, result: JsonObject, code: str
) -> None:
    """409 and 422 that speak of the key: told apart from any other conflict or validation error."""
    ending = classify(HttpStatus(status=status, result=result), Phase.ANSWERED, CARRIED)
    assert isinstance(ending, Failed)
    assert ending.error.code == code
    assert ending.error_means == ("unsettled" if status == 409 else "reported")


@pytest.mark.parametrize(("status", "result"), [(409, DRAFT_409), (422, DRAFT_422)])
def test_where_no_key_was_carried_nothing_is_about_a_key(status: int, result: JsonObject) -> None:
    """Whatever the body says, it cannot be about a key that was never sent."""
    ending = classify(HttpStatus(status=status, result=result), Phase.ANSWERED, errors_mean("none"))
    assert isinstance(ending, Failed)
    assert (ending.error.code, ending.effect) == (f"http_{status}", Effect.NONE)


@pytest.mark.parametrize("means", ["reported", "none", "unsettled"])
def test_a_key_that_was_reused_is_a_failure_like_any_other(means: ErrorMeans) -> None:
    """422 has a name, and its effect is what the contract says of errors."""
    contract = replace(CARRIED, error_means=means)
    ending = classify(HttpStatus(status=422, result=DRAFT_422), Phase.ANSWERED, contract)
    assert isinstance(ending, Failed)
    assert (ending.error_means, ending.effect is Effect.NONE) == (means, means == "none")


def test_a_redirect_of_a_write_keeps_the_reference_that_came_with_it() -> None:
    """Where it led may be the only trace of what the write did."""
    contract = Contract(receipt=Expression("result.headers.location"))
    result: JsonObject = {"headers": {"location": "/orders/7"}}
    ending = classify(HttpStatus(status=303, result=result), Phase.ANSWERED, contract)
    assert isinstance(ending, Unknown)
    assert ending.receipt == "/orders/7"


# ------------------------------------------------------------------ silence


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        ("deadline", "execution_timeout"),
        ("connection_lost", "connection_lost"),
        ("protocol_error", "protocol_error"),
        ("cancelled", "cancelled_after_dispatch"),
        ("internal", "protocol_error"),
    ],
)
@pytest.mark.parametrize("phase", AFTER)
@pytest.mark.parametrize("contract", [WRITE, errors_mean("none"), READ])
def test_silence_after_the_first_byte_is_unknown(
    phase: Phase, cause: SilenceCause, reason: str, contract: Contract
) -> None:
    """Deadline, lost connection, garbage, an exception of ours: unknown once the first byte may have left."""
    ending = classify(Silence(cause=cause, message="-"), phase, contract)
    assert isinstance(ending, Unknown)
    assert (ending.reason, ending.effect) == (reason, Effect.UNKNOWN)


@pytest.mark.parametrize("phase", AFTER)
@pytest.mark.parametrize(
    "reason",
    ["connect_failed", "spawn_failed", "invalid_arguments", "unknown_tool", "cancelled", "deadline"],
)
def test_a_claim_of_not_sent_is_not_believed_after_the_first_byte(
    phase: Phase, reason: NotSentReason
) -> None:
    """A server that dies after its commit looks like a failed connect: the recorded phase decides."""
    assert isinstance(classify(NotSent(reason=reason, message="-"), phase, WRITE), Unknown)


@pytest.mark.parametrize("phase", list(Phase))
def test_an_answer_counts_whenever_it_comes(phase: Phase) -> None:
    """An answer is an answer, whatever phase was recorded last."""
    assert isinstance(classify(Answered(result={}), phase, WRITE), Succeeded)


def test_a_late_answer_is_judged_by_the_same_rows() -> None:
    """A success that comes late is a success."""
    assert classify_late(Answered(result={}), errors_mean("none")) == Succeeded(result={})


@pytest.mark.parametrize(("report", "error"), FAILURES)
@pytest.mark.parametrize(
    ("means", "recorded"), [("none", "reported"), ("reported", "reported"), ("unsettled", "unsettled")]
)
def test_a_late_error_never_proves_that_nothing_happened(
    report: Report, error: Failure, means: ErrorMeans, recorded: ErrorMeans
) -> None:
    """The provider had been told to stop: its error may come from a tool that was interrupted halfway."""
    ending = classify_late(report, errors_mean(means))
    assert isinstance(ending, Failed)
    assert (ending.effect, ending.error, ending.error_means) == (Effect.UNKNOWN, error, recorded)


# ------------------------------------------------------------------ receipts


def test_the_receipt_is_what_its_expression_selects() -> None:
    """`receipt` is JMESPath over the answer, of a success and of a failure alike."""
    contract = Contract(receipt=Expression("result.structuredContent.id"))
    result: JsonObject = {"structuredContent": {"id": 42}}
    succeeded = classify(Answered(result=result), Phase.ANSWERED, contract)
    failed = classify(Answered(result=result, is_error=True), Phase.ANSWERED, contract)
    assert succeeded == Succeeded(result=result, receipt=42)
    assert isinstance(failed, Failed)
    assert failed.receipt == 42


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("result.structuredContent.id", {"content": []}),
        ("abs(result.structuredContent)", {"structuredContent": "no number"}),
        ("&result", {}),
        ("result.structuredContent", {"structuredContent": "x" * RECEIPT_BYTES_MAX}),
    ],
)
def test_a_receipt_that_cannot_be_had_is_reported_missing(expression: str, result: JsonObject) -> None:
    """Absent, not evaluable, no JSON or too large: the success stands, and says what it lacks."""
    contract = Contract(receipt=Expression(expression))
    ending = classify(Answered(result=result), Phase.ANSWERED, contract)
    assert ending == Succeeded(result=result, receipt=None, receipt_missing=True)


# ------------------------------------------------------------------ properties

REPORTS = st.one_of(
    st.builds(Answered, result=st.just({}), is_error=st.booleans(), output_invalid=st.booleans()),
    st.builds(PeerError, code=st.integers(), message=st.text()),
    st.builds(HttpStatus, status=st.integers(100, 999), result=st.just({})),
    st.builds(InputRequired, result=st.just({})),
    st.builds(TaskPending, handle=st.just({})),
    st.builds(NotSent, message=st.text()),
    st.builds(Silence, message=st.text()),
)
CONTRACTS = st.builds(
    Contract,
    effect=st.sampled_from(["read", "write"]),
    error_means=st.sampled_from(["reported", "none", "unsettled"]),
    idempotent=st.just(False),
    retry=st.just("never"),
    receipt=st.none(),
)


@given(report=REPORTS, phase=st.sampled_from(Phase), contract=CONTRACTS)
def test_only_proof_is_ever_not_executed(report: Report, phase: Phase, contract: Contract) -> None:
    """`not_executed` needs a phase before the first byte, and `succeeded` an answer without an error."""
    ending = classify(report, phase, contract)
    if isinstance(ending, NotExecuted):
        assert not phase.may_have_left
        assert isinstance(report, NotSent | Silence)
    if isinstance(ending, Succeeded):
        assert isinstance(report, Answered)
        assert not report.is_error
    if isinstance(ending, Failed):
        assert not isinstance(report, NotSent | Silence)
        assert (ending.effect is Effect.NONE) == (ending.error_means == "none")


@given(st.text())
def test_a_message_is_bounded_in_bytes(text: str) -> None:
    """Whatever a peer writes, an event holds at most `MESSAGE_BYTES_MAX` bytes of it."""
    assert len(bounded(text * 2_000).encode("utf-8", "replace")) <= MESSAGE_BYTES_MAX
    assert bounded(text[:100]) == text[:100]
