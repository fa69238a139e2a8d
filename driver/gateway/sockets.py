"""`gateway.sock`: one session for each relay that connects, a line for each message.

Part of `driver.gateway`; imports the SDK's server side and its siblings. The socket is made by the
composition root, and so is the word about who is at the other end.
"""

import socket
from collections.abc import Callable
from typing import Final

import anyio
import structlog
from anyio.abc import SocketAttribute, SocketListener, SocketStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.runner import serve_dual_era_loop
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, JSONRPCError, jsonrpc_message_adapter
from pydantic import ValidationError

from driver.core.identity import is_id
from driver.gateway.calls import Calls, Delivered
from driver.gateway.front import Front
from driver.gateway.limits import GatewayLimits
from driver.gateway.lines import Lines, LineTooLong
from driver.gateway.runs import Speaker
from driver.gateway.wire import (
    DELIVERED,
    GREETING_BYTES_MAX,
    LINE_BYTES_MAX,
    VERSION,
    Greeting,
    Message,
    line,
    member,
    read,
    read_greeting,
)
from driver.providers.outbound import Outbound
from store.records import CommandId, RunId

RESUMES_MAX: Final = 64
INBOX_MAX: Final = 64
"""Messages that were read and wait for the SDK."""
ALIASES_MAX: Final = 4_096
"""Answers whose delivery a relay has not confirmed yet."""
SLACK_BYTES: Final = 65_536
"""What the relay may add to a client's message."""

log = structlog.stdlib.get_logger(__name__)


class Sockets:
    """Serves the relays."""

    def __init__(
        self, front: Front, calls: Calls, limits: GatewayLimits, peer_uid: Callable[[socket.socket], int]
    ) -> None:
        self._front = front
        self._calls = calls
        self._limits = limits
        self._peer_uid = peer_uid

    async def serve(self, listener: SocketListener) -> None:
        """Take connections until cancelled."""
        await listener.serve(self._take)

    async def _take(self, stream: SocketStream) -> None:
        """Serve one connection to its end. What goes wrong with it is its own affair."""
        async with stream:
            try:
                uid = self._peer_uid(stream.extra(SocketAttribute.raw_socket))  # noqa: S610 - no Django here
                if self._calls.tally.connections >= self._limits.connections_max:
                    await _refuse(stream, "busy", "the gateway has all the connections that it may have")
                    return
                lines = Lines(GREETING_BYTES_MAX)
                greeting = await self._greeting(stream, lines)
                if greeting is None:
                    return
                ready: Message = {"effectd": "gateway", "version": VERSION}
                ready["journal_id"] = await self._calls.journal_id()
                await stream.send(line(ready))
                await self._serve(stream, lines, _speaker(greeting, uid))
            except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                log.debug("gateway_connection_lost")
            except Exception as error:
                log.exception("gateway_connection_failed", error=type(error).__name__)

    async def _greeting(self, stream: SocketStream, lines: Lines) -> Greeting | None:
        """Return the greeting; None where none came, or none that can be served: that was said then."""
        found: bytes | None = None
        with anyio.move_on_after(self._limits.greeting_s):
            try:
                found = await lines.next(stream)
            except LineTooLong:
                found = b""
        if found is None:
            return None
        greeting = read_greeting(found)
        if greeting is None:
            await _refuse(stream, "greeting", f"a connection begins with a greeting of version {VERSION}")
            return None
        if len(greeting.resumes) > RESUMES_MAX or not all(map(is_id, (greeting.run_id, *greeting.resumes))):
            message = (
                "a run is named by 1 to 128 characters of A-Z a-z 0-9 . _ : -, and at most 64 are resumed"
            )
            await _refuse(stream, "run", message)
            return None
        return greeting

    async def _serve(self, stream: SocketStream, lines: Lines, speaker: Speaker) -> None:
        session = Session(stream, lines, speaker, self._calls, self._limits)
        self._calls.tally.connections += 1
        claimed = self._calls.claims.take(speaker)
        log.info("gateway_connected", run_id=speaker.run_id, uid=speaker.uid, claimed=claimed)
        try:
            await session.run(self._front)
        finally:
            self._calls.tally.connections -= 1
            if claimed:
                self._calls.claims.give(speaker)
            self._front.forget(session.key)
            log.info("gateway_disconnected", run_id=speaker.run_id)


class Session:
    """One connection of a relay. Implements `driver.gateway.turns.Turn` for each of its requests."""

    def __init__(
        self, stream: SocketStream, lines: Lines, speaker: Speaker, calls: Calls, limits: GatewayLimits
    ) -> None:
        self._stream = stream
        self._lines = lines
        self._calls = calls
        self._limits = limits
        self._sending = anyio.Lock()
        self._given: dict[CommandId, Delivered] = {}
        self.speaker: Final = speaker
        self.key: Final = f"relay:{speaker.holder}:{id(self)}"
        self.gone = False

    def answers(self, asked: CommandId, about: Delivered) -> None:
        """See `Turn.answers`."""
        self._given[asked] = about
        while len(self._given) > ALIASES_MAX:
            self._given.pop(next(iter(self._given)))

    async def run(self, front: Front) -> None:
        """Serve the relay until it hangs up."""
        inbox, outlet = anyio.create_memory_object_stream[SessionMessage | Exception](INBOX_MAX)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read, inbox)
            await serve(front, outlet, Outbound(self.send), self)
            tasks.cancel_scope.cancel()

    async def send(self, item: SessionMessage) -> None:
        """Write one message, whole, unless nobody is there to read it."""
        message = item.message
        if isinstance(message, JSONRPCError) and message.error.code == CONNECTION_CLOSED:
            return  # a handler of a session that ends; its call goes on, and is no error of anybody's
        data = message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        async with self._sending:
            if self.gone:
                return
            with anyio.move_on_after(self._limits.stall_s) as patience:
                await self._stream.send(data)
            if patience.cancelled_caught:
                self.gone = True
                raise anyio.BrokenResourceError

    async def _read(self, inbox: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        self._lines.bytes_max = LINE_BYTES_MAX + SLACK_BYTES
        async with inbox:
            try:
                while (data := await self._lines.next(self._stream)) is not None:
                    await self._take(data, inbox)
            except (OSError, LineTooLong, anyio.BrokenResourceError, anyio.ClosedResourceError):
                log.debug("gateway_line_lost")
            finally:
                # before the SDK ends what it handles: nobody has cancelled that
                self.gone = True

    async def _take(self, data: bytes, inbox: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        try:
            if b'"notifications/dev.effectd/' in data:
                self._confirm(read(data) or {})
                return
            await inbox.send(SessionMessage(jsonrpc_message_adapter.validate_json(data, by_name=False)))
        except ValidationError as error:
            await inbox.send(error)

    def _confirm(self, message: Message) -> None:
        asked = member(message, "params").get("commandId")
        if message.get("method") == DELIVERED and isinstance(asked, str):
            given = self._given.pop(CommandId(asked), None)
            if given is not None:
                self._calls.delivered(given)


async def serve(
    front: Front,
    inbox: MemoryObjectReceiveStream[SessionMessage | Exception],
    outbound: Outbound,
    session: Session,
) -> None:
    """Let the SDK serve a session, in the era that its client begins with."""
    await serve_dual_era_loop(
        front.server, inbox, outbound, lifespan_state=session, init_options=front.options()
    )


def _speaker(greeting: Greeting, uid: int) -> Speaker:
    return Speaker(
        holder=f"relay:{greeting.instance}",
        run_id=RunId(greeting.run_id),
        resumes=tuple(map(RunId, greeting.resumes)),
        uid=uid,
        relayed=True,
    )


async def _refuse(stream: SocketStream, code: str, message: str) -> None:
    await stream.send(line({"effectd": "gateway", "version": VERSION, "refused": code, "message": message}))
