"""A tool call as it goes over the wire."""

from pathlib import Path

import pytest
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

from driver.core.attempts import NotSent, ToolCall
from driver.core.contracts import ArgumentKey, HeaderKey, KeyCarrier, MetaKey, NoKey, Sep3182Key
from driver.providers.mcp.calls import Dialect, arguments_of, call_headers, call_params
from driver.providers.mcp.settings import HeaderNeedsHttp, HttpServer, McpSettings
from driver.providers.mcp.tools import read_tools
from store.records import JsonObject, JsonValue, OperationId
from tests.driver.providers.mcp.stage import program

LEGACY = Dialect(LATEST_HANDSHAKE_VERSION)
MODERN = Dialect(LATEST_MODERN_VERSION)
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def call(*, key: str | None = "op_1", traceparent: str | None = None) -> ToolCall:
    """Return a call of `t`."""
    return ToolCall(
        operation_id=OperationId("op_1"),
        attempt=1,
        tool="t",
        arguments={"a": 1},
        key=key,
        timeout_s=1,
        traceparent=traceparent,
    )


@pytest.mark.parametrize(
    ("carrier", "params"),
    [
        (NoKey(), {"name": "t", "arguments": {"a": 1}}),
        (
            MetaKey(),
            {"name": "t", "arguments": {"a": 1}, "_meta": {"dev.effectd/idempotency-key": "op_1"}},
        ),
        (ArgumentKey("k"), {"name": "t", "arguments": {"a": 1, "k": "op_1"}}),
        (Sep3182Key(), {"name": "t", "arguments": {"a": 1}, "idempotencyKey": "op_1"}),
        (HeaderKey("Idempotency-Key"), {"name": "t", "arguments": {"a": 1}}),
    ],
)
def test_the_key_stands_where_its_carrier_says(carrier: KeyCarrier, params: JsonObject) -> None:
    """In exactly one place."""
    arguments = arguments_of(call(), carrier)
    assert not isinstance(arguments, NotSent)
    assert call_params(call(), arguments, carrier) == params
    headers = call_headers(call(), arguments, carrier, LEGACY, None)
    assert headers.get("Idempotency-Key") == ("op_1" if isinstance(carrier, HeaderKey) else None)


@pytest.mark.parametrize(
    "carrier", [NoKey(), MetaKey(), ArgumentKey("a"), Sep3182Key(), HeaderKey("Idempotency-Key")]
)
def test_a_call_without_a_key_has_all_of_its_arguments(carrier: KeyCarrier) -> None:
    """No key travels, and the argument that carries it elsewhere is the call's own."""
    keyless = call(key=None)
    arguments = arguments_of(keyless, carrier)
    assert arguments == {"a": 1}
    assert call_params(keyless, {"a": 1}, carrier) == {"name": "t", "arguments": {"a": 1}}
    assert "Idempotency-Key" not in call_headers(keyless, {"a": 1}, carrier, LEGACY, None)
    assert isinstance(arguments_of(call(), ArgumentKey("a")), NotSent)


def test_the_trace_goes_with_the_call() -> None:
    """`traceparent` travels in `_meta`, beside the key."""
    params = call_params(call(traceparent=TRACE), {}, MetaKey())
    assert params["_meta"] == {"traceparent": TRACE, "dev.effectd/idempotency-key": "op_1"}


@pytest.mark.parametrize(
    ("execution", "task"),
    [({"taskSupport": "required"}, {}), ({"taskSupport": "optional"}, None), ({}, None), ("required", None)],
)
def test_a_task_is_asked_for_where_the_tool_is_served_in_no_other_way(
    execution: JsonValue, task: JsonValue
) -> None:
    """Any other tool is called plainly, and answers sooner."""
    definition: JsonObject = {"name": "t", "inputSchema": {"type": "object"}, "execution": execution}
    tool = read_tools([definition], provider="p", modern=False, known={})["t"]
    assert call_params(call(), {}, NoKey(), tool).get("task") == task


def test_the_newer_protocol_stamps_each_request_and_leaves_the_key_alone() -> None:
    """Version, client and capabilities join what stands in `_meta` already."""
    meta = MODERN.stamped(call_params(call(), {}, MetaKey()))["_meta"]
    assert isinstance(meta, dict)
    assert meta["dev.effectd/idempotency-key"] == "op_1"
    assert meta["io.modelcontextprotocol/protocolVersion"] == LATEST_MODERN_VERSION
    assert LEGACY.stamped({}) == {}


def test_the_newer_protocol_repeats_method_name_and_marked_arguments_as_headers() -> None:
    """What is no header value is wrapped, so that nothing can break out of its header."""
    definition: JsonObject = {
        "name": "t",
        "inputSchema": {
            "type": "object",
            "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        },
    }
    tools = read_tools([definition], provider="p", modern=True, known={})
    headers = call_headers(call(), {"region": "a\r\nb"}, MetaKey(), MODERN, tools["t"])
    assert headers["mcp-method"] == "tools/call"
    assert headers["mcp-name"] == "t"
    assert headers["Mcp-Param-Region"] == "=?base64?YQ0KYg==?="
    assert call_headers(call(), {}, MetaKey(), LEGACY, None) == {
        "mcp-protocol-version": LATEST_HANDSHAKE_VERSION
    }


def test_a_tool_with_an_invalid_header_annotation_is_dropped() -> None:
    """The newer protocol forbids clients to use it; the older one does not know the annotation."""
    definition: JsonObject = {"name": "t", "inputSchema": {"type": "object", "x-mcp-header": "Root"}}
    assert read_tools([definition], provider="p", modern=True, known={}) == {}
    assert list(read_tools([definition], provider="p", modern=False, known={})) == ["t"]


def test_a_tool_that_did_not_change_keeps_its_compiled_schema() -> None:
    """A list that is read again costs nothing for what is the same."""
    first = read_tools([{"name": "a", "inputSchema": {}}], provider="p", modern=False, known={})
    again = read_tools([{"name": "a", "inputSchema": {}}], provider="p", modern=False, known=first)
    other = read_tools([{"name": "a", "inputSchema": {"x": 1}}], provider="p", modern=False, known=first)
    assert again["a"] is first["a"]
    assert other["a"] is not first["a"]


def test_the_read_only_hint_is_read_strictly() -> None:
    """Only `true` is a hint."""
    hints: list[JsonObject] = [{"readOnlyHint": True}, {"readOnlyHint": "true"}, {}]
    definitions: list[JsonObject] = [
        {"name": str(n), "inputSchema": {}, "annotations": hint} for n, hint in enumerate(hints)
    ]
    tools = read_tools([*definitions], provider="p", modern=False, known={})
    assert [tool.read_only_hint for tool in tools.values()] == [True, False, False]


def test_a_header_cannot_carry_a_key_over_a_pipe(tmp_path: Path) -> None:
    """The contradiction is found where the settings are made."""
    key = HeaderKey("Idempotency-Key")
    with pytest.raises(HeaderNeedsHttp, match="over stdio"):
        McpSettings(name="p", server=program(tmp_path, ["x"]), key=key)
    assert McpSettings(name="p", server=HttpServer(url="http://127.0.0.1/mcp"), key=key).key == key
