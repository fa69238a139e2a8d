"""An event as its frame: the bytes that are hashed, stored and sent, and the way back from them.

Part of `store`, pure: imports `store.events`, its lifecycle and records.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from json.encoder import encode_basestring_ascii
from operator import attrgetter
from typing import Any, Final, TypeVar, cast, get_args, get_origin, get_type_hints

from store.declared import EventData
from store.events import BY_KIND, EVENT_TYPES
from store.lifecycle import Effect
from store.records import CommandId, JournalId, OperationId, Origin, RunId, StoredEvent, Timestamp
from store.values import changed


def _is_tuple(hint: object) -> bool:
    return get_origin(hint) is tuple or any(get_origin(each) is tuple for each in get_args(hint))


_PLANS: Final[Mapping[str, tuple[tuple[str, bool], ...]]] = {
    event.KIND: tuple((item.name, bool(item.metadata.get("optional", False))) for item in fields(event))
    for event in EVENT_TYPES
}
"""The fields of each kind in order, and whether they may be left out."""

_VALUES: Final[Mapping[str, Callable[[EventData], tuple[object, ...]]]] = {
    event.KIND: attrgetter(*(item.name for item in fields(event))) for event in EVENT_TYPES
}
"""Returns all fields of an event of this kind, in order."""

MEMBERS: Final[Mapping[str, frozenset[str]]] = {
    kind: frozenset(name for name, _ in plan) for kind, plan in _PLANS.items()
}
"""The names of each kind's fields."""

_TUPLES: Final[Mapping[str, frozenset[str]]] = {
    event.KIND: frozenset(name for name, hint in get_type_hints(event).items() if _is_tuple(hint))
    for event in EVENT_TYPES
}
"""The fields of each kind that are tuples: JSON knows lists only."""


_CAREFUL: Final[Mapping[str, object]] = {"effect": "unknown", "error_means": "unsettled", "idempotent": False}
"""What a field is read as where an earlier version of its event had none, and None will not do."""


def _absent(event: type[EventData]) -> dict[str, object]:
    hints = get_type_hints(event)
    required = (item.name for item in fields(event) if item.default is MISSING)
    return {
        name: _CAREFUL.get(name)
        for name in required
        if name in _CAREFUL or type(None) in get_args(hints[name])
    }


_ABSENT: Final[Mapping[str, Mapping[str, object]]] = {event.KIND: _absent(event) for event in EVENT_TYPES}
"""What each kind's fields are read as where they are missing: the least that can be said."""


def as_json(data: EventData) -> dict[str, Any]:
    """Return the wire form of `data`: its fields in order, without the optional ones that are None."""
    kind = data.KIND
    return {
        name: value
        for (name, is_optional), value in zip(_PLANS[kind], _VALUES[kind](data), strict=True)
        if value is not None or not is_optional
    }


E = TypeVar("E", bound=EventData)


def with_members(data: E, **members: Any) -> E:  # noqa: ANN401 - of whichever kind of event it is
    """Return the event with these members, which its kind must have."""
    return changed(data, members)


def from_json(kind: str, data: Mapping[str, Any]) -> EventData:
    """Return the event whose wire form `as_json` gave, in this version or an earlier one.

    What an earlier version did not record reads as unknown. Raises ValueError for what was never such an
    event.
    """
    try:
        event = BY_KIND[kind]
        values: dict[str, Any] = {**_ABSENT[kind], **data}
        for name in _TUPLES[kind]:
            if (value := values.get(name)) is not None:
                values[name] = tuple(value)
        if "effect" in values:
            values["effect"] = Effect(values["effect"])
        return event(**values)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not an event of kind {kind}: {error}") from error  # noqa: TRY003 - foreign


def data_of(event: StoredEvent) -> EventData:
    """Return what an event says whose content was not erased. Raises ValueError where it is damaged."""
    assert event.body is not None, "whoever asks has looked, or knows that nobody could have erased it"
    return from_json(event.kind, frame_of(event.body)["data"])


def render(  # noqa: PLR0913 - the envelope has these members, and all are always present
    data: EventData,
    *,
    journal_id: JournalId,
    seq: int,
    at: Timestamp,
    run_id: RunId | None,
    command_id: CommandId | None,
    operation_id: OperationId | None,
    origin: Origin,
    terminal: bool,
    best_effort: bool,
) -> bytes:
    """Return the event's bytes without its last member `chain`, closed with `}`: what the digest covers.

    The text is ASCII: the same bytes on every wire and in every tool.
    """
    # what is no text of others needs no encoder; put together like this it takes half the time
    return (
        f'{{"type":"event","journal_id":"{journal_id}","seq":{seq},"kind":"{data.KIND}","at":"{at}",'
        f'"run_id":{_quoted(run_id)},"command_id":{_quoted(command_id)},'
        f'"operation_id":{_quoted(operation_id)},"origin":"{origin}",'
        f'"terminal":{_WORDS[terminal]},"best_effort":{_WORDS[best_effort]},"data":{_encode(as_json(data))}}}'
    ).encode("ascii")


_WORDS: Final = ("false", "true")
_encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode
"""`json.dumps` would make an encoder each time."""


def _quoted(text: str | None) -> str:
    return "null" if text is None else encode_basestring_ascii(text)


def frame_of(body: bytes) -> dict[str, Any]:
    """Return the members of an event, of its bytes with `chain` or without it. Raises ValueError."""
    text = body.decode("ascii")  # faster than to let `json` find out which encoding it is
    frame, end = _decode(text)
    if end != len(text) or not isinstance(frame, dict):
        raise ValueError
    return cast("dict[str, Any]", frame)


_decode: Final[Callable[[str], tuple[object, int]]] = json.JSONDecoder().raw_decode
