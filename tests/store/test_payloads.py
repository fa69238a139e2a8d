"""What an event is too short for: cut once, and kept whole beside it under its digest."""

import hashlib
import json
from dataclasses import replace

import pytest

from store.events import (
    ApprovalRequested,
    Draft,
)
from store.lifecycle import State
from store.records import (
    Digest,
    JsonObject,
    Timestamp,
)
from store.settings import JournalSettings
from tests.store.conftest import Open
from tests.store.drafts import (
    accepted,
    command_id,
    operation_id,
    recording,
    started,
    succeeded,
)
from tests.store.test_transaction import data

pytestmark = pytest.mark.anyio


async def test_a_result_that_fits_stays_in_its_event(opened: Open) -> None:
    """It is read from there; the event names no payload."""
    async with opened() as journal:
        events = await journal.transact(recording(accepted(1), started(1), succeeded(1, result={"a": [1]})))
        assert "payload_digest" not in data(events[-1])
        assert await journal.read(lambda view: view.result(operation_id(1))) == b'{"a":[1]}'


async def test_a_result_that_is_too_long_is_cut_once_and_kept_whole(opened: Open) -> None:
    """The frame fits what the plane last announced (65,536 before it has); the payload has the whole."""
    long: JsonObject = {"text": "x" * 70_000}
    async with opened() as journal:
        events = await journal.transact(recording(accepted(1), started(1), succeeded(1, result=long)))
        cut = events[-1]
        assert cut.body is not None
        assert len(cut.body) < 65_536
        whole = await journal.read(lambda view: view.result(operation_id(1)))
        assert whole is not None
        assert json.loads(whole) == long
        assert data(cut)["result"] is None
        assert data(cut)["result_truncated"] is True
        assert data(cut)["payload_digest"] == hashlib.sha256(whole).hexdigest()
        # the plane takes more: what comes later is not cut, what was cut stays as it is
        await journal.transact(lambda tx: tx.announce_frame_bytes_max(1_000_000))
        events = await journal.transact(recording(accepted(2), started(2), succeeded(2, result=long)))
        assert data(events[-1])["result"] == long
        assert await journal.read(lambda view: view.event(cut.seq)) == cut


async def test_a_result_beyond_the_limit_is_kept_nowhere(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcome stands, flagged as cut, and names no payload; one of exactly the limit is whole."""
    monkeypatch.setattr("store.cuts.RESULT_BYTES_MAX", 70_002)
    async with opened() as journal:
        for n, length in ((1, 70_001), (2, 70_000)):
            *_, cut = await journal.transact(
                recording(accepted(n), started(n), succeeded(n, result="x" * length))
            )
            assert data(cut)["result_truncated"] is True
            assert ("payload_digest" in data(cut)) is (n == 2)
        assert await journal.read(lambda view: view.result(operation_id(1))) is None
        assert await journal.read(lambda view: view.result(operation_id(2))) is not None


async def test_without_room_a_cut_result_is_not_kept(opened: Open, settings: JournalSettings) -> None:
    """What is left is for outcomes: large results must not use it up."""
    async with opened(replace(settings, max_bytes=100_000, reserve_bytes=50_000)) as journal:
        *_, cut = await journal.transact(
            recording(accepted(1), started(1), succeeded(1, result="x" * 70_000))
        )
        assert data(cut)["result_truncated"] is True
        assert "payload_digest" not in data(cut)
        assert await journal.read(lambda view: view.result(operation_id(1))) is None


async def test_a_frame_is_cut_exactly_where_it_would_not_fit(opened: Open) -> None:
    """A frame of the announced length goes whole; of one byte more, it is cut."""
    async with opened() as journal:
        events = await journal.transact(recording(accepted(1), started(1), succeeded(1, result="x" * 5_000)))
        assert events[-1].body is not None
        length = len(events[-1].body)
        await journal.transact(lambda tx: tx.announce_frame_bytes_max(length))
        # the same length: one more digit in nothing, the seq included
        events = await journal.transact(recording(accepted(2), started(2), succeeded(2, result="x" * 5_000)))
        assert events[-1].body is not None
        assert len(events[-1].body) == length
        assert data(events[-1])["result_truncated"] is False
        events = await journal.transact(recording(accepted(3), started(3), succeeded(3, result="x" * 5_001)))
        assert data(events[-1])["result_truncated"] is True


async def test_a_frame_whose_receipt_does_not_fit_either_loses_it_too(opened: Open) -> None:
    """Whether it fits is looked at again after each cut."""
    async with opened() as journal:
        await journal.transact(lambda tx: tx.announce_frame_bytes_max(1_000))
        receipt, result = "x" * 2_000, "y" * 2_000
        drafts = accepted(1), started(1), succeeded(1, result=result, receipt=receipt)
        events = await journal.transact(recording(*drafts))
        assert events[-1].body is not None
        assert len(events[-1].body) <= 1_000
        assert (data(events[-1])["receipt"], data(events[-1])["receipt_missing"]) == (None, True)
        assert await journal.read(lambda view: view.result(operation_id(1))) == f'"{result}"'.encode()


async def test_an_event_that_cannot_be_made_short_enough_is_recorded_all_the_same(opened: Open) -> None:
    """The envelope alone can be longer than the least a plane may announce: the link parks such an event."""
    async with opened() as journal:
        await journal.transact(lambda tx: tx.announce_frame_bytes_max(256))
        drafts = accepted(1), started(1), succeeded(1, result="x" * 500, receipt="y" * 500)
        events = await journal.transact(recording(*drafts))
        assert events[-1].body is not None
        assert len(events[-1].body) > 256
        assert (data(events[-1])["result"], data(events[-1])["receipt"]) == (None, None)
        operation = await journal.read(lambda view: view.operation(operation_id(1)))
        assert operation is not None
        assert operation.state is State.SUCCEEDED


async def test_arguments_that_are_too_long_are_cut(opened: Open) -> None:
    """What a human is asked about is flagged as cut; the command's own payload has the whole."""
    asked = ApprovalRequested(
        approval_id="ap-1",
        tool="issues/create",
        args_digest=Digest("a" * 64),
        arguments={"text": "x" * 70_000},
        expires_at=Timestamp("2030-01-02T00:00:00.000000Z"),
    )
    async with opened() as journal:
        _, event = await journal.transact(
            recording(accepted(1), Draft(data=asked, operation_id=operation_id(1)))
        )
    assert data(event)["arguments"] is None
    assert data(event)["arguments_truncated"] is True


async def test_a_commands_data_is_kept_outside_the_chain(opened: Open) -> None:
    """As the bytes that came, under the digest that its acceptance names."""
    draft = accepted(1)
    async with opened() as journal:
        (event,) = await journal.transact(recording(draft))
        payload = await journal.read(lambda view: view.command_payload(command_id(1)))
    assert payload == draft.payload
    assert payload is not None
    assert data(event)["payload_digest"] == hashlib.sha256(payload).hexdigest()
