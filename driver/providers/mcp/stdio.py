"""The wire to a child process: one JSON message a line, both ways.

Part of `driver.providers.mcp`; imports its `child`, `exchange`, `jsonrpc`, `lines`, `pace` and `sdk`.

Theory of operation
-------------------
Requests wait in one queue. `_pump` writes what the pipe takes, at once where it can, otherwise when the pipe
has room again; it never blocks. The first look at the pipe decides: as long as it takes nothing, no byte of
the request at the head has left, and the request can be withdrawn. Just before its first byte the phase is
`writing`; it is `written` when the pipe has all of it.

One task reads. A line too long, or more garbage than `GARBAGE_MAX`, ends the wire: nothing behind it can be
trusted. Other garbage disturbs all that is under way, for nobody can tell whose answer it was, and the owner
looks whether the server still answers.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final

import anyio
import structlog
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from driver.core.attempts import NotSent, Phase, Silence
from driver.providers.mcp.child import Child
from driver.providers.mcp.exchange import Exchange, WireWatcher
from driver.providers.mcp.jsonrpc import (
    TOOLS_CHANGED,
    FromPeer,
    Garbage,
    RequestId,
    Response,
    notification,
    read_message,
    write_message,
)
from driver.providers.mcp.lines import LineSplitter, LineTooLong
from driver.providers.mcp.pace import Pace
from driver.providers.mcp.sdk import SdkSide
from driver.providers.mcp.settings import StdioServer
from store.records import JsonObject

GARBAGE_MAX: Final = 64
"""Lines that are no message, from one process: some print a banner; whoever prints more is broken."""

log: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


class _Outgoing:
    """A line on its way into the pipe."""

    def __init__(self, message: JsonObject, exchange: Exchange | None = None) -> None:
        self.rest = memoryview(write_message(message) + b"\n")
        self.exchange = exchange
        self.begun = False
        self.done: anyio.Event | None = None
        """Set when it was written, or never will be; None where nobody waits for that."""

    def reach(self, phase: Phase) -> None:
        """Tell whoever asks how far the line got."""
        if self.exchange is not None:
            self.exchange.on_phase(phase)

    def end(self) -> None:
        """Let go whoever waits for it."""
        if self.done is not None:
            self.done.set()


class StdioWire:
    """A `Wire` over the stdin and stdout of a child that it starts."""

    def __init__(
        self, provider: str, server: StdioServer, answer_max_bytes: int, watcher: WireWatcher
    ) -> None:
        self._provider = provider
        self._server = server
        self._lines = LineSplitter(answer_max_bytes)
        self._pace = Pace()
        self._watcher = watcher
        self._child: Child | None = None
        self._exchanges: dict[RequestId, Exchange] = {}
        self._queue: deque[_Outgoing] = deque()
        self._queued = anyio.Event()
        self._stopping = anyio.Event()
        self._garbage = 0
        self.why: Silence | None = None
        self.sdk = SdkSide(self._send)
        self.ended = anyio.Event()

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """See `Wire.run`. Raises `SpawnFailed`."""
        try:
            child = await Child.start(self._provider, self._server)
        except BaseException:
            self.sdk.close()
            raise
        self._child = child
        try:
            task_status.started()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._read, child)
                tasks.start_soon(self._write, child)
                tasks.start_soon(child.watch)
                tasks.start_soon(child.log_stderr)
                await self._stopping.wait()
                tasks.cancel_scope.cancel()
        finally:
            self._end(Silence(cause="connection_lost", message="the connection was closed"))
            self.sdk.close()
            await child.close(politely=self.why is None or self.why.cause != "protocol_error")

    def submit(self, exchange: Exchange) -> None:
        """See `Wire.submit`."""
        if self.ended.is_set():
            exchange.resolve(NotSent(reason="connect_failed", message="the server had ended before the call"))
            return
        self._exchanges[exchange.request_id] = exchange
        self._enqueue(_Outgoing(exchange.message, exchange))

    def withdraw(self, exchange: Exchange) -> bool:
        """See `Wire.withdraw`."""
        waiting = next((item for item in self._queue if item.exchange is exchange), None)
        if waiting is None or waiting.begun:
            return False
        self._queue.remove(waiting)
        self.forget(exchange)
        return True

    def cancel(self, exchange: Exchange) -> None:
        """See `Wire.cancel`."""
        if not self.ended.is_set():
            params: JsonObject = {"requestId": exchange.request_id, "reason": "nobody waits any more"}
            self._enqueue(_Outgoing(notification("notifications/cancelled", params)))

    def forget(self, exchange: Exchange) -> None:
        """See `Wire.forget`."""
        self._exchanges.pop(exchange.request_id, None)

    def stop(self) -> None:
        """See `Wire.stop`."""
        self._stopping.set()

    # ------------------------------------------------------------------ writing

    async def _send(self, message: JsonObject, _headers: Mapping[str, str]) -> None:
        item = _Outgoing(message)
        if not self.ended.is_set():
            item.done = anyio.Event()
            self._enqueue(item)
            await item.done.wait()
        if item.rest:
            raise anyio.BrokenResourceError

    def _enqueue(self, item: _Outgoing) -> None:
        self._queue.append(item)
        if len(self._queue) == 1:
            self._pump()
        if self._queue:
            self._queued.set()

    def _pump(self) -> None:
        """Write what the pipe takes now."""
        child = self._child
        try:
            while self._queue and child is not None and child.can_take():
                item = self._queue[0]
                if not item.begun:
                    item.begun = True
                    item.reach(Phase.WRITING)
                item.rest = item.rest[child.write_some(item.rest) :]
                if not item.rest:
                    self._queue.popleft()
                    item.reach(Phase.WRITTEN)
                    item.end()
        except OSError:
            self._end(Silence(cause="connection_lost", message="the server reads no more"))

    async def _write(self, child: Child) -> None:
        while True:
            if not self._queue:
                self._queued = anyio.Event()
                await self._queued.wait()
            await child.writable()
            self._pump()

    # ------------------------------------------------------------------ reading

    async def _read(self, child: Child) -> None:
        try:
            while chunk := await child.receive():
                for line in self._lines.feed(chunk):
                    self._route(line)
                    await self._pace.said(len(line))
        except LineTooLong as error:
            self._end(Silence(cause="protocol_error", message=f"the server sent {error}"))
            return
        status = await child.exited()
        how = "closed its output" if status is None else f"ended with exit status {status}"
        self._end(Silence(cause="connection_lost", message=f"the server {how} before it answered"))

    def _route(self, line: bytes) -> None:
        if not line or line.isspace() or self.ended.is_set():
            return
        match read_message(line):
            case Garbage(detail=detail):
                self._on_garbage(detail)
            case FromPeer() as message if message.method == TOOLS_CHANGED:
                self._watcher.on_tools_changed()
            case FromPeer(message=message) as asked if asked.is_request:
                if not self.sdk.deliver(message):
                    self._end(Silence(cause="protocol_error", message="the server floods us with requests"))
            case FromPeer(message=message):
                self._watcher.on_told(message)
            case Response(request_id=request_id, reply=reply) if request_id is not None:
                self._answer(request_id, reply)
            case Response():
                self._on_garbage("a response that names no request")

    def _answer(self, request_id: RequestId, reply: JsonObject | Silence) -> None:
        """The first response counts; one of which we know nothing is the session's, or is dropped by it."""
        exchange = self._exchanges.pop(request_id, None)
        if exchange is not None:
            self._pace.answered()
            exchange.resolve(reply)
        elif isinstance(reply, dict) and not self.sdk.deliver(reply):
            self._end(Silence(cause="protocol_error", message="the server floods us with responses"))

    def _on_garbage(self, detail: str) -> None:
        log.warning("server_sent_garbage", provider=self._provider, detail=detail)
        why = Silence(cause="protocol_error", message=f"the server sent {detail}")
        self._garbage += 1
        if self._garbage > GARBAGE_MAX:
            self._end(why)
            return
        for exchange in tuple(self._exchanges.values()):
            exchange.disturb(why)
        self._watcher.on_garbage()

    def _end(self, why: Silence) -> None:
        """Nothing comes any more: every exchange gets its reply, and what never left is said to."""
        if self.why is not None:
            return
        self.why = why
        self.ended.set()
        unsent = NotSent(reason="connect_failed", message=f"nothing had been sent when: {why.message}")
        waiting = {id(item.exchange) for item in self._queue if not item.begun}
        for exchange in self._exchanges.values():
            exchange.resolve(unsent if id(exchange) in waiting else why)
        self._exchanges.clear()
        for item in self._queue:
            item.end()
        self._queue.clear()
        self.sdk.end()
        self._stopping.set()
