"""Events at the plane: each is taken once, in order, and acknowledged when it is committed."""

import json
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from anyio import to_thread
from hypothesis import given
from hypothesis import strategies as st

from driver.core.codec import parse_from_daemon
from driver.core.frames import Ack, EventFrame, Gap
from driver.plane.fleet import greet
from driver.plane.intake import Arrival, chain_after, take
from driver.plane.ledger import Ledger, open_ledger
from store.chain import digest, extend
from store.events import DriverUnfenced, OperationSucceeded
from store.records import Chain
from tests.driver.plane.world import NOTE, UNKNOWN, Driver, Journal, Plane

pytestmark = pytest.mark.anyio


async def stored(plane: Plane) -> list[str]:
    """The events that the plane holds, as it hands them out."""
    text = (await plane.http.get("/v1/events")).text
    return [line.partition(',"event":')[2][:-1] for line in text.splitlines()]


def arrival(text: str) -> Arrival:
    """An event as the session hands it to the intake."""
    frame = parse_from_daemon(text)
    assert isinstance(frame, EventFrame)
    return Arrival(frame=frame, text=text)


@asynccontextmanager
async def ledger_at(path: Path, driver: Driver) -> AsyncGenerator[Ledger]:
    """A ledger that the driver has said hello to."""
    ledger = await to_thread.run_sync(open_ledger, path)
    try:
        await ledger.change(partial(greet, hello=driver.hello()))
        yield ledger
    finally:
        await to_thread.run_sync(ledger.close)


async def acked(driver: Driver) -> int:
    """The watermark of a new welcome, which must name our own history."""
    async with driver.session() as socket:
        seq = int(socket.welcome["acked_seq"])
        if seq:
            frame = json.loads(driver.journal.frames[seq - 1])
            assert socket.welcome["acked_chain"] == frame["chain"]
        return seq


async def test_events_are_stored_as_they_came_and_acknowledged(driver: Driver) -> None:
    """Byte for byte; and the next welcome names the last of them, with its chain."""
    async with driver.session() as socket:
        for _ in range(3):
            await socket.say(driver.journal.commit(NOTE))
        seq = 0
        while seq < 3:
            seq = (await socket.hear("ack"))["seq"]
    assert await stored(driver.plane) == driver.journal.frames
    assert await acked(driver) == 3


async def test_a_window_of_events_is_acknowledged_cumulatively(driver: Driver) -> None:
    """What arrives while one commit is under way goes into the next: fewer acknowledgements than events."""
    frames = [driver.journal.commit(NOTE) for _ in range(200)]
    acks: list[int] = []
    async with driver.session() as socket:
        await socket.say(*frames)
        while not acks or acks[-1] < 200:
            acks.append((await socket.hear("ack"))["seq"])
    assert acks == sorted(set(acks))
    assert len(acks) < 100


async def test_a_repeat_is_success_and_stored_once(driver: Driver) -> None:
    """The same bytes under the same seq, over the same connection or another."""
    one, two = driver.journal.commit(NOTE), driver.journal.commit(NOTE)
    async with driver.session() as socket:
        await socket.say(one, one, two, one)
        while (await socket.hear("ack"))["seq"] < 2:
            pass
        await socket.silence()
    async with driver.session() as socket:
        await socket.say(one, two)
        await socket.silence()
    assert await stored(driver.plane) == [one, two]


async def test_other_bytes_under_a_known_seq_are_a_conflict(driver: Driver) -> None:
    """A journal that was rolled back and went on: what is stored stays, and nothing that follows is taken."""
    fork = Journal(journal_id=driver.journal.journal_id)
    one = driver.journal.commit(NOTE)
    other = fork.commit(DriverUnfenced(reason="x", actor="y"))
    async with driver.session() as socket:
        await socket.say(one)
        await socket.hear("ack")
        await socket.say(other, fork.commit(NOTE))
        nack = await socket.hear("nack")
        assert (nack["seq"], nack["code"]) == (1, "conflict")
        await socket.silence()
    assert await stored(driver.plane) == [one]


async def test_a_chain_that_does_not_follow_is_a_conflict(driver: Driver) -> None:
    """The event belongs to another history, though its seq is the next; what came before is acknowledged."""
    fork = Journal(journal_id=driver.journal.journal_id)
    fork.commit(DriverUnfenced(reason="x", actor="y"))
    async with driver.session() as socket:
        await socket.say(driver.journal.commit(NOTE), fork.commit(NOTE))
        assert (await socket.hear("ack"))["seq"] == 1
        nack = await socket.hear("nack")
        assert (nack["seq"], nack["code"]) == (2, "conflict")
    assert await acked(driver) == 1


@pytest.mark.parametrize(
    ("part", "other"),
    [('"terminal":false', '"terminal":true'), ('"local"', '"plane"'), ("effectd/test", "effectd/TEST")],
)
async def test_a_changed_byte_is_a_conflict(driver: Driver, part: str, other: str) -> None:
    """The chain covers every member before it, also where the frame is still well-formed."""
    async with driver.session() as socket:
        await socket.say(driver.journal.commit(NOTE).replace(part, other))
        assert (await socket.hear("nack"))["code"] == "conflict"


async def test_an_event_that_is_wrong_is_passed_and_the_stream_goes_on(driver: Driver) -> None:
    """It is nacked `invalid` between the acknowledgements, kept, and never tried again."""
    journal = driver.journal
    good, bad = journal.commit(NOTE), journal.commit(NOTE)
    # the driver itself chained a malformed event, so its history is one with it
    body = bad.replace('"origin":"local"', '"origin":"moon"').rpartition(',"chain"')[0] + "}"
    chain = extend(Chain(json.loads(good)["chain"]), digest(body.encode()))
    bad = f'{body[:-1]},"chain":"{chain}"}}'
    journal.frames[1], journal.chain = bad, chain
    last = journal.commit(NOTE)
    async with driver.session() as socket:
        await socket.say(good)
        assert (await socket.hear("ack"))["seq"] == 1
        await socket.say(bad)
        nack = await socket.hear("nack")
        assert (nack["seq"], nack["code"], "origin" in nack["message"]) == (2, "invalid", True)
        assert (await socket.hear("ack"))["seq"] == 2
        await socket.say(last)
        assert (await socket.hear("ack"))["seq"] == 3
    async with driver.session() as socket:
        await socket.say(bad)
        assert (await socket.hear("nack"))["code"] == "invalid"
    assert await acked(driver) == 3


async def test_an_event_whose_chain_is_not_its_last_member_is_invalid(driver: Driver) -> None:
    """It cannot be hashed as the protocol says, so it belongs to no chain."""
    frame = json.loads(driver.journal.commit(NOTE))
    async with driver.session() as socket:
        await socket.say(json.dumps({"chain": frame.pop("chain"), **frame}))
        nack = await socket.hear("nack")
        assert (nack["code"], "chain" in nack["message"]) == ("invalid", True)


async def test_an_event_without_a_place_is_an_error(driver: Driver) -> None:
    """It cannot be nacked; the daemon learns that it was not understood."""
    frame = json.loads(driver.journal.commit(NOTE))
    async with driver.session() as socket:
        for member in ("seq", "journal_id", "chain"):
            await socket.say(json.dumps({**frame, member: None}))
            assert (await socket.hear("error"))["code"] == "invalid_frame"


async def test_an_event_of_another_journal_is_an_error(driver: Driver) -> None:
    """One connection speaks of the journal that its hello named."""
    async with driver.session() as socket:
        await socket.say(Journal().commit(NOTE))
        assert (await socket.hear("error"))["code"] == "wrong_journal"
        await socket.say(driver.journal.commit(NOTE))
        assert (await socket.hear("ack"))["seq"] == 1


async def test_a_missing_event_sends_the_daemon_back(driver: Driver) -> None:
    """With 4002, after what came before was acknowledged; the next welcome says from where to resend."""
    frames = [driver.journal.commit(NOTE) for _ in range(3)]
    async with driver.session() as socket:
        await socket.say(frames[0], frames[2])
        assert (await socket.hear("ack"))["seq"] == 1
        assert await socket.closing() == 4002
    assert await acked(driver) == 1


async def test_a_gap_bridges_what_was_pruned(driver: Driver) -> None:
    """The watermark moves over it, with the chain that it names, and the next event must follow from that."""
    frames = [driver.journal.commit(NOTE) for _ in range(5)]
    chain = Chain(json.loads(frames[3])["chain"])
    async with driver.session() as socket:
        await socket.say(frames[0], Gap(from_=2, to=4, chain=chain), frames[4])
        while (await socket.hear("ack"))["seq"] < 5:
            pass
        await socket.say(frames[2], Gap(from_=2, to=4, chain=chain))
        await socket.silence()
    assert await acked(driver) == 5


async def test_what_a_gap_passed_over_is_taken_when_it_comes_after_all(driver: Driver) -> None:
    """A dead letter may be its command's receipt: it is asked for again, and comes out of its turn."""
    frames = [driver.journal.commit(NOTE) for _ in range(3)]
    chain = Chain(json.loads(frames[1])["chain"])
    async with driver.session() as socket:
        await socket.say(frames[0], Gap(from_=2, to=2, chain=chain), frames[2], frames[1], frames[1])
        while (await socket.hear("ack"))["seq"] < 3:
            pass
        await socket.silence()
        await socket.say(frames[1].replace("effectd", "efffctd"))
        assert (await socket.hear("nack"))["code"] == "conflict"


async def test_a_gap_that_leaves_something_out_sends_the_daemon_back(driver: Driver) -> None:
    """A jump is bridged from the watermark on, or not at all."""
    frames = [driver.journal.commit(NOTE) for _ in range(5)]
    async with driver.session() as socket:
        await socket.say(frames[0], Gap(from_=3, to=4, chain=Chain(json.loads(frames[3])["chain"])))
        assert await socket.closing() == 4002
    assert await acked(driver) == 1


async def test_an_acknowledgement_never_runs_ahead_of_its_connection(driver: Driver, tmp_path: Path) -> None:
    """An older connection of the same life may have brought more: this one is told what it brought."""
    frames = [arrival(driver.journal.commit(NOTE)) for _ in range(3)]
    async with ledger_at(tmp_path / "other.db", driver) as ledger:
        replies = [
            (
                await ledger.change(partial(take, journal_id=driver.journal.journal_id, batch=part, told=0))
            ).replies
            for part in (frames, frames[:1])
        ]
    assert replies == [[Ack(seq=3)], [Ack(seq=1)]]


async def test_what_cannot_be_committed_is_not_taken(driver: Driver, tmp_path: Path) -> None:
    """No room in the file: the call raises, so there is nothing to answer with, and the file is as it was."""
    large = OperationSucceeded(result="x" * 100_000, receipt=None, attempts=1, duration_ms=1)
    batch = [arrival(driver.journal.commit(large, "cmd-1"))]
    step = partial(take, journal_id=driver.journal.journal_id, batch=batch, told=0)
    async with ledger_at(tmp_path / "other.db", driver) as ledger:
        await ledger.read(lambda connection: connection.execute("PRAGMA max_page_count=1"))
        with pytest.raises(sqlite3.OperationalError, match="full"):
            await ledger.change(step)
        assert ledger.failed.is_set()
        await ledger.read(lambda connection: connection.execute("PRAGMA max_page_count=1000000"))
        assert (await ledger.change(step)).replies == [Ack(seq=1)]


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])), st.sampled_from(["", " ", "\n "]))
def test_the_plane_chains_as_the_journal_does(text: str, space: str) -> None:
    """Its own reading of the protocol gives what `store` computes, whatever stands in the event."""
    body = json.dumps({"type": "event", "text": text}, ensure_ascii=False)
    expected = extend(Chain("ab" * 16), digest(body.encode()))
    sealed = f'{body[:-1]},{space}"chain"{space}:{space}"{expected}"{space}}}'
    assert chain_after("ab" * 16, sealed) == expected
    assert chain_after("ab" * 16, body) is None


async def test_a_receipt_stands_when_another_history_says_less(driver: Driver) -> None:
    """A rolled-back journal tells of the command as unknown: the plane knows better, and keeps that."""
    command_id = "cmd-1"
    await driver.plane.send(command_id=command_id)
    async with driver.session() as socket:
        await socket.hear("command")
        await socket.say(*driver.journal.run(command_id))
        while (await socket.hear("ack"))["seq"] < 3:
            pass
    rolled_back = Driver(plane=driver.plane)
    async with rolled_back.session() as socket:
        await socket.say(rolled_back.journal.commit(DriverUnfenced(reason="rolled_back", actor="operator:0")))
        await socket.say(*rolled_back.journal.run(command_id, UNKNOWN))
        while (await socket.hear("ack"))["seq"] < 4:
            pass
    shown = await driver.plane.get(f"/v1/commands/{command_id}")
    assert (shown["receipt_kind"], shown["effect"]) == ("operation.succeeded", "occurred"), shown
