"""The published form of the frames: a JSON Schema (2020-12), and the tables of events in docs/protocol.md.

Part of `driver.core`, pure: imports `store.events`, `store.records`, `driver.core.{frames,commands,fields}`.
Nothing is stated here: frames and commands say what they take by their pydantic fields, events what they hold
by their dataclass fields. `make schema` writes the result; a test holds the committed file against it.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import StrEnum
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Final, Literal, TypeAlias, Union, cast, get_args, get_origin

from pydantic import TypeAdapter

from driver.core.commands import COMMAND_TYPES
from driver.core.fields import HEX32_PATTERN, TIMESTAMP_PATTERN
from driver.core.frames import DAEMON_FRAMES, PLANE_FRAMES, Frame
from driver.core.identity import ID_PATTERN, OPERATION_ID_PATTERN
from store import records
from store.declared import EventData
from store.events import EVENT_TYPES

BEGIN: Final = "<!-- events:begin -->\n"
END: Final = "<!-- events:end -->\n"
"""What stands around the generated tables in docs/protocol.md."""

Schema: TypeAlias = dict[str, Any]

_NAMED: Final[Mapping[object, Schema]] = MappingProxyType(
    {
        records.JournalId: {"type": "string", "pattern": HEX32_PATTERN},
        records.Chain: {"type": "string", "pattern": HEX32_PATTERN},
        records.Digest: {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        records.RunId: {"type": "string", "pattern": ID_PATTERN},
        records.OperationId: {"type": "string", "pattern": OPERATION_ID_PATTERN},
        records.Timestamp: {"type": "string", "pattern": TIMESTAMP_PATTERN},
        records.JsonObject: {"type": "object"},
        records.JsonValue: {},
        str: {"type": "string"},
        int: {"type": "integer"},
        float: {"type": "number"},
        bool: {"type": "boolean"},
        NoneType: {"type": "null"},
    }
)
"""What the types of events' fields are on the wire."""


def schema() -> Schema:
    """Return the JSON Schema that every frame of `effectd.v1` validates against."""
    frames = {_word(frame): _frame(frame) for frame in (*PLANE_FRAMES, *DAEMON_FRAMES)}
    commands = {data.KIND: _published(data) for data in COMMAND_TYPES}
    events = {event.KIND: _event(event) for event in EVENT_TYPES}
    frames["command"]["allOf"] = [_by_kind(kind, "command") for kind in commands]
    frames["event"]["allOf"] = [_by_kind(kind, "event") for kind in events]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:effectd:protocol:v1",
        "title": "effectd.v1",
        "description": "Every frame of the control protocol, as docs/protocol.md describes it.",
        "oneOf": [_ref(word) for word in frames],
        "$defs": {
            "from_plane": {"oneOf": [_ref(_word(frame)) for frame in PLANE_FRAMES]},
            "from_daemon": {"oneOf": [_ref(_word(frame)) for frame in DAEMON_FRAMES]},
            **frames,
            **{f"command.{kind}": data for kind, data in commands.items()},
            **{f"event.{kind}": data for kind, data in events.items()},
        },
    }


def document() -> str:
    """Return the text of docs/protocol.schema.json."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def page(text: str) -> str:
    """Return docs/protocol.md with the tables between its markers as they are now."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + event_tables() + END + rest.partition(END)[2]


def event_tables() -> str:
    """Return the tables of docs/protocol.md: the events with their members, and the closed sets of words."""
    kinds = ["| kind | T | `data` | what it says |", "|---|---|---|---|"]
    words = ["| member | one of |", "|---|---|"]
    for event in EVENT_TYPES:
        members = ", ".join(f"`{name}{mark}`" for name, mark in _members(event) if name not in _OF_ANY)
        members = members or "none"
        says = (event.__doc__ or "").split("\n")[0]
        kinds.append(f"| `{event.KIND}` | {'T' if event.TERMINAL else ''} | {members} | {says} |")
        words += [f"| `{event.KIND}`: `{name}` | {_words(values)} |" for name, values in _closed(event)]
    return "\n".join([*kinds, "", *words]) + "\n"


# ------------------------------------------------------------ frames and commands: as pydantic reads them


def _word(frame: type[Frame]) -> str:
    return str(frame.__dataclass_fields__["type"].default)


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _by_kind(kind: str, family: str) -> Schema:
    return {
        "if": {"properties": {"kind": {"const": kind}}},
        "then": {"properties": {"data": _ref(f"{family}.{kind}")}},
    }


def _published(data: type[Any]) -> Schema:
    """Pydantic's schema of `data`, definitions put in place, without what says nothing about the wire."""
    made = TypeAdapter[Any](data).json_schema()
    return cast("Schema", _plain(made, made.get("$defs", {})))


def _frame(frame: type[Frame]) -> Schema:
    made = _published(frame)
    return made | {"required": ["type", *made.get("required", [])]}


def _plain(node: object, definitions: Schema) -> object:
    if isinstance(node, list):
        return [_plain(item, definitions) for item in cast("list[object]", node)]
    if not isinstance(node, dict):
        return node
    found = cast("Schema", node)
    if "$ref" in found:
        return _plain(definitions[found["$ref"].rpartition("/")[2]], definitions)
    return {
        key: {name: _plain(item, definitions) for name, item in value.items()}
        if key == "properties"
        else _plain(value, definitions)
        for key, value in found.items()
        if key not in ("title", "default", "$defs")
    }


# ------------------------------------------------------------ events: as the journal writes them


def _event(event: type[EventData]) -> Schema:
    hints = {item.name: item.type for item in fields(event)}
    return {
        "description": (event.__doc__ or "").split("\n")[0],
        "type": "object",
        "properties": {name: _of_type(_present(hints[name], mark)) for name, mark in _members(event)},
        "required": [name for name, mark in _members(event) if not mark],
    }


def _members(event: type[EventData]) -> list[tuple[str, str]]:
    """The names of the members of `data`, each with `?` where it may be absent."""
    return [(item.name, "?" if item.metadata.get("optional") else "") for item in fields(event)]


_OF_ANY: Final = frozenset(item.name for item in fields(EventData))
"""Members that an event of any kind may have: said once, beside the tables."""


def _present(hint: object, mark: str) -> object:
    """The type of a member where it is present: an optional one is left out instead of being null."""
    if mark and _is_union(hint) and hint not in _NAMED:
        arms = tuple(arm for arm in get_args(hint) if arm is not NoneType)
        return Union[arms]  # noqa: UP007 - made at run time
    return hint


def _is_union(hint: Any) -> bool:  # noqa: ANN401 - any type's annotation
    return get_origin(hint) in (Union, UnionType)


def _of_type(hint: object) -> Schema:
    if hint in _NAMED:
        return dict(_NAMED[hint])
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return {"enum": [str(member) for member in hint]}
    if _is_union(hint):
        return {"anyOf": [_of_type(arm) for arm in get_args(hint)]}
    return _GENERIC[get_origin(hint)](get_args(hint))


def _tuple(args: tuple[Any, ...]) -> Schema:
    if args[-1] is Ellipsis:
        return {"type": "array", "items": _of_type(args[0])}
    return {
        "type": "array",
        "prefixItems": [_of_type(arg) for arg in args],
        "minItems": len(args),
        "items": False,
    }


_GENERIC: Final[Mapping[object, Callable[[tuple[Any, ...]], Schema]]] = MappingProxyType(
    {
        Literal: lambda args: {"enum": [str(arg) for arg in args]},
        dict: lambda args: {"type": "object", "additionalProperties": _of_type(args[1])},
        tuple: _tuple,
    }
)


def _closed(event: type[EventData]) -> list[tuple[str, list[str]]]:
    """The members of `event` that take one of several fixed words."""
    shapes = _event(event)["properties"]
    return [(name, shape["enum"]) for name, shape in shapes.items() if len(shape.get("enum", [])) > 1]


def _words(values: list[str]) -> str:
    return ", ".join(f"`{value}`" for value in values)


if __name__ == "__main__":
    sys.stdout.write(page(sys.stdin.read()) if sys.argv[1:] == ["page"] else document())
