"""One connection to the control plane, from `hello` to its close: signals in, orders out.

Part of `driver.core`, pure: the shell is `driver.link`. Definitions: docs/protocol.md, sections 1 to 5.

    session = LinkSession()
    for order in session.handle(signal): ...

Theory of operation
-------------------
    NEW ──Opened──► GREETING ──welcome──► CHECKING ──chain fits──► STREAMING
                        │                     │                        │
                        └──── hello fenced,   ├─── rolled back, ───────┴── conflict ──► FENCED
                              welcome         │    forked
                              ──► FENCED      └ (a watermark of 0 needs no check)
                                              a restored backup is checked too, and then FENCED: another
                                              history begins, and the next hello names it
    any ──Closed──► CLOSED

Nothing but `hello` and `error` is sent before the history is confirmed; commands that arrive while the
journal looks up its chain are held until it is known whether this journal may answer them. A fenced session
stays open, sends nothing of the stream, and answers every command with `fenced`. A session belongs to one
socket: what an old socket says cannot reach a new session.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from driver.core.admission import fenced_message
from driver.core.answers import Answer, Repeat, Reply, Silent
from driver.core.codec import parse_from_plane, render
from driver.core.fields import clip
from driver.core.frames import (
    CLOSE_GOING_AWAY,
    CLOSE_SUPERSEDED,
    Ack,
    BadFrame,
    CommandFrame,
    ErrorFrame,
    Hello,
    InvalidCommand,
    Nack,
    Refused,
    Reject,
    Welcome,
)
from driver.core.signals import (
    Acknowledge,
    AnnounceFrameBytes,
    Answered,
    ChainRead,
    Closed,
    CloseLink,
    Committed,
    Deliver,
    Delivery,
    EventsRead,
    FenceReason,
    HistoryConfirmed,
    LiftFence,
    Note,
    Opened,
    Order,
    PauseStream,
    RaiseFence,
    ReadChain,
    Received,
    Resumed,
    Send,
    Signal,
)
from driver.core.stream import Stream
from store.records import StoredEvent

HELD_MAX: Final = 64
"""Frames held while the journal looks up one chain value; a plane that sends more is asked to come back."""
RETRY_AFTER_MS: Final = 1_000
"""The pause after a `busy` that names none."""
RETRY_AFTER_MS_MAX: Final = 3_600_000
"""The longest pause that a plane can ask for: after an hour it is asked again."""
CLOSE_REASON_BYTES_MAX: Final = 123
"""RFC 6455, 5.5: what a close frame has room for, in bytes of UTF-8."""
CLOSE_TRY_AGAIN: Final = 1013
"""RFC 6455's registry: the peer sent more than can be taken at the moment."""


_Turn: TypeAlias = Welcome | Ack | Nack | Delivery
"""A frame whose meaning depends on the phase."""


class Phase(StrEnum):
    """How far the connection has got."""

    NEW = "new"
    GREETING = "greeting"
    CHECKING = "checking"
    STREAMING = "streaming"
    FENCED = "fenced"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStatistics:
    """Where the session stands; the marks are None before the history is confirmed."""

    phase: Phase
    session_id: str | None
    acked_seq: int | None
    covered_seq: int | None
    in_flight: int
    paused: bool


class LinkSession:
    """The protocol's state for one connection. `handle` never raises for anything that the plane does."""

    def __init__(self) -> None:
        self._phase = Phase.NEW
        self._hello: Hello | None = None
        self._welcome: Welcome | None = None
        self._fence_reason: str | None = None
        self._last_seq = 0
        self._stream: Stream | None = None
        self._held: list[_Turn] = []

    @property
    def phase(self) -> Phase:
        """How far the connection has got."""
        return self._phase

    def statistics(self) -> SessionStatistics:
        """Return a frozen view of the session."""
        stream = self._stream
        return SessionStatistics(
            phase=self._phase,
            session_id=self._welcome.session_id if self._welcome else None,
            acked_seq=stream.acked if stream else None,
            covered_seq=stream.covered if stream else None,
            in_flight=stream.in_flight if stream else 0,
            paused=stream.paused if stream else False,
        )

    def handle(self, signal: Signal) -> list[Order]:
        """Return what is to be done about `signal`, in this order."""
        if self._phase is Phase.CLOSED:
            return []
        match signal:
            case Opened():
                return self._open(signal)
            case Received(data):
                return self._receive(data)
            case ChainRead():
                return self._chain(signal)
            case Answered(answer):
                return self._answer(answer)
            case Closed(code, reason):
                return self._close(code, reason)
            case Committed() | EventsRead() | Resumed():
                return self._stream_on(signal)

    def _stream_on(self, signal: Committed | EventsRead | Resumed) -> list[Order]:
        if isinstance(signal, Committed) and signal.events:
            self._last_seq = max(self._last_seq, signal.events[-1].seq)
        if self._stream is None:
            return []
        match signal:
            case Committed(events):
                return self._stream.committed(events)
            case EventsRead():
                return self._stream.page(signal)
            case Resumed():
                return self._stream.resume()

    # ------------------------------------------------------------ the socket

    def _open(self, opened: Opened) -> list[Order]:
        hello = opened.hello
        assert self._phase is Phase.NEW, "a session belongs to one socket, which opens once"
        assert (hello.state == "fenced") is (opened.fence is not None), "a fence has a reason"
        self._phase = Phase.GREETING
        self._hello = hello
        self._fence_reason = opened.fence
        self._last_seq = max(self._last_seq, hello.last_seq)
        return [Send(render(hello))]

    def _close(self, code: int, reason: str) -> list[Order]:
        was_superseded = self._fence_reason == FenceReason.SUPERSEDED
        self._phase = Phase.CLOSED
        self._stream = None
        self._held.clear()
        if code != CLOSE_SUPERSEDED or was_superseded:
            return []
        detail = (
            f"the plane closed the link with {CLOSE_SUPERSEDED}: {reason or 'another life has taken over'}"
        )
        return [RaiseFence(FenceReason.SUPERSEDED, detail)]

    def _receive(self, data: str | bytes) -> list[Order]:
        frame = parse_from_plane(data)
        match frame:
            case BadFrame():
                return [Note("frame_refused", frame.code, frame.message), Send(render(frame.answer))]
            case ErrorFrame():
                return [Note("plane_error", frame.code, frame.message)]
            case Reject():
                note = Note("rejected", frame.code, clip(frame.message))
                return [note, CloseLink(CLOSE_GOING_AWAY, _close_reason(f"rejected: {frame.code}"))]
            case _:
                return self._frame(frame)

    def _frame(self, frame: _Turn) -> list[Order]:
        match self._phase:
            case Phase.GREETING:
                if isinstance(frame, Welcome):
                    return self._greet(frame)
                return _error("welcome_expected", "nothing is taken before 'welcome'")
            case Phase.CHECKING:
                return self._hold(frame)
            case _:
                return self._converse(frame)

    def _converse(self, frame: _Turn) -> list[Order]:
        match frame:
            case CommandFrame() | InvalidCommand():
                return self._deliver(frame)
            case Welcome():
                return _error("unexpected_frame", "a connection is welcomed once")
            case Ack(seq=seq):
                return self._ack(seq)
            case Nack():
                return self._nack(frame)

    # ------------------------------------------------------------ the handshake

    def _greet(self, welcome: Welcome) -> list[Order]:
        """Hold the plane's watermark against this journal."""
        assert self._hello is not None, "a session is opened before anything is received"
        self._welcome = welcome
        if self._fence_reason not in (None, FenceReason.RESTORED):
            self._phase = Phase.FENCED
            return []
        # against what hello said, not against what was committed since: what the plane has seen is older than
        # this connection, on which no event was sent yet
        if welcome.acked_seq > self._hello.last_seq:
            return self._fence(
                FenceReason.ROLLED_BACK,
                f"the plane has acknowledged seq {welcome.acked_seq} of this journal, which ends at "
                f"{self._hello.last_seq}",
            )
        if welcome.acked_seq == 0:
            return self._confirm(welcome)
        self._phase = Phase.CHECKING
        return [ReadChain(welcome.acked_seq)]

    def _chain(self, read: ChainRead) -> list[Order]:
        if self._stream is not None:
            return self._stream.chain(read)
        if self._phase is not Phase.CHECKING or self._welcome is None:
            return []
        if read.chain is None or read.chain == self._welcome.acked_chain:
            # what was pruned cannot be compared: a gap, not a fork
            return self._confirm(self._welcome)
        return self._fence(
            FenceReason.FORKED,
            f"at seq {read.seq} the chain is {read.chain} here, and {self._welcome.acked_chain} at the plane",
        )

    def _confirm(self, welcome: Welcome) -> list[Order]:
        assert self._hello is not None, "a session is opened before anything is received"
        if self._fence_reason is not None:
            # what was given to this journal after the backup is unknown here: it goes on under another name
            self._phase = Phase.FENCED
            return [LiftFence(), *self._release()]
        self._phase = Phase.STREAMING
        self._stream = Stream(
            acked=welcome.acked_seq,
            last_seq=self._last_seq,
            window=welcome.window,
            frame_bytes_max=welcome.max_frame_bytes,
        )
        orders: list[Order] = [AnnounceFrameBytes(welcome.max_frame_bytes), HistoryConfirmed()]
        if welcome.acked_seq != self._hello.acked_seq:
            # lower ones too: what the plane has lost must not be pruned here
            orders.append(Acknowledge(welcome.acked_seq))
        return orders + self._release() + self._pump()

    def _pump(self) -> list[Order]:
        return [] if self._stream is None else self._stream.pump()

    def _hold(self, frame: _Turn) -> list[Order]:
        if len(self._held) >= HELD_MAX:
            return [CloseLink(CLOSE_TRY_AGAIN, "too many frames before the history was confirmed")]
        self._held.append(frame)
        return []

    def _release(self) -> list[Order]:
        held, self._held = self._held, []
        return [order for frame in held for order in self._converse(frame)]

    # ------------------------------------------------------------ the fence

    def _fence(self, reason: FenceReason, detail: str) -> list[Order]:
        self._phase = Phase.FENCED
        self._fence_reason = reason
        self._stream = None
        return [RaiseFence(reason, detail), *self._release()]

    # ------------------------------------------------------------ commands

    def _deliver(self, frame: Delivery) -> list[Order]:
        if self._fence_reason is None:
            return [Deliver(frame)]
        # not by way of the engine: it may not have heard of the fence yet
        message = fenced_message(self._fence_reason)
        return [Send(render(Refused(command_id=frame.command_id, code="fenced", message=message)))]

    def _answer(self, answer: Answer) -> list[Order]:
        match answer:
            case Silent():
                return []
            case Reply(frame):
                return [Send(frame)]
            case Repeat(events):
                return self._repeat(events)

    def _repeat(self, events: tuple[StoredEvent, ...]) -> list[Order]:
        """Send again what this stream has passed: the rest comes in its turn."""
        stream = self._stream
        return [] if stream is None else [order for event in events for order in stream.repeat(event)]

    # ------------------------------------------------------------ acknowledgements

    def _ack(self, seq: int) -> list[Order]:
        stream = self._stream
        if stream is None or seq <= stream.acked:
            return []
        if not stream.was_sent(seq):
            return _error(
                "ack_not_sent", f"seq {seq} was not sent on this connection: nothing is acknowledged"
            )
        return stream.ack(seq)

    def _nack(self, nack: Nack) -> list[Order]:
        stream = self._stream
        if stream is None:
            return []
        if not stream.was_sent(nack.seq):
            return _error(
                "nack_not_sent", f"seq {nack.seq} was not sent on this connection: nothing is changed"
            )
        if nack.code == "conflict":
            return self._fence(
                FenceReason.CONFLICT, f"the plane holds other bytes for seq {nack.seq}: {nack.message}"[:500]
            )
        if nack.seq <= stream.acked:
            return []
        if nack.code != "busy":
            return stream.refuse(nack.seq, nack.code, clip(nack.message))
        if not stream.pause(nack.seq):
            return []
        ms = RETRY_AFTER_MS if nack.retry_after_ms is None else nack.retry_after_ms
        return [PauseStream(min(ms, RETRY_AFTER_MS_MAX))]


def _error(code: str, message: str) -> list[Order]:
    return [Note("frame_refused", code, message), Send(render(ErrorFrame(code=code, message=message)))]


def _close_reason(text: str) -> str:
    """Return `text`, cut to what a close frame can hold, between two characters."""
    return text.encode()[:CLOSE_REASON_BYTES_MAX].decode(errors="ignore")
