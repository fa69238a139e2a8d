"""What goes over a wire, and what an answer means.

Part of `driver.providers.mcp`, pure; imports `driver.core` and the store's values. An answer is kept as it
came: what is looked at here is not changed, except that text which no UTF-8 can hold is mended.
"""

import json
import math
import re
from dataclasses import dataclass
from typing import Final, NoReturn, TypeAlias, cast

from driver.core.attempts import Answered, InputRequired, PeerError, Report, Silence, TaskPending
from driver.core.reports import ANSWER_DEPTH_MAX
from driver.core.strictjson import deeper_than
from store.records import JsonObject, JsonValue

VALUES_MAX: Final = 262_144
"""Values in one message. A few bytes of JSON can take a hundred of memory, and time for each: 8 MB of `[],`
held up everything else for 4 s, and took 250 MB."""

TOOLS_CHANGED: Final = "notifications/tools/list_changed"
LISTS_CHANGED: Final = frozenset(
    {"notifications/resources/list_changed", "notifications/prompts/list_changed"}
)
"""That other lists changed: nothing that a call depends on."""
PROGRESS: Final = "notifications/progress"

RequestId: TypeAlias = int | str

_SURROGATE_ESCAPE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_NUMERAL: Final = re.compile(r"-?[0-9]{1,18}")
_SLICE_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True)
class Response:
    """A response to the request `request_id`: its envelope, or why it cannot be used."""

    request_id: RequestId | None
    reply: JsonObject | Silence


@dataclass(frozen=True, slots=True)
class FromPeer:
    """A request (with an `id`) or a notification of the peer's own."""

    message: JsonObject

    @property
    def method(self) -> str:
        """The JSON-RPC method."""
        return str(self.message["method"])

    @property
    def is_request(self) -> bool:
        """True where the peer waits for an answer."""
        return "id" in self.message


@dataclass(frozen=True, slots=True)
class Garbage:
    """Bytes that are no JSON-RPC message. `detail` never quotes them."""

    detail: str


def read_message(data: bytes) -> Response | FromPeer | Garbage:
    """Return what one message of a peer is. Invalid UTF-8 is replaced; NaN and infinities are no JSON."""
    if _separators(data) > VALUES_MAX and _values(data) > VALUES_MAX:
        return Garbage(f"more than {VALUES_MAX} values in one message")
    try:
        value = _parse(data)
    except RecursionError:
        return Garbage("nested far too deeply")
    except ValueError:
        return Garbage("no JSON")
    if not isinstance(value, dict):
        return Garbage("JSON, but no JSON-RPC message")
    if isinstance(value.get("method"), str):
        return FromPeer(value)
    if "result" not in value and "error" not in value:
        return Garbage("a JSON object, but no JSON-RPC message")
    request_id = _request_id(value.get("id"))
    if data.count(b"{") + data.count(b"[") > ANSWER_DEPTH_MAX and deeper_than(value, ANSWER_DEPTH_MAX):
        message = f"the answer is nested more than {ANSWER_DEPTH_MAX} levels deep"
        return Response(request_id, Silence(cause="protocol_error", message=message))
    return Response(request_id, value)


def write_message(message: JsonObject) -> bytes:
    """Return `message` as one line of ASCII, without its end."""
    return _ENCODER.encode(message).encode("ascii")


def request(request_id: RequestId, method: str, params: JsonObject) -> JsonObject:
    """Return a request."""
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def notification(method: str, params: JsonObject) -> JsonObject:
    """Return a notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


def report_of(envelope: JsonObject) -> Report:
    """Return what the response to a `tools/call` means."""
    if "error" in envelope:
        return _error(envelope["error"])
    result = envelope["result"]
    if not isinstance(result, dict):
        return Silence(cause="protocol_error", message="the answer's result is no object")
    kind = result.get("resultType", "complete")
    if kind == "input_required":
        return InputRequired(result=result)
    task = result if kind == "task" else result.get("task")
    if isinstance(task, dict) and "taskId" in task and "content" not in result:
        return TaskPending(handle=task)
    if kind != "complete":
        return Silence(cause="protocol_error", message="the answer is of a type that was never asked for")
    # anything but a clear no is taken for an error: success needs a clear yes
    return Answered(result=result, is_error=result.get("isError") not in (None, False))


def _error(error: JsonValue) -> PeerError | Silence:
    if isinstance(error, dict):
        code, message = error.get("code"), error.get("message")
        if isinstance(code, int) and not isinstance(code, bool):
            return PeerError(
                code=code, message=message if isinstance(message, str) else "", data=error.get("data")
            )
    return Silence(cause="protocol_error", message="the answer is an error without a code")


def _separators(data: bytes) -> int:
    """Each value but the first comes behind one of these; in texts they mean nothing."""
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def _values(data: bytes) -> int:
    """The same outside of texts: slower, and in slices, so that counting takes no memory itself."""
    plain = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    count, inside = 0, 0
    for start in range(0, len(plain), _SLICE_BYTES):
        parts = plain[start : start + _SLICE_BYTES].split(b'"')
        count += _separators(b" ".join(parts[inside::2]))
        inside ^= (len(parts) - 1) % 2
    return count


def _request_id(value: JsonValue) -> RequestId | None:
    """Some peers send a number back as text."""
    if isinstance(value, str):
        return int(value) if _NUMERAL.fullmatch(value) else value
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _parse(data: bytes) -> JsonValue:
    value = _DECODER.decode(data.decode("utf-8", "replace"))
    return cast("JsonValue", _mended(value) if _SURROGATE_ESCAPE.search(data) else value)


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(text)
    return value


def _mended(value: object) -> object:
    """The same value with U+FFFD for each lone surrogate: no journal, and no UTF-8, can hold one."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_mended(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in cast("dict[str, object]", value).items()}
    return value


# made once: `json.loads` and `json.dumps` make another one for each message that wants anything special
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_DECODER: Final = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
