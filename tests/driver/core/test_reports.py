"""Reports: what is kept of a provider's answer, whatever it quotes, and that any answer can be recorded."""

import json
from dataclasses import asdict, replace

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
from driver.core.classify import Ending, Failed, NotExecuted, Succeeded, Unknown, classify, classify_late
from driver.core.contracts import Contract
from driver.core.expressions import Expression
from driver.core.redaction import MARKER, Redaction
from driver.core.reports import ANSWER_DEPTH_MAX, Redactor, judge, sound
from store.records import JsonObject, JsonValue
from tests.driver.core.json_values import objects

TOKEN = "tok_9f8e7d6c5b4a"
EMAIL = "alice@example.com"
ARGUMENTS: JsonObject = {"token": TOKEN, "title": "a title"}
REDACTOR = Redactor(
    redaction=Redaction(("arguments.token", "result.structuredContent.people.*.email")), arguments=ARGUMENTS
)
ERASED = replace(REDACTOR, arguments=None)


def judged(
    report: Report,
    redactor: Redactor | None = REDACTOR,
    *,
    receipt: str | None = None,
    phase: Phase = Phase.ANSWERED,
    late: bool = False,
) -> Ending:
    """The ending of a call of a redacting tool."""
    contract = Contract(receipt=None if receipt is None else Expression(receipt))
    return judge(report, phase, contract, redactor, late=late)


def answer(*, people: JsonValue = None, text: str = "done", **more: JsonValue) -> Answered:
    """An MCP answer."""
    return Answered(
        result={
            "content": [{"type": "text", "text": text}],
            "structuredContent": {"id": 7, "people": people or [{"email": EMAIL, "name": "Alice"}]},
            **more,
        }
    )


def test_an_answer_is_kept_without_what_is_declared() -> None:
    """Declared values become the marker, the text beside them goes, and the rest stays."""
    ending = judged(answer())
    assert isinstance(ending, Succeeded)
    assert ending.result == {
        "content": [{"type": "text", "text": MARKER}],
        "structuredContent": {"id": 7, "people": [{"email": MARKER, "name": "Alice"}]},
    }


def test_nothing_else_in_an_answer_brings_a_value_back() -> None:
    """Neither an argument that is echoed, nor a redacted result that stands once more somewhere else."""
    ending = judged(answer(_meta={"echo": f"token={TOKEN}", "mail": f"to {EMAIL}", EMAIL: [TOKEN]}))
    assert isinstance(ending, Succeeded)
    assert ending.result["_meta"] == {"echo": f"token={MARKER}", "mail": f"to {MARKER}", MARKER: [MARKER]}


@pytest.mark.parametrize(
    ("expression", "receipt", "missing"),
    [
        ("result.structuredContent.id", 7, False),
        ("result.structuredContent.people[0].email", None, True),
        ("result._meta.ref", None, True),
        ("result._meta", None, True),
        ("result.absent", None, True),
    ],
)
def test_a_receipt_is_found_in_the_raw_answer_and_tells_nothing(
    expression: str, receipt: JsonValue, missing: bool
) -> None:
    """A receipt that is, holds or quotes a withheld value is missing: half of a reference is none."""
    ending = judged(answer(_meta={"ref": f"issue of {TOKEN}"}), receipt=expression)
    assert isinstance(ending, Succeeded)
    assert (ending.receipt, ending.receipt_missing) == (receipt, missing)


def test_a_receipt_that_stands_in_a_withheld_text_is_missing() -> None:
    """Nobody can tell whether a text that may repeat a withheld value does."""
    ending = judged(answer(text="issue-42"), receipt="result.content[0].text")
    assert isinstance(ending, Succeeded)
    assert (ending.receipt, ending.receipt_missing) == (None, True)
    measured = judged(answer(text="issue-42"), receipt="length(result.content[0].text)")
    assert isinstance(measured, Succeeded)
    assert measured.receipt is None


def test_an_errors_own_text_brings_nothing_back() -> None:
    """Neither a tool's error, nor a JSON-RPC error's message, nor its data, whose shape nobody declared."""
    tool = judged(replace(answer(text=f"no {TOKEN}"), is_error=True))
    assert isinstance(tool, Failed)
    assert tool.error.message == MARKER
    peer = judged(
        PeerError(code=-32602, message=f"no {EMAIL}", data={"input": ["x"]}), receipt="result.error"
    )
    assert isinstance(peer, Failed)
    assert peer.error == ("-32602", MARKER)
    assert peer.result == {"error": {"code": -32602, "message": MARKER, "data": MARKER}}
    assert peer.receipt is None


def test_an_errors_words_stay_where_no_result_is_declared() -> None:
    """A contract that withholds arguments alone looks for them in it, and keeps the rest."""
    redactor = Redactor(redaction=Redaction(("arguments.token",)), arguments=ARGUMENTS)
    report = PeerError(code=1, message=f"bad token {TOKEN!r}", data={"got": TOKEN, "hint": "try again"})
    ending = judged(report, redactor)
    assert isinstance(ending, Failed)
    assert ending.error == ("1", f"bad token '{MARKER}'")
    assert ending.result["error"] == {
        "code": 1,
        "message": f"bad token '{MARKER}'",
        "data": {"got": MARKER, "hint": "try again"},
    }


def test_an_error_text_is_searched_before_it_is_cut() -> None:
    """The bound of a message must not cut a value in two, so that neither half is found."""
    redactor = Redactor(redaction=Redaction(("arguments.token",)), arguments=ARGUMENTS)
    for before in range(1_970, 2_001):
        ending = judged(PeerError(code=1, message="x" * before + TOKEN + "y" * 50), redactor)
        assert isinstance(ending, Failed)
        assert TOKEN[:6] not in ending.error.message


@pytest.mark.parametrize(
    ("report", "phase", "kind"),
    [
        (NotSent(reason="invalid_arguments", message=f"{TOKEN} is too long"), Phase.RESERVED, NotExecuted),
        (Silence(cause="connection_lost", message=f"lost {TOKEN}"), Phase.WRITTEN, Unknown),
        (TaskPending(handle={"taskId": TOKEN}), Phase.ANSWERED, Unknown),
        (TaskPending(handle={"taskId": "t-1"}), Phase.ANSWERED, Unknown),
        (InputRequired(result={"ask": TOKEN}), Phase.ANSWERED, Failed),
        (HttpStatus(status=400, result={"status": 400, "text": TOKEN}), Phase.ANSWERED, Failed),
    ],
)
def test_every_kind_of_report_is_searched(report: Report, phase: Phase, kind: type[Ending]) -> None:
    """What it says about the effect stays; what it quotes goes."""
    ending = judged(report, phase=phase)
    assert isinstance(ending, kind)
    assert TOKEN not in repr(ending)
    assert ending.effect is classify(report, phase, Contract()).effect


def test_a_task_handle_stays_unless_it_quotes() -> None:
    """The handle is the receipt of a task that is not done."""
    kept = judged(TaskPending(handle={"taskId": "t-1"}))
    assert isinstance(kept, Unknown)
    assert kept.receipt == {"taskId": "t-1"}
    gone = judged(TaskPending(handle={"taskId": TOKEN}))
    assert isinstance(gone, Unknown)
    assert gone.receipt is None


def test_without_the_arguments_nothing_of_a_text_is_kept() -> None:
    """An answer that comes after they were erased cannot be compared with them."""
    ending = judged(answer(text="ok"), ERASED, receipt="result.structuredContent.id", late=True)
    assert isinstance(ending, Succeeded)
    assert ending.result == {"content": MARKER, "structuredContent": MARKER}
    assert (ending.receipt, ending.receipt_missing) == (None, True)
    error = judged(PeerError(code=1, message="anything", data=[1]), ERASED, late=True)
    assert isinstance(error, Failed)
    assert error.error == ("1", MARKER)
    assert "anything" not in repr(error)
    assert ERASED.shown_arguments() is None
    assert ERASED.message("anything") == MARKER


def test_arguments_are_shown_without_what_is_declared() -> None:
    """An approver, and whoever asks the local API, sees them so."""
    assert REDACTOR.shown_arguments() == {"token": MARKER, "title": "a title"}
    echo = replace(REDACTOR, arguments={**ARGUMENTS, "title": f"use {TOKEN}"})
    assert echo.shown_arguments() == {"token": MARKER, "title": f"use {MARKER}"}
    assert REDACTOR.message(f"'{TOKEN}' was unexpected") == f"'{MARKER}' was unexpected"
    assert REDACTOR.message("") == ""


@given(value=objects, receipt=st.sampled_from([None, "result.a", "result"]), late=st.booleans())
def test_a_contract_without_redaction_keeps_an_answer_as_it_came(
    value: JsonObject, receipt: str | None, late: bool
) -> None:
    """The outcome is what the table of classification says, and nothing else."""
    contract = Contract(receipt=None if receipt is None else Expression(receipt))
    plain = classify_late(Answered(result=value), contract) if late else None
    expected = plain or classify(Answered(result=value), Phase.ANSWERED, contract)
    assert judge(Answered(result=value), Phase.ANSWERED, contract, None, late=late) == expected


@given(value=objects, secret=st.text("abcdef0123456789", min_size=12, max_size=40), cut=st.integers(0, 8))
def test_no_ending_holds_a_withheld_value(value: JsonObject, secret: str, cut: int) -> None:
    """Wherever a provider puts it, and however the text around it looks."""
    redactor = Redactor(redaction=Redaction(("arguments.s",)), arguments={"s": secret})
    quoted = json.dumps(value)[:cut] + secret + json.dumps(value)[cut:]
    reports: list[Report] = [
        Answered(result={**value, "echo": [quoted], quoted: 1}),
        PeerError(code=1, message=quoted, data={"a": quoted}),
        Silence(cause="internal", message=quoted),
    ]
    for report in reports:
        ending = judge(report, Phase.ANSWERED, Contract(receipt=Expression("result.echo")), redactor)
        assert secret not in json.dumps(asdict(ending)).replace(MARKER, "\0")


# ------------------------------------------------------------ what an event can hold


def nested(levels: int) -> JsonObject:
    """An answer with so many objects and lists inside one another."""
    value: JsonValue = {}
    for _ in range(levels - 2):
        value = [value]
    return {"deep": value}


UNFIT: list[tuple[JsonObject, str]] = [
    (nested(ANSWER_DEPTH_MAX + 1), "nested"),
    (nested(5_000), "nested"),
    ({"n": float("nan")}, "number"),
    ({"n": float("-inf")}, "number"),
    ({"n": [10**5000]}, "number"),
    ({"s": "\ud800"}, "surrogate"),
    ({"\udfff": 1}, "surrogate"),
]


@pytest.mark.parametrize(("value", "word"), UNFIT)
def test_an_answer_that_no_event_can_hold_is_unknown(value: JsonObject, word: str) -> None:
    """It may have happened, and what came back cannot be recorded: never an exception, never a success."""
    for report in (
        Answered(result=value),
        PeerError(code=1, message="no", data=value),
        HttpStatus(status=200, result=value),
        TaskPending(handle=value),
        InputRequired(result=value),
    ):
        ending = judged(report)
        assert isinstance(ending, Unknown)
        assert ending.reason == "protocol_error"
        assert word in ending.message
        assert ending.receipt is None


FIT: list[JsonObject] = [
    nested(ANSWER_DEPTH_MAX),
    {"n": 2**63, "m": -(2**200), "f": 1e300},
    {"s": "\0\x7f\N{GRINNING FACE}\ufffd", "data": "AAEC/w==" * 10},
    {"many": [{"n": number} for number in range(500)]},
]


@pytest.mark.parametrize("value", FIT)
def test_an_answer_that_events_can_hold_is_kept(value: JsonObject) -> None:
    """Deep within the limit, integers beyond 64 bits, control characters, many objects side by side."""
    report = Answered(result=value)
    assert sound(report) is report
