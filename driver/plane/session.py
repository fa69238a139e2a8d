"""One driver's connection, from `hello` to its close: three loops over one socket.

Part of `driver.plane`; imports anyio, starlette, structlog, `driver.core` and its siblings, which hold the
duties:

    socket ──► read ──► arrivals ──► commit: intake.take, and then ack
                                     deliver: delivery.hand_out, and then send ──► socket

Nothing is acknowledged before the ledger's transaction that holds it has returned, and nothing is sent before
the one that says so has. Whatever goes wrong on the socket ends the session; the daemon comes back, and both
sides go on from what is durable.
"""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import Final
from uuid import uuid4

import anyio
import structlog
from starlette.websockets import WebSocket, WebSocketDisconnect

from driver.core.codec import parse_from_daemon, render
from driver.core.frames import (
    CLOSE_GOING_AWAY,
    CLOSE_PROTOCOL_ERROR,
    CLOSE_SUPERSEDED,
    FRAME_BYTES_MAX,
    SUBPROTOCOL,
    Ack,
    BadFrame,
    ErrorFrame,
    EventFrame,
    FromPlane,
    Gap,
    Hello,
    InvalidEvent,
    Refused,
    Reject,
    Retired,
    Welcome,
)
from driver.plane import delivery, intake
from driver.plane.arrivals import FRAMES_MAX, Arrivals
from driver.plane.fleet import Fleet, greet
from driver.plane.intake import Arrival, Intake
from driver.plane.ledger import Ledger

WINDOW: Final = FRAMES_MAX
"""Events that a daemon may send ahead of our acknowledgement."""
HELLO_S: Final = 10.0
"""How long a daemon may take to say who it is."""
SEND_S: Final = 10.0
"""How long a frame may take to leave: a peer that does not read for so long is gone."""
CLOSE_S: Final = 2.0
"""How long the last frame, the close, may take."""
RETRY_S: Final = 1.0
"""How soon a command is delivered again that was refused for want of room."""

_log = structlog.get_logger("effectd.plane")


async def serve_driver(socket: WebSocket, ledger: Ledger, fleet: Fleet) -> None:
    """Speak the protocol over a socket that was let in, until either side closes it."""
    await socket.accept(subprotocol=SUBPROTOCOL)
    hello = None
    with anyio.move_on_after(HELLO_S), suppress(WebSocketDisconnect):
        hello = await _hello(socket)
    if hello is None:
        await _close(
            socket, CLOSE_PROTOCOL_ERROR, "the first frame must be a hello that this plane understands"
        )
        return
    life, head = await ledger.change(partial(greet, hello=hello))
    session = Session(socket, hello, life, ledger, fleet)
    if not fleet.admit(session):
        # not even a welcome: it would confirm the history, and an earlier life might act on it
        await _close(socket, CLOSE_SUPERSEDED, "a later life of this driver_id is connected")
        return
    _log.info("driver_connected", driver=hello.driver_id, journal=hello.journal_id, acked_seq=head["seq"])
    try:
        await session.run(head)
    finally:
        fleet.leave(session)
        _log.info("driver_gone", driver=hello.driver_id, code=session.closing[0], reason=session.closing[1])
        await _close(socket, *session.closing)


class Session:
    """The plane's end of one driver's socket."""

    def __init__(self, socket: WebSocket, hello: Hello, life: int, ledger: Ledger, fleet: Fleet) -> None:
        self.hello = hello
        self.life = life
        self._socket = socket
        self._ledger = ledger
        self._fleet = fleet
        self._scope = anyio.CancelScope()
        self.closing = (CLOSE_GOING_AWAY, "")
        """The code and the reason that the socket is closed with."""
        self._fenced = hello.state == "fenced"
        """While it is, nothing is delivered: it would be refused, and still count as delivered."""
        self._delivered = 0
        self._declined: set[str] = set()
        self._some_declined = anyio.Event()

    def close(self, code: int, reason: str) -> None:
        """Make the socket close soon, with this code; what it says from now on is ignored."""
        self.closing = (code, reason)
        self._scope.cancel()

    async def run(self, head: sqlite3.Row) -> None:
        """Serve until either side closes. `head` is what the ledger has of this journal."""
        arrivals = Arrivals()
        try:
            with self._scope:
                await self._send(_welcome(head))
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._commit, arrivals, head["seq"])
                    tasks.start_soon(self._deliver)
                    tasks.start_soon(self._deliver_declined)
                    await self._read(arrivals)
                    tasks.cancel_scope.cancel()
        except* (WebSocketDisconnect, TimeoutError):
            self.closing = (CLOSE_GOING_AWAY, "the connection was lost")

    async def _send(self, frame: FromPlane) -> None:
        with anyio.fail_after(SEND_S):
            await self._socket.send_text(render(frame))

    # ------------------------------------------------------------ what the daemon says

    async def _read(self, arrivals: Arrivals) -> None:
        async for text in _messages(self._socket):
            match parse_from_daemon(text):
                case (EventFrame() | InvalidEvent() | Gap()) as frame:
                    await self._queue(arrivals, Arrival(frame=frame, text=str(text)))
                case Refused() as refused:
                    await self._note_refusal(refused)
                case Retired() as retired:
                    await self._ledger.change(partial(intake.retire, frame=retired))
                    self._fleet.news.ring()
                case ErrorFrame(code=code, message=message):
                    _log.warning("driver_reports_error", driver=self.hello.driver_id, code=code, text=message)
                case BadFrame() as bad:
                    await self._send(bad.answer)
                case Hello():
                    await self._send(ErrorFrame(code="unexpected_hello", message="hello was said already"))

    async def _queue(self, arrivals: Arrivals, arrival: Arrival) -> None:
        frame = arrival.frame
        if isinstance(frame, Gap) or frame.journal_id == self.hello.journal_id:
            await arrivals.put(arrival)
        else:
            message = "hello named another journal_id: connect again to speak of this one"
            await self._send(ErrorFrame(code="wrong_journal", message=message))

    async def _note_refusal(self, refused: Refused) -> None:
        await self._ledger.change(partial(delivery.refuse, journal_id=self.hello.journal_id, refused=refused))
        _log.info("refused", driver=self.hello.driver_id, command=refused.command_id, code=refused.code)
        if refused.code == "fenced":
            self._fenced = True
        elif refused.code in delivery.STRIKES:
            self._declined.add(refused.command_id)
            self._some_declined.set()

    # ------------------------------------------------------------ what the plane says

    async def _commit(self, arrivals: Arrivals, told: int) -> None:
        """Commit what has arrived, as much as there is at once; then answer for it."""
        stopped = False
        while True:
            batch = await arrivals.take()
            if stopped:
                continue
            taken = await self._ledger.change(
                partial(intake.take, journal_id=self.hello.journal_id, batch=batch, told=told)
            )
            for reply in taken.replies:
                told = max(told, reply.seq) if isinstance(reply, Ack) else told
                await self._send(reply)
            stopped = self._after_commit(taken)

    def _after_commit(self, taken: Intake) -> bool:
        """Tell those who wait; return whether the stream has to stop."""
        self._fleet.news.ring()
        if taken.unfenced:
            self._fenced, self._delivered = False, 0
            self._fleet.work.ring()
        if taken.stopped is not None:
            _log.warning("stream_stopped", driver=self.hello.driver_id, why=taken.stopped)
        if taken.stopped == "out_of_order":
            self.close(
                CLOSE_PROTOCOL_ERROR, "an event is missing: resend from the watermark of our next welcome"
            )
        return taken.stopped is not None

    async def _deliver(self) -> None:
        """Deliver everything that has no receipt, once over this connection: more would tell it nothing."""
        while True:
            rung = self._fleet.work.next
            while not self._fenced:
                page = await self._ledger.change(
                    partial(delivery.hand_out, hello=self.hello, after=self._delivered)
                )
                self._delivered = page.last
                for frame in page.frames:
                    await self._send(frame)
                if len(page.frames) < delivery.PAGE:
                    break
            await rung.wait()

    async def _deliver_declined(self) -> None:
        """Deliver again, after a while, what was refused for want of room."""
        while True:
            await self._some_declined.wait()
            await anyio.sleep(RETRY_S)
            again, self._declined, self._some_declined = self._declined, set(), anyio.Event()
            if self._fenced:
                continue
            page = await self._ledger.change(
                partial(delivery.hand_out_again, hello=self.hello, command_ids=again)
            )
            for frame in page.frames:
                await self._send(frame)


async def _hello(socket: WebSocket) -> Hello | None:
    """The first frame that can be one. None where the daemon left, or speaks another protocol."""
    async for text in _messages(socket):
        match parse_from_daemon(text):
            case Hello() as hello:
                return hello
            case BadFrame(code="unsupported_protocol") as bad:
                await socket.send_text(render(Reject(code=bad.code, message=bad.message)))
                return None
            case BadFrame() as bad:
                await socket.send_text(render(bad.answer))
            case _:
                await socket.send_text(render(ErrorFrame(code="hello_expected", message="say hello first")))
    return None


async def _messages(socket: WebSocket) -> AsyncIterator[str | bytes]:
    """Every message of the daemon, binary ones as bytes, until it is gone."""
    while (message := await socket.receive())["type"] == "websocket.receive":
        text: str | None = message.get("text")
        yield text if text is not None else bytes(message.get("bytes") or b"")


async def _close(socket: WebSocket, code: int, reason: str) -> None:
    """Say goodbye, if there is still somebody to say it to."""
    with anyio.move_on_after(CLOSE_S, shield=True), suppress(WebSocketDisconnect, RuntimeError):
        await socket.close(code, reason)


def _welcome(head: sqlite3.Row) -> Welcome:
    return Welcome(
        session_id=f"s-{uuid4().hex}",
        acked_seq=head["seq"],
        acked_chain=head["chain"] if head["seq"] else None,
        window=WINDOW,
        max_frame_bytes=FRAME_BYTES_MAX,
    )
