"""`effectd verify --rebuild`: a journal whose projections are made from its events, in a new generation.

Part of `store`; imports its own modules. Blocks, under the folder's lock. Nothing happens to the old
generation: what it has is copied, the projections are replaced in the copy, within one transaction, and the
copy is looked at as deeply as can be; only then, with the copy on the disk, does `CURRENT` name it. All else
is kept as it is: events, payloads, tombstones, gaps, traces, deliveries, dead letters, triages, observations,
marks, and how far the plane has acknowledged.

Events that are damaged are no ground to build on: then the old generation stays the journal.
"""

import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from store import generation
from store.comparison import everything
from store.errors import JournalFailed, NoJournal, NotMended
from store.findings import Finding, Progress, Report
from store.folder import entered
from store.head import Ledger, read_head, write_head
from store.identity import Identity, read_identity
from store.inspection import inspect
from store.keys import DigestKey
from store.rebuild import PROJECTIONS, Rebuilt, Unprojectable
from store.rest import reading
from store.schema import migrate
from store.settings import JournalSettings
from store.statements import STATEMENTS
from store.verify import folder_key, look_deeply, verify
from store.view import View

_FOLLOWED: Final = 1_024
_GROUND: Final = frozenset(
    {"schema", "integrity", "chain", "projections", "histories", "gaps", "traces", "remains"}
)
"""Checks that must find nothing once the projections were made again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """What a rebuild came to."""

    found: tuple[Finding, ...]
    """What was wrong before."""
    left: tuple[Finding, ...]
    """What is wrong still: no projection."""
    journal: str | None
    """The file that is the journal from now on; None where nothing had to be changed."""


def rebuild_file(settings: JournalSettings, progress: Report, *, now: datetime) -> Mended:
    """Look at a journal that no daemon uses, and make its projections again where something is wrong.

    Returns when it is durable. Raises `NoJournal` where there has never been one, an `OpenRefused` for what
    is no journal of this folder, or is in use, `NoRoomForGeneration`, `ScratchFailed`, or `NotMended` where
    the events do not lead to a sound journal: then nothing was changed.
    """
    with entered(settings) as folder:
        identity = read_identity(folder.path)
        if identity is None or identity.journal is None:
            raise NoJournal(folder.path)
        path = identity.path(folder.path)
        key, lost = folder_key(folder.path, inspect(path, identity, tail=False))
        with reading(path) as connection:
            view = View(Ledger(connection, read_head(connection), key), now, has_room=_no_room)
            found = look_deeply(path, view, progress)
        if not found:
            return Mended(found=lost, left=lost, journal=None)
        mending = _Mending(path, key, progress, now)
        switched = _rotate(folder.path, settings, identity, mending)
        return Mended(found=lost + found, left=lost + mending.left, journal=switched.journal)


def _rotate(folder: Path, settings: JournalSettings, identity: Identity, mending: "_Mending") -> Identity:
    return generation.rotate(folder, settings.runtime_dir, identity, change=mending.mend)


def _no_room() -> bool:
    return False


class _Mending:
    """Replaces the projections of a copy, and looks at it."""

    def __init__(self, path: Path, key: DigestKey | None, progress: Report, now: datetime) -> None:
        self._path: Final = path
        self._key: Final = key
        self._progress: Final = progress
        self._now: Final = now
        self.left: tuple[Finding, ...] = ()

    def mend(self, copy: sqlite3.Connection) -> None:
        """Change the copy. Raises `NotMended`, `ScratchFailed` or sqlite3.Error."""
        migrate(copy)
        with closing(Rebuilt(self._view(copy))) as rebuilt:
            self._follow(copy, rebuilt)
            copy.execute("BEGIN IMMEDIATE")
            _replace(copy, rebuilt.ledger)
            copy.execute("COMMIT")
        if copy.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() != (0, 0, 0):
            raise JournalFailed(during="a rebuild", detail="SQLite could not bring the copy into one file")
        self.left = verify(self._view(copy), self._progress, deep=True)
        if bad := next((finding for finding in self.left if finding.check in _GROUND), None):
            raise NotMended(self._path, bad.subject, bad.problem)

    def _view(self, copy: sqlite3.Connection) -> View:
        return View(Ledger(copy, read_head(copy), self._key), self._now, has_room=_no_room)

    def _follow(self, copy: sqlite3.Connection, rebuilt: Rebuilt) -> None:
        view = self._view(copy)
        try:
            while rebuilt.follow(view, _FOLLOWED):
                self._progress(Progress(check="rebuild", done=rebuilt.after, total=view.last_seq))
        except Unprojectable as error:
            raise NotMended(self._path, f"event {error.seq}", str(error)) from error


def _replace(copy: sqlite3.Connection, made: Ledger) -> None:
    for table in reversed(PROJECTIONS):
        copy.execute(STATEMENTS[f"forget_{table}"])
    for table in PROJECTIONS:
        copy.executemany(STATEMENTS[f"restore_{table}"], made.execute(f"all_{table}", everything(table)))
    write_head(copy, replace(read_head(copy), counts=dict(made.head.counts)))
