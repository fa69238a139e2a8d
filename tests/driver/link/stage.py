"""A plane whose every word the test says, a cable that can be frozen, and the daemon's link before them.

The link talks to the real engine and the real journal (`tests.driver.engine.rig`), the plane is a real
WebSocket server on loopback.
"""

import json
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from ssl import SSLContext
from typing import Any

import anyio
from anyio.abc import SocketAttribute, SocketStream
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from driver.core.answers import Answer
from driver.core.signals import Delivery, Opened
from driver.link.desk import Desk
from driver.link.link import Link
from driver.link.settings import LinkSettings
from store.events import Draft, DriverStopping
from store.records import StoredEvent
from store.transaction import Transaction
from tests.driver.engine.rig import Rig, ScriptedProvider, engine

PATIENCE_S = 30.0
"""How long a test waits for what must come: far longer than it takes."""
TOKEN = "secret-of-the-tests"

Json = dict[str, Any]


async def eventually(reached: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    """Return once `reached()` holds. For what no event of ours tells a test."""
    with anyio.fail_after(within_s):
        while not reached():  # noqa: ASYNC110 - the link has no event for whoever looks from outside
            await anyio.sleep(0.005)


class Wire:
    """The plane's end of one connection."""

    def __init__(self, server: ServerConnection) -> None:
        self.server = server
        self.done = anyio.Event()

    @property
    def headers(self) -> Json:
        """The headers of the daemon's request, by lower-case name."""
        assert self.server.request is not None
        return {name.lower(): value for name, value in self.server.request.headers.raw_items()}

    async def hear(self) -> Json:
        """Return the daemon's next frame."""
        with anyio.fail_after(PATIENCE_S):
            frame = await self.server.recv()
        assert isinstance(frame, str), "the daemon sends text frames only"
        heard: Json = json.loads(frame)
        return heard

    async def hear_raw(self) -> bytes:
        """Return the daemon's next frame as its bytes."""
        with anyio.fail_after(PATIENCE_S):
            return await self.server.recv(decode=False)

    async def say(self, **members: object) -> None:
        """Send one frame."""
        await self.server.send(json.dumps(members))

    async def welcome(
        self, acked_seq: int = 0, acked_chain: str | None = None, *, window: int = 256, limit: int = 65_536
    ) -> Json:
        """Hear `hello`, and welcome the daemon. Returns the hello."""
        hello = await self.hear()
        assert hello["type"] == "hello"
        chain = {} if acked_chain is None else {"acked_chain": acked_chain}
        await self.say(
            type="welcome", session_id="s", acked_seq=acked_seq, window=window, max_frame_bytes=limit, **chain
        )
        return hello

    async def take(self, count: int) -> list[Json]:
        """Return the next `count` frames."""
        return [await self.hear() for _ in range(count)]

    async def is_silent_for(self, seconds: float) -> bool:
        """Whether the daemon says nothing for a while."""
        with anyio.move_on_after(seconds):
            await self.server.recv()
            return False
        return True

    async def command(self, command_id: str, kind: str = "run.end", **members: object) -> None:
        """Deliver a command."""
        await self.say(
            **{"type": "command", "command_id": command_id, "run_id": "run-1", "kind": kind, **members}
        )

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """End the connection."""
        await self.server.close(code, reason)
        self.done.set()

    def cut(self) -> None:
        """End the connection without a word."""
        self.server.transport.abort()
        self.done.set()

    async def closed(self) -> tuple[int, str]:
        """Return the code and reason that the daemon ends it with, skipping what it still says."""
        with anyio.fail_after(PATIENCE_S):
            while True:
                try:
                    await self.server.recv()
                except ConnectionClosed as closed:
                    self.done.set()
                    return (closed.rcvd.code, closed.rcvd.reason) if closed.rcvd else (1006, "")


@dataclass
class Plane:
    """A server that hands each connection to the test."""

    port: int = 0
    requests: list[Request] = field(default_factory=list[Request])
    refuse_with: HTTPStatus | None = None
    """Answer every handshake with this status, until told otherwise."""
    location: str = ""
    on_request: Callable[[], object] = lambda: None
    """Called for each handshake, before it is answered."""
    wires: list[Wire] = field(default_factory=list[Wire])
    _arrived: anyio.Event = field(default_factory=anyio.Event)
    _taken: int = 0

    @property
    def url(self) -> str:
        """Where the plane is served."""
        return f"ws://127.0.0.1:{self.port}/driver"

    async def accept(self) -> Wire:
        """Return the next connection."""
        with anyio.fail_after(PATIENCE_S):
            while len(self.wires) <= self._taken:
                self._arrived = anyio.Event()
                await self._arrived.wait()
        self._taken += 1
        return self.wires[self._taken - 1]

    async def asked_again(self) -> None:
        """Return once there is another handshake than those so far."""
        seen = len(self.requests)
        await eventually(lambda: len(self.requests) > seen)

    async def handle(self, server: ServerConnection) -> None:
        """Keep a connection open until the test is done with it."""
        wire = Wire(server)
        self.wires.append(wire)
        self._arrived.set()
        await wire.done.wait()

    async def check(self, server: ServerConnection, request: Request) -> Response | None:
        """Note the request, and refuse it where the test says so."""
        self.requests.append(request)
        self.on_request()
        if self.refuse_with is None:
            return None
        refusal = server.respond(self.refuse_with, "no\n")
        if self.location:
            refusal.headers["Location"] = self.location
        return refusal


@asynccontextmanager
async def serving(
    *, ssl: SSLContext | None = None, write_limit: int = 2**15, subprotocol: str | None = "effectd.v1"
) -> AsyncGenerator[Plane]:
    """Serve a plane on a port of its own."""
    plane = Plane()
    async with serve(
        plane.handle,
        "127.0.0.1",
        0,
        select_subprotocol=lambda _, __: None if subprotocol is None else Subprotocol(subprotocol),
        process_request=plane.check,
        compression=None,
        ping_interval=None,
        close_timeout=0.2,
        write_limit=write_limit,
        ssl=ssl,
    ) as server:
        plane.port = next(iter(server.sockets)).getsockname()[1]
        try:
            yield plane
        finally:
            for wire in plane.wires:
                wire.done.set()


class Cable:
    """A TCP relay before the plane that can stop carrying anything, as a dead network does."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.port = 0
        self.flows = anyio.Event()
        self.flows.set()

    def freeze(self) -> None:
        """Carry nothing more, and close nothing."""
        self.flows = anyio.Event()

    def thaw(self) -> None:
        """Carry again."""
        self.flows.set()

    async def relay(self, near: SocketStream) -> None:
        """Carry one connection."""
        async with (
            near,
            await anyio.connect_tcp("127.0.0.1", self.target) as far,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(self._carry, near, far, tasks.cancel_scope)
            tasks.start_soon(self._carry, far, near, tasks.cancel_scope)

    async def _carry(self, source: SocketStream, target: SocketStream, scope: anyio.CancelScope) -> None:
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                data = await source.receive()
                await self.flows.wait()
                await target.send(data)
        scope.cancel()


@asynccontextmanager
async def cable_to(plane: Plane) -> AsyncGenerator[Cable]:
    """Lay a cable to the plane."""
    cable = Cable(plane.port)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0, family=socket.AF_INET)
    cable.port = listener.extra(SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, cable.relay)
        yield cable
        tasks.cancel_scope.cancel()


class GatedDesk:
    """The real desk, before which deliveries can be held up; it notes what was asked of it."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.gate = anyio.Event()
        self.gate.set()
        self.batches: list[int] = []
        self.confirmations = 0
        self.fences: list[str] = []

    async def deliver(self, frames: Sequence[Delivery]) -> Sequence[Answer]:
        self.batches.append(len(frames))
        await self.gate.wait()
        return await self._desk.deliver(frames)

    def history_confirmed(self) -> None:
        self.confirmations += 1
        self._desk.history_confirmed()

    async def fence(self, reason: str, detail: str) -> None:
        self.fences.append(reason)
        await self._desk.fence(reason, detail)

    async def agree(self) -> None:
        await self._desk.agree()

    def acknowledged(self, seq: int) -> None:
        self._desk.acknowledged(seq)

    def refused(self, seq: int) -> None:
        self._desk.refused(seq)

    async def opening(self) -> Opened:
        return await self._desk.opening()


@dataclass
class Linked:
    """A daemon's link, at work."""

    rig: Rig
    desk: GatedDesk
    link: Link
    token_file: Path
    stop: Callable[[], None]

    async def commit(self, count: int = 1, *, size: int = 0) -> tuple[StoredEvent, ...]:
        """Record `count` events in one commit."""

        def append(tx: Transaction) -> tuple[StoredEvent, ...]:
            return tuple(tx.append(Draft(data=DriverStopping(reason="x" * size))) for _ in range(count))

        return await self.rig.journal.transact(append)


@asynccontextmanager
async def linked(
    folder: Path,
    url: str,
    *,
    settings: Callable[[LinkSettings], LinkSettings] = lambda settings: settings,
    token: str | None = TOKEN,
    chance: float = 0.0,
    before: Callable[[Rig], Awaitable[None]] | None = None,
    boundary: Callable[[str], None] = lambda _name: None,
) -> AsyncGenerator[Linked]:
    """Run an engine and its link until the block ends."""
    token_file = folder / "token"
    if token is not None:
        token_file.write_text(token + "\n")
        token_file.chmod(0o600)
    wanted = settings(LinkSettings(url=url, token_file=token_file, dead_after_s=10.0))
    async with engine(folder, ScriptedProvider(), confirmed=False) as rig:
        if before is not None:
            await before(rig)
        desk = GatedDesk(rig.desk)
        link = Link(
            settings=wanted,
            journal=rig.journal,
            desk=desk,
            software="effectd/test",
            clock=rig.clock,
            chance=lambda: chance,
            boundary=boundary,
        )
        async with anyio.create_task_group() as tasks:
            await tasks.start(link.run)
            yield Linked(rig, desk, link, token_file, tasks.cancel_scope.cancel)
            tasks.cancel_scope.cancel()


def dead_after(seconds: float) -> Callable[[LinkSettings], LinkSettings]:
    """Settings under which a dead link is noticed within `seconds`."""
    return lambda settings: replace(settings, dead_after_s=seconds)
