"""A TCP relay that breaks a connection after an exact number of bytes, by RST or by FIN. Part of `network`.

It counts what the newest connection carries, so that with TLS the bytes are those of the ciphertext. An older
one, of which one side has not heard yet, goes on to its end beside it, and is not counted.

`rst`: both sides get a reset, what was under way is lost. `fin`: whoever was to get the byte gets the end of
the stream in its place, and may still talk; what the other side sends is swallowed, as behind a router that
has forgotten the connection.
"""

import asyncio
import contextlib
import socket
import struct
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

CHUNK: Final = 65_536
RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: on, for no time at all. Closing then resets."""

Side: TypeAlias = Literal["daemon", "peer"]
Kind: TypeAlias = Literal["rst", "fin"]
SIDES: Final[tuple[Side, ...]] = get_args(Side)
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Where and how a connection ends."""

    after: int
    """Bytes that still come through."""
    towards: Side
    kind: Kind


@dataclass(slots=True, eq=False)
class End:
    """One of the two sockets of a relayed connection."""

    side: Side
    socket: socket.socket
    deaf: bool = False
    """Whether what comes from here is swallowed."""
    said_all: bool = False
    _waiting: bytearray = field(default_factory=bytearray)
    """What the kernel had no room for."""
    _ends: bool = False

    def send(self, data: bytes) -> None:
        """Send, now or once there is room."""
        self._waiting += data
        self._flush()

    def send_eof(self) -> None:
        """End the stream behind what is to be sent."""
        self._ends = True
        self._flush()

    def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                del self._waiting[: self.socket.send(self._waiting)]
            if self._ends:
                self.socket.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            loop.add_writer(self.socket, self._flush)
            return
        except OSError:
            self._waiting.clear()
        loop.remove_writer(self.socket)


Pair: TypeAlias = tuple[End, End]


@dataclass(slots=True)
class Cutter:
    """See the module. Made by `cutter`."""

    target: tuple[str, int]
    """Where it relays to: on this machine, so that the kernel answers for a listener at once."""
    changed: Callable[[], None] = lambda: None
    """Called when a cut has happened, and when a connection has ended."""
    port: int = 0
    connections: int = 0
    carried: dict[Side, int] = field(default_factory=lambda: {"daemon": 0, "peer": 0})
    """Bytes towards each side, since the last cut was armed."""
    heard: int = 0
    """Bytes that the daemon has sent since then, swallowed ones among them."""
    fired: list[Cut] = field(default_factory=list[Cut])
    """The cuts that have happened since the last plan, in order."""
    _armed: Cut | None = None
    _next: deque[Cut] = field(default_factory=deque[Cut])
    _counted: Pair | None = None
    _pairs: list[Pair] = field(default_factory=list["Pair"])

    def plan(self, *cuts: Cut, now: Cut | None = None) -> None:
        """Cut the present connection by `now`, counted from here, and those to come by `cuts`."""
        self.fired.clear()
        self._next = deque(cuts)
        self._arm(now)
        if now is None:
            self._counted = None

    def _arm(self, cut: Cut | None) -> None:
        self._armed, self.heard = cut, 0
        self.carried = {"daemon": 0, "peer": 0}

    def take(self, near: socket.socket) -> None:
        """Relay a connection that was accepted from the daemon."""
        near.setblocking(False)
        far = socket.create_connection(self.target)
        far.setblocking(False)
        for each in (near, far):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connections += 1
        pair = (End("daemon", near), End("peer", far))
        self._pairs.append(pair)
        self._counted = pair
        self._arm(self._next.popleft() if self._next else None)
        loop = asyncio.get_running_loop()
        loop.add_reader(near, self._carry, pair, pair[0], pair[1])
        loop.add_reader(far, self._carry, pair, pair[1], pair[0])

    def _carry(self, pair: Pair, source: End, sink: End) -> None:
        try:
            data = source.socket.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            self._end(pair)
            return
        self.heard += len(data) if pair is self._counted and source.side == "daemon" else 0
        if not data:
            self._hear_the_end(pair, source, sink)
        elif not source.deaf:
            self._pass_on(pair, source, sink, data)

    def _pass_on(self, pair: Pair, source: End, sink: End, data: bytes) -> None:
        is_counted = pair is self._counted
        cut = self._armed if is_counted else None
        room = len(data) if cut is None or cut.towards != sink.side else cut.after - self.carried[sink.side]
        sink.send(data[:room])
        if is_counted:
            self.carried[sink.side] += min(room, len(data))
        if cut is not None and room < len(data):
            self._armed = None
            self.fired.append(cut)
            self._cut(pair, source, sink, cut.kind)
            self.changed()

    def _cut(self, pair: Pair, source: End, sink: End, kind: Kind) -> None:
        if kind == "rst":
            self._end(pair, reset=True)
        else:
            source.deaf = True
            sink.send_eof()

    def _hear_the_end(self, pair: Pair, source: End, sink: End) -> None:
        asyncio.get_running_loop().remove_reader(source.socket)
        source.said_all = True
        if sink.said_all or source.deaf or sink.deaf:
            self._end(pair)
            return
        sink.send_eof()

    def _end(self, pair: Pair, *, reset: bool = False) -> None:
        if pair not in self._pairs:
            return
        self._pairs.remove(pair)
        for end in pair:
            asyncio.get_running_loop().remove_reader(end.socket)
            asyncio.get_running_loop().remove_writer(end.socket)
            if reset:
                end.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            end.socket.close()
        self.changed()

    def end_all(self) -> None:
        """Hang up on everybody."""
        for pair in list(self._pairs):
            self._end(pair)


@contextmanager
def cutter(made: Cutter) -> Generator[Cutter]:
    """Relay a free port of the target's address, in the running loop."""
    loop = asyncio.get_running_loop()
    with socket.create_server((made.target[0], 0), backlog=64) as listener:
        listener.setblocking(False)
        made.port = listener.getsockname()[1]

        def accept() -> None:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                made.take(listener.accept()[0])

        loop.add_reader(listener, accept)
        try:
            yield made
        finally:
            loop.remove_reader(listener)
            made.end_all()
