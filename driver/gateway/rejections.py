"""What the SDK is not given, and what its sender is answered: the same whatever it came over.

Part of `driver.gateway`; imports the SDK's models, `driver.core` and its siblings.
"""

from typing import Final

from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from driver.core.strictjson import NotStrictJson, loads
from driver.gateway.answers import error
from driver.gateway.lines import HEAD_BYTES
from driver.gateway.wire import PROTOCOL_VERSION, TOO_LONG, told_id
from driver.gateway.words import not_taken
from store.records import JsonObject

TWICE: Final = "a request of this id has no answer yet"
_NO_MESSAGE: Final = "no message of JSON-RPC 2.0 looks like this"


class Unreadable(ValueError):
    """What came is no message of MCP: `why` says what is wrong, `code` is JSON-RPC's word for it."""

    def __init__(self, why: str, code: int) -> None:
        self.why = why
        self.code = code
        super().__init__(why)


def message_of(data: bytes) -> JSONRPCMessage:
    """Return the message that `data` is, by strict JSON. Raises `Unreadable`."""
    try:
        return jsonrpc_message_adapter.validate_python(loads(data), by_name=False)
    except NotStrictJson as fault:
        code = INVALID_REQUEST if fault.code == "not_an_object" else PARSE_ERROR
        raise Unreadable(fault.message, code) from fault
    except ValidationError as fault:
        raise Unreadable(_NO_MESSAGE, INVALID_REQUEST) from fault


def rejection(data: bytes, why: str) -> JSONRPCResponse | JSONRPCError | None:
    """Return the answer to a message that is not taken; None where it does not say plainly who waits."""
    result = error(f"invalid_arguments: nothing was executed; {why}.", "invalid_arguments")
    return _answer(data, f"{why}; nothing was executed", result)


def too_long(ends: bytes) -> JSONRPCResponse | JSONRPCError | None:
    """Return the answer to a message of which only both ends are there, as `rejection` does."""
    result = error(not_taken("oversize", f"{TOO_LONG}."), "refused", code="oversize")
    return _answer(ends, f"{TOO_LONG}; nothing was executed", result)


def _answer(data: bytes, why: str, result: JsonObject) -> JSONRPCResponse | JSONRPCError | None:
    request_id = told_id(data)
    if not isinstance(request_id, str | int):
        return None
    if b'"tools/call"' not in data[:HEAD_BYTES]:
        said = ErrorData(code=INVALID_REQUEST, message=why)
        return JSONRPCError(jsonrpc="2.0", id=request_id, error=said)
    if PROTOCOL_VERSION.encode() in data:
        result["resultType"] = "complete"
    return JSONRPCResponse(jsonrpc="2.0", id=request_id, result=result)
