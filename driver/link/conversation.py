"""One connection to the plane, from the open socket to its end: carries out the orders of its session.

Part of `driver.link`; imports `driver.core`, `store` and `websockets`.

Theory of operation
-------------------
Signals reach the session from four sides, all in the event loop: the socket's reader, the journal's commits,
the courier's answers, and the pages that the journal worker reads. `_signal` hands each to the session and
carries out the orders at once; none of them waits, because what takes time was given to a task:

* the reader is the only one in `recv`, and nothing cancels it there while the connection lives: whoever wants
  the end closes or aborts the socket, and the reader finds out. While the courier is full it reads nothing,
  pongs included: a journal that stalls for long ends the link as a dead network would, rather than fill the
  memory, and the plane delivers again after the reconnect;
* the writer waits for the socket under a deadline: that a frame was written says nothing, but that no more
  can be written says that nobody reads;
* the journal worker reads pages and parks events, one after the other.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

import anyio
import structlog
from anyio.abc import TaskGroup
from websockets.exceptions import ConnectionClosed

from driver.core.answers import Answer, Repeat, Silent
from driver.core.frames import SUBPROTOCOL
from driver.core.session import LinkSession, Phase, SessionStatistics
from driver.core.signals import (
    Acknowledge,
    AnnounceFrameBytes,
    Answered,
    ChainRead,
    Closed,
    CloseLink,
    Committed,
    Deliver,
    EventsRead,
    HistoryConfirmed,
    LiftFence,
    Note,
    Opened,
    Order,
    Park,
    PauseStream,
    RaiseFence,
    ReadChain,
    ReadEvents,
    Received,
    Resumed,
    Send,
    Signal,
)
from driver.link.courier import Courier
from driver.link.desk import Desk
from driver.link.dial import CLOSE_SHARE
from driver.link.errors import how_it_closed
from driver.link.outbox import Outbox
from driver.link.socket import Socket
from driver.link.watermark import Watermark
from store.journal import Journal
from store.records import JournalId, StoredEvent
from store.transaction import Transaction
from store.view import View

SEND_SHARE: Final = 0.8
"""Of `dead_after_s`: how long a few frames may take to leave. With the closing it stays below the whole."""
ERRANDS_MAX: Final = 8_192
"""Pages to read and events to park that may wait: at most one page, and no event in flight parks twice."""
ABNORMAL: Final = 1006
"""RFC 6455, 7.1.5: the connection ended without a close frame."""
GOING_AWAY: Final = 1001
"""RFC 6455, 7.4.1: this endpoint stops."""
PROTOCOL_ERROR: Final = 1002
"""RFC 6455, 7.4.1: the peer did not do what the protocol asks of it."""

Errand: TypeAlias = ReadEvents | ReadChain | Park

_NOTED: Final = {
    "rejected": "plane_rejected",
    "plane_error": "plane_reported_error",
    "frame_refused": "frame_refused",
}

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Parting:
    """How a connection ended: the code that the plane sent (or 1006), and all that is known of the reason."""

    code: int
    reason: str
    welcomed: bool


class Conversation:
    """One socket and its session."""

    def __init__(
        self,
        socket: Socket,
        *,
        journal: Journal,
        desk: Desk,
        courier: Courier,
        watermark: Watermark,
        dead_after_s: float,
        boundary: Callable[[str], None],
        welcomed: Callable[[], None],
    ) -> None:
        self._socket = socket
        self._journal = journal
        self._desk = desk
        self._courier = courier
        self._watermark = watermark
        self._dead_after_s = dead_after_s
        self._boundary = boundary
        self._on_welcome = welcomed
        self._session = LinkSession()
        self._outbox = Outbox()
        self._ended = False
        self._why = ""
        self._arriving = 0
        self._journal_id = JournalId("")
        self._base = 0
        """How the journal's file calls the seq 0 of this history: the session counts as the wire does."""
        self._parting: Parting | None = None
        self._greeted = anyio.Event()
        self._checked = anyio.Event()
        self._tasks: TaskGroup | None = None
        self._errands, self._errands_in = anyio.create_memory_object_stream[Errand](ERRANDS_MAX)

    def statistics(self) -> SessionStatistics:
        """Return a frozen view of the session."""
        return self._session.statistics()

    async def run(self) -> Parting:
        """Talk until the socket closes, and return how it did. Cancelled, it says goodbye within a bound."""
        unsubscribe = self._journal.subscribe(self._on_commit)
        try:
            opened = await self._desk.opening()
            self._journal_id, self._base = opened.hello.journal_id, opened.base
            self._watermark.begin(self._journal_id)
            opened = self._with_what_waits(opened)
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._write)
                tasks.start_soon(self._run_errands)
                tasks.start_soon(self._expect_welcome)
                self._signal(opened)
                self._parting = await self._read()
                tasks.cancel_scope.cancel()
            assert self._parting is not None, "the reader ends with the connection"
            return self._parting
        finally:
            self._ended = True
            unsubscribe()
            self._courier.drop_waiting()
            self._outbox.give_up()
            self._errands.close()
            self._errands_in.close()
            await self._say_goodbye()

    def _with_what_waits(self, opened: Opened) -> Opened:
        """Have hello tell the newest acknowledgement, which the journal may not have written yet.

        The session holds the plane's next word against it: a lower one must replace what waits.
        """
        known = self._watermark.known
        if known is None:
            return opened
        return replace(opened, hello=replace(opened.hello, acked_seq=known))

    def hang_up(self, code: int, reason: str) -> None:
        """Close the socket after what waits to be sent; `run` returns when it is closed."""
        self._execute(CloseLink(code, reason))

    # ------------------------------------------------------------ the socket

    async def _read(self) -> Parting:
        while True:
            try:
                data = await self._socket.recv()
            except ConnectionClosed as closed:
                return self._part(closed)
            self._arriving = len(data)
            self._signal(Received(data))
            self._arriving = 0
            if self._session.phase is Phase.CHECKING:
                await self._checked.wait()
            if self._courier.is_full:
                await self._wait_for_room()

    async def _wait_for_room(self) -> None:
        """Return once another command may be carried, or the socket is closed: nobody reads its end here."""

        async def end_with_the_socket() -> None:
            await self._socket.wait_closed()
            self._why = self._why or "the journal was behind for too long: nothing was read, pongs included"
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(end_with_the_socket)
            await self._courier.wait_for_room()
            tasks.cancel_scope.cancel()

    def _part(self, closed: ConnectionClosed) -> Parting:
        code = ABNORMAL if closed.rcvd is None else closed.rcvd.code
        said = "" if closed.rcvd is None else closed.rcvd.reason
        self._signal(Closed(code, said))
        return Parting(code, self._why or how_it_closed(closed), self._greeted.is_set())

    async def _write(self) -> None:
        while True:
            frames, close = await self._outbox.take()
            if not self._socket.write(frames) or close is not None:
                await self._wait_for_socket(close)
            self._boundary("link.sent")

    async def _wait_for_socket(self, close: CloseLink | None) -> None:
        """Return once the plane has read enough that more can be sent, or the connection is closed."""
        with anyio.move_on_after(self._dead_after_s * SEND_SHARE) as deadline, suppress(ConnectionClosed):
            await self._socket.drained()
            if close is not None:
                await self._socket.close(close.code, close.reason)
        if deadline.cancelled_caught:
            self._give_up("the plane does not read: a frame could not be sent in time")

    def _give_up(self, why: str) -> None:
        """End a connection that does not work any more; the reader finds it closed."""
        self._why = self._why or why
        self._socket.transport.abort()

    async def _say_goodbye(self) -> None:
        """Close what is still open, when the daemon stops or something failed."""
        with anyio.move_on_after(self._dead_after_s * CLOSE_SHARE, shield=True), suppress(ConnectionClosed):
            await self._socket.close(GOING_AWAY, "the daemon stops")
        # the library waits without a bound where its buffer is full
        self._socket.transport.abort()

    async def _expect_welcome(self) -> None:
        with anyio.move_on_after(self._dead_after_s):
            await self._greeted.wait()
            return
        self._why = f"the plane did not answer 'hello' within {self._dead_after_s:g} s"
        if self._socket.subprotocol is None:
            self._why += f", nor select the subprotocol {SUBPROTOCOL}: is control.url the address of a plane?"
        self.hang_up(PROTOCOL_ERROR, "no welcome")

    # ------------------------------------------------------------ signals in

    def _on_commit(self, events: Sequence[StoredEvent]) -> None:
        self._signal(Committed(self._on_wire(events)))

    def _on_wire(self, events: Sequence[StoredEvent]) -> tuple[StoredEvent, ...]:
        """Return the events as the wire counts them."""
        if not self._base:
            return tuple(events)
        return tuple(replace(event, seq=event.seq - self._base) for event in events)

    async def _answer(self, answer: Answer) -> None:
        if isinstance(answer, Silent):
            return  # the journal's events are the answer
        await self._outbox.roomy()
        if isinstance(answer, Repeat):
            answer = Repeat(self._on_wire(answer.events))
        self._signal(Answered(answer))

    def _signal(self, signal: Signal) -> None:
        if self._ended:
            return
        for order in self._session.handle(signal):
            self._execute(order)
        phase = self._session.phase
        if phase not in (Phase.NEW, Phase.GREETING, Phase.CLOSED) and not self._greeted.is_set():
            self._greeted.set()
            self._on_welcome()
            self._boundary("link.welcomed")
        if phase is not Phase.CHECKING:
            self._checked.set()
        elif self._checked.is_set():
            self._checked = anyio.Event()

    # ------------------------------------------------------------ orders out

    def _execute(self, order: Order) -> None:  # noqa: C901 - one line for each order
        match order:
            case Send(frame):
                self._put(frame)
            case CloseLink():
                self._put(order)
            case Deliver(frame):
                self._courier.carry(frame, self._arriving, self._answer)
            case ReadEvents() | ReadChain() | Park():
                self._send_on_errand(order)
            case Acknowledge(seq):
                self._watermark.move(self._journal_id, seq)
                self._desk.acknowledged(seq)
                self._boundary("link.acknowledged")
            case AnnounceFrameBytes(limit):
                self._journal.later(lambda tx: tx.announce_frame_bytes_max(limit))
            case HistoryConfirmed():
                self._desk.history_confirmed()
            case RaiseFence(reason, detail):
                self._courier.raise_fence(reason, detail)
            case LiftFence():
                self._courier.lift_fence(partial(self.hang_up, 1000, "the daemon says hello again"))
            case PauseStream(ms):
                self._start(ms)
            case Note():
                self._note(order)

    def _note(self, note: Note) -> None:
        log.warning(_NOTED[note.what], code=note.code, message=note.message)
        if note.what == "rejected":
            self._why = f"the plane rejected the connection: {note.code}: {note.message}"

    def _put(self, item: bytes | str | CloseLink) -> None:
        if not self._outbox.put(item.encode() if isinstance(item, str) else item):
            self._give_up("the plane does not read: too much waits to be sent")

    def _send_on_errand(self, errand: Errand) -> None:
        if isinstance(errand, Park):
            self._desk.refused(errand.seq)
        try:
            self._errands.send_nowait(errand)
        except anyio.WouldBlock:
            self._give_up("the plane refuses events faster than they can be recorded as refused")

    def _start(self, pause_ms: int) -> None:
        assert self._tasks is not None, "orders come only while the conversation runs"
        self._tasks.start_soon(self._pause, pause_ms)

    async def _pause(self, ms: int) -> None:
        log.info("link_paused", ms=ms)
        await anyio.sleep(ms / 1000)
        self._signal(Resumed())

    # ------------------------------------------------------------ the journal

    async def _run_errands(self) -> None:
        async for errand in self._errands_in:
            match errand:
                case ReadEvents():
                    await self._read_events(errand)
                case ReadChain(seq):
                    await self._read_chain(seq)
                case Park():
                    await self._park(errand)

    async def _read_events(self, wanted: ReadEvents) -> None:
        page, parked = await self._journal.read(lambda view: _page(view, wanted, self._base))
        events = self._on_wire(page)
        self._signal(EventsRead(wanted.after, events, frozenset(seq - self._base for seq in parked)))

    async def _read_chain(self, seq: int) -> None:
        chain = await self._journal.read(lambda view: view.chain_at(self._base + seq))
        self._signal(ChainRead(seq, chain))

    async def _park(self, order: Park) -> None:
        def park(tx: Transaction) -> None:
            tx.park(self._base + order.seq, order.code, order.message)

        await self._journal.transact(park)
        log.error("event_parked", seq=order.seq, code=order.code)


def _page(view: View, wanted: ReadEvents, base: int) -> tuple[tuple[StoredEvent, ...], frozenset[int]]:
    """Read events, and which of them are dead letters, as the file counts them."""
    events = view.events(base + wanted.after, wanted.limit, wanted.bytes_max)
    if not events:
        return events, frozenset()
    letters = view.dead_letters(base + wanted.after, wanted.limit)
    return events, frozenset(letter.seq for letter in letters)
