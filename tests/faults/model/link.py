"""The link's session against an honest plane, and against one that says whatever it likes.

The honest one is the machine of `tests.driver.core`. The lying one acknowledges the future, names other
chains, refuses what was never sent, welcomes twice, sends garbage. Whatever it says: nothing is raised,
nothing is sent before a welcome or behind a fence, what is sent is the journal's bytes in order, and no
watermark moves beyond what was sent.
"""

import json
from collections import deque
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from driver.core.session import LinkSession, Phase
from driver.core.signals import (
    Acknowledge,
    ChainRead,
    Closed,
    Committed,
    Deliver,
    EventsRead,
    HistoryConfirmed,
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
from tests.driver.core.playbook import hello, says
from tests.driver.core.test_session_machine import ModelJournal, SessionMachine
from tests.faults.model.counting import ENDED, SEEN

GARBAGE: Final = (
    b"\x00",
    "",
    "null",
    "[]",
    "{",
    '{"type":1}',
    '{"type":"ack"}',
    '{"type":"ack","seq":-1}',
    '{"type":"ack","seq":1e9}',
    '{"type":"ack","seq":1,"seq":2}',
    '{"type":"nack","seq":1}',
    '{"type":"command"}',
    '{"type":"event"}',
    '{"type":"welcome"}',
    '{"type":"hello"}',
    "{" * 70,
)


class HonestPlane(SessionMachine):
    """Counts what the session's own machine does."""

    def execute(self, order: Order) -> None:
        SEEN[f"honest: {type(order).__name__}"] += 1
        super().execute(order)

    def teardown(self) -> None:
        super().teardown()
        ENDED["honest plane"] += 1


class LyingPlane(RuleBasedStateMachine):
    """One daemon, one connection after the other, and whatever comes over them."""

    def __init__(self) -> None:
        super().__init__()
        self.journal = ModelJournal()
        self.session: LinkSession | None = None
        self.errands: deque[ReadEvents | ReadChain] = deque()
        self.begin_connection()
        self.fence: str | None = None
        """What the daemon has been fenced for: it stays so."""

    def begin_connection(self) -> None:
        """Nothing is known of a new connection."""
        self.errands.clear()
        self.position = 0
        self.sent_upto = 0
        self.confirmed = False
        self.claim: dict[str, Any] = {}
        self.paused = False

    # ------------------------------------------------------------ what the session may do

    def signal(self, signal: Signal) -> None:
        """Let the session hear something: it never raises."""
        assert self.session is not None
        for order in self.session.handle(signal):
            self.execute(order)

    def execute(self, order: Order) -> None:
        """Look at what it wants done."""
        match order:
            case Send(frame):
                self.sends(json.loads(frame), frame)
            case ReadEvents() | ReadChain():
                self.errands.append(order)
            case HistoryConfirmed():
                self.confirms()
            case Acknowledge(seq):
                self.acknowledges(seq)
            case Park(seq=seq):
                assert seq <= self.sent_upto, f"{seq} was never sent, and is parked"
                SEEN["lying: parked"] += 1
            case RaiseFence(reason):
                self.fence = str(reason)
                SEEN["lying: fence"] += 1
            case PauseStream():
                self.paused = True
            case Deliver():
                assert self.fence is None, "a command was taken behind a fence"
            case _:
                pass

    def sends(self, data: dict[str, Any], frame: str | bytes) -> None:
        """A frame of the stream comes in order, after a welcome that was true, and in front of no fence."""
        if data["type"] not in ("event", "gap"):
            SEEN["lying: error answered"] += data["type"] == "error"
            return
        assert self.confirmed, "the stream began before the history was confirmed"
        assert self.fence is None, "something was sent behind a fence"
        first, last = (data["from"], data["to"]) if data["type"] == "gap" else (data["seq"], data["seq"])
        assert first <= self.sent_upto + 1, f"{first} was sent behind {self.sent_upto}"
        if data["type"] == "event":
            assert frame == self.journal.body(last), "other bytes than the journal's"
            SEEN["lying: event sent"] += 1
        self.sent_upto = max(self.sent_upto, last)

    def confirms(self) -> None:
        """Only what the plane claims truly is confirmed."""
        seq = self.claim["acked_seq"]
        assert seq <= self.journal.last_seq, "a future was confirmed"
        if seq and self.journal.chain_at(seq) is not None:
            assert self.claim["acked_chain"] == self.journal.chain(seq), "another history was confirmed"
        self.confirmed = True
        self.sent_upto = seq

    def acknowledges(self, seq: int) -> None:
        """No further than what was sent, or truly claimed."""
        assert self.confirmed
        assert seq <= max(self.sent_upto, self.claim["acked_seq"]), f"{seq} was acknowledged unsent"
        assert seq <= self.journal.last_seq
        self.journal.acked = seq

    # ------------------------------------------------------------ the daemon's side

    @initialize(count=st.integers(0, 6))
    def begin(self, count: int) -> None:
        """A journal with some history, and a connection."""
        for _ in range(count):
            self.journal.append(long=False)
        self.connect(greeted=True)

    @rule(count=st.integers(1, 3))
    def commit(self, count: int) -> None:
        """The journal goes on."""
        events = tuple(self.journal.append(long=False) for _ in range(count))
        if self.session is not None:
            self.signal(Committed(events))

    @precondition(lambda self: self.session is None)
    @rule(greeted=st.sampled_from([True, True, False]))
    def connect(self, greeted: bool) -> None:
        """A new socket, and mostly a welcome that is true."""
        self.begin_connection()
        self.session = LinkSession()
        frame = hello(
            last_seq=self.journal.last_seq,
            acked_seq=self.journal.acked,
            state="ready" if self.fence is None else "fenced",
        )
        self.signal(Opened(frame, self.fence))
        if greeted:
            self.welcome(-2, truly=True, window=4)
            while self.errands:
                self.run_errand()

    @precondition(lambda self: self.errands and self.session is not None)
    @rule()
    def run_errand(self) -> None:
        """The journal answers."""
        errand = self.errands.popleft()
        if isinstance(errand, ReadChain):
            self.signal(ChainRead(errand.seq, self.journal.chain_at(errand.seq)))
        else:
            page = self.journal.events(errand.after, errand.limit)
            self.signal(EventsRead(errand.after, page, frozenset()))

    @precondition(lambda self: self.paused and self.session is not None)
    @rule()
    def resume(self) -> None:
        """A pause is over."""
        self.paused = False
        self.signal(Resumed())

    # ------------------------------------------------------------ what the plane says

    @precondition(lambda self: self.session is not None)
    @rule(ahead=st.integers(-6, 3), truly=st.sampled_from([True, True, False]), window=st.integers(1, 5))
    def welcome(self, ahead: int, truly: bool, window: int) -> None:
        """A welcome, true or not, the first or not."""
        assert self.session is not None
        seq = max(self.journal.last_seq + ahead, 0)
        chain = self.journal.chain(seq) if truly and seq <= self.journal.last_seq else "ab" * 16
        claim = {"acked_seq": seq, "acked_chain": chain}
        if self.session.phase is Phase.GREETING:
            self.claim = claim
            SEEN["lying: false welcome"] += not truly or ahead > 0
        self.signal(says(type="welcome", session_id="s", window=window, max_frame_bytes=2_000, **claim))

    @precondition(lambda self: self.session is not None)
    @rule(seq=st.integers(0, 14))
    def acknowledge(self, seq: int) -> None:
        """An acknowledgement of anything."""
        SEEN["lying: future acknowledged"] += seq > self.sent_upto
        self.signal(says(type="ack", seq=seq))

    @precondition(lambda self: self.session is not None)
    @rule(seq=st.integers(1, 14), code=st.sampled_from(["invalid", "retired", "busy", "busy", "conflict"]))
    def refuse(self, seq: int, code: str) -> None:
        """A refusal of anything."""
        self.signal(says(type="nack", seq=seq, code=code, message="", retry_after_ms=1))

    @precondition(lambda self: self.session is not None)
    @rule(frame=st.sampled_from(GARBAGE))
    def talk_nonsense(self, frame: str | bytes) -> None:
        """What is no frame."""
        SEEN["lying: nonsense"] += 1
        self.signal(Received(frame))

    @precondition(lambda self: self.session is not None)
    @rule(name=st.sampled_from(["cmd-1", "compensate:op_1", "", "x" * 200]))
    def command(self, name: str) -> None:
        """A command, usable or not."""
        self.signal(says(type="command", command_id=name, run_id="run-1", kind="tool.call", data={}))

    @precondition(lambda self: self.session is not None)
    @rule(code=st.sampled_from([1000, 1006, 1006, 1012, 4001, 4002, 4003]))
    def hang_up(self, code: int) -> None:
        """The socket is gone."""
        self.signal(Closed(code, "gone"))
        self.session = None
        self.begin_connection()

    def teardown(self) -> None:
        """Each example is counted."""
        ENDED["lying plane"] += 1
