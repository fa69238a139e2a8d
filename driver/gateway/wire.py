"""What the relay and the daemon agree on: the greeting on `gateway.sock`, and the names of what is ours.

Part of `driver.gateway`; imports the standard library alone, for the relay does.

A connection begins with one line each way. The relay says whom it speaks for:

    {"effectd": "gateway", "version": 1, "instance": "…", "run_id": "…", "resumes": ["…"]}

(and `closed`, where its client asks for nothing more)

and the daemon that it listens (`{"effectd": "gateway", "version": 1, "journal_id": "…"}`), or why not (with
`refused` and `message`). A relay whose run nobody named says with `place` where it was started, and is told
with `resumes` which runs from there it continues; from then on it says that itself. Behind that go MCP's own
JSON-RPC messages, one a line.
"""

import json
import re
from dataclasses import dataclass
from typing import Final, Never, TypeAlias, cast

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
Message: TypeAlias = dict[str, Json]

VERSION: Final = 1
NAME: Final = "effectd"
"""How the server calls itself."""

COMMAND_ID: Final = "dev.effectd/command-id"
"""In the `_meta` of a `tools/call` of the relay: the id under which the journal shall know it."""
ASKED_AT: Final = "dev.effectd/asked-at"
"""Beside it where the call is asked about again: when it was asked first, in seconds since the epoch."""
JOURNAL_ID: Final = "dev.effectd/journal-id"
"""Beside that: the journal of the daemon that it was sent to first. Another one may not know of it."""
OURS: Final = "dev.effectd/"
"""Begins every member of `_meta` that is ours; what a client sends under such a name is dropped."""
DELIVERED: Final = "notifications/dev.effectd/delivered"
"""The relay's word that the agent has the answer of `commandId`."""
UNHEARD: Final = "notifications/dev.effectd/unheard"
"""The relay takes that word back: the agent had given up on `commandId` before it could read the answer."""
OUR_WORD: Final = "notifications/" + OURS
"""Begins what only the relay says: from a client it is nothing."""
COMMAND_PREFIX: Final = "gateway:"
"""Begins the command ids of calls that come through the gateway."""

CLOSED: Final = "notifications/dev.effectd/closed"
"""The relay's word that its client has closed its end: another start of it may ask for the same from now on,
while this relay is still there for answers."""
GREETING_BYTES_MAX: Final = 65_536
LINE_BYTES_MAX: Final = 4_194_304
"""One message of a client; the SDK has the same bound for a request over HTTP."""
TOO_LONG: Final = f"The message is longer than {LINE_BYTES_MAX:,} bytes: send less at once"
ANSWER_BYTES_MAX: Final = 33_554_432
"""One message of the daemon: a provider's answer, whose own bound (`answer_max_bytes`) may be another."""

PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
"""The member of `_meta` that a request of the newer era has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """Whom a relay speaks for. `instance` is the same for all connections of one relay, and no other's."""

    instance: str
    run_id: str
    resumes: tuple[str, ...] = ()
    place: str | None = None
    closed: bool = False
    """Whether the client had closed its end before: what it is told it may not read any more."""

    def line(self) -> bytes:
        """Return it as the first line of a connection."""
        said: Message = {
            "effectd": "gateway",
            "version": VERSION,
            "instance": self.instance,
            "run_id": self.run_id,
            "resumes": list(self.resumes),
        }
        if self.place is not None:
            said["place"] = self.place
        if self.closed:
            said["closed"] = True
        return line(said)


def read_greeting(data: bytes) -> Greeting | None:
    """Return the greeting that a line is; None where it is none, or one of another version."""
    message = read(data) or {}
    match message:
        case {
            "effectd": "gateway",
            "version": 1,
            "instance": str() as instance,
            "run_id": str() as run_id,
            "resumes": list() as resumes,
        } if all(isinstance(run, str) for run in resumes):
            place = message.get("place")
            return Greeting(
                instance=instance,
                run_id=run_id,
                resumes=tuple(map(str, resumes)),
                place=place if isinstance(place, str) else None,
                closed=message.get("closed") is True,
            )
        case _:
            return None


def run_prefix(place: str) -> str:
    """Return what the runs begin with that were begun from a place, and that nobody named."""
    return f"mcp-{place}-"


def line(message: Message) -> bytes:
    """Return a message as one line. Raises `ValueError` where a number in it is none that JSON has."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def read(data: bytes) -> Message | None:
    """Return the JSON object that a line is; None where it is none, or has a key twice in one object."""
    try:
        value = json.loads(str(data, "utf-8"), parse_constant=_no_number, object_pairs_hook=_once_each)
    except (ValueError, RecursionError):
        return None
    return cast("Message", value) if isinstance(value, dict) else None


def response_to(data: bytes) -> tuple[Json, bool] | None:
    """Return the id that a line is the response to, and whether that is a result, from its beginning alone.

    None where the beginning does not say so: answers may be long, and are passed on as they are.
    """
    found = _RESPONSE.match(data)
    return None if found is None else (json.loads(found["id"]), found["what"] == b"result")


def told_id(data: bytes) -> Json:
    """Return the id of a message that cannot be read as a whole, from its beginning or its end alone.

    None where neither says it plainly: an id that stands within `params` is somebody else's.
    """
    found = _ID_FIRST.match(data) or _ID_LAST.search(data)
    try:
        value: Json = None if found is None else json.loads(found["id"])
    except ValueError:
        return None
    return value if is_id(value) else None


def objection(message: Message) -> str | None:
    """Say why a client's message has no shape that anybody could answer; None where it has one."""
    if message.get("jsonrpc") != "2.0":
        return "a message says that it is of JSON-RPC 2.0"
    if "method" not in message:
        return None  # an answer, which is looked at where it is expected
    if not isinstance(message["method"], str):
        return "a method is a text"
    if not isinstance(message.get("params", {}), dict):
        return "the params of a method are an object"
    if "id" in message and not is_id(message["id"]):
        return "the id of a request is a text or a whole number"
    return None


def is_id(value: Json) -> bool:
    """Whether a request may have this id: one that an answer can carry, too."""
    if isinstance(value, str):
        return not _SURROGATE.search(value)
    return isinstance(value, int) and not isinstance(value, bool)


def member(message: Message, name: str) -> Message:
    """Return a member that is an object; an empty one where it is none."""
    value = message.get(name)
    return value if isinstance(value, dict) else {}


_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_AN_ID: Final = rb'(?P<id>-?(?:0|[1-9][0-9]{0,4000})|"(?:[^"\\\x00-\x1f]|\\.){0,4000}")'
_PLAIN: Final = rb'"(?:jsonrpc|method)"\s*:\s*"[^"\\]{0,256}"'
_RESPONSE: Final = re.compile(rb'\{"jsonrpc":"2\.0","id":' + _AN_ID + rb',"(?P<what>result|error)":')
"""As the daemon writes it."""
_ID_FIRST: Final = re.compile(rb"\s*\{\s*(?:" + _PLAIN + rb'\s*,\s*){0,2}"id"\s*:\s*' + _AN_ID + rb"\s*[,}]")
_ID_LAST: Final = re.compile(rb'[,{]\s*"id"\s*:\s*' + _AN_ID + rb"(?:\s*,\s*" + _PLAIN + rb")?\s*\}\s*\Z")


def _once_each(members: list[tuple[str, Json]]) -> Message:
    """The object of these members. What another reader would take the first of is no call that is made."""
    found = dict(members)
    if len(found) != len(members):
        raise ValueError("twice")
    return found


def _no_number(constant: str) -> Never:
    raise ValueError(constant)
