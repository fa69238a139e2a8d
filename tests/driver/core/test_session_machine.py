"""The link session against a model plane, by Hypothesis: commits, cuts, acks, nacks, pauses, any order.

What must hold: on each connection the stream is in order and without a hole (an event, or a gap with the
true chain); an event goes out once, but for `busy` and redelivered commands; the bytes are the journal's;
no more is in flight than the window allows; at most one read is under way; and once everybody is patient,
the plane holds every event that was not pruned or parked.
"""

import json
from collections import deque
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from driver.core.answers import Repeat
from driver.core.frames import Hello
from driver.core.session import LinkSession, Phase
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
    Resumed,
    Send,
    Signal,
)
from store.chain import origin
from store.records import Chain, StoredEvent
from tests.driver.core.playbook import JOURNAL, an_event, hello, says, welcome

LIMIT = 2_000
"""What the plane takes; an event of `LONG` bytes does not fit."""
LONG = 3_000


class ModelJournal:
    """The journal as a list: what was pruned is None, its chain stays."""

    def __init__(self) -> None:
        self.all: list[StoredEvent] = []
        self.pruned = 0
        self.parked: set[int] = set()
        self.acked = 0

    @property
    def last_seq(self) -> int:
        return len(self.all)

    def append(self, *, long: bool) -> StoredEvent:
        previous = self.all[-1].chain if self.all else origin(JOURNAL)
        event = an_event(self.last_seq + 1, previous, size=LONG if long else 0)
        self.all.append(event)
        return event

    def body(self, seq: int) -> bytes | None:
        return self.all[seq - 1].body

    def chain(self, seq: int) -> Chain:
        return self.all[seq - 1].chain if seq else origin(JOURNAL)

    def chain_at(self, seq: int) -> Chain | None:
        return None if seq < self.pruned else self.chain(seq)

    def events(self, after: int, limit: int) -> tuple[StoredEvent, ...]:
        return tuple(self.all[max(after, self.pruned) :][:limit])


class ModelPlane:
    """A plane that remembers bytes, and acknowledges what it has made durable."""

    def __init__(self) -> None:
        self.held: dict[int, bytes] = {}
        self.upto = 0
        self.durable = 0

    def begin(self) -> None:
        self.upto = self.durable

    def take(self, frame: bytes | str, journal: ModelJournal) -> None:
        data: dict[str, Any] = json.loads(frame)
        if data["type"] == "gap":
            self.take_gap(data, journal)
            return
        assert data["type"] == "event", f"a stream carries events and gaps, not {frame!r}"
        body = frame if isinstance(frame, bytes) else frame.encode()
        known = self.held.setdefault(data["seq"], body)
        assert known == body == journal.body(data["seq"]), "other bytes under a known seq"
        if data["seq"] == self.upto + 1:
            self.upto = data["seq"]

    def take_gap(self, data: dict[str, Any], journal: ModelJournal) -> None:
        to: int = data["to"]
        assert data["chain"] == journal.chain(to), "a gap names another chain than the journal's"
        if data["from"] <= self.upto + 1:
            self.upto = max(self.upto, to)


class SessionMachine(RuleBasedStateMachine):
    """Everything between the session and the world, one step at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.journal = ModelJournal()
        self.plane = ModelPlane()
        self.session: LinkSession | None = None
        self.errands: deque[ReadEvents | ReadChain] = deque()
        self.to_park: list[Park] = []
        self.wire: deque[bytes | str] = deque()
        self.window = 1
        self.acked_here = 0
        """The watermark as this connection's session has been told."""
        self.flying: set[int] = set()
        self.position = 0
        """Where the stream of this connection stands, by what was sent."""
        self.busy: int | None = None
        self.refused: set[int] = set()
        """What this connection's plane has refused for good."""

    # ------------------------------------------------------------ carrying out orders

    def signal(self, signal: Signal, *, repeat: tuple[StoredEvent, ...] | None = None) -> None:
        assert self.session is not None
        for order in self.session.handle(signal):
            if repeat is not None:
                self.check_repeat(order, repeat)
            else:
                self.execute(order)

    def execute(self, order: Order) -> None:
        match order:
            case Send(text):
                self.check_stream(text)
                self.wire.append(text)
            case ReadEvents():
                assert order.limit <= self.window, "a page is never larger than the window"
                assert not any(isinstance(errand, ReadEvents) for errand in self.errands), (
                    "two reads under way"
                )
                self.errands.append(order)
            case ReadChain():
                self.errands.append(order)
            case Acknowledge(seq):
                self.journal.acked = seq
            case Park():
                self.to_park.append(order)
                self.flying.discard(order.seq)
            case PauseStream() | HistoryConfirmed() | AnnounceFrameBytes():
                pass
            case Note() | CloseLink() | RaiseFence() | LiftFence() | Deliver():
                raise AssertionError(f"nothing here asks for {order}")

    def check_stream(self, text: bytes | str) -> None:
        data = json.loads(text)
        if data["type"] == "hello":
            return
        assert self.session is not None
        assert self.session.phase is Phase.STREAMING
        assert self.busy is None, "something was sent during a pause"
        first, last = (data["from"], data["to"]) if data["type"] == "gap" else (data["seq"], data["seq"])
        assert first == self.position + 1, f"{first} was sent behind {self.position}"
        self.position = last
        if data["type"] == "gap":
            hidden = [event for event in self.journal.all[first - 1 : last] if not self.is_left_out(event)]
            assert not hidden, f"a gap hides {hidden}"
            return
        self.flying.add(last)
        assert len(self.flying) <= self.window, f"{self.flying} in flight, window {self.window}"
        assert last not in self.refused, "a refused event was sent again"

    def is_left_out(self, event: StoredEvent) -> bool:
        """Whether the stream may pass over `event`."""
        parked = self.journal.parked | {park.seq for park in self.to_park}
        return event.seq <= self.journal.pruned or event.seq in parked

    def check_repeat(self, order: Order, events: tuple[StoredEvent, ...]) -> None:
        assert isinstance(order, Send), f"a repeat orders {order}"
        self.wire.append(order.frame)
        data = json.loads(order.frame)
        if data["type"] == "gap":
            self.check_stream(order.frame)
            return
        event = next(item for item in events if item.body == order.frame)
        if event.seq == self.position + 1:
            assert self.busy is None, "a repeat ran ahead of the stream during a pause"
            assert self.is_left_out(event), "a repeat ran ahead of the stream"
            self.position = event.seq
        assert event.seq <= self.position, "a repeat ran ahead of the stream"

    # ------------------------------------------------------------ the daemon's side

    @initialize(count=st.integers(0, 6))
    def begin(self, count: int) -> None:
        """A journal with some history."""
        for _ in range(count):
            self.journal.append(long=False)

    @rule(longs=st.lists(st.booleans(), min_size=1, max_size=4))
    def commit(self, longs: list[bool]) -> None:
        """The journal commits; the session hears of it if there is one."""
        events = tuple(self.journal.append(long=long) for long in longs)
        if self.session is not None:
            self.signal(Committed(events))

    @rule()
    def record_parked(self) -> None:
        """What was parked is written, some time later."""
        self.journal.parked |= {park.seq for park in self.to_park}
        self.to_park.clear()

    @rule(share=st.floats(0, 1))
    def prune(self, share: float) -> None:
        """Retention takes what was acknowledged."""
        self.journal.pruned = max(self.journal.pruned, int(self.journal.acked * share))

    @precondition(lambda self: self.errands)
    @rule(short=st.booleans())
    def run_errand(self, short: bool) -> None:
        """The journal answers the oldest question, sometimes with a short page."""
        errand = self.errands.popleft()
        if isinstance(errand, ReadChain):
            self.signal(ChainRead(errand.seq, self.journal.chain_at(errand.seq)))
            return
        limit = 1 if short else errand.limit
        events = self.journal.events(errand.after, limit)
        self.signal(EventsRead(errand.after, events, frozenset(self.journal.parked)))

    @precondition(lambda self: self.session is not None and self.journal.last_seq > 0)
    @rule(data=st.data())
    def redeliver(self, data: st.DataObject) -> None:
        """A known command comes again: its events, wherever they are in the stream, are its answer."""
        seqs = st.integers(1, self.journal.last_seq)
        chosen = sorted({data.draw(seqs), data.draw(seqs)})
        events = tuple(self.journal.all[seq - 1] for seq in chosen if seq > self.journal.pruned)
        self.signal(Answered(Repeat(events)), repeat=events)

    # ------------------------------------------------------------ the connection

    @precondition(lambda self: self.session is None)
    @rule()
    def connect(self) -> None:
        """A new socket, and with it a new session."""
        self.session = LinkSession()
        self.signal(Opened(self.hello()))

    def hello(self) -> Hello:
        return hello(last_seq=self.journal.last_seq, acked_seq=self.journal.acked)

    @precondition(lambda self: self.session is not None and self.session.phase is Phase.GREETING)
    @rule(window=st.integers(1, 5))
    def greet(self, window: int) -> None:
        """The plane welcomes, with its own watermark."""
        assert json.loads(self.wire.popleft())["type"] == "hello"
        self.plane.begin()
        self.window = window
        self.position = self.acked_here = self.plane.durable
        acked_chain = self.journal.chain(self.plane.durable) if self.plane.durable else None
        self.signal(welcome(self.plane.durable, acked_chain, window=window, limit=LIMIT))

    @precondition(lambda self: self.session is not None)
    @rule()
    def cut(self) -> None:
        """The socket dies with whatever was on the wire."""
        self.signal(Closed(1006, ""))
        self.session = None
        self.busy = None
        for left in (self.errands, self.wire, self.flying, self.refused):
            left.clear()

    @precondition(lambda self: self.session is None)
    @rule(share=st.floats(0, 1))
    def restore_plane(self, share: float) -> None:
        """The plane is restored from a backup: its watermark is lower, and what it held above is gone."""
        self.plane.durable = int(self.plane.durable * share)
        self.plane.held = {seq: body for seq, body in self.plane.held.items() if seq <= self.plane.durable}

    # ------------------------------------------------------------ the plane's side

    @precondition(
        lambda self: self.session is not None and self.session.phase is Phase.STREAMING and self.wire
    )
    @rule(count=st.integers(1, 4))
    def take(self, count: int) -> None:
        """The plane reads frames."""
        for _ in range(min(count, len(self.wire))):
            self.plane.take(self.wire.popleft(), self.journal)

    @precondition(lambda self: self.session is not None and self.session.phase is Phase.STREAMING)
    @rule(share=st.floats(0, 1))
    def acknowledge(self, share: float) -> None:
        """The plane acknowledges some of what it has: sometimes more, sometimes less than before."""
        seq = int(self.plane.upto * share) if share < 1 else self.plane.upto
        self.plane.durable = max(self.plane.durable, seq)
        if seq > self.acked_here:
            self.acked_here = seq
            self.flying = {flown for flown in self.flying if flown > seq}
            self.position = max(self.position, seq)
            if self.busy is not None:
                self.busy = max(self.busy, seq + 1)
        self.signal(says(type="ack", seq=seq))

    @precondition(
        lambda self: self.session is not None and self.session.phase is Phase.STREAMING and self.flying
    )
    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        """The plane finds an event invalid."""
        seq = data.draw(st.sampled_from(sorted(self.flying)))
        self.refused.add(seq)
        self.signal(says(type="nack", seq=seq, code="invalid", message="poison"))
        assert seq not in self.flying, "a refused event was not parked"

    @precondition(
        lambda self: self.session is not None and self.session.phase is Phase.STREAMING and self.flying
    )
    @rule(data=st.data())
    def be_busy(self, data: st.DataObject) -> None:
        """The plane is too busy for an event, and drops those behind it."""
        seq = data.draw(st.sampled_from(sorted(self.flying)))
        self.busy = seq if self.busy is None else min(seq, self.busy)
        self.signal(says(type="nack", seq=seq, code="busy", retry_after_ms=1))

    @precondition(lambda self: self.session is not None and self.busy is not None)
    @rule()
    def resume(self) -> None:
        """The pause is over."""
        assert self.busy is not None
        self.position = max(self.acked_here, min(self.position, self.busy - 1))
        self.busy = None
        self.signal(Resumed())

    # ------------------------------------------------------------ what must hold

    @invariant()
    def reads_are_few(self) -> None:
        """A page to read and a chain to look up, at most: nothing piles up, however long the backlog."""
        assert len(self.errands) <= 2

    def teardown(self) -> None:
        """Everybody becomes patient: the plane ends up with everything that it can be given."""
        if self.session is None:
            self.connect()
        if self.busy is not None:
            self.resume()
        assert self.session is not None
        while self.session.phase is not Phase.STREAMING:
            if self.session.phase is Phase.GREETING:
                self.greet(window=3)
            else:
                self.run_errand(short=False)
        for _ in range(2 * self.journal.last_seq + 8):
            while self.errands:
                self.run_errand(short=False)
            self.take(len(self.wire))
            self.acknowledge(1.0)
            self.record_parked()
        expected = {event.seq for event in self.journal.all if not self.is_left_out(event)}
        assert expected <= self.plane.held.keys(), f"lost: {expected - self.plane.held.keys()}"
        assert self.plane.durable >= max(expected, default=0), "not all of it was acknowledged"


SessionMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestSessionMachine = SessionMachine.TestCase
