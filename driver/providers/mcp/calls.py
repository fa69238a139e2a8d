"""A tool call as it goes over the wire: arguments, `_meta` and headers, with the key where it belongs.

Part of `driver.providers.mcp`; imports `driver.core`, its own `tools`, and the SDK's names for headers and
`_meta`.
"""

from dataclasses import dataclass
from importlib.metadata import version as version_of
from typing import Final

from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    encode_header_value,
)
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from driver.core.attempts import NotSent, ToolCall
from driver.core.contracts import (
    META_KEY,
    SEP3182_FIELD,
    ArgumentKey,
    HeaderKey,
    KeyCarrier,
    MetaKey,
    Sep3182Key,
)
from driver.providers.mcp.tools import ServedTool
from store.records import JsonObject

CLIENT_NAME: Final = "effectd"
CLIENT_VERSION: Final = version_of(CLIENT_NAME)


@dataclass(frozen=True, slots=True)
class Dialect:
    """The protocol version that was negotiated, and what it wants of each request."""

    version: str

    @property
    def modern(self) -> bool:
        """True from 2026-07-28 on: no session, and each request says who sends it."""
        return self.version in MODERN_PROTOCOL_VERSIONS

    def stamped(self, params: JsonObject) -> JsonObject:
        """Return `params` with what the protocol wants of each request in `_meta`."""
        if not self.modern:
            return params
        meta = params.get("_meta")
        stamp: JsonObject = {
            PROTOCOL_VERSION_META_KEY: self.version,
            CLIENT_INFO_META_KEY: {"name": CLIENT_NAME, "version": CLIENT_VERSION},
            CLIENT_CAPABILITIES_META_KEY: {},
        }
        return {**params, "_meta": {**(meta if isinstance(meta, dict) else {}), **stamp}}

    def headers(self, method: str, name: str | None = None) -> dict[str, str]:
        """Return the HTTP headers that go with a request."""
        headers = {MCP_PROTOCOL_VERSION_HEADER: self.version}
        if self.modern:
            headers[MCP_METHOD_HEADER] = method
            if name is not None:
                headers[MCP_NAME_HEADER] = encode_header_value(name)
        return headers


def arguments_of(call: ToolCall, carrier: KeyCarrier) -> JsonObject | NotSent:
    """Return the arguments as the tool gets them. Callers may not supply the one that carries the key.

    Of a call that has none, all arguments are its own.
    """
    if not isinstance(carrier, ArgumentKey) or call.key is None:
        return call.arguments
    if carrier.name in call.arguments:
        message = f"the argument {carrier.name!r} carries the idempotency key: callers must leave it out"
        return NotSent(reason="invalid_arguments", message=message)
    return {**call.arguments, carrier.name: call.key}


def call_params(
    call: ToolCall,
    arguments: JsonObject,
    carrier: KeyCarrier,
    tool: ServedTool | None = None,
    *,
    progress: int | None = None,
) -> JsonObject:
    """Return the params of `tools/call`. `arguments` are those of `arguments_of`.

    With `progress`, the server is asked to tell how far it is, under this token.
    """
    meta: JsonObject = {} if progress is None else {"progressToken": progress}
    if call.traceparent is not None:
        meta["traceparent"] = call.traceparent
    if call.key is not None and isinstance(carrier, MetaKey):
        meta[META_KEY] = call.key
    params: JsonObject = {"name": call.tool, "arguments": arguments}
    if meta:
        params["_meta"] = meta
    if call.key is not None and isinstance(carrier, Sep3182Key):
        params[SEP3182_FIELD] = call.key
    if tool is not None and tool.only_as_task:
        params["task"] = {}
    return params


def call_headers(
    call: ToolCall, arguments: JsonObject, carrier: KeyCarrier, dialect: Dialect, tool: ServedTool | None
) -> dict[str, str]:
    """Return the HTTP headers of `tools/call`."""
    headers = dialect.headers("tools/call", call.tool)
    if tool is not None:
        headers |= tool.argument_headers(arguments)
    if call.key is not None and isinstance(carrier, HeaderKey):
        headers[carrier.name] = call.key
    return headers
