"""The plane's acknowledgements on their way into the journal: however many arrive, one waits.

Part of `driver.link`; imports `store`. It is written lazily, with the next commit: losing it costs a resend.
"""

import json
from collections.abc import Sequence
from threading import Lock
from typing import Self

import anyio

from store.errors import JournalClosed, QueueFull
from store.events import DriverUnfenced
from store.journal import Journal
from store.records import JournalId, StoredEvent
from store.transaction import Transaction


class Watermark:
    """Moved in the event loop, written in the journal's thread; the lock is held for some instructions."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = Lock()
        self._mark: tuple[JournalId, int] | None = None
        self._journal_id: JournalId | None = None
        self._reached: int | None = None
        self._moved = anyio.Event()

    @property
    def known(self) -> int | None:
        """How far the plane has acknowledged this history in this process life: maybe not written yet."""
        return self._reached

    def begin(self, journal_id: JournalId) -> None:
        """Count anew, where the daemon now speaks of another history."""
        if journal_id != self._journal_id:
            self._journal_id, self._reached = journal_id, None

    def move(self, journal_id: JournalId, seq: int) -> None:
        """Have `seq` written with the next commit, instead of what still waits.

        A journal that is closing drops it, so that a listener of its last commits may call this; so does one
        with too many lazy writes, and the next call has its `seq` written. Raises `JournalFailed`.
        """
        self._reached = seq
        self._moved.set()
        self._moved = anyio.Event()
        with self._lock:
            waits, self._mark = self._mark is not None, (journal_id, seq)
        if not waits:
            try:
                self._journal.later(self._write)
            except (JournalClosed, QueueFull):
                with self._lock:
                    self._mark = None

    async def reached(self, seq: int) -> None:
        """Return once the plane has acknowledged `seq` in this process life."""
        while self._reached is None or self._reached < seq:
            await self._moved.wait()

    def _write(self, tx: Transaction) -> None:
        with self._lock:
            mark, self._mark = self._mark, None
        # an accepted rollback begins another history, of which the plane has acknowledged nothing
        if mark is not None and mark[0] == tx.journal_id:
            tx.acknowledge(tx.base + mark[1])


class OwnWatermark:
    """Where no plane holds the events, what is committed counts as acknowledged."""

    def __init__(self, journal: Journal, journal_id: JournalId, base: int) -> None:
        self._watermark = Watermark(journal)
        self._journal_id = journal_id
        self._base = base

    @classmethod
    async def of(cls, journal: Journal) -> Self:
        """Return the watermark of the journal's present history."""
        journal_id, base = await journal.read(lambda view: (view.journal_id, view.base))
        return cls(journal, journal_id, base)

    def move(self, events: Sequence[StoredEvent]) -> None:
        """Acknowledge what was committed: a listener of the journal."""
        if events[0].kind == DriverUnfenced.KIND and events[0].body is not None:
            self._follow(events[0].seq, events[0].body)
        self._watermark.move(self._journal_id, events[-1].seq - self._base)

    def _follow(self, seq: int, body: bytes) -> None:
        """An accepted rollback begins another history, with this event."""
        frame = json.loads(body)
        self._journal_id, self._base = JournalId(frame["journal_id"]), seq - frame["seq"]
