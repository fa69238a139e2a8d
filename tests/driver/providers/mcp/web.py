"""A small MCP server over HTTP whose answers a test writes byte by byte, on a real socket."""

import json
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import anyio
from anyio.abc import SocketAttribute, SocketListener, SocketStream, TaskStatus
from anyio.streams.buffered import BufferedByteReceiveStream

from store.records import JsonObject, JsonValue

MODERN = "2026-07-28"
LEGACY = "2025-11-25"


@dataclass
class Request:
    """One request as it came."""

    method: str
    headers: dict[str, str]
    body: JsonObject

    @property
    def rpc(self) -> str:
        """The JSON-RPC method."""
        return str(self.body.get("method", ""))


Answer = Callable[["Web", SocketStream, Request], Awaitable[None]]


@dataclass
class Web:
    """The server: its era, what it answers to tool calls, and what it was sent."""

    era: str = MODERN
    answer: Answer | None = None
    session: str | None = None
    refuses: int | None = None
    tools: list[JsonValue] = field(
        default_factory=lambda: [{"name": "act", "inputSchema": {"type": "object"}}]
    )
    bewildered: bool = False
    """Whether it says of `server/discover`, as older servers do, that there is no session: to nobody's id."""
    requests: list[Request] = field(default_factory=list[Request])
    connections: int = 0
    port: int = 0
    stopped: bool = False
    gone: anyio.Event = field(default_factory=anyio.Event)
    _news: anyio.Event = field(default_factory=anyio.Event)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Listen on a free port of the loopback interface, until `stop`."""
        (listener,) = (await anyio.create_tcp_listener(local_host="127.0.0.1")).listeners
        assert isinstance(listener, SocketListener)
        self.port = listener.extra(SocketAttribute.local_port)
        async with listener, anyio.create_task_group() as tasks:
            task_status.started()
            while True:
                stream = await listener.accept()
                if self.stopped:
                    await stream.aclose()
                    break
                tasks.start_soon(self.serve, stream)
            tasks.cancel_scope.cancel()
        self.gone.set()

    def stop(self) -> None:
        """Let nobody listen any more, and close every connection: then it is `gone`."""
        self.stopped = True
        # asyncio may trip over an `accept` that is cancelled just when somebody comes: so somebody comes
        with suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", self.port)).close()

    async def sent(self, body: JsonObject) -> None:
        """Wait until this was sent to us."""
        while not any(request.body == body for request in self.requests):
            await self._news.wait()

    def calls(self) -> list[Request]:
        """Return the tool calls that came."""
        return [request for request in self.requests if request.rpc == "tools/call"]

    async def serve(self, stream: SocketStream) -> None:
        """Serve one connection until it ends."""
        self.connections += 1
        reader = BufferedByteReceiveStream(stream)
        async with stream:
            while (request := await _read(reader)) is not None:
                self.requests.append(request)
                self._news.set()
                self._news = anyio.Event()
                try:
                    await self._respond(stream, request)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return

    async def _respond(self, stream: SocketStream, request: Request) -> None:
        if self.refuses is not None:
            await stream.send(http(self.refuses, b""))
        elif request.rpc == "tools/call" and self.answer is not None:
            await self.answer(self, stream, request)
        elif request.method == "DELETE" or "id" not in request.body:
            await stream.send(http(202, b""))
        elif request.rpc == "server/discover" and self.bewildered:
            error: JsonObject = {"code": -32000, "message": "Bad Request: Server not initialized"}
            body: JsonObject = {"jsonrpc": "2.0", "error": error, "id": None}
            await stream.send(http(400, json.dumps(body).encode()))
        else:
            result = self._result(request.rpc)
            headers = {"mcp-session-id": self.session} if self.session else {}
            error = {"code": -32601, "message": "Method not found"}
            body = {"error": error} if result is None else {"result": result}
            await stream.send(rpc(request, body, headers=headers))

    def _result(self, method: str) -> JsonObject | None:
        cached: JsonObject = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        if method == "server/discover" and self.era == MODERN:
            return {"supportedVersions": [MODERN], "capabilities": {"tools": {}}, **cached}
        if method == "initialize" and self.era == LEGACY:
            info: JsonObject = {"name": "web", "version": "1"}
            return {"protocolVersion": LEGACY, "capabilities": {"tools": {}}, "serverInfo": info}
        if method == "tools/list":
            return {"tools": self.tools, **cached}
        return {} if method == "ping" and self.era == LEGACY else None


def http(
    status: int, body: bytes, *, kind: str = "application/json", headers: dict[str, str] | None = None
) -> bytes:
    """Return a response."""
    lines = [f"HTTP/1.1 {status} Whatever", f"content-type: {kind}", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def rpc(request: Request, body: JsonObject, *, headers: dict[str, str] | None = None) -> bytes:
    """Return a JSON-RPC answer."""
    return http(200, message(request, body), headers=headers)


def message(request: Request, body: JsonObject) -> bytes:
    """Return a JSON-RPC response to `request`."""
    return json.dumps({"jsonrpc": "2.0", "id": request.body["id"], **body}).encode()


def done(words: str = "done") -> JsonObject:
    """Return the body of a success."""
    content: JsonValue = [{"type": "text", "text": words}]
    return {"result": {"content": content, "resultType": "complete"}}


def event(data: bytes) -> bytes:
    """Return one server-sent event."""
    return b"event: message\ndata: " + data + b"\n\n"


STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


async def _read(reader: BufferedByteReceiveStream) -> Request | None:
    """The next request; None where the client hung up, in the middle of one or not."""
    try:
        head = (await reader.receive_until(b"\r\n\r\n", 65_536)).decode("latin-1")
        first, *lines = head.split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.receive_exactly(int(headers.get("content-length", "0")))
    except (anyio.IncompleteRead, anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        return None
    return Request(first.split()[0], headers, json.loads(body) if body else {})


@asynccontextmanager
async def web(*, era: str = MODERN, answer: Answer | None = None) -> AsyncGenerator[Web]:
    """Serve on a free port of the loopback interface, until the end or `Web.stop`."""
    server = Web(era=era, answer=answer)
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.run)
        try:
            yield server
        finally:
            server.stop()
