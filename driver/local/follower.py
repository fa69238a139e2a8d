"""The journal's events from a cursor on, each once and in order, as they are committed.

Part of `driver.local`; imports anyio, the store and its own siblings.

Theory of operation: a follower is either **behind**, and reads pages of the journal, or **live**, and takes
what the journal's commits announce to it, from memory, without touching the disk. It starts behind. Before
each page it empties its memory, and only then reads: whatever is committed after that read was announced
after the emptying, so page and memory together miss nothing; what they both hold is dropped by its `seq`.
When the memory is full, because the reader is slow, it is thrown away, and the follower is behind again.
"""

from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import anyio

from driver.local.service import Service
from store.records import StoredEvent
from store.view import View


class Follower:
    """A context manager: it listens to the journal's commits while it is open."""

    def __init__(self, service: Service, after: int) -> None:
        self._service = service
        self._limits = service.limits
        self._cursor = after
        self._behind = True
        self._recent: deque[StoredEvent] = deque()
        self._recent_bytes = 0
        self._heard = anyio.Event()

    def __enter__(self) -> Self:
        self._unsubscribe = self._service.sources.journal.subscribe(self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unsubscribe()

    async def next_events(self) -> Sequence[StoredEvent]:
        """Return the events that come next, at least one; waits until there is one.

        Cancelling it loses nothing. Raises the 503 `Problem` where the journal has stopped.
        """
        while True:
            events = await self._page() if self._behind else self._take()
            if events:
                self._cursor = events[-1].seq
                return events
            if not self._behind:
                await self._heard.wait()

    async def _page(self) -> Sequence[StoredEvent]:
        self._forget()
        self._heard = anyio.Event()
        self._behind = False
        try:
            events, last = await self._service.read(self._read_page)
        except BaseException:
            self._behind = True
            raise
        if events and events[-1].seq < last:
            self._behind = True
        return events

    def _read_page(self, view: View) -> tuple[Sequence[StoredEvent], int]:
        limits = self._limits
        return view.events(self._cursor, limits.batch_events_max, limits.batch_bytes_max), view.last_seq

    def _take(self) -> Sequence[StoredEvent]:
        events = [event for event in self._recent if event.seq > self._cursor]
        self._forget()
        self._heard = anyio.Event()
        return events

    def _forget(self) -> None:
        self._recent.clear()
        self._recent_bytes = 0

    def _hear(self, events: Sequence[StoredEvent]) -> None:
        """Called by the journal in the event loop, after each commit."""
        self._recent.extend(events)
        self._recent_bytes += sum(len(event.body or b"") for event in events)
        if (
            len(self._recent) > self._limits.batch_events_max
            or self._recent_bytes > self._limits.batch_bytes_max
        ):
            self._forget()
            self._behind = True
        self._heard.set()
