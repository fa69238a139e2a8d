"""The events' one definition, and the bytes that it becomes."""

import dataclasses
import json
import typing
from datetime import datetime, timedelta, timezone
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

import store.chain as chain  # noqa: PLR0402 - for pyright, `store` alone would be the folder of these tests
from store.declared import EventData
from store.events import BY_KIND, EVENT_TYPES
from store.lifecycle import MOVES, Effect
from store.records import Chain, JournalId, JsonObject, Origin, Timestamp, moment, timestamp
from store.wire import as_json, from_json, render

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def values(hint: Any) -> st.SearchStrategy[Any]:  # noqa: ANN401 - a type's type is anything
    """Values of a field's type."""
    if {float, str} <= set(get_args(hint)):  # JsonValue
        return JSON
    if get_origin(hint) is dict and get_args(hint) != (str, str):  # JsonObject
        return st.dictionaries(st.text(), JSON, max_size=2)
    hint = getattr(hint, "__supertype__", hint)
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if get_origin(hint) is tuple:
        inner = get_args(hint)
        repeated = st.lists(values(inner[0]), max_size=3).map(tuple)
        return repeated if inner[-1] is Ellipsis else st.tuples(*map(values, inner))
    if get_args(hint) and get_origin(hint) is not dict:
        return st.one_of(*map(values, get_args(hint)))
    return st.none() if hint is type(None) else st.from_type(hint)


@st.composite
def events(draw: st.DrawFn) -> EventData:
    """Any event that effectd can record."""
    kind = draw(st.sampled_from(EVENT_TYPES))
    hints = typing.get_type_hints(kind)
    return kind(**{item.name: draw(values(hints[item.name])) for item in dataclasses.fields(kind)})


@given(events())
def test_an_event_survives_the_way_to_the_wire_and_back(event: EventData) -> None:
    """What was recorded can be projected again from its bytes alone."""
    wire = json.loads(json.dumps(as_json(event)))
    assert from_json(event.KIND, wire) == event


@given(events())
def test_optional_members_are_left_out_and_all_others_present(event: EventData) -> None:
    """None means absent for the one, and null for the other."""
    wire = as_json(event)
    for item in dataclasses.fields(event):
        absent = getattr(event, item.name) is None and item.metadata.get("optional", False)
        assert (item.name not in wire) is absent


@pytest.mark.parametrize(
    ("kind", "wire"),
    [
        ("no.such", {}),
        ("driver.started", {}),
        ("driver.started", {"software": "x", "more": 1}),
        ("driver.stopping", {"software": "x"}),
    ],
)
def test_what_was_never_an_event_is_refused(kind: str, wire: JsonObject) -> None:
    """A damaged event is said to be one."""
    with pytest.raises(ValueError, match=f"not an event of kind {kind}"):
        from_json(kind, wire)


def test_kinds_are_unique_and_every_move_has_one() -> None:
    """The lifecycle's table names no kind that cannot be recorded."""
    assert len(BY_KIND) == len(EVENT_TYPES)
    assert {kind for _, kind in MOVES} <= set(BY_KIND)


@given(events(), st.integers(1, 2**53))
def test_a_sealed_frame_opens_to_what_its_digest_covers(event: EventData, seq: int) -> None:
    """The chain value is the last member, and what stands before it is closed as it was hashed."""
    body = render(
        event,
        journal_id=JournalId("a" * 32),
        seq=seq,
        at=Timestamp("2030-01-01T00:00:00.000000Z"),
        run_id=None,
        command_id=None,
        operation_id=None,
        origin=Origin.LOCAL,
        terminal=False,
        best_effort=False,
    )
    assert body.isascii()
    link = chain.extend(Chain("a" * 32), chain.digest(body))
    frame = chain.seal(body, link)
    assert chain.unseal(frame) == (body, link)
    assert list(json.loads(frame))[-1] == "chain"
    assert json.loads(frame)["data"] == json.loads(json.dumps(as_json(event)))


@pytest.mark.parametrize("frame", [b"", b"{}", b'{"chain":"short"}', b'{"a":1,"chain":"%s"},' % (b"0" * 32)])
def test_only_a_sealed_frame_is_opened(frame: bytes) -> None:
    """Anything else is damage."""
    with pytest.raises(ValueError, match="not a sealed event"):
        chain.unseal(frame)


@given(st.datetimes(), st.integers(-14 * 60, 14 * 60))
def test_times_sort_as_text(naive: datetime, offset_minutes: int) -> None:
    """A time's text is UTC, exact to the microsecond, and reads back as the same instant."""
    when = naive.replace(tzinfo=timezone(timedelta(minutes=offset_minutes)))
    if not 2 < when.year < 9998:
        return
    assert moment(timestamp(when)) == when
    assert timestamp(when).endswith("Z")
    assert len(timestamp(when)) == 27


def test_an_effect_is_an_effect_again() -> None:
    """Words of the lifecycle come back as its own values."""
    again = from_json(
        "operation.late_result",
        {"attempt": 1, "effect": "none", "result": None, "result_truncated": False, "receipt": None},
    )
    assert getattr(again, "effect") is Effect.NONE  # noqa: B009
