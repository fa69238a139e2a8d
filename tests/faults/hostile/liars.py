"""Planes that lie, before the session of a connection, in this process. Part of `hostile`.

Each conversation is a session over a journal that is a list. The plane welcomes truly or not, acknowledges
what was never sent, takes back, refuses, speaks out of turn, and says hostile words in between; the journal
answers late. What the session orders must be justified by what was really sent and said:

* an event leaves only after the history was confirmed, in its bytes, in order, and never under a fence;
* nothing is acknowledged that was not sent on this connection, or that the welcome does not prove;
* a fence is raised for what the documentation says, and for nothing else;
* what is handed to the engine was said, as a command that is one.
"""

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from driver.core.answers import Repeat
from driver.core.frames import CLOSE_SUPERSEDED, CommandFrame, InvalidCommand
from driver.core.session import LinkSession
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
    FenceReason,
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
from store.chain import origin
from store.records import Chain, StoredEvent
from tests.driver.core.playbook import JOURNAL, hello, history
from tests.faults.balance import Balance
from tests.faults.hostile import judge
from tests.faults.hostile.words import Json, valid, word
from tests.faults.lane import BROKEN_MAX

STEPS: Final = 40
EVENTS: Final = history(400)
"""The journal, of which a conversation sees the beginning grow."""
FAR: Final = 2**62
FUTURE: Final = "an acknowledgement of what was not sent"


def conversations(balance: Balance, seed: int, numbers: range, over: Callable[[], bool]) -> None:
    """Hold conversations of which each has some ten inputs, until there were as many inputs as numbers."""
    number, until = numbers.start, balance.tried + len(numbers)
    while balance.tried < until and not over() and len(balance.broken) < BROKEN_MAX:
        before = balance.tried
        try:
            Conversation(seed=seed, number=number, balance=balance).hold()
        except AssertionError as error:
            balance.broken.append(f"liar, seed {seed}, conversation {number}: {error}"[:1_500])
        balance.fired["inputs of lying planes"] += balance.tried - before
        number += 1


@dataclass(slots=True, kw_only=True)
class Conversation:
    """One session, its journal, and a plane that lies."""

    seed: int
    number: int
    balance: Balance
    chance: Random = field(init=False)
    session: LinkSession = field(default_factory=LinkSession)
    last_seq: int = 0
    said_last: int = 0
    """The `last_seq` of hello."""
    highest: int = 0
    """The greatest seq that is known to have been sent, or was proved by the welcome."""
    position: int = 0
    welcome: Json | None = None
    confirmed: bool = False
    fenced: bool = False
    over: bool = False
    paused: bool = False
    errands: deque[ReadEvents | ReadChain] = field(default_factory=deque[ReadEvents | ReadChain])
    said: list[Json] = field(default_factory=list[Json])

    def __post_init__(self) -> None:
        self.chance = Random(self.seed * 1_000_003 + self.number)

    @property
    def trusted(self) -> bool:
        """Whether the plane has proved to know this journal."""
        return self.confirmed and not self.fenced

    def hold(self) -> None:
        """Talk until the end. Raises AssertionError where an order has no justification."""
        self.last_seq = self.said_last = self.chance.choice((0, 0, 5, 40))
        self._signal(Opened(hello(last_seq=self.last_seq)))
        if self.chance.random() < 0.9:
            self._hear(self._welcome())
        for _ in range(STEPS):
            if self.over:
                break
            self._step()
        self._signal(Closed(self.chance.choice((1000, 1006, 4001, 4002)), ""))

    def _step(self) -> None:
        match self.chance.randrange(12):
            case 0:
                grown = min(self.last_seq + self.chance.randint(1, 4), len(EVENTS))
                new, self.last_seq = EVENTS[self.last_seq : grown], grown
                self._signal(Committed(new))
            case 1 | 2 if self.errands:
                self._run_errand()
            case 3 if self.paused:
                self.paused = False
                self._signal(Resumed())
            case 4 if self.last_seq:
                seq = self.chance.randint(1, self.last_seq)
                self._signal(Answered(Repeat((EVENTS[seq - 1],))))
            case 5 | 6 | 7:
                self._hear(json.dumps(self._lie()))
            case _:
                # words have numbers of their own in each conversation
                self._hear(word(self.seed + self.number, self.chance.randrange(1_000_000)))

    # --- what the plane says

    def _welcome(self) -> str:
        seq = self.chance.choice((0, 0, self.last_seq, self.last_seq // 2, self.last_seq + 1, FAR))
        chain = _chain(seq) if 0 < seq <= self.last_seq and self.chance.random() < 0.7 else "0" * 32
        window = self.chance.choice((1, 8, 256))
        frame = {"type": "welcome", "acked_seq": seq, "acked_chain": chain, "window": window}
        return json.dumps(frame if seq else {**frame, "acked_chain": None})

    def _lie(self) -> Json:
        seqs = (0, 1, self.highest - 1, self.highest, self.highest + 1, self.last_seq, self.last_seq + 1, FAR)
        seq = max(0, self.chance.choice(seqs))
        match self.chance.randrange(6):
            case 0:
                again: Json = json.loads(self._welcome())
                return again | {"window": 1}
            case 1:
                codes = ("invalid", "retired", "busy", "busy", "conflict")
                nack = {
                    "type": "nack",
                    "seq": max(1, seq),
                    "code": self.chance.choice(codes),
                    "message": "no",
                }
                return nack | {"retry_after_ms": 1}
            case 2:
                return valid(self.chance, "command") | {"command_id": self.chance.choice("abc")}
            case _:
                return {"type": "ack", "seq": seq}

    def _hear(self, text: str | bytes) -> None:
        self.balance.tried += 1
        try:
            meant = judge.meaning(text)
        except judge.NoFrame:
            meant = None
        if meant is not None:
            self.said.append(meant)
            if meant["type"] == "welcome" and self.welcome is None:
                self.welcome = meant
            if meant["type"] == "ack" and self.confirmed and not self.fenced:
                self.balance.reached[FUTURE] += meant["seq"] > self.highest
        orders = self._signal(Received(text))
        if meant is None:
            owed = [order for order in orders if isinstance(order, Send | Deliver | CloseLink)]
            assert len(owed) <= 1, f"{text!r} was answered {len(owed)} times"

    # --- what the session orders

    def _signal(self, signal: Signal) -> list[Order]:
        orders = self.session.handle(signal)
        for order in orders:
            self._judge(order, signal)
        return orders

    def _judge(self, order: Order, signal: Signal) -> None:  # noqa: C901 - one line for each order
        match order:
            case Send(frame):
                self._judge_frame(frame)
            case ReadEvents() | ReadChain():
                self.errands.append(order)
                assert len(self.errands) <= 2, "reads pile up"
            case Acknowledge(seq):
                assert self.confirmed, "acknowledged before the history was confirmed"
                assert seq <= self.highest, f"{seq} is acknowledged, and {self.highest} were sent"
                self.position = max(self.position, seq)
            case HistoryConfirmed():
                self._confirm()
            case RaiseFence(reason):
                self.fenced = True
                self.balance.reached[f"fence: {reason}"] += 1
                assert self._justified(reason, signal), f"a fence without a reason: {reason}"
            case Deliver(delivery):
                self._judge_delivery(delivery)
            case Park(seq, "too_large"):
                body, limit = EVENTS[seq - 1].body, (self.welcome or {}).get("max_frame_bytes", 0)
                assert body is not None
                assert len(body) > limit, f"{seq} has {len(body)} bytes, and {limit} are taken"
            case Park(seq):
                refused = {nack["seq"] for nack in self._said("nack")}
                assert seq in refused, f"{seq} is parked, and nobody has refused it"
                assert seq <= self.highest, f"{seq} is parked, and was never sent"
            case PauseStream():
                self.paused = True
            case CloseLink():
                self.over = True
            case LiftFence():
                raise AssertionError("there is no fence to lift")
            case Note() | AnnounceFrameBytes():
                pass

    def _judge_frame(self, frame: bytes | str) -> None:
        found: Json = json.loads(frame)
        match found["type"]:
            case "event":
                assert self.trusted, "an event is sent to a plane of another history"
                seq = int(found["seq"])
                assert frame == EVENTS[seq - 1].body, f"event {seq} is sent in other bytes"
                assert seq <= self.position + 1, f"event {seq} is sent behind {self.position}"
                self._sent(seq)
            case "gap":
                assert self.trusted, "a gap is sent to a plane of another history"
                assert found["chain"] == _chain(found["to"]), "a gap names another chain"
                self._sent(found["to"])
            case "refused":
                assert self.fenced, f"refused without a fence: {found}"
            case "hello" | "error":
                pass
            case other:
                raise AssertionError(f"a frame of the type {other}")

    def _sent(self, seq: int) -> None:
        self.position = max(self.position, seq)
        self.highest = max(self.highest, seq)

    def _confirm(self) -> None:
        assert self.welcome is not None, "confirmed without a welcome"
        assert not self.confirmed, "confirmed twice"
        seq = self.welcome["acked_seq"]
        assert seq <= self.said_last, "a history of the future is confirmed"
        assert not seq or self.welcome["acked_chain"] == _chain(seq), "another history is confirmed"
        self.confirmed = True
        self.highest = self.position = seq
        self.balance.reached["a history was confirmed"] += 1

    def _justified(self, reason: str, signal: Signal) -> bool:
        welcome: Json = self.welcome or {"acked_seq": 0}
        match reason:
            case FenceReason.ROLLED_BACK:
                return bool(welcome["acked_seq"] > self.said_last)
            case FenceReason.FORKED:
                seq: int = welcome["acked_seq"]
                return 0 < seq <= self.said_last and welcome["acked_chain"] != _chain(seq)
            case FenceReason.CONFLICT:
                return any(n["code"] == "conflict" and n["seq"] <= self.highest for n in self._said("nack"))
            case FenceReason.SUPERSEDED:
                return isinstance(signal, Closed) and signal.code == CLOSE_SUPERSEDED
            case _:
                return False

    def _judge_delivery(self, delivery: CommandFrame | InvalidCommand) -> None:
        assert self.trusted, "a command is taken by a journal that may not answer"
        self.balance.reached["a command was delivered"] += 1
        if isinstance(delivery, CommandFrame):
            assert any(
                (said["command_id"], said["kind"]) == (delivery.command_id, delivery.kind)
                for said in self._said("command")
            ), f"nobody gave {delivery}"

    def _said(self, frame_type: str) -> list[Json]:
        return [said for said in self.said if said["type"] == frame_type]

    # --- what the journal answers

    def _run_errand(self) -> None:
        errand = self.errands.popleft()
        if isinstance(errand, ReadChain):
            self._signal(ChainRead(errand.seq, _chain(errand.seq)))
            return
        page: tuple[StoredEvent, ...] = EVENTS[errand.after : min(errand.after + errand.limit, self.last_seq)]
        if self.chance.random() < 0.3:
            page = page[:1]
        self._signal(EventsRead(errand.after, page))


def _chain(seq: int) -> Chain:
    return EVENTS[seq - 1].chain if seq else origin(JOURNAL)
