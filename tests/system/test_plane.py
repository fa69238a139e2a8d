"""The scripted plane notices what it exists to notice: a fake driver breaks each rule, and is reported."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from socket import SHUT_RDWR

import anyio
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from tests.system.history import Json, chain_after
from tests.system.plane import SUBPROTOCOL, TOKEN, ScriptedPlane, call, scripted_plane

pytestmark = pytest.mark.anyio
JOURNAL = "4f0c" * 8
DATA: dict[str, Json] = {
    "command.accepted": {"kind": "tool.call", "content_digest": "0" * 64},
    "driver.started": {"software": "fake/1"},
    "operation.succeeded": {
        "effect": "occurred",
        "result": {},
        "result_truncated": False,
        "receipt": None,
        "attempts": 1,
        "duration_ms": 1,
    },
}


@dataclass(slots=True)
class FakeDriver:
    """A driver that says what it is told to say, and heals nothing."""

    socket: ClientConnection
    chain: str = JOURNAL
    frames: list[str] = field(default_factory=list[str])

    async def hello(self, last_seq: int = 0) -> Json:
        """Say hello; return the answer."""
        hello = {
            "type": "hello",
            "protocol": 1,
            "driver_id": "fake",
            "journal_id": JOURNAL,
            "boot_id": "9a1e" * 8,
            "software": "fake/1",
            "capabilities": ["tool.call"],
            "last_seq": last_seq,
            "acked_seq": 0,
            "unsettled": 0,
            "max_inflight": 1,
            "tombstone_days": 1,
            "state": "ready",
        }
        await self.socket.send(json.dumps(hello))
        return await self.heard()

    async def heard(self) -> Json:
        """Return the next frame of the plane."""
        found: Json = json.loads(await self.socket.recv())
        return found

    def event(self, kind: str, command_id: str | None, *, terminal: bool = False, **changes: object) -> str:
        """Return the next event of the journal, its chain included."""
        frame: Json = {
            "type": "event",
            "journal_id": JOURNAL,
            "seq": len(self.frames) + 1,
            "kind": kind,
            "at": "2026-11-29T10:40:19.925541Z",
            "run_id": command_id and "run-1",
            "command_id": command_id,
            "operation_id": None,
            "origin": "plane" if command_id else "local",
            "terminal": terminal,
            "best_effort": False,
            "data": DATA[kind],
            **changes,
        }
        unchained = json.dumps({**frame, "chain": "?" * 32}, separators=(",", ":"))
        self.chain = chain_after(self.chain, unchained.encode())
        text = json.dumps({**frame, "chain": self.chain}, separators=(",", ":"))
        self.frames.append(text)
        return text

    def let_go(self) -> None:
        """End the connection as a process does that dies."""
        self.socket.transport.get_extra_info("socket").shutdown(SHUT_RDWR)

    async def say(self, *frames: str) -> None:
        """Send frames."""
        for frame in frames:
            await self.socket.send(frame)


@asynccontextmanager
async def fake_driver(plane: ScriptedPlane) -> AsyncGenerator[FakeDriver]:
    """Connect a fake driver."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with connect(
        plane.url, subprotocols=[SUBPROTOCOL], additional_headers=headers, proxy=None
    ) as socket:
        yield FakeDriver(socket)


Breach = Callable[[FakeDriver], list[str]]


async def converse(break_it: Breach, *, polite: bool = True, window: int | None = None) -> None:
    """Let a driver say what it says, and the plane judge it. With a `window`, nothing is acknowledged."""
    async with scripted_plane() as plane, fake_driver(plane) as driver:
        if window is not None:
            plane.window, plane.acks = window, False
        if polite:
            await driver.hello()
        await driver.say(*break_it(driver))
        await plane.until(lambda: False)


def started(driver: FakeDriver) -> str:
    """Return an event that breaks no rule."""
    return driver.event("driver.started", None)


def gap_without_a_word(driver: FakeDriver) -> list[str]:
    """Skip an event."""
    started(driver)
    return [started(driver)]


def other_bytes(driver: FakeDriver) -> list[str]:
    """Say something else under the same seq."""
    event = started(driver)
    return [event, event.replace("driver.started", "driver.stopping")]


def forged_chain(driver: FakeDriver) -> list[str]:
    """Send a chain that follows from nothing."""
    started(driver)
    return [driver.frames[0].replace(driver.chain, "0" * 32)]


def two_receipts(driver: FakeDriver) -> list[str]:
    """End one command twice."""
    accepted = driver.event("command.accepted", "cmd-1")
    receipts = (driver.event("operation.succeeded", "cmd-1", terminal=True) for _ in range(2))
    return [accepted, *receipts]


def receipt_from_nowhere(driver: FakeDriver) -> list[str]:
    """End what was never accepted."""
    return [driver.event("operation.succeeded", "cmd-1", terminal=True)]


def two_acceptances(driver: FakeDriver) -> list[str]:
    """Accept one command twice."""
    return [driver.event("command.accepted", "cmd-1") for _ in range(2)]


def false_gap(driver: FakeDriver) -> list[str]:
    """Bridge a gap that does not begin where the stream stands."""
    return [started(driver), json.dumps({"type": "gap", "from": 3, "to": 4, "chain": "0" * 32})]


def missing_member(driver: FakeDriver) -> list[str]:
    """Leave a member of the envelope out."""
    event = json.loads(started(driver))
    del event["best_effort"]
    return [json.dumps(event)]


def second_hello(driver: FakeDriver) -> list[str]:
    """Say hello twice."""
    del driver
    hello = {"type": "hello", "journal_id": JOURNAL, "last_seq": 0}
    return [json.dumps(hello)]


def unknown_answer(driver: FakeDriver) -> list[str]:
    """Refuse what nobody asked for."""
    del driver
    return [json.dumps({"type": "refused", "command_id": "cmd-x", "code": "draining", "message": ""})]


def error_frame(driver: FakeDriver) -> list[str]:
    """Complain without a reason."""
    del driver
    return [json.dumps({"type": "error", "code": "unknown_type", "message": ""})]


@pytest.mark.parametrize(
    ("break_it", "reported"),
    [
        (gap_without_a_word, "without a gap"),
        (other_bytes, "other bytes"),
        (forged_chain, "its chain is"),
        (two_receipts, "second receipt"),
        (two_acceptances, "second acceptance"),
        (receipt_from_nowhere, "never accepted"),
        (false_gap, "a gap to 4"),
        (missing_member, "the members are"),
        (second_hello, "a second hello"),
        (unknown_answer, "never given"),
        (error_frame, "error frames"),
    ],
)
async def test_a_broken_rule_is_reported(break_it: Breach, reported: str) -> None:
    """A driver that breaks one rule of the stream fails the test that talks to it."""
    with pytest.raises(AssertionError, match=reported):
        await converse(break_it)


async def test_an_event_before_welcome_is_reported() -> None:
    """Nothing but hello and error may come before welcome."""
    with pytest.raises(AssertionError, match="before welcome"):
        await converse(lambda driver: [started(driver)], polite=False)


async def test_events_beyond_the_window_are_reported() -> None:
    """A driver that sends more unacknowledged events than the window allows is caught."""
    with pytest.raises(AssertionError, match="beyond the window"):
        await converse(lambda driver: [started(driver) for _ in range(3)], window=2)


async def test_a_driver_that_keeps_the_rules_passes() -> None:
    """Events in order, a repeat after a reconnect and one for a redelivery are what the rules allow."""
    async with scripted_plane() as plane:
        plane.acks = False
        await plane.give(call("cmd-1"))
        async with fake_driver(plane) as driver:
            assert (await driver.hello())["acked_seq"] == 0
            assert (await driver.heard())["delivered_to"] == []
            frames = [
                driver.event("command.accepted", "cmd-1"),
                driver.event("operation.succeeded", "cmd-1", terminal=True),
            ]
            await driver.say(*frames)
            assert (await plane.receipt_of("cmd-1"))["seq"] == 2
        plane.acks = True
        async with fake_driver(plane) as again:
            await again.hello(last_seq=2)
            await again.say(*frames)
            assert [(await again.heard())["seq"] for _ in frames] == [1, 2]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(plane.redeliver, "cmd-1")
                assert (await again.heard())["delivered_to"] == [JOURNAL]
                await again.say(*frames)
    assert plane.repeats[JOURNAL, 2] == 1


async def test_a_lost_event_is_asked_for_again() -> None:
    """An event that the plane lost with its socket is not acknowledged by the next welcome."""
    async with scripted_plane() as plane:
        plane.on_event = lambda event: "lose" if event["seq"] == 2 else "take"
        async with fake_driver(plane) as driver:
            await driver.hello()
            await driver.say(started(driver), started(driver))
            await plane.until(lambda: plane.link is None)
        async with fake_driver(plane) as again:
            assert (await again.hello(last_seq=2))["acked_seq"] == 1


async def test_what_is_left_of_a_connection_is_none() -> None:
    """From the moment that a daemon has let go, although nothing was read yet that says so."""
    async with scripted_plane() as plane:
        await plane.give(call("cmd-1"))
        async with fake_driver(plane) as driver:
            await driver.hello()
            await driver.heard()
            before = plane.is_connected
            driver.let_go()
            assert plane.link is not None, "it was not noticed in this moment"
            assert (before, plane.is_connected) == (True, False)
            await plane.deliver("cmd-1")
            assert plane.orders["cmd-1"].deliveries == 1


async def test_a_wrong_token_gets_no_connection() -> None:
    """The plane answers 401 to a driver without its token."""
    async with scripted_plane() as plane:
        with pytest.raises(InvalidStatus):
            async with connect(plane.url, proxy=None):
                pass
        assert plane.refused_connections == 1


async def test_a_frame_that_breaks_the_schema_is_reported() -> None:
    """Every frame of the daemon is held against docs/protocol.schema.json."""
    with pytest.raises(AssertionError, match="breaks the schema"):
        await converse(lambda driver: [driver.event("operation.succeeded", "cmd-1", data={"result": {}})])
