"""Text to frames and frames to text, for either end of the link.

Part of `driver.core`, pure: imports `driver.core.{fields,frames,identity,strictjson}`. A text becomes one of
three things, and never an exception:

* a frame, as a frozen value. Unknown members were ignored; null stood for an absent optional member;
* `InvalidCommand` or `InvalidEvent`: something is wrong, but it is known whose answer is owed: the command is
  refused for good (`command.refused/invalid`), the event is nacked;
* `BadFrame`: nothing can be tied to it; it is answered with an `error` frame, and the conversation goes on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Final, Generic, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from driver.core.fields import (
    TEXT_MAX,
    ChainField,
    JournalIdField,
    Positive,
    clip,
    explain,
    has_default,
    validated,
)
from driver.core.frames import (
    DAEMON_FRAMES,
    PLANE_FRAMES,
    PROTOCOL,
    BadFrame,
    Frame,
    FromDaemon,
    FromPlane,
    InvalidCommand,
    InvalidEvent,
)
from driver.core.identity import is_id, is_plane_command_id
from driver.core.strictjson import NotStrictJson, dumps_compact, loads
from store.records import CommandId, JsonObject, JsonValue, RunId

F = TypeVar("F", bound=Frame)


def parse_from_plane(text: str | bytes) -> FromPlane | InvalidCommand | BadFrame:
    """Return what a frame of the plane says; `bytes` are a binary frame. Never raises."""
    raw = _object(text)
    if isinstance(raw, BadFrame):
        return raw
    parsed = _frame(raw, _FROM_PLANE)
    if isinstance(parsed, BadFrame) and raw["type"] == "command":
        return _invalid_command(raw, parsed.message)
    return parsed


def parse_from_daemon(text: str | bytes) -> FromDaemon | InvalidEvent | BadFrame:
    """Return what a frame of the daemon says; `bytes` are a binary frame. Never raises.

    A `hello` of another protocol version is a `BadFrame` with the code `unsupported_protocol`, whatever else
    it says.
    """
    raw = _object(text)
    if isinstance(raw, BadFrame):
        return raw
    if raw["type"] == "hello" and raw.get("protocol") != PROTOCOL:
        return BadFrame(code="unsupported_protocol", message=f"this plane speaks protocol {PROTOCOL} only")
    parsed = _frame(raw, _FROM_DAEMON)
    if isinstance(parsed, BadFrame) and raw["type"] == "event":
        return _invalid_event(raw, parsed.message)
    return parsed


def render(frame: Frame) -> str:
    """Return the text of `frame`, without its optional members that are None."""
    members: JsonObject = {}
    for name, key, optional in _PLANS[type(frame)]:
        value = getattr(frame, name)
        if isinstance(value, tuple):
            members[key] = list(cast("tuple[JsonValue, ...]", value))
        elif value is not None or not optional:
            members[key] = value
    return dumps_compact(members)


# ------------------------------------------------------------ how


_PLANS: Final[Mapping[type, tuple[tuple[str, str, bool], ...]]] = MappingProxyType(
    {
        frame: tuple((item.name, item.name.rstrip("_"), has_default(item)) for item in fields(frame))
        for frame in (*PLANE_FRAMES, *DAEMON_FRAMES)
    }
)
"""For each member of each frame: the attribute, the key on the wire, and whether it may be absent."""


class _Shape(Generic[F]):
    """How one class of frame is read."""

    def __init__(self, frame: type[F]) -> None:
        self.adapter: TypeAdapter[F] = TypeAdapter(frame)
        self.optional = frozenset(key for _, key, optional in _PLANS[frame] if optional)

    def read(self, raw: JsonObject) -> F | BadFrame:
        try:
            return validated(self.adapter, self.optional, raw)
        except ValidationError as error:
            return BadFrame(code="invalid_frame", message=clip(f"{raw['type']}: {explain(error)}"))


def _shapes(frames: tuple[type[F], ...]) -> Mapping[str, _Shape[F]]:
    words = {frame: frame.__dataclass_fields__["type"].default for frame in frames}
    return MappingProxyType({str(word): _Shape(frame) for frame, word in words.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """The least that an event's place in the stream is made of."""

    journal_id: JournalIdField
    seq: Positive
    chain: ChainField


_PLACE: Final = TypeAdapter(_Place)
_FROM_PLANE: Final = _shapes(PLANE_FRAMES)
_FROM_DAEMON: Final = _shapes(DAEMON_FRAMES)


def _object(text: str | bytes) -> JsonObject | BadFrame:
    """The frame's object, if it is one and has a `type`."""
    if isinstance(text, bytes):
        return BadFrame(code="binary_frame", message="frames are text; this one was binary")
    try:
        raw = loads(text)
    except NotStrictJson as error:
        return BadFrame(code=error.code, message=clip(error.message))
    if not isinstance(raw.get("type"), str):
        return BadFrame(code="invalid_frame", message="type: a frame says what it is by a string 'type'")
    return raw


def _frame(raw: JsonObject, shapes: Mapping[str, _Shape[F]]) -> F | BadFrame:
    word = str(raw["type"])
    shape = shapes.get(word)
    if shape is None:
        known = ", ".join(shapes)
        return BadFrame(
            code="unknown_type", message=f"no frame of this direction has the type {word[:80]!r}; {known}"
        )
    return shape.read(_lenient_error(raw) if word == "error" else raw)


def _lenient_error(raw: JsonObject) -> JsonObject:
    """An `error` frame with its faults mended: it must never be answered with another one."""
    code, message = raw.get("code"), raw.get("message")
    return {
        "type": "error",
        "code": code[:TEXT_MAX] if isinstance(code, str) and code else "unspecified",
        "message": clip(message) if isinstance(message, str) else "",
    }


def _invalid_command(raw: JsonObject, message: str) -> InvalidCommand | BadFrame:
    """What is left of a command that is wrong: its answer is owed as soon as its id is usable."""
    command_id, run_id = raw.get("command_id"), raw.get("run_id")
    if not isinstance(command_id, str) or not is_plane_command_id(command_id):
        return BadFrame(code="invalid_command_id", message=message)
    return InvalidCommand(
        command_id=CommandId(command_id),
        run_id=RunId(run_id) if isinstance(run_id, str) and is_id(run_id) else None,
        content=(raw.get("kind"), raw.get("run_id"), raw.get("data", {})),
        message=message,
    )


def _invalid_event(raw: JsonObject, message: str) -> InvalidEvent | BadFrame:
    """What is left of an event that is wrong: it can be nacked once its place in the stream is known."""
    try:
        place = validated(_PLACE, frozenset(), raw)
    except ValidationError:
        return BadFrame(code="invalid_frame", message=message)
    return InvalidEvent(journal_id=place.journal_id, seq=place.seq, chain=place.chain, message=message)
