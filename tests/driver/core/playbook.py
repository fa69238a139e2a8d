"""Transcripts of a link session (`>> signal << order`), and a journal that is a list."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, Self

from driver.core.codec import render
from driver.core.frames import Hello, Welcome
from driver.core.session import LinkSession
from driver.core.signals import ChainRead, Opened, Order, Received, Send, Signal
from store.chain import digest, extend, origin, seal
from store.events import DriverStopping
from store.records import BootId, Chain, JournalId, Origin, StoredEvent, Timestamp
from store.wire import render as render_event
from tests.driver.core import samples

JOURNAL = JournalId("4f" * 16)
AT = Timestamp("2026-11-29T10:40:19.925541Z")


def an_event(seq: int, previous: Chain, *, size: int = 0) -> StoredEvent:
    """An event as the journal would have sealed it; `size` makes it longer."""
    data = DriverStopping(reason="x" * size)
    body = render_event(
        data,
        journal_id=JOURNAL,
        seq=seq,
        at=AT,
        run_id=None,
        command_id=None,
        operation_id=None,
        origin=Origin.LOCAL,
        terminal=False,
        best_effort=False,
    )
    event_digest = digest(body)
    value = extend(previous, event_digest)
    return StoredEvent(
        seq=seq,
        kind=data.KIND,
        at=AT,
        run_id=None,
        command_id=None,
        operation_id=None,
        terminal=False,
        digest=event_digest,
        chain=value,
        body=seal(body, value),
    )


def history(count: int) -> tuple[StoredEvent, ...]:
    """The first `count` events of a journal."""
    events: list[StoredEvent] = []
    for seq in range(1, count + 1):
        previous = events[-1].chain if events else origin(JOURNAL)
        events.append(an_event(seq, previous))
    return tuple(events)


def erased(event: StoredEvent) -> StoredEvent:
    """The same event, of which only the place in the chain is kept."""
    return replace(event, body=None)


def hello(*, last_seq: int = 0, acked_seq: int = 0, state: Literal["ready", "fenced"] = "ready") -> Hello:
    """What the daemon says first."""
    found = next(frame for frame in samples.FROM_DAEMON if isinstance(frame, Hello))
    return replace(
        found,
        journal_id=JOURNAL,
        boot_id=BootId("9a" * 16),
        last_seq=last_seq,
        acked_seq=acked_seq,
        state=state,
    )


def welcome(
    acked_seq: int = 0, acked_chain: Chain | None = None, *, window: int = 8, limit: int = 65_536
) -> Received:
    """What the plane answers."""
    frame = Welcome(
        session_id="s-1", acked_seq=acked_seq, acked_chain=acked_chain, window=window, max_frame_bytes=limit
    )
    return Received(render(frame))


def says(**members: object) -> Received:
    """Any text frame of the plane."""
    return Received(json.dumps(members))


def sent(event: StoredEvent) -> Send:
    """The order to send exactly this event."""
    assert event.body is not None
    return Send(event.body)


Expected = Order | Callable[[Order], bool]


def error(code: str) -> Callable[[Order], bool]:
    """An `error` frame with this code."""

    def matches(order: Order) -> bool:
        if not isinstance(order, Send):
            return False
        frame = json.loads(order.frame)
        return bool(frame["type"] == "error" and frame["code"] == code)

    return matches


def frame(**members: object) -> Callable[[Order], bool]:
    """A frame with at least these members."""

    def matches(order: Order) -> bool:
        return isinstance(order, Send) and members.items() <= json.loads(order.frame).items()

    return matches


def a(kind: type[Order]) -> Callable[[Order], bool]:
    """Any order of this kind."""
    return lambda order: isinstance(order, kind)


class Playbook:
    """`Playbook() >> signal << order << order >> signal`: every order must be expected, in its place."""

    def __init__(self, *opening: Signal) -> None:
        self.session = LinkSession()
        self.pending: list[Order] = []
        for signal in opening:
            self.session.handle(signal)

    def __rshift__(self, signal: Signal) -> Self:
        assert not self.pending, f"unexpected before {signal}: {self.pending}"
        self.pending = self.session.handle(signal)
        return self

    def __lshift__(self, expected: Expected) -> Self:
        assert self.pending, f"nothing was ordered where {expected} was expected"
        order = self.pending.pop(0)
        assert expected(order) if callable(expected) else order == expected, f"{order} instead of {expected}"
        return self

    def __bool__(self) -> bool:
        assert not self.pending, f"unexpected at the end: {self.pending}"
        return True


def streaming(events: tuple[StoredEvent, ...] = (), *, window: int = 8, limit: int = 65_536) -> Playbook:
    """A session that is welcomed at the end of `events`, all of them acknowledged."""
    count = len(events)
    opened = Opened(hello(last_seq=count, acked_seq=count))
    if not events:
        return Playbook(opened, welcome(window=window, limit=limit))
    return Playbook(
        opened,
        welcome(count, events[-1].chain, window=window, limit=limit),
        ChainRead(count, events[-1].chain),
    )
