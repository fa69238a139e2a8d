"""The connection between the daemon and the plane, as frames that arrive later, in order, or never.

A frame keeps its place in its direction, as on TCP. While the network is silent nothing arrives; what is
silent for too long is closed by whoever waits. A cut loses what is under way, in each direction by itself.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextvars import Context
from random import Random
from typing import Protocol

from websockets.exceptions import ConnectionClosed
from websockets.frames import Close

from driver.core.frames import CLOSE_SUPERSEDED, SUBPROTOCOL
from driver.link.errors import PlaneRefused, PlaneUnreachable
from driver.link.link import Dial
from driver.link.settings import LinkSettings
from driver.link.token import Token
from tests.faults.simulation.loop import Process
from tests.faults.simulation.truth import Truth

DEAD_AFTER_S = 20.0
TIMEOUT_S = 5.0
TICK_S = 1e-6
SMOOTH_SHARE = 0.5
"""Of writes, after which the socket takes more at once."""


class Far(Protocol):
    """The plane, as the network sees it."""

    @property
    def is_up(self) -> bool:
        """Whether it takes connections."""
        ...

    def connected(self, wire: "Wire") -> None:
        """Somebody has connected."""
        ...

    def received(self, wire: "Wire", data: bytes) -> None:
        """A frame has arrived."""
        ...

    def disconnected(self, wire: "Wire") -> None:
        """The connection is gone."""
        ...


class Network:
    """What lies between one daemon and one plane."""

    def __init__(self, rng: Random, truth: Truth, plane: Far, context: Context) -> None:
        self.rng = rng
        self.truth = truth
        self.plane = plane
        self.context = context
        self.latency_s = rng.choice((0.001, 0.02, 0.4))
        self.silent_until = 0.0
        self.wire: Wire | None = None

    async def dial(self, process: Process) -> "Wire":
        """Return a new connection. Raises `LinkError`."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self.rng.uniform(0.5, 3.0) * self.latency_s)
        if loop.time() < self.silent_until:
            await asyncio.sleep(TIMEOUT_S)
            raise PlaneUnreachable("ws://plane", "timed out")
        if not self.plane.is_up:
            raise PlaneUnreachable("ws://plane", "connection refused")
        if self.rng.random() < 0.03:
            self.truth.fired["HTTP 503 at the handshake"] += 1
            raise PlaneRefused("ws://plane", 503)
        self.wire = wire = Wire(self, process)
        loop.call_soon(self.plane.connected, wire, context=self.context)
        return wire

    def fall_silent(self, seconds: float) -> None:
        """Let nothing arrive for so long."""
        loop = asyncio.get_running_loop()
        self.silent_until = max(self.silent_until, loop.time() + seconds)
        wire = self.wire
        if wire is not None and wire.is_open and seconds > DEAD_AFTER_S:
            loop.call_later(DEAD_AFTER_S, wire.cut, context=self.context)

    def cut(self) -> None:
        """End the connection that there is."""
        if self.wire is not None and self.wire.is_open:
            self.truth.fired["cut"] += 1
            self.wire.cut()


class Wire:
    """One connection: the daemon's end is a `driver.link.socket.Socket`."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network = network
        self.process = process
        self.is_open = True
        self.subprotocol = SUBPROTOCOL
        self.transport = self
        self._inbox: deque[bytes] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._watchers: list[asyncio.Future[None]] = []
        self._up = self._down = 0.0
        """When the newest frame of each direction arrives."""
        self._received: Close | None = None
        self._sent: Close | None = None
        self._plane_gone = False

    def _arrival(self, after: float) -> float:
        network = self._network
        now = asyncio.get_running_loop().time()
        usual = now + network.rng.uniform(0.5, 2.0) * network.latency_s
        # strictly later: timers of one moment have no order among them
        return max(after + TICK_S, usual, network.silent_until)

    # ------------------------------------------------------------ the daemon's end

    async def recv(self) -> str:
        while not self._inbox:
            if not self.is_open:
                raise self._closed()
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        return self._inbox.popleft().decode()

    def write(self, frames: Sequence[bytes]) -> bool:
        loop = asyncio.get_running_loop()
        for frame in frames if self.is_open else ():
            self._up = self._arrival(self._up)
            loop.call_at(self._up, self._arrive_up, frame, context=self._network.context)
        return self._network.rng.random() < SMOOTH_SHARE

    async def drained(self) -> None:
        await asyncio.sleep(0)

    async def close(self, code: int = 1000, reason: str = "") -> None:
        if not self.is_open:
            return
        self._sent = Close(code, reason)
        loop = asyncio.get_running_loop()
        self._up = self._arrival(self._up)
        loop.call_at(self._up, self._part, context=self._network.context)
        await asyncio.sleep(0)
        self._shut()

    def abort(self) -> None:
        if self.is_open:
            self.cut()

    async def wait_closed(self) -> None:
        if self.is_open:
            watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._watchers.append(watcher)
            await watcher

    def _closed(self) -> ConnectionClosed:
        both = self._received is not None and self._sent is not None
        return ConnectionClosed(self._received, self._sent, True if both else None)

    # ------------------------------------------------------------ the plane's end

    def tell(self, frame: bytes) -> None:
        """Send a frame to the daemon."""
        if self.is_open:
            self._down = self._arrival(self._down)
            loop = asyncio.get_running_loop()
            loop.call_at(self._down, self._arrive_down, frame, context=self._network.context)

    def hang_up(self, code: int, reason: str) -> None:
        """Close, after what was sent."""
        if self.is_open:
            self._down = self._arrival(self._down)
            loop = asyncio.get_running_loop()
            loop.call_at(self._down, self._close_down, Close(code, reason), context=self._network.context)

    # ------------------------------------------------------------ in between

    def cut(self) -> None:
        """End it without a word, with what is under way."""
        self._shut()
        self._part()

    def process_died(self) -> None:
        """The kernel sends what the process had handed over, and closes."""
        self._shut()
        loop = asyncio.get_running_loop()
        loop.call_at(self._arrival(self._up), self._part, context=self._network.context)

    def _arrive_up(self, frame: bytes) -> None:
        if not self._plane_gone:
            self._network.plane.received(self, frame)

    def _part(self) -> None:
        if not self._plane_gone:
            self._plane_gone = True
            self._network.plane.disconnected(self)

    def _arrive_down(self, frame: bytes) -> None:
        if self.is_open:
            self._inbox.append(frame)
            self._wake()

    def _close_down(self, close: Close) -> None:
        if self.is_open:
            self._received = close
            if close.code == CLOSE_SUPERSEDED:
                self._network.truth.superseded.add(self.process.name)
            self._shut()
            self._part()

    def _shut(self) -> None:
        self.is_open = False
        self._wake()
        for watcher in self._watchers:
            if not watcher.done():
                watcher.set_result(None)

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


def dialling(network: Network, process: Process) -> Dial:
    """Return what a link dials with."""

    async def dial(settings: LinkSettings, token: Token, user_agent: str) -> Wire:
        del settings, token, user_agent
        return await network.dial(process)

    return dial
