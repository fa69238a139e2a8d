"""The outgoing stream of events over one connection: what is sent next, what is in flight, what is left out.

Part of `driver.core`, pure: the sending half of `driver.core.session`. Definitions: docs/protocol.md, 2 and
3.

Theory of operation
-------------------
Three marks move along the journal's `seq`:

* `acked`: everything up to it is durable at the plane;
* `covered`: everything up to it was put on this connection's wire, as an event or inside a `gap`;
* `position`: everything up to it was looked at. It runs ahead of `covered` where the newest events are
  skipped (pruned, erased, parked): the `gap` that says so is sent before the next event, for only a jump
  needs one; or before one of the skipped that is asked for again.

The hot path reads nothing: an event that was just committed, and follows `position`, goes straight out.
Whatever does not follow is read back in pages, never more than the window has room for, so that a backlog
of any length costs the memory of one page. At most one read is under way.

A `busy` nack pauses, and then moves `position` and `covered` back to before the event that was refused.
What is sent again that way is in flight already, and takes no room a second time.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from driver.core.codec import render
from driver.core.frames import Gap
from driver.core.signals import (
    Acknowledge,
    ChainRead,
    CloseLink,
    EventsRead,
    Order,
    Park,
    ReadChain,
    ReadEvents,
    Send,
)
from store.records import Chain, StoredEvent
from store.values import light

WINDOW_MAX: Final = 1_024
"""Events in flight, however wide a window the plane offers: what this end keeps account of."""
FLIGHT_BYTES_MAX: Final = 8_388_608
"""Bytes of events in flight: what a plane that does not read costs in memory here. One event always goes."""
PAGE_EVENTS_MAX: Final = 256
"""Events read at once: some milliseconds of the journal's time."""
PAGE_BYTES_MAX: Final = 1_048_576
"""Bytes read at once: one page is the memory that a backlog costs."""
PARKED_MAX: Final = 4_096
"""Parked events remembered until the journal surely has them; a forgotten one is refused once more."""


@light
@dataclass(frozen=True, slots=True)
class _Flight:
    seq: int
    size: int


@dataclass(slots=True)
class _Held:
    """A page whose next event waits for the chain that its gap must name."""

    events: Sequence[StoredEvent]
    parked: frozenset[int]
    chain_seq: int


class Stream:
    """Made at the `welcome` of one connection, and of no use after it."""

    def __init__(self, *, acked: int, last_seq: int, window: int, frame_bytes_max: int) -> None:
        self.acked = acked
        self.covered = acked
        self.position = acked
        self.last_seq = last_seq
        self._window = min(window, WINDOW_MAX)
        self._frame_bytes_max = frame_bytes_max
        self._chain: Chain | None = None
        """The chain as of `position`, where it is known."""
        self._highest = acked
        """The greatest `covered` of this connection."""
        self._flight: deque[_Flight] = deque()
        self._flight_bytes = 0
        self._parked: dict[int, None] = {}
        self._reading: tuple[int, int] | None = None
        """The read under way: after which `seq`, and what `last_seq` was then."""
        self._held: _Held | None = None
        self._rewind: int | None = None
        """The lowest `seq` that the plane was too busy for; while it is set, nothing is sent."""

    @property
    def in_flight(self) -> int:
        """How many events were sent, and neither acknowledged nor refused."""
        return len(self._flight)

    @property
    def paused(self) -> bool:
        """Whether the plane asked for a pause that is not over."""
        return self._rewind is not None

    def was_sent(self, seq: int) -> bool:
        """Whether this connection has got as far as `seq`."""
        return seq <= self._highest

    def fits(self, body: bytes) -> bool:
        """Whether the plane takes a frame of this size."""
        return len(body) <= self._frame_bytes_max

    # ------------------------------------------------------------ forwards

    def pump(self) -> list[Order]:
        """Read on, where there is something to read, room for it, and no read under way."""
        idle = self._reading is None and self._held is None and not self.paused
        if not idle or self.position >= self.last_seq:
            return []
        room = self._room()
        if room == 0:
            return []
        self._reading = (self.position, self.last_seq)
        return [ReadEvents(after=self.position, limit=min(room, PAGE_EVENTS_MAX), bytes_max=PAGE_BYTES_MAX)]

    def committed(self, events: Sequence[StoredEvent]) -> list[Order]:
        """Send what was just committed, if it follows; else it is read when its turn comes."""
        orders: list[Order] = []
        if events:
            self.last_seq = max(self.last_seq, events[-1].seq)
        if self._reading is None and self._held is None and not self.paused:
            for event in events:
                if event.seq <= self.position:
                    continue
                if event.seq != self.position + 1 or self._lacks_chain(event) or self._room() == 0:
                    break
                orders += self._take(event, frozenset())
        return orders + self.pump()

    def page(self, read: EventsRead) -> list[Order]:
        """Send what was read. A page that no longer fits the position is dropped, and read again."""
        reading, self._reading = self._reading, None
        if reading is None or self.paused or read.after > self.position:
            return self.pump()
        if not read.events:
            # all that was there when it was asked for has been pruned
            self._skip_to(max(self.position, reading[1]), None)
        return self._take_all(read.events, read.parked)

    def chain(self, read: ChainRead) -> list[Order]:
        """Go on with the page that waited for this chain."""
        held = self._held
        if held is None or held.chain_seq != read.seq:
            return []
        self._held = None
        if read.chain is None:
            return [CloseLink(1011, f"the journal has lost its chain at seq {read.seq}")]
        self._skip_to(max(self.position, read.seq), read.chain)
        return self._take_all(held.events, held.parked)

    def _take_all(self, events: Sequence[StoredEvent], parked: frozenset[int]) -> list[Order]:
        orders: list[Order] = []
        for index, event in enumerate(events):
            if event.seq <= self.position:
                continue
            if self._lacks_chain(event):
                self._held = _Held(events[index:], parked, event.seq - 1)
                return [*orders, ReadChain(event.seq - 1)]
            if self._room() == 0:
                break
            orders += self._take(event, parked)
        return orders + self.pump()

    def _lacks_chain(self, event: StoredEvent) -> bool:
        """Whether a gap must be sent before `event`, and the chain that it names is not at hand."""
        if event.seq == self.covered + 1:
            return False
        return event.seq != self.position + 1 or self._chain is None

    def _take(self, event: StoredEvent, parked: frozenset[int]) -> list[Order]:
        """Send one event, with the gap before it; or skip it, for a gap to come."""
        if event.body is None or event.seq in parked or event.seq in self._parked:
            self._skip_to(event.seq, event.chain)
            return []
        if not self.fits(event.body):
            self._skip_to(event.seq, event.chain)
            return [self._park(event.seq, "too_large", self._too_large(len(event.body)))]
        orders: list[Order] = []
        if event.seq > self.covered + 1:
            orders.append(self._gap(event.seq - 1))
        orders.append(Send(event.body))
        if not self._flight or event.seq > self._flight[-1].seq:
            self._flight.append(_Flight(event.seq, len(event.body)))
            self._flight_bytes += len(event.body)
        self._skip_to(event.seq, event.chain)
        self._cover(event.seq)
        return orders

    def _gap(self, to: int) -> Send:
        """Say that everything from `covered` to `to`, which is where `position` stands, is left out."""
        assert self._chain is not None, "the caller asked for the chain first"
        return Send(render(Gap(from_=self.covered + 1, to=to, chain=self._chain)))

    def _cover(self, seq: int) -> None:
        self.covered = seq
        self._highest = max(self._highest, seq)

    def _skip_to(self, seq: int, chain: Chain | None) -> None:
        self.position, self._chain = seq, chain

    def _room(self) -> int:
        """How many more events may be sent: those that are sent again take none."""
        count, size = len(self._flight), self._flight_bytes
        if self.position < self._highest:
            before = [flight.size for flight in self._flight if flight.seq <= self.position]
            count, size = len(before), sum(before)
        if count and size >= FLIGHT_BYTES_MAX:
            return 0
        return max(self._window - count, 0)

    def repeat(self, event: StoredEvent) -> list[Order]:
        """Send an event again that the stream has passed. One that it has not comes in its turn.

        A dead letter at the end of the stream was passed, and nothing behind it has said so yet. It is said
        now: the plane must be able to place what it gets, and to acknowledge it.
        """
        if event.body is None or event.seq > self.position or not self.fits(event.body):
            return []
        orders: list[Order] = []
        if event.seq > self.covered:
            if self.paused or (event.seq > self.covered + 1 and self._chain is None):
                return []
            if event.seq > self.covered + 1:
                orders.append(self._gap(self.position))
            self._cover(event.seq if not orders else self.position)
        return [*orders, Send(event.body)]

    # ------------------------------------------------------------ what the plane says

    def ack(self, seq: int) -> list[Order]:
        """Take the plane's watermark; `seq` was sent, and is above the last one."""
        self.acked = seq
        while self._flight and self._flight[0].seq <= seq:
            self._flight_bytes -= self._flight.popleft().size
        if seq > self.covered:
            # it took, after all, what it had been too busy for
            self.covered = seq
            if seq > self.position:
                self._skip_to(seq, None)
        return [Acknowledge(seq), *self.pump()]

    def refuse(self, seq: int, code: str, message: str) -> list[Order]:
        """Park an event that the plane will not take; one that is not in flight is left as it is."""
        if all(flight.seq != seq for flight in self._flight):
            return []
        self._flight_bytes -= sum(flight.size for flight in self._flight if flight.seq == seq)
        self._flight = deque(flight for flight in self._flight if flight.seq != seq)
        return [self._park(seq, code, message), *self.pump()]

    def pause(self, seq: int) -> bool:
        """Stop before `seq`, which the plane was too busy for. Returns whether this begins a pause."""
        begins = self._rewind is None
        self._rewind = seq if self._rewind is None else min(seq, self._rewind)
        self._held = None
        return begins

    def resume(self) -> list[Order]:
        """Go on behind what the plane has, with the first event that it was too busy for."""
        if self._rewind is None:
            return []
        self.covered = max(self.acked, min(self.covered, self._rewind - 1))
        self._rewind = None
        self._skip_to(self.covered, None)
        return self.pump()

    def _park(self, seq: int, code: str, message: str) -> Park:
        self._parked[seq] = None
        if len(self._parked) > PARKED_MAX:
            del self._parked[next(iter(self._parked))]
        return Park(seq, code, message)

    def _too_large(self, size: int) -> str:
        return (
            f"the event has {size} bytes and the plane takes {self._frame_bytes_max}: "
            "raise the plane's max_frame_bytes, then requeue it"
        )
