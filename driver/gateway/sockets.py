"""`gateway.sock`: one session for each relay that connects, a line for each message.

Part of `driver.gateway`; imports the SDK's server side and its siblings. The socket is made by the
composition root, and so is the word about who is at the other end.
"""

import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Self

import anyio
import structlog
from anyio.abc import SocketAttribute, SocketListener, SocketStream
from mcp.server.runner import serve_dual_era_loop
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

from driver.core.commands import RESUMES_MAX
from driver.core.identity import is_id
from driver.gateway import wire
from driver.gateway.answers import too_long
from driver.gateway.backlog import Backlog
from driver.gateway.calls import Calls
from driver.gateway.connection import Connection
from driver.gateway.front import Front
from driver.gateway.limits import GatewayLimits
from driver.gateway.lines import Lines, LineTooLong
from driver.gateway.outcomes import Delivered
from driver.gateway.predecessors import TooManyOpen, is_place
from driver.gateway.rejections import TWICE, Unreadable, message_of, rejection
from driver.gateway.runs import Speaker
from driver.gateway.wire import (
    ANSWER_BYTES_MAX,
    GREETING_BYTES_MAX,
    LINE_BYTES_MAX,
    VERSION,
    Greeting,
    Message,
    line,
    read_greeting,
)
from driver.providers.outbound import Lent, Outbound
from store.records import CommandId, RunId

ALIASES_MAX: Final = 2_048
"""Answers of which a relay may still say that they were delivered, or that they were not after all."""
RETRY_S: Final = 0.5
"""Until a connection is taken that could not be."""
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
        self._unserved = 0
        """Connections that have not greeted yet."""

    async def serve(self, listener: SocketListener) -> None:
        """Take connections until cancelled. What is too much for the process now is taken a while later."""
        async with anyio.create_task_group() as tasks:
            while True:
                try:
                    tasks.start_soon(self._take, await listener.accept())
                except anyio.BrokenResourceError as error:
                    # no descriptor is left, or no memory, and nobody says when there is
                    log.warning("gateway_connection_not_taken", error=str(error.__cause__))
                    await anyio.sleep(RETRY_S)

    async def _take(self, stream: SocketStream) -> None:
        """Serve one connection to its end. What goes wrong with it is its own affair."""
        async with Connection(stream) as connection:
            try:
                lines = Lines(GREETING_BYTES_MAX)
                speaker = await self._introduced(stream, connection, lines)
                if speaker is not None:
                    await self._serve(connection, lines, speaker)
            except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                log.debug("gateway_connection_lost")
            except Exception as failure:
                log.exception("gateway_connection_failed", error=type(failure).__name__)

    async def _introduced(self, stream: SocketStream, connection: Connection, lines: Lines) -> Speaker | None:
        """Greet each other. Returns who is there; None where it is nobody who is served, and was told so."""
        uid = self._peer_uid(stream.extra(SocketAttribute.raw_socket))  # noqa: S610 - no Django here
        if max(self._calls.tally.connections, self._unserved) >= self._limits.connections_max:
            await _refuse(connection, "busy", "the gateway has all the connections that it may have")
            return None
        self._unserved += 1
        try:
            greeting = await self._greeting(connection, lines)
            if greeting is None:
                return None
            ready: Message = {"effectd": "gateway", "version": VERSION}
            ready["journal_id"] = await self._calls.journal_id()
            if greeting.place is not None:
                prefix = wire.run_prefix(greeting.place)
                try:
                    left = await self._calls.predecessors(prefix, self._calls.claims.attends)
                except TooManyOpen as error:
                    await _refuse(connection, "run", str(error))
                    return None
                left = tuple(run for run in left if run not in greeting.resumes)
                greeting = replace(greeting, resumes=(*greeting.resumes, *left))
                if len(greeting.resumes) > RESUMES_MAX:
                    message = f"with {len(left)} that were left open here more than {RESUMES_MAX} are resumed"
                    await _refuse(connection, "run", message)
                    return None
                ready["resumes"] = list(left)
            await connection.send(line(ready))
            return _speaker(greeting, uid)
        finally:
            self._unserved -= 1

    async def _greeting(self, connection: Connection, lines: Lines) -> Greeting | None:
        """Return the greeting; None where none came, or none that can be served: that was said then."""
        found: bytes | None = None
        with anyio.move_on_after(self._limits.greeting_s):
            try:
                found = await lines.next(connection)
            except LineTooLong:
                found = b""
        if found is None:
            return None
        greeting = read_greeting(found)
        if greeting is None:
            await _refuse(connection, "greeting", f"a connection begins with a greeting of version {VERSION}")
            return None
        names = (greeting.instance, greeting.run_id, *greeting.resumes)
        if len(greeting.resumes) > RESUMES_MAX or not all(map(is_id, names)):
            message = (
                "a run is named by 1 to 128 characters of A-Z a-z 0-9 . _ : -, and at most 64 are resumed"
            )
            await _refuse(connection, "run", message)
            return None
        if greeting.place is not None and not is_place(greeting.place):
            await _refuse(connection, "greeting", "a place is 12 hex digits")
            return None
        return greeting

    async def _serve(self, connection: Connection, lines: Lines, speaker: Speaker) -> None:
        session = Session(connection, lines, speaker, self._calls, self._limits)
        self._calls.tally.connections += 1
        claimed = self._calls.claims.take(speaker)
        log.info("gateway_connected", run_id=speaker.run_id, uid=speaker.uid, claimed=claimed)
        try:
            await session.run(self._front)
        finally:
            self._calls.tally.connections -= 1
            if claimed:
                self._calls.leave(speaker)
            self._front.forget(session.key)
            log.info("gateway_disconnected", run_id=speaker.run_id)


class Session(Lent):
    """One connection of a relay: the stream that the SDK reads, and writes to.

    Implements `driver.gateway.turns.Turn` for each of its requests.
    """

    def __init__(
        self, connection: Connection, lines: Lines, speaker: Speaker, calls: Calls, limits: GatewayLimits
    ) -> None:
        self._connection = connection
        self._lines = lines
        self._calls = calls
        self._limits = limits
        self._given: dict[CommandId, Delivered] = {}
        self._backlog = Backlog(limits)
        self.speaker: Final = speaker
        self.key: Final = f"relay:{speaker.holder}:{id(self)}"
        self.gone = False

    async def introduced(self) -> Speaker:
        """See `Turn.introduced`: the relay has said it all."""
        return self.speaker

    def answers(self, asked: CommandId, about: Delivered) -> None:
        """See `Turn.answers`."""
        self._given[asked] = about
        while len(self._given) > ALIASES_MAX:
            self._given.pop(next(iter(self._given)))

    async def run(self, front: Front) -> None:
        """Serve the relay until it hangs up, in the era that its client begins with."""
        self._lines.bytes_max = LINE_BYTES_MAX + SLACK_BYTES
        await serve_dual_era_loop(
            front.server, self, Outbound(self.send), lifespan_state=self, init_options=front.options()
        )

    # ------------------------------------------------------------ what the relay sends

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message for the SDK. Raises `anyio.EndOfStream`."""
        while (data := await self._next()) is not None:
            try:
                message = message_of(data)
            except Unreadable as fault:
                await self._reject(data, fault.why)
            else:
                if isinstance(message, JSONRPCRequest) and not self._backlog.begin(message):
                    await self._reject(data, TWICE)
                elif not isinstance(message, JSONRPCNotification) or not await self._is_ours(message):
                    return SessionMessage(message)
            # whoever says a thousand of these at once must not keep everybody else from running
            await anyio.lowlevel.checkpoint()
        raise anyio.EndOfStream

    async def _is_ours(self, message: JSONRPCNotification) -> bool:
        """Whether a notification is one between the relay and us, which is done then."""
        match message.method:
            case wire.DELIVERED:
                self._confirm(message)
                return True
            case wire.UNHEARD:
                await self._take_back(message)
                return True
            case wire.CLOSED:
                self._calls.claims.close(self.speaker)
                return True
            case "notifications/cancelled":
                request_id = (message.params or {}).get("requestId")
                if isinstance(request_id, str | int):
                    self._backlog.end(request_id)  # of what is cancelled no answer comes
                return False
            case _:
                return False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def _next(self) -> bytes | None:
        data: bytes | None = None
        await self._backlog.room()
        try:
            data = await self._lines.next(self._connection)
        except (OSError, LineTooLong):
            log.debug("gateway_line_lost")
        if data is None:
            # before the SDK ends what it handles: nobody has cancelled that
            self.gone = True
        return data

    async def _reject(self, data: bytes, why: str) -> None:
        """Answer what the SDK is not given, where it says whom: somebody may wait."""
        answer = rejection(data, why)
        if answer is not None:
            await self._write(answer)

    def _confirm(self, message: JSONRPCNotification) -> None:
        asked = (message.params or {}).get("commandId")
        given = self._given.get(CommandId(asked)) if isinstance(asked, str) else None
        if given is not None:
            self._calls.delivered(given)

    async def _take_back(self, message: JSONRPCNotification) -> None:
        asked = (message.params or {}).get("commandId")
        if isinstance(asked, str) and is_id(asked):
            given = self._given.get(CommandId(asked))
            if given is None:  # the answer went out on an earlier connection, maybe of an earlier daemon
                await self._calls.take_back(CommandId(asked), self.speaker.run_id, None)
            else:
                await self._calls.take_back(given.command_id, self.speaker.run_id, given.digest)

    # ------------------------------------------------------------ what is sent to it

    async def send(self, item: SessionMessage) -> None:
        """Write one message, whole, unless nobody is there to read it. Raises `anyio.BrokenResourceError`."""
        message = item.message
        if isinstance(message, JSONRPCError) and message.error.code == CONNECTION_CLOSED:
            return  # a handler of a session that ends; its call goes on, and is no error of anybody's
        try:
            await self._write(message)
        finally:
            if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
                self._backlog.end(message.id)

    async def _write(self, message: JSONRPCMessage) -> None:
        if self.gone:
            return
        data = _line(message)
        if len(data) > ANSWER_BYTES_MAX and isinstance(message, JSONRPCResponse):
            data = _line(message.model_copy(update={"result": too_long(message.result, len(data))}))
        with self._backlog.writing(len(data)):
            try:
                await self._connection.send(data, stall_s=self._limits.stall_s)
            except OSError as lost:
                self.gone = True
                self._connection.cut()
                raise anyio.BrokenResourceError from lost


def _line(message: JSONRPCMessage) -> bytes:
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"


def _speaker(greeting: Greeting, uid: int) -> Speaker:
    return Speaker(
        holder=f"relay:{uid}:{greeting.instance}",
        run_id=RunId(greeting.run_id),
        resumes=tuple(map(RunId, greeting.resumes)),
        uid=uid,
        relayed=True,
        closed=greeting.closed,
    )


async def _refuse(connection: Connection, code: str, message: str) -> None:
    await connection.send(
        line({"effectd": "gateway", "version": VERSION, "refused": code, "message": message})
    )
