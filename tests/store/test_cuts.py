"""What an event that is too long loses, and that nothing else is lost."""

import hashlib
import json
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.cuts import FLAGS, ORDER, cut
from store.declared import EventData
from store.events import CommandCompleted, CommandFailed, CommandRefused, OperationFailed, OperationSucceeded
from store.lifecycle import Effect
from store.records import Digest, JsonValue
from store.wire import as_json
from tests.store.test_events import events

FRAME_BYTES_MIN = 256
"""The least that a plane can announce."""
DIGEST_BYTES = len(',"payload_digest":""') + 64
"""What naming a kept result adds to an event."""


def length(data: EventData) -> int:
    """How long the event's `data` is on the wire."""
    return len(json.dumps(as_json(data), separators=(",", ":")))


def sha256(whole: bytes) -> Digest:
    """The digest of what is kept."""
    return Digest(hashlib.sha256(whole).hexdigest())


def cut_to(data: EventData, limit: int) -> tuple[EventData, bytes | None]:
    """Cut the event until its `data` has at most `limit` bytes."""
    return cut(data, excess=lambda shorter: length(shorter) - limit, digest=sha256)


@given(events(), st.integers(0, 2 * FRAME_BYTES_MIN))
def test_a_cut_event_fits_or_has_nothing_left_to_lose(event: EventData, limit: int) -> None:
    """At any limit, the smallest included: what is too long still has no member that would make it fit."""
    shorter, _ = cut_to(event, limit)
    if length(shorter) <= limit:
        return
    for name in ("receipt", "message"):
        left = getattr(shorter, name, None)
        assert not left or length_of(left) <= len('null,"receipt_missing":true')
    assert length_of(getattr(shorter, "result", None)) <= DIGEST_BYTES + len('null,"result_truncated":true')


def test_a_result_that_takes_less_than_its_loss_is_not_cut() -> None:
    """Where the event has no member yet that says so, this one, its digest and null are what it costs."""
    event = CommandCompleted(result={"": None, "00\x07\x07\x07𐀀": None, "0\x1f\x1f\x1f\x07𐀀": None})
    assert cut_to(event, 0) == (event, None)


@given(events(), st.integers(0, 2 * FRAME_BYTES_MIN))
def test_a_cut_takes_nothing_but_what_it_may(event: EventData, limit: int) -> None:
    """Identities, outcomes and digests stay as they are; what is not too long stays whole."""
    shorter, kept = cut_to(event, limit)
    if length(event) <= limit:
        assert (shorter, kept) == (event, None)
    assert length(shorter) <= length(event)
    may_change = {*ORDER, *FLAGS.values(), "payload_digest"}
    for item in fields(event):
        if item.name not in may_change:
            assert getattr(shorter, item.name) == getattr(event, item.name)


@given(events(), st.integers(0, 2 * FRAME_BYTES_MIN))
def test_what_is_kept_is_the_whole_result_under_its_digest(event: EventData, limit: int) -> None:
    """The event that lost its result names where the whole is, and no other event does."""
    shorter, kept = cut_to(event, limit)
    if kept is not None:
        assert getattr(shorter, "payload_digest") == sha256(kept)  # noqa: B009 - some kinds have it
        assert json.loads(kept) == json.loads(json.dumps(getattr(event, "result")))  # noqa: B009
        assert getattr(shorter, "result") is None  # noqa: B009


def test_an_empty_result_is_neither_cut_nor_kept() -> None:
    """It would be no shorter."""
    digest = Digest("d" * 99)
    event = OperationSucceeded(result=[], receipt="i", attempts=1, duration_ms=1, payload_digest=digest)
    shorter, kept = cut_to(event, 0)
    assert kept is None
    assert isinstance(shorter, OperationSucceeded)
    assert shorter.result == []


def test_a_receipt_and_what_people_read_go_last() -> None:
    """They stand nowhere else; each goes only where what went before was not enough."""
    event = OperationSucceeded(result="r" * 200, receipt="i" * 200, attempts=1, duration_ms=1)
    without_result, _ = cut_to(event, length(event) - 1)
    assert isinstance(without_result, OperationSucceeded)
    assert (without_result.result, without_result.receipt) == (None, "i" * 200)
    assert without_result.receipt_missing is None
    without_both, _ = cut_to(event, length(without_result) - 1)
    assert isinstance(without_both, OperationSucceeded)
    assert without_both.receipt is None
    assert without_both.receipt_missing is True


@pytest.mark.parametrize(
    "event",
    [
        CommandFailed(code="conflict", message="m" * 500),
        CommandRefused(code="invalid", message="m" * 500, content_digest=Digest("c" * 64)),
    ],
)
def test_a_message_that_must_be_there_is_emptied(event: CommandFailed | CommandRefused) -> None:
    """Its code says what happened, and the frame stays valid."""
    shorter, _ = cut_to(event, 200)
    assert isinstance(shorter, CommandFailed | CommandRefused)
    assert (shorter.code, shorter.message) == (event.code, "")


def test_an_error_keeps_its_code() -> None:
    """What a program goes by is short; what people read is not."""
    error: dict[str, JsonValue] = {"code": "http_503", "message": "m" * 500}
    event = OperationFailed(
        effect=Effect.UNKNOWN, error=error, error_means="reported", result=None, receipt=None, attempts=1
    )
    shorter, _ = cut_to(event, 200)
    assert isinstance(shorter, OperationFailed)
    assert shorter.error == {"code": "http_503", "message": ""}


def length_of(value: JsonValue) -> int:
    """How long a member's value is on the wire."""
    return len(json.dumps(value, separators=(",", ":")))
