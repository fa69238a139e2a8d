"""From a call to its request: templates, a path that arguments cannot leave, headers, body, and the key."""

from dataclasses import replace
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from driver.core.attempts import ToolCall
from driver.core.contracts import ArgumentKey, HeaderKey, KeyCarrier, NoKey
from driver.providers.http.errors import Refused
from driver.providers.http.requests import request_of
from driver.providers.http.settings import Endpoint
from driver.providers.http.targets import TARGET_CHARS_MAX
from store.records import JsonObject, JsonValue, OperationId
from tests.driver.providers.http.stage import endpoint, settings

BASE = "https://shop.example/v1"


def call_with(arguments: JsonObject | None = None, *, tool: str = "act", **others: str) -> ToolCall:
    """Return a call of `act`."""
    return ToolCall(
        operation_id=OperationId("op_1"),
        attempt=1,
        tool=tool,
        arguments=arguments or {},
        key="op_1",
        timeout_s=1,
        traceparent=others.get("traceparent"),
    )


def requested(
    tool: Endpoint, arguments: JsonObject | None = None, *, base: str = BASE, key: KeyCarrier | None = None
) -> tuple[str, str, dict[str, str], bytes]:
    """Return method, target, headers and body of a call's request."""
    made = request_of(settings(base, {"act": tool}, key=key or NoKey()), call_with(arguments), {})
    assert made.url.host == "shop.example"
    return made.method, made.url.raw_path.decode(), dict(made.headers), made.content


def target(path: str, arguments: JsonObject | None = None, *, base: str = BASE) -> str:
    """Return the target of a call's request."""
    return requested(endpoint(path=path), arguments, base=base)[1]


def refusal(tool: Endpoint, arguments: JsonObject | None = None, *, key: KeyCarrier | None = None) -> str:
    """Return why a call is refused for its arguments."""
    with pytest.raises(Refused) as raised:
        requested(tool, arguments, key=key)
    assert raised.value.report.reason == "invalid_arguments"
    return raised.value.report.message


def test_a_call_becomes_the_declared_request() -> None:
    """Method, path, query, headers and body, each filled in with the call's arguments."""
    tool = endpoint(
        method="PUT",
        path="=['orders', arguments.id]",
        query={"dry": False, "n": "=arguments.n", "tag": "=arguments.tags"},
        headers={"X-Item": "=arguments.item", "Accept": "text/plain"},
        body={"item": "=arguments.item", "count": 1, "deep": [{"key": "=key"}]},
    )
    arguments: JsonObject = {"id": 7, "n": 2.5, "item": "tea", "tags": ["a b", "c&d"]}
    method, path, headers, body = requested(tool, arguments)
    assert (method, path) == ("PUT", "/v1/orders/7?dry=false&n=2.5&tag=a%20b&tag=c%26d")
    assert body == b'{"item":"tea","count":1,"deep":[{"key":"op_1"}]}'
    assert headers == {
        "host": "shop.example",
        "user-agent": headers["user-agent"],
        "accept": "text/plain",
        "x-item": "tea",
        "accept-encoding": "identity",
        "connection": "close",
        "content-type": "application/json",
        "content-length": str(len(body)),
    }


def test_an_unknown_tool_is_named_with_those_that_there_are() -> None:
    """What the configuration does not declare is not there."""
    with pytest.raises(Refused) as raised:
        request_of(settings(BASE, {"act": endpoint()}), call_with(tool="delete_all"), {})
    assert raised.value.report.reason == "unknown_tool"
    assert raised.value.report.message.endswith("its tools are: act")


# ------------------------------------------------------------------ where it goes


@pytest.mark.parametrize(
    ("base", "path", "expected"),
    [
        ("https://shop.example", "", "/"),
        ("https://shop.example/v1", "", "/v1"),
        ("https://shop.example/v1/", "", "/v1/"),
        ("https://shop.example/v1/", "/a", "/v1/a"),
        ("https://shop.example/v1", "a/b/", "/v1/a/b/"),
        ("https://shop.example", "//evil.example/a", "/evil.example/a"),
        ("https://shop.example/v1", "https://evil.example/a", "/v1/https://evil.example/a"),
        ("https://shop.example/v1", "/@evil.example", "/v1/@evil.example"),
        ("https://shop.example/v1", "/a?b#c", "/v1/a%3Fb%23c"),
        ("https://shop.example/v1", "/a%20b/%zz/ü x", "/v1/a%20b/%25zz/%C3%BC%20x"),
    ],
)
def test_a_path_stands_below_the_base(base: str, path: str, expected: str) -> None:
    """Whatever a path looks like, it never leaves the base URL's origin, and never begins a query."""
    assert target(path, base=base) == expected


@pytest.mark.parametrize(
    ("argument", "segment"),
    [
        ("7", "7"),
        ("a/b", "a%2Fb"),
        ("a?b=c&d#e", "a%3Fb%3Dc%26d%23e"),
        ("a\\b", "a%5Cb"),
        ("%2e%2e", "%252e%252e"),
        ("...", "..."),
        ("..a", "..a"),
        ("ü x", "%C3%BC%20x"),
        ("https://evil.example", "https%3A%2F%2Fevil.example"),
        ("\uffff", "%EF%BF%BF"),
    ],
)
@pytest.mark.parametrize("path", ["=['items', arguments.id]", "=join('', ['/items/', arguments.id])"])
def test_an_argument_stays_within_its_segment(path: str, argument: str, segment: str) -> None:
    """An argument is one segment, however the expression puts the path together."""
    assert target(path, {"id": argument}) == f"/v1/items/{segment}"


@pytest.mark.parametrize(
    "argument",
    [
        "",
        ".",
        "..",
        "../admin",
        "a/../b",
        "a/..",
        "..\\b",
        "x\\..\\y",
        "..;x",
        "../",
        "a\r\nb",
        "a\0",
        "\x7f",
    ],
)
@pytest.mark.parametrize("path", ["=['items', arguments.id]", "=join('', ['/items/', arguments.id])"])
def test_an_argument_that_means_another_place_is_refused(path: str, argument: str) -> None:
    """Encoded or not: some servers decode a path before they look where it leads."""
    message = refusal(endpoint(path=path), {"id": argument})
    assert message.startswith("path: ")
    assert len(argument) < 3 or argument not in message


@given(st.text())
@example("..")
@example("%2e%2e/x")
@example("\uffff")
def test_no_argument_leaves_its_segment(argument: str) -> None:
    """Whatever text it is: three segments, the argument whole in the second, and no query."""
    try:
        found = target("=join('/', ['items', arguments.id, 'lines'])", {"id": argument})
    except Refused:
        return
    before, segment, after = found.removeprefix("/v1/").split("/")
    assert (before, unquote(segment), after) == ("items", argument, "lines")
    assert not set(found) & {"?", "#", "\\", " "}


@pytest.mark.parametrize("name", ["a/b?c=d", "../..", "..", ""])
def test_the_name_of_an_argument_cannot_leave_its_segment_either(name: str) -> None:
    """A caller chooses names, too."""
    try:
        found = target("=['items', keys(arguments)[0], 'x']", {name: 1})
    except Refused:
        return
    assert len(found.split("/")) == 5
    assert "?" not in found


@pytest.mark.parametrize("value", [None, {"a": 1}, ["a", ["b"]]])
def test_a_segment_is_text_or_a_number(value: JsonValue) -> None:
    """What is missing, or is no single value, is no segment."""
    refusal(endpoint(path="=['items', arguments.id]"), {"id": value})


def test_a_literal_that_means_another_place_is_refused() -> None:
    """Even the declaration does not climb out of its base."""
    assert "another place" in refusal(endpoint(path="/../admin"))


def test_a_target_is_bounded() -> None:
    """Path and query together."""
    refusal(endpoint(path="=arguments.id"), {"id": "x" * TARGET_CHARS_MAX})
    refusal(endpoint(query={"q": "=arguments.q"}), {"q": "x" * TARGET_CHARS_MAX})


def test_a_parameter_that_is_null_is_left_out() -> None:
    """An optional argument is an optional parameter; without any there is no `?`."""
    tool = endpoint(query={"q": "=arguments.q", "a&b": "=arguments.a"})
    assert requested(tool, {})[1] == "/v1/act"
    assert requested(tool, {"a": "?&=#/é"})[1] == "/v1/act?a%26b=%3F%26%3D%23%2F%C3%A9"


@pytest.mark.parametrize("value", [{"x": 1}, [None], [["a"]]])
def test_a_parameter_is_flat(value: JsonValue) -> None:
    """Nothing says how an object would stand in a query."""
    assert refusal(endpoint(query={"q": "=arguments.q"}), {"q": value}).startswith("query.q: ")


# ------------------------------------------------------------------ method, headers, body


def test_the_method_can_be_an_argument() -> None:
    """It is templated as all else, and one of a fixed few."""
    tool = endpoint(method="=arguments.method")
    assert requested(tool, {"method": "PATCH"})[0] == "PATCH"
    for wrong in ("patch", "CONNECT", "GET /x HTTP/1.1\r\n", None, 3):
        assert refusal(tool, {"method": wrong}).startswith("method: ")


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\n b", "\0", "ä", " x", "x" * 9_000, ["x"], {"x": 1}])
def test_a_header_cannot_be_broken_out_of(value: JsonValue) -> None:
    """Neither line breaks nor characters that some server reads otherwise, and no error quotes the value."""
    message = refusal(endpoint(headers={"X-Item": "=arguments.item"}), {"item": value})
    assert message.startswith("headers.X-Item: ")
    assert "Evil" not in message


def test_a_header_that_is_null_is_left_out() -> None:
    """An optional argument is an optional header; numbers and booleans are text."""
    tool = endpoint(headers={"X-A": "=arguments.a", "X-B": "=arguments.b"})
    headers = requested(tool, {"b": 2})[2]
    assert headers["x-b"] == "2"
    assert "x-a" not in headers


@pytest.mark.parametrize(
    "name", ["Host", "content-length", "Transfer-Encoding", "Connection", "Expect", "a b"]
)
def test_a_declaration_cannot_say_how_the_request_travels(name: str) -> None:
    """The configuration refuses it; a call would, too."""
    refusal(endpoint(headers={name: "x"}))


@pytest.mark.parametrize(
    ("arguments", "body"),
    [
        ({}, b""),
        ({"body": None}, b""),
        ({"body": {}}, b"{}"),
        ({"body": []}, b"[]"),
        ({"body": "é"}, '"é"'.encode()),
        ({"body": {"n": 10**30, "null": None}}, b'{"n":1000000000000000000000000000000,"null":null}'),
        ({"body": False}, b"false"),
    ],
)
def test_a_body_is_the_json_that_its_template_yields(arguments: JsonObject, body: bytes) -> None:
    """Integers are exact; null as a whole is no body."""
    found = requested(endpoint(body="=arguments.body"), arguments)
    assert found[3] == body
    assert ("content-type" in found[2]) == bool(body)


def test_an_expression_that_cannot_be_evaluated_is_named_and_the_argument_is_not() -> None:
    """The declaration is at fault, or the caller: both can see what was expected."""
    message = refusal(endpoint(body={"n": "=abs(arguments.n)"}), {"n": "a secret"})
    assert "abs(arguments.n)" in message
    assert "secret" not in message


def test_the_trace_of_the_command_goes_along() -> None:
    """`traceparent`, unless the declaration says otherwise."""
    traced = request_of(settings(BASE, {"act": endpoint()}), call_with(traceparent="00-ab-cd-01"), {})
    assert traced.headers["traceparent"] == "00-ab-cd-01"
    assert "traceparent" not in requested(endpoint())[2]


# ------------------------------------------------------------------ the key


def test_the_key_travels_as_a_header() -> None:
    """`header:NAME`; a declared header of that name does not get in its way."""
    tool = endpoint(headers={"idempotency-key": "=arguments.key"})
    headers = requested(tool, {"key": "mine"}, key=HeaderKey("Idempotency-Key"))[2]
    assert headers["idempotency-key"] == "op_1"


def test_the_key_travels_as_an_argument() -> None:
    """`argument:NAME`: expressions see it as one, and a caller may not supply it."""
    tool = endpoint(body="=arguments")
    assert requested(tool, {"a": 1}, key=ArgumentKey("request_id"))[3] == b'{"a":1,"request_id":"op_1"}'
    assert "request_id" in refusal(tool, {"request_id": "mine"}, key=ArgumentKey("request_id"))


def test_a_call_without_a_key_has_all_of_its_arguments() -> None:
    """The argument that carries the key elsewhere is its own, and no header of that name is sent."""
    tool = endpoint(body="=arguments", headers={"x-key": "=key"})
    keyless = replace(call_with({"request_id": "op_2"}), key=None)
    made = request_of(settings(BASE, {"act": tool}, key=ArgumentKey("request_id")), keyless, {})
    assert made.content == b'{"request_id":"op_2"}'
    made = request_of(settings(BASE, {"act": tool}, key=HeaderKey("Idempotency-Key")), keyless, {})
    assert not {"idempotency-key", "x-key"} & set(made.headers)


def test_without_a_carrier_the_key_stays_here() -> None:
    """`none`: nothing of the request knows it, but for what the declaration puts there itself."""
    _, found, headers, body = requested(endpoint(body="=arguments"), {"a": 1})
    assert "op_1" not in (found + str(headers) + body.decode())
