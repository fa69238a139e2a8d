"""A relay that speaks in the plane's place. Part of `hostile`.

What it says is followed by the end of the stream, so that whoever waits for the rest of something need not
wait for long. What a daemon answers to words that were put into its plane's mouth is kept, and not passed
on.
"""

import asyncio
import base64
import contextlib
import hashlib
import re
import socket
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from tests.faults.hostile.wire import ACCEPT, CLOSE
from tests.faults.network.cutter import CHUNK, Cutter, End, Pair

GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""RFC 6455, 1.3."""
KEY: Final = re.compile(rb"(?i)sec-websocket-key: *(\S+)\r\n")


@dataclass(slots=True)
class Forger(Cutter):
    """See the module."""

    handshakes: deque[bytes] = field(default_factory=deque[bytes])
    """What the next connections get in place of a plane, one each."""
    forged: int = 0
    """How many of them were said."""
    heard_back: bytearray = field(default_factory=bytearray)
    """What the daemon has said since the last injection."""
    _injected: Pair | None = None

    def take(self, near: socket.socket) -> None:
        if not self.handshakes:
            Cutter.take(self, near)
            return
        near.setblocking(False)
        end = End("daemon", near)
        asyncio.get_running_loop().add_reader(near, self._forge, end, self.handshakes.popleft())

    def inject(self, data: bytes) -> None:
        """Say this to the daemon of the present connection, and end the stream."""
        assert self._counted is not None, "there is no connection"
        near, far = self._counted
        self._injected = self._counted
        self.heard_back.clear()
        far.deaf = True
        near.send(data)
        near.send_eof()

    @property
    def close_code(self) -> int | None:
        """The code with which the daemon has closed the connection, where it has said one."""
        data = bytes(self.heard_back)
        while len(data) >= 6:
            length = data[1] & 0x7F
            at, size = (2, length) if length < 126 else (4, int.from_bytes(data[2:4], "big"))
            payload = bytes(byte ^ data[at + n % 4] for n, byte in enumerate(data[at + 4 : at + 4 + size]))
            if data[0] & 0x0F == CLOSE:
                return int.from_bytes(payload[:2], "big") if payload else 1005
            data = data[at + 4 + size :]
        return None

    def _pass_on(self, pair: Pair, source: End, sink: End, data: bytes) -> None:
        if pair is self._injected and source.side == "daemon":
            self.heard_back += data
        else:
            Cutter._pass_on(self, pair, source, sink, data)

    def _forge(self, near: End, answer: bytes) -> None:
        """Answer a request once, and then read until the daemon has had enough."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            data = near.socket.recv(CHUNK)
            if (key := KEY.search(data)) is not None:
                proof = base64.b64encode(hashlib.sha1(key[1] + GUID).digest())
                self.forged += 1
                near.send(answer.replace(ACCEPT, proof))
                near.send_eof()
                self.changed()
            if data:
                return
        loop = asyncio.get_running_loop()
        loop.remove_reader(near.socket)
        loop.remove_writer(near.socket)
        near.socket.close()
