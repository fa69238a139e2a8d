"""The owner's work in the connection's thread: one group commit, one batch of reads, checkpoints.

Part of `store`; imports its own modules. Nothing here awaits. Each method is one hop to the thread.

A commit is: look at the files and the room; BEGIN IMMEDIATE; the units in order, each under a savepoint of
its own from its first write on; the head; COMMIT, which with `synchronous=FULL` is one fdatasync of the
`-wal`. A unit that raises is undone by its savepoint and fails its own caller alone. What SQLite reports as
I/O error, full disk or corruption fails everything: after it nothing is written.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from store import files
from store.batches import Batches
from store.connection import PAGE_BYTES
from store.durable import unlink_durably, write_durably
from store.erasure import Debt, debt, erase
from store.errors import JournalFailed
from store.head import Reached
from store.records import StoredEvent
from store.sealing import terms
from store.settings import JournalSettings
from store.statements import OF_A_STATEMENT
from store.transaction import Transaction
from store.view import View
from store.wal import Filling

ROOM_CACHED_S: Final = 1.0
"""How old the last look at the disk's room may be; what was written since is known without one."""
SETTLED_BYTES_MIN: Final = 16_777_216
"""Up to this size of the file what settles old work is recorded, however small `max_bytes` is."""
CHECKPOINT_PAGES: Final = 1_300
"""Pages in the `-wal` after which it is checkpointed, some 5 MB. With SQLite's own 1,000, the three fsyncs of
one are more than a tenth of one for each call that is alone; with twice as many pages, no call is faster."""
ERASING_AT_CLOSE: Final = 64
"""Commits that a close makes to erase what is due, about a second. The next life erases the rest."""


@dataclass(frozen=True, slots=True)
class Done:
    """A unit that returned."""

    value: object


@dataclass(frozen=True, slots=True)
class Raised:
    """A unit that raised, and left nothing behind."""

    error: Exception


Outcome = Done | Raised


@dataclass(frozen=True, slots=True)
class _Units:
    """What the units of one commit did."""

    outcomes: list[Outcome]
    events: list[StoredEvent]
    wrote: bool
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What one group commit did. When it is handed out, it is durable."""

    outcomes: list[Outcome]
    events: list[StoredEvent]
    wrote: bool
    at: datetime
    reached: Reached
    """How far the journal has come with it."""
    debt: Debt
    """What is still to be erased."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The journal's files and its disk, as last looked at."""

    bytes: int
    wal_bytes: int
    free_bytes: int


def is_fatal(error: BaseException) -> bool:
    """Whether an error says that the journal can no longer be relied on."""
    if isinstance(error, JournalFailed):
        return True
    return isinstance(error, sqlite3.Error) and not isinstance(error, OF_A_STATEMENT)


def failure(error: sqlite3.Error, during: str) -> JournalFailed:
    """Return what `error` means for the journal. A commit that failed may be on the disk all the same."""
    name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    return JournalFailed(during, f"{error} ({name})", ambiguous=during in FLUSHING)


FLUSHING: Final = frozenset({"commit", "checkpoint", "close"})
"""What calls fsync: an I/O error there may leave pages that the kernel calls clean, and the disk never
got."""


class Writer:
    """The one user of the connection. Every method runs in the connection's thread."""

    def __init__(
        self,
        ledger: Batches,
        path: Path,
        settings: JournalSettings,
        *,
        clock: Callable[[], datetime],
        boundary: Callable[[str], None],
    ) -> None:
        self.ledger: Final = ledger
        self._path: Final = path
        self._wal: Final = files.wal(path)
        self._settings: Final = settings
        self._clock: Final = clock
        self._boundary: Final = boundary
        self._inodes: Final = (_inode(self._path), _inode(self._wal))
        self._looked_at = -ROOM_CACHED_S
        self._pages, self._pages_as_of = 0, -1
        """Pages, and how many rows had been changed when they were counted."""
        self._free, self._free_as_of = 0, -1
        """Likewise those that hold nothing."""
        self._committed_bytes = self._page_bytes()
        self.sizes = Sizes(0, 0, 0)
        self._unclean: Final = files.unclean_mark(path)
        self._marked = self._unclean.exists()
        self._filling: Final = Filling(self._wal, PAGE_BYTES)
        self._wal_pages = 0
        """Those that are not in the file yet."""
        self.checkpoints = 0
        """Those that copied something, since the start."""
        self._old_pages = 0
        """Those that were copied into the file since the `-wal` was empty."""
        self._put_off = False
        """Whether the checkpoint that is due waits for one more commit."""
        self.holds_erased = ledger.head.key_check is not None
        """Whether the `-wal` may hold old copies of pages whose secrets were erased since."""
        self.held = False
        """Whether the file must stand still: then commits go to the `-wal` alone."""
        self.look()
        self.wal_bytes = self.sizes.wal_bytes
        """How long the `-wal` is now."""

    def commit(self, units: Sequence[Callable[[Transaction], object]]) -> Committed:
        """Run the units in one transaction, and return when it is on the disk. Raises `JournalFailed`."""
        self._check_files()
        self.look()
        during, began = "begin", time.perf_counter()
        try:
            self.ledger.connection.execute("BEGIN IMMEDIATE")
            during = "a statement"
            done = self._run_units(units)
            self.ledger.catch_up()
            erased = erase(self.ledger)
            if done.wrote or erased.anything:
                self.ledger.write_head()
                self._boundary("journal.before_commit")
            if not self.ledger.connection.in_transaction:
                raise JournalFailed(
                    during="a statement", detail="SQLite rolled the transaction back by itself"
                )
            owing = debt(self.ledger)
            during = "commit"
            self.ledger.connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._failed(error, during) from error
        took, pages = time.perf_counter() - began, self._wal_pages
        self.holds_erased |= erased.secret
        self.ledger.rewritten += erased.recorded
        if done.wrote or erased.anything:
            self._after_commit()
        self.ledger.pace.told(took, self._wal_pages - pages)
        if self.ledger.vanishing and not owing.demanded and not self.held:
            self.checkpoint()  # whoever waits for this commit is told that it is gone
        return Committed(
            outcomes=done.outcomes,
            events=done.events,
            wrote=done.wrote or erased.anything,
            at=done.at,
            reached=self.ledger.head.reached,
            debt=owing,
        )

    def _run_units(self, units: Sequence[Callable[[Transaction], object]]) -> "_Units":
        outcomes: list[Outcome] = []
        events: list[StoredEvent] = []
        wrote, now = False, self._clock()
        around = terms(
            now,
            has_room=self._has_room,
            may_settle=self._may_settle,
            frame_bytes_max=self._settings.frame_bytes_max,
        )
        for unit in units:
            transaction = Transaction(self.ledger, around)
            try:
                outcomes.append(Done(unit(transaction)))
            except Exception as error:
                if is_fatal(error):
                    raise
                transaction.undo()
                outcomes.append(Raised(error))
            else:
                wrote |= transaction.keep()
                events.extend(transaction.appended)
        return _Units(outcomes, events, wrote, now)

    def _after_commit(self) -> None:
        # whatever fails from here on, this commit stands in the `-wal` alone: see `give_up`
        self._wal_pages = max(self._wal_pages, 1)
        self._boundary("journal.after_commit")
        self._wal_pages, self.wal_bytes, pages = self._filling.look()
        if pages:
            self._pages, self._pages_as_of = pages, self.ledger.connection.total_changes
        self._committed_bytes = self._page_bytes()
        if not self._marked:
            self._mark_unclean()

    def _mark_unclean(self) -> None:
        """From now on commits stand in the `-wal` alone: a journal without it is not the whole journal."""
        try:
            write_durably(self._unclean, b"")
        except OSError as error:
            raise JournalFailed("marking", f"{self._unclean}: {error.strerror}") from error
        self._marked = True

    def read(self, units: Sequence[Callable[[View], object]]) -> list[Outcome]:
        """Run the units between two commits. Raises `JournalFailed`."""
        self.look()  # while nothing is written, who asks for the room is the only one to look
        outcomes: list[Outcome] = []
        for unit in units:
            view = View(self.ledger, self._clock(), has_room=self._has_room)
            try:
                outcomes.append(Done(unit(view)))
            except Exception as error:
                if isinstance(error, sqlite3.Error) and is_fatal(error):
                    raise self._failed(error, "a read") from error
                outcomes.append(Raised(error))
        return outcomes

    # ------------------------------------------------------------ checkpoints

    def wants_checkpoint(self, *, crowded: bool) -> bool:
        """Whether the `-wal` holds enough pages that a checkpoint is due; `store.pace` may want one earlier.

        Where the last commit has removed something, whoever waited for its end comes first (`crowded`): once.
        """
        pace = self.ledger.pace
        is_due = not self.held and (self._wal_pages >= CHECKPOINT_PAGES or pace.due)
        self._put_off = is_due and crowded and pace.has_removed and not self._put_off
        return is_due and not self._put_off

    def checkpoint(self, *, hurried: bool = False) -> None:
        """Copy the `-wal` into the file, and fsync it; empty the `-wal` where something was erased.

        `hurried`: that costs several fsyncs, and others wait. Then it is emptied only once it was filled, and
        what it holds is as old as it would be without checkpoints that come early. Raises `JournalFailed`,
        also where SQLite did not finish.
        """
        began = time.perf_counter()
        is_old = not hurried or self._old_pages + self._wal_pages >= CHECKPOINT_PAGES
        if self.ledger.vanishing or (self.holds_erased and is_old):
            self._empty_wal()
        else:
            self._copy("PASSIVE")
        self.ledger.pace.copied(time.perf_counter() - began)

    def _copy(self, mode: str) -> None:
        try:
            busy, pages, copied = self.ledger.connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except sqlite3.Error as error:
            raise self._failed(error, "checkpoint") from error
        if busy or pages != copied:
            raise JournalFailed(
                "checkpoint", f"{copied} of {pages} pages were copied, although nobody else reads"
            )
        self.checkpoints += self._wal_pages > 0  # without any, nothing was copied, nor fsynced
        self._old_pages += self._wal_pages
        self._wal_pages = 0

    def finish(self) -> None:
        """Bring everything into the one file, so that no `-wal` is left. Raises `JournalFailed`."""
        for _ in range(ERASING_AT_CLOSE):
            if not debt(self.ledger).due:
                break
            self.commit(())
        self._check_files()
        self._empty_wal()
        self._filling.close()

    def _empty_wal(self) -> None:
        """Bring everything into the file, and cut the `-wal` to nothing.

        The mark goes when the file has everything and the `-wal` still has it too: whatever dies in between,
        no later start takes a complete journal for one that lost its `-wal`.
        """
        self._copy("PASSIVE")
        if self._marked:
            try:
                unlink_durably(self._unclean)
                self._marked = False
            except OSError as error:
                raise JournalFailed("close", f"{self._unclean}: {error.strerror}") from error
        self._copy("TRUNCATE")
        self.wal_bytes = self._old_pages = 0
        self.holds_erased = self.ledger.vanishing = False

    def give_up(self) -> None:
        """Get ready for a close after a failure, which writes nothing: for the mark, where it would be wrong.

        SQLite removes a `-wal` at the close where a checkpoint has copied all of it. The mark must not stay
        behind and call that a loss; where it cannot be removed, or a commit stands in the `-wal` alone, it
        stays.
        """
        self._filling.close()
        if self._marked and not self._wal_pages:
            with suppress(OSError):
                unlink_durably(self._unclean)

    # ------------------------------------------------------------ the files

    def look(self) -> None:
        """Look at the room that is left, at most once in `ROOM_CACHED_S`."""
        now = time.monotonic()
        if now - self._looked_at < ROOM_CACHED_S:
            return
        self._looked_at = now
        try:
            disk = os.statvfs(self._path.parent)
            self.sizes = Sizes(
                self._path.stat().st_size, self._wal.stat().st_size, disk.f_bavail * disk.f_frsize
            )
        except OSError as error:
            raise JournalFailed(during="looking at the disk", detail=str(error)) from error

    def _has_room(self) -> bool:
        """Whether new work fits beside the reserve: by the last look, less what was taken since.

        A new page takes a place in the `-wal`, and one in the file, which a checkpoint gives it later. Of the
        commit under way only the new pages are known.
        """
        sizes, settings, taken = self.sizes, self._settings, self._taken_bytes()
        over = sizes.bytes + sizes.wal_bytes + taken + settings.reserve_bytes - settings.max_bytes
        # pages that pruning has freed are taken before the file grows
        fits = over <= 0 or over <= self._free_bytes()
        return fits and sizes.free_bytes - taken >= settings.reserve_bytes

    def _may_settle(self) -> bool:
        """Whether what settles old work may be recorded, though new work may not: that has a bound, too.

        The file may become larger for it by as much as the reserve, and a small one is never too large. Of
        the disk, half of the reserve is left for the outcomes of what runs.
        """
        settings, left = self._settings, self.sizes.free_bytes - self._taken_bytes()
        used = self._page_bytes() - self._free_bytes()
        bytes_max = max(settings.max_bytes + settings.reserve_bytes, SETTLED_BYTES_MIN)
        return used <= bytes_max and left >= settings.reserve_bytes // 2

    def _taken_bytes(self) -> int:
        """What was taken of the disk since the last look."""
        pages, sizes = self._page_bytes(), self.sizes
        taken = max(0, pages - sizes.bytes) + max(0, self.wal_bytes - sizes.wal_bytes)
        return taken + max(0, pages - self._committed_bytes) + 2 * self.ledger.waiting_bytes

    def _page_bytes(self) -> int:
        """How long the file is to be, by all that was written so far, the open transaction included."""
        connection = self.ledger.connection
        if self._pages_as_of != connection.total_changes:
            (self._pages,) = connection.execute("PRAGMA page_count").fetchone()
            self._pages_as_of = connection.total_changes
        return self._pages * PAGE_BYTES

    def _free_bytes(self) -> int:
        """How much of the file holds nothing. Asked only where it makes a difference."""
        connection = self.ledger.connection
        if self._free_as_of != connection.total_changes:
            (self._free,) = connection.execute("PRAGMA freelist_count").fetchone()
            self._free_as_of = connection.total_changes
        return self._free * PAGE_BYTES

    def _check_files(self) -> None:
        """Look that neither the journal nor its `-wal` was replaced.

        Our commits would go into a file that nobody will ever open again.
        """
        try:
            found = (_inode(self._path), _inode(self._wal))
        except OSError as error:
            raise JournalFailed(during="looking at its files", detail=str(error)) from error
        if found != self._inodes:
            raise JournalFailed(
                during="looking at its files",
                detail=f"{self._path} or its -wal was replaced while effectd had it open",
            )

    def _failed(self, error: sqlite3.Error, during: str) -> JournalFailed:
        if during in FLUSHING and error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_IOERR:
            mark_failed_fsync(self._settings.runtime_dir, self.ledger.head.file_id)
        return failure(error, during)


def _inode(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def mark_failed_fsync(runtime_dir: Path, file_id: str) -> None:
    """Let the next start copy the journal before it relies on it.

    An error of the mark itself changes nothing: the failure that it is about is already being reported.
    """
    try:
        runtime_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.failed_fsync_mark(runtime_dir, file_id).touch(mode=0o600)
    except OSError:
        return
