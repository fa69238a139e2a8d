"""The control plane of a simulated world: follows docs/protocol.md, restarts, forgets what it had not stored.

Its store is what it acknowledges from. What it saw and had not stored is lost with it, and comes again; the
bytes that came the first time are remembered here all the same, for nothing may come as other bytes.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextvars import Context
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from driver.core.frames import CLOSE_SUPERSEDED
from tests.faults.simulation.network import Wire
from tests.faults.simulation.truth import Truth
from tests.system.history import History

Json = dict[str, Any]

BOTH_LIVE: Final = "two daemons at once"


@dataclass
class Order:
    """A command that the plane wants done."""

    frame: Json
    delivered_to: list[str] = field(default_factory=list[str])
    answered: bool = False
    """Whether its receipt is stored, or will never come as one."""


class Plane:
    """The one control plane."""

    def __init__(self, rng: Random, truth: Truth, context: Context) -> None:
        self._rng = rng
        self._truth = truth
        self._context = context
        self._wire: Wire | None = None
        self._welcomed = False
        self._boot_id = ""
        """Of the process that the connection is from."""
        self.journal_id = ""
        self._position = 0
        """How far this connection has sent the stream."""
        self._was_busy = False
        """Whether something was too much on this connection: what came behind that is dropped, to come again.
        Whether it does is told by the receipts."""
        self.is_up = True
        self.histories: dict[str, History] = {}
        self.stored: dict[str, int] = {}
        """How far each journal's stream is stored: what is acknowledged is never above it."""
        self.first_bytes: dict[tuple[str, int], bytes] = {}
        self.orders: dict[str, Order] = {}
        self.on_event: Callable[[Json], None] = lambda _event: None
        self._storing = False
        self._lives = 1
        self.store_s = rng.choice((0.0, 0.01, 0.5, 4.0))
        self.loses_acks = rng.random() < 0.3
        self.repeats = rng.choice((0.0, 0.2, 0.6))
        self.window = rng.choice((1, 2, 8, 256))
        self.nacks = rng.choice((0.0, 0.0, 0.05))
        self.poison = rng.choice((0.0, 0.0, 0.0, 0.03))

    # ------------------------------------------------------------ commands

    def give(self, frame: Json) -> None:
        """Want a command to be done."""
        self.orders[frame["command_id"]] = Order(frame)
        self._deliver_soon(frame["command_id"])

    def open_orders(self) -> list[str]:
        """Return the commands that have no stored receipt."""
        return [name for name, order in self.orders.items() if not order.answered]

    def has_everything(self, last_seq: int) -> bool:
        """Whether the stream is stored to its end."""
        return self._welcomed and self.stored[self.journal_id] >= last_seq

    def knows(self, told: Mapping[int, bytes | None]) -> bool:
        """Whether the newest event that is stored is one of these."""
        stored = self.stored.get(self.journal_id, 0)
        return not stored or self.histories[self.journal_id].frames[stored - 1] in (None, *told.values())

    def _deliver_soon(self, command_id: str, after_s: float = 0.0) -> None:
        loop = asyncio.get_running_loop()
        late = after_s + self._rng.choice((0.0, 0.0, 0.001, 0.3))
        loop.call_later(late, self._deliver, command_id, self._wire, context=self._context)
        if self._rng.random() < self.repeats:
            again = late + self._rng.choice((0.0, 0.002, 0.05, 1.0, 15.0))
            loop.call_later(again, self._deliver, command_id, self._wire, context=self._context)
            self._truth.fired["a command twice"] += 1

    def _deliver(self, command_id: str, wire: Wire | None) -> None:
        if wire is None or wire is not self._wire or not self._welcomed:
            return
        order = self.orders[command_id]
        if self.journal_id not in order.delivered_to:
            order.delivered_to.append(self.journal_id)
        else:
            self._truth.reached["redelivery"] += 1
        frame = {**order.frame, "type": "command", "delivered_to": order.delivered_to}
        self._note("gives", command_id)
        wire.tell(json.dumps(frame).encode())

    # ------------------------------------------------------------ the network's side

    def connected(self, wire: Wire) -> None:
        """A daemon has connected: nothing changes before it says hello."""
        if not self.is_up:
            wire.cut()

    def disconnected(self, wire: Wire) -> None:
        """A connection is gone."""
        if wire is self._wire:
            self._wire, self._welcomed = None, False

    def received(self, wire: Wire, data: bytes) -> None:
        """A frame of the daemon's."""
        if not self.is_up:
            return
        frame: Json = json.loads(data)
        if frame["type"] == "hello":
            self._supersede(wire, frame["boot_id"])
        elif wire is not self._wire:
            return
        self._note("hears", data)
        match frame["type"]:
            case "hello":
                self._greet(frame)
            case "event":
                self._take(data, frame)
            case "gap":
                history = self.histories[self.journal_id]
                self._truth.reached["gap"] += 1
                self._position = history.skip(frame, position=self._position)
                self._store_soon()
            case "refused":
                self._refused(frame)
            case "retired":
                self.orders[frame["command_id"]].answered = True
                self._truth.reached["retired"] += 1
            case _:
                self._truth.blame("protocol", f"the daemon says {data!r}")

    def _greet(self, hello: Json) -> None:
        assert self._wire is not None, "whoever is greeted is connected"
        self.journal_id = journal_id = hello["journal_id"]
        history = self.histories.setdefault(journal_id, History(journal_id))
        stored = self.stored.setdefault(journal_id, 0)
        self._position = stored
        welcome = {"type": "welcome", "session_id": "s", "acked_seq": stored, "window": self.window}
        if stored:
            welcome["acked_chain"] = history.chain_at(stored)
        self._wire.tell(json.dumps(welcome).encode())
        self._welcomed = True
        waiting = self.open_orders()
        self._rng.shuffle(waiting)
        for command_id in waiting:
            self._deliver_soon(command_id)
        for command_id, order in self.orders.items():
            if order.answered and self._rng.random() < self.repeats / 3:
                self._deliver_soon(command_id, self._rng.uniform(0.0, 3.0))

    def _supersede(self, wire: Wire, boot_id: str) -> None:
        """Whoever says hello has taken over: what an older connection says does not count any more.

        Another process that is connected as well is told so.
        """
        if wire.process.name in self._truth.superseded:
            self._truth.blame("I10", f"{wire.process.name} was superseded, and is back unasked")
        older = self._wire
        if older is not None and older.is_open and self._boot_id != boot_id:
            self._truth.reached[BOTH_LIVE] += 1
            older.hang_up(CLOSE_SUPERSEDED, "another life has taken over")
        self._wire, self._boot_id = wire, boot_id
        self._welcomed, self._position, self._was_busy = False, 0, False

    def _take(self, data: bytes, event: Json) -> None:
        journal_id, seq = event["journal_id"], int(event["seq"])
        if journal_id != self.journal_id:
            self._truth.blame("I6", f"an event of {journal_id} in the stream of {self.journal_id}")
            return
        history = self.histories[journal_id]
        if self._truth.cloned and self._contradicts(history, seq, data):
            return
        if self.first_bytes.setdefault((journal_id, seq), data) != data:
            self._truth.blame("I4", f"event {seq} came as {data!r}, and before as other bytes")
        if seq > self._position + 1 and self._was_busy:
            return
        if seq > self.stored[journal_id] and self._rng.random() < self.nacks:
            self._be_busy(seq)
            return
        fresh = seq == history.last_seq + 1
        self._position = history.take(data, event, position=self._position)
        if fresh and self._rng.random() < self.poison:
            # that it was refused is stored before the daemon is told so: it does not come again
            self._store(self._lives)
            self._nack(seq, "invalid")
            self._truth.fired["nack, invalid"] += 1
        self.on_event(event)
        self._store_soon()

    def _contradicts(self, history: History, seq: int, data: bytes) -> bool:
        """Refuse what one of two daemons says where the other has said something else."""
        self.first_bytes.pop((self.journal_id, seq), None)
        if seq > history.last_seq or history.frames[seq - 1] in (data, None):
            return False
        self._was_busy = True
        self._nack(seq, "conflict")
        self._truth.fired["nack, conflict"] += 1
        return True

    def _be_busy(self, seq: int) -> None:
        """Refuse an event for the moment, with those behind it."""
        self._was_busy = True
        self._nack(seq, "busy", retry_after_ms=self._rng.choice((1, 50, 2_000)))
        self._truth.fired["nack, busy"] += 1

    def _nack(self, seq: int, code: str, **more: int) -> None:
        assert self._wire is not None, "what is refused has just come"
        self._wire.tell(json.dumps({"type": "nack", "seq": seq, "code": code, **more}).encode())

    def _refused(self, frame: Json) -> None:
        command_id, code = frame["command_id"], frame["code"]
        self._truth.reached[f"refused for now, {code}"] += 1
        if code == "conflict":
            self._truth.blame("protocol", f"{command_id} is in conflict with itself")
        self._deliver_soon(command_id, self._rng.uniform(0.5, 5.0))

    # ------------------------------------------------------------ the store

    def _store_soon(self) -> None:
        if not self._storing:
            self._storing = True
            loop = asyncio.get_running_loop()
            takes_s = self._rng.uniform(0.5, 1.5) * self.store_s
            loop.call_later(takes_s, self._store, self._lives, context=self._context)

    def _store(self, life: int) -> None:
        """Make durable what has come, whoever is connected, and acknowledge it."""
        if life != self._lives:
            return
        self._storing = False
        for journal_id, history in self.histories.items():
            for frame in history.frames[self.stored[journal_id] :]:
                if frame is not None:
                    self._settle(json.loads(frame))
            self.stored[journal_id] = history.last_seq
        if self.loses_acks and self._rng.random() < 0.5:
            self._truth.fired["ack put off"] += 1
            asyncio.get_running_loop().call_later(30.0, self._ack, context=self._context)
            return
        self._ack()

    def _ack(self) -> None:
        if self._wire is not None and self._welcomed and self.is_up:
            # no further than this connection's stream has come
            seq = min(self.stored[self.journal_id], self._position)
            self._wire.tell(json.dumps({"type": "ack", "seq": seq}).encode())

    def _settle(self, event: Json) -> None:
        order = self.orders.get(event["command_id"] or "")
        if order is not None and event["terminal"]:
            order.answered = True
        if event["kind"] == "operation.started":
            self._truth.held.add((event["operation_id"], event["data"]["attempt"]))

    def restart(self) -> None:
        """Die, and forget what was not stored."""
        self._truth.fired["plane killed"] += 1
        self.is_up = False
        if self._wire is not None:
            self._wire.cut()
        self._lives += 1
        self._wire, self._storing = None, False
        for journal_id, history in self.histories.items():
            self._forget(history, self.stored.get(journal_id, 0))

    def _forget(self, history: History, stored: int) -> None:
        if history.last_seq > stored:
            self._truth.fired["plane forgot"] += 1
        del history.frames[stored:], history.chains[stored:]
        for known in (history.receipts, history.accepted):
            for command_id in [name for name, seq in known.items() if seq > stored]:
                del known[command_id]

    def come_back(self) -> None:
        """Begin again with what was stored."""
        self.is_up = True

    def _note(self, *words: object) -> None:
        self._truth.note(asyncio.get_running_loop().time(), *words)
