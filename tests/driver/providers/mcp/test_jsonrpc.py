"""What a message is, and what an answer means."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.core.attempts import Answered, InputRequired, PeerError, Report, Silence, TaskPending
from driver.core.reports import ANSWER_DEPTH_MAX
from driver.core.strictjson import loads
from driver.providers.mcp.jsonrpc import (
    VALUES_MAX,
    FromPeer,
    Garbage,
    Response,
    _values,
    read_message,
    report_of,
    write_message,
)
from store.records import JsonObject, JsonValue

JSON: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.binary())
def test_no_bytes_whatever_raise(data: bytes) -> None:
    """Whatever a peer sends, it is a message or garbage."""
    assert isinstance(read_message(data), Response | FromPeer | Garbage)


@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_no_json_object_whatever_raises(message: JsonObject) -> None:
    """Nor does any object, and what is a response means something."""
    read = read_message(json.dumps(message).encode())
    if isinstance(read, Response) and isinstance(read.reply, dict):
        report_of(read.reply)


@given(JSON)
def test_an_answer_comes_back_as_it_was_sent(value: JsonValue) -> None:
    """Nothing is lost or changed between the wire and the report, and the result is strict JSON."""
    read = read_message(write_message({"jsonrpc": "2.0", "id": 7, "result": {"x": value}}))
    assert isinstance(read, Response)
    assert isinstance(read.reply, dict)
    report = report_of(read.reply)
    assert report == Answered(result={"x": value})
    assert loads(write_message({"x": value})) is not None


def values_in(value: JsonValue) -> int:
    """Return how many values there are in one, itself included."""
    if isinstance(value, dict | list):
        return 1 + sum(values_in(part) for part in (value.values() if isinstance(value, dict) else value))
    return 1


@given(JSON, st.booleans())
def test_values_are_counted_without_parsing(value: JsonValue, ascii_only: bool) -> None:
    """Never fewer than there are, and what stands in texts is not taken for any."""
    data = json.dumps({"x": value, 'a\\"[,{': "\\"}, ensure_ascii=ascii_only).encode()
    assert values_in(value) <= _values(data) <= 2 * values_in(value) + 3


@pytest.mark.parametrize("text", ["[],", '{"":0},', '"",', "0,"])
def test_a_small_message_that_would_be_large_in_memory_is_garbage(text: str) -> None:
    """Some bytes of JSON take a hundred of memory: values are counted before they are made."""
    many = text * (VALUES_MAX // text.count(",") + 1)
    read = read_message(f'{{"id":1,"result":{{"content":[{many}0]}}}}'.encode())
    assert read == Garbage(f"more than {VALUES_MAX} values in one message")


def test_a_long_text_is_one_value() -> None:
    """Code and tables are full of brackets and commas, quoted ones among them."""
    words = '{"a": [1, 2], "b\\\\": "c"}\n' * VALUES_MAX
    read = read_message(write_message({"id": 1, "result": {"content": words}}))
    assert isinstance(read, Response)
    assert read.reply == {"id": 1, "result": {"content": words}}


def test_an_answer_may_be_as_deep_as_an_event_can_hold() -> None:
    """One level more is a response that names its call, and cannot be used."""
    envelope_and_result = 2
    for levels, usable in ((ANSWER_DEPTH_MAX - envelope_and_result, True), (ANSWER_DEPTH_MAX, False)):
        nested = "[" * levels + "]" * levels
        read = read_message(f'{{"id":1,"result":{{"x":{nested}}}}}'.encode())
        assert isinstance(read, Response)
        assert (read.request_id, isinstance(read.reply, dict)) == (1, usable)


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (b"", "no JSON"),
        (b"hello", "no JSON"),
        (b'{"id":1,"result":{"x":Infinity}}', "no JSON"),
        (b'{"id":1,"result":{"x":-1e999}}', "no JSON"),
        (b'{"id":1,"result":{"x":' + b"9" * 5_000 + b"}}", "no JSON"),
        (b"[" * 100_000, "nested far too deeply"),
        (b"[]", "JSON, but no JSON-RPC message"),
        (b'"text"', "JSON, but no JSON-RPC message"),
        (b"{}", "a JSON object, but no JSON-RPC message"),
        (b'{"method":7,"id":1}', "a JSON object, but no JSON-RPC message"),
    ],
)
def test_garbage_is_described_and_never_quoted(data: bytes, detail: str) -> None:
    """The description goes into logs and events."""
    assert read_message(data) == Garbage(detail)


@pytest.mark.parametrize(
    ("wire", "request_id"),
    [("7", 7), ('"7"', 7), ('"a"', "a"), ("null", None), ("true", None), ("1.0", None), ("[1]", None)],
)
def test_the_id_of_a_response_is_a_number_or_a_text(wire: str, request_id: int | str | None) -> None:
    """A number that comes back as text is the number; `true` is not 1."""
    read = read_message(f'{{"id":{wire},"result":{{}}}}'.encode())
    assert isinstance(read, Response)
    assert read.request_id == request_id


@pytest.mark.parametrize(
    ("envelope", "report"),
    [
        ({"result": {}}, Answered(result={})),
        ({"result": {"isError": None}}, Answered(result={"isError": None})),
        ({"result": {"isError": True}}, Answered(result={"isError": True}, is_error=True)),
        ({"result": {"resultType": "complete"}}, Answered(result={"resultType": "complete"})),
        (
            {"result": {"resultType": "input_required"}},
            InputRequired(result={"resultType": "input_required"}),
        ),
        ({"result": {"task": {"taskId": "t"}}}, TaskPending(handle={"taskId": "t"})),
        (
            {"result": {"content": [], "task": {"taskId": "t"}}},
            Answered(result={"content": [], "task": {"taskId": "t"}}),
        ),
        ({"error": {"code": -32000, "message": "m", "data": 1}}, PeerError(code=-32000, message="m", data=1)),
        ({"error": {"code": 1}}, PeerError(code=1, message="")),
        ({"error": {"code": 1, "message": ["m"]}, "result": {}}, PeerError(code=1, message="")),
    ],
)
def test_each_shape_of_an_answer_has_one_meaning(envelope: JsonObject, report: Report) -> None:
    """An error beside a result is an error: success needs a clear yes."""
    assert report_of(envelope) == report


@pytest.mark.parametrize(
    "envelope",
    [
        {"result": None},
        {"result": [1]},
        {"result": {"resultType": "task"}},
        {"result": {"resultType": 7}},
        {"error": None},
        {"error": {"code": "1"}},
        {"error": {"code": 1.0}},
    ],
)
def test_an_answer_of_no_known_shape_is_a_protocol_error(envelope: JsonObject) -> None:
    """What cannot be understood is not taken for success, nor for the peer's refusal."""
    report = report_of(envelope)
    assert isinstance(report, Silence)
    assert report.cause == "protocol_error"


def test_a_message_is_one_line_of_ascii() -> None:
    """Nothing in an argument can end the line early."""
    line = write_message({"x": "a\nb\u2028\r\ud800"})
    assert line == b'{"x":"a\\nb\\u2028\\r\\ud800"}'
