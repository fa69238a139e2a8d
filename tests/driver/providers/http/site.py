"""A web site whose answers a test writes byte by byte, on a real socket, and what really arrived there."""

import contextlib
import json
import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ssl import SSLContext

import anyio
from anyio import TypedAttributeProvider
from anyio.abc import AnyByteStream, SocketAttribute, TaskStatus
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.tls import TLSListener

from store.records import JsonValue

HEAD_BYTES_MAX = 65_536
RECEIVED_BYTES_MAX = 65_536
PATIENCE_S = 30.0


@dataclass(frozen=True)
class Request:
    """One request as it came."""

    method: str
    target: str
    headers: Mapping[str, str]
    """By their names in lower case."""
    names: tuple[str, ...]
    """The names in lower case, as often and in the order as they came."""
    body: bytes

    @property
    def json(self) -> JsonValue:
        """The body, as JSON."""
        found: JsonValue = json.loads(self.body)
        return found


Script = Callable[["Site", AnyByteStream, Request], Awaitable[None]]


@dataclass
class Site:
    """The server: what it answers, and what it was sent."""

    script: Script
    requests: list[Request] = field(default_factory=list[Request])
    connections: int = 0
    """How many were ever accepted."""
    gone: int = 0
    """How many have ended."""
    port: int = 0
    go_on: anyio.Event = field(default_factory=anyio.Event)
    """For scripts that wait for the test."""
    serving: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    _news: anyio.Event = field(default_factory=anyio.Event)

    async def until(self, reached: Callable[["Site"], bool]) -> None:
        """Return once `reached` holds."""
        with anyio.fail_after(PATIENCE_S):
            while not reached(self):
                await self._news.wait()

    def news(self) -> None:
        """Let whoever waits look again."""
        self._news.set()
        self._news = anyio.Event()

    async def told_to_go_on(self, stream: AnyByteStream) -> bool:
        """Wait until the test says so; False where the client hangs up before."""
        async with anyio.create_task_group() as tasks:

            async def listen() -> None:
                with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                    await stream.receive()
                tasks.cancel_scope.cancel()

            tasks.start_soon(listen)
            await self.go_on.wait()
            tasks.cancel_scope.cancel()
        return self.go_on.is_set()

    async def serve(self, stream: AnyByteStream) -> None:
        """Serve one connection until it ends."""
        self.connections += 1
        self.news()
        reader = BufferedByteReceiveStream(stream)
        try:
            while (request := await _read(reader)) is not None:
                self.requests.append(request)
                self.news()
                try:
                    await self.script(self, stream, request)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return
        finally:
            self.gone += 1
            self.news()
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(stream)


async def _read(reader: BufferedByteReceiveStream) -> Request | None:
    """The next request; None where the client hung up, in the middle of one or not."""
    try:
        head = (await reader.receive_until(b"\r\n\r\n", HEAD_BYTES_MAX)).decode("latin-1")
        first, *lines = head.split("\r\n")
        pairs = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        headers = dict(pairs)
        body = await reader.receive_exactly(int(headers.get("content-length", "0")))
    except (anyio.IncompleteRead, anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        return None
    method, target, _ = first.split()
    return Request(method, target, headers, tuple(name for name, _ in pairs), body)


# ------------------------------------------------------------------ what a site can say


def http(
    status: int = 200, body: bytes = b'{"id": 7}', *, kind: str | None = "application/json", **headers: str
) -> bytes:
    """Return a response; `_` in a header's name stands for a hyphen."""
    lines = [f"HTTP/1.1 {status} Whatever", f"content-length: {len(body)}"]
    if kind is not None:
        lines.append(f"content-type: {kind}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def says(*pieces: bytes) -> Script:
    """Answer with these bytes, whatever was asked."""

    async def script(_site: Site, stream: AnyByteStream, _request: Request) -> None:
        for piece in pieces:
            await stream.send(piece)

    return script


def then_hangs_up(*pieces: bytes) -> Script:
    """Send these bytes, and close the connection."""

    async def script(_site: Site, stream: AnyByteStream, _request: Request) -> None:
        for piece in pieces:
            await stream.send(piece)
        await stream.aclose()

    return script


def then_resets(*pieces: bytes) -> Script:
    """Send these bytes, and reset the connection."""

    async def script(_site: Site, stream: AnyByteStream, _request: Request) -> None:
        for piece in pieces:
            await stream.send(piece)
        await reset(stream)

    return script


def slowly(*pieces: bytes) -> Script:
    """Send the first of these bytes, and the others once the test says so."""

    async def script(site: Site, stream: AnyByteStream, _request: Request) -> None:
        first, *rest = pieces
        await stream.send(first)
        if await site.told_to_go_on(stream):
            for piece in rest:
                await stream.send(piece)

    return script


async def reset(stream: AnyByteStream) -> None:
    """Close a connection as a crash would."""
    raw = stream.extra(SocketAttribute.raw_socket)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await anyio.aclose_forcefully(stream)


def shrunk(listener: TypedAttributeProvider) -> int:
    """Let the listener's connections take little that is not read; return its port."""
    raw = listener.extra(SocketAttribute.raw_socket)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_BYTES_MAX)
    return listener.extra(SocketAttribute.local_port)


@asynccontextmanager
async def site(
    script: Script, *, tls: SSLContext | None = None, kind: type[Site] = Site
) -> AsyncGenerator[Site]:
    """Serve on a free port of the loopback interface, until the end."""
    made = kind(script)
    async with anyio.create_task_group() as tasks:
        await tasks.start(_serve, made, tls)
        yield made
        made.serving.cancel()


async def _serve(made: Site, tls: SSLContext | None, *, task_status: TaskStatus[None]) -> None:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    made.port = listener.extra(SocketAttribute.local_port)
    async with listener:
        with made.serving:
            task_status.started()
            if tls is None:
                await listener.serve(made.serve)
            else:
                await TLSListener(listener, tls, standard_compatible=False).serve(made.serve)
