"""What one member of a frame may be: strict types, bounds, and the words for what is wrong with it.

Part of `driver.core`, pure: pydantic at the edge. `frames` and `commands` are made of these; the JSON Schema
comes from them too. Booleans are no numbers here, numbers no strings, and 1.0 no whole number.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING
from dataclasses import Field as DataclassField
from typing import Annotated, Any, Final, TypeVar

from pydantic import (
    AfterValidator,
    Field,
    GetCoreSchemaHandler,
    GetPydanticSchema,
    Strict,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema

from driver.core.identity import ID_PATTERN, OPERATION_ID_PATTERN
from store.records import (
    COMPENSATION_PREFIX,
    BootId,
    Chain,
    CommandId,
    JournalId,
    JsonObject,
    OperationId,
    RunId,
    Timestamp,
)

INT_MAX: Final = 2**63 - 1
"""The largest whole number on the wire that is not part of a tool's data: what SQLite keeps exactly."""
NOTE_BYTES_MAX: Final = 2_000
"""A note, a reason or any other free text of a command, in bytes of UTF-8 (docs/protocol.md, section 4)."""
TEXT_MAX: Final = 256
"""Characters in a name that is no id of ours: a tool, an actor, a software version."""
MESSAGE_MAX: Final = 500
"""Characters in a message about a malformed frame; a longer one is cut."""

HEX32_PATTERN: Final = "^[0-9a-f]{32}$"
"""A `journal_id`, a `boot_id` or a chain value."""
TIMESTAMP_PATTERN: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z$"
"""UTC with microseconds: it sorts as text in the order of time."""
_TRACEPARENT: Final = re.compile(
    r"(?!ff)(?P<version>[0-9a-f]{2})-(?P<fields>(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})"
    r"(?P<later>-[^\n]*)?",
)
"""As W3C Trace Context has it: all zeros name nothing, `ff` is no version, and only later ones have more."""


def _fits_note(text: str) -> str:
    if len(text.encode("utf-8")) > NOTE_BYTES_MAX:
        raise PydanticCustomError(
            "too_many_bytes", "must be at most {limit} bytes of UTF-8", {"limit": NOTE_BYTES_MAX}
        )
    return text


def _is_object(value: object) -> object:
    if not isinstance(value, dict):
        raise PydanticCustomError("not_an_object", "must be a JSON object")
    return value  # pyright: ignore[reportUnknownVariableType] - strict JSON made it


def _is_planes(text: str) -> str:
    if text.startswith(COMPENSATION_PREFIX):
        raise PydanticCustomError(
            "reserved_id",
            "must not begin with {prefix}, which is kept for the daemon's own commands",
            {"prefix": COMPENSATION_PREFIX},
        )
    return text


def traceparent_or_none(text: str | None) -> str | None:
    """W3C Trace Context: a receiver goes on without a `traceparent` that it cannot read.

    One of a later version is returned as this version's, without what that adds: it may be of any length.
    """
    found = None if text is None else _TRACEPARENT.fullmatch(text)
    if found is None or (found["version"] == "00" and found["later"] is not None):
        return None
    return f"00-{found['fields']}"


def _object_schema(_source: object, _handler: GetCoreSchemaHandler) -> CoreSchema:
    """What stands inside is data, and was read strictly already: it is neither looked at again nor copied."""
    return core_schema.no_info_plain_validator_function(_is_object)


Flag = Annotated[bool, Strict()]
Count = Annotated[int, Strict(), Field(ge=0, le=INT_MAX)]
Positive = Annotated[int, Strict(), Field(ge=1, le=INT_MAX)]
AnyText = Annotated[str, Strict()]
Name = Annotated[str, Strict(), Field(min_length=1, max_length=TEXT_MAX)]
Note = Annotated[str, Strict(), AfterValidator(_fits_note)]
Object = Annotated[JsonObject, GetPydanticSchema(_object_schema), WithJsonSchema({"type": "object"})]
TraceParent = Annotated[str | None, Strict(), AfterValidator(traceparent_or_none)]

JournalIdField = Annotated[JournalId, Strict(), Field(pattern=HEX32_PATTERN)]
BootIdField = Annotated[BootId, Strict(), Field(pattern=HEX32_PATTERN)]
ChainField = Annotated[Chain, Strict(), Field(pattern=HEX32_PATTERN)]
RunIdField = Annotated[RunId, Strict(), Field(pattern=ID_PATTERN)]
CommandIdField = Annotated[CommandId, Strict(), Field(pattern=ID_PATTERN)]
PlaneCommandIdField = Annotated[CommandId, Strict(), Field(pattern=ID_PATTERN), AfterValidator(_is_planes)]
OperationIdField = Annotated[OperationId, Strict(), Field(pattern=OPERATION_ID_PATTERN)]
TimestampField = Annotated[Timestamp, Strict(), Field(pattern=TIMESTAMP_PATTERN)]

T = TypeVar("T")

_RULES: Final[Mapping[str, str]] = {
    "bool_type": "must be true or false",
    "dataclass_type": "must be a JSON object",
    "dict_type": "must be a JSON object",
    "enum": "must be {expected}",
    "greater_than_equal": "must be at least {ge}",
    "int_type": "must be a whole number",
    "less_than_equal": "must be at most {le}",
    "list_type": "must be a list",
    "literal_error": "must be {expected}",
    "missing": "is required, and missing",
    "model_type": "must be a JSON object",
    "string_pattern_mismatch": "must match {pattern}",
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": "must have at least {min_length} character",
    "string_type": "must be a string",
    "too_long": "must have at most {max_length} items",
    "tuple_type": "must be a list",
}
"""What pydantic's kinds of faults ask for, with the limits that each names; our own speak for themselves."""


def validated(adapter: TypeAdapter[T], optional: frozenset[str], raw: JsonObject) -> T:
    """Return `raw` as the adapter's type; null for one of the `optional` members is the same as its absence.

    Raises pydantic's ValidationError, for `explain`.
    """
    present: dict[str, Any] = {key: raw[key] for key in raw if raw[key] is not None or key not in optional}
    return adapter.validate_python(present)


def explain(error: ValidationError) -> str:
    """Return what is wrong, member by member, without the values that were sent (they may be secret)."""
    faults = error.errors(include_url=False, include_input=False)
    return clip("; ".join(f"{place(fault) or 'it'}: {wording(fault)}" for fault in faults[:5]))


def place(fault: ErrorDetails) -> str:
    """Return which member is wrong, as a path of names with dots; empty where it is the whole."""
    return ".".join(str(part) for part in fault["loc"] if part != "[key]")


def wording(fault: ErrorDetails, known: Iterable[str] = ()) -> str:
    """Return what is wrong with a member: what it must be, and never what was sent.

    `known` are the names that there are beside one that there is not.
    """
    if fault["type"] == "extra_forbidden":
        names = ", ".join(sorted(known)) if len(fault["loc"]) == 1 else ""
        return f"there is no such name; allowed: {names}" if names else "there is no such name"
    rule = _RULES.get(fault["type"])
    return fault["msg"] if rule is None else rule.format_map(fault.get("ctx", {}))


def clip(text: str) -> str:
    """Return `text`, cut to what a message may be."""
    return text if len(text) <= MESSAGE_MAX else text[: MESSAGE_MAX - 1] + "…"


def has_default(item: DataclassField[Any]) -> bool:
    """Whether a dataclass's field may be absent on the wire."""
    return item.default is not MISSING or item.default_factory is not MISSING
