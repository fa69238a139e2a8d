"""Copies a journal into one file that can become a journal again.

Part of `store`; imports its own modules. Blocks. As a program (`python -m store.backup`) it copies the
journal of a running daemon: in a process of its own, because closing any descriptor of a file drops the locks
that SQLite holds on it in the same process.

Theory of operation
-------------------
What is copied must not change meanwhile. At rest the folder's lock sees to that. A running daemon holds back
its checkpoints (`Journal.held`): then the file stands still, and its `-wal` only grows. A beginning of a
`-wal` is a state that the journal was in, and SQLite finds where it ends by its checksums.

The copy is then brought into one file, looked at as `effectd verify` does, and marked: it gets an identity of
its own, so that no `-wal` of the old file is ever taken for one of this; a fence (`restored_backup`), so that
nobody acts on it before the plane or an operator agrees; and the key of the state folder, in a table that the
first start removes again. It is on the disk, file and folder, before it gets its name, which must be free.
"""

import json
import os
import signal
import sqlite3
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from uuid import uuid4

from store import files
from store.connection import configure, uri
from store.creation import new_file
from store.durable import sync_folder
from store.errors import BackupDamaged, BackupEmpty, BackupExists, BackupUnwritable, StoreError
from store.findings import Progress, Report
from store.folder import entered
from store.head import Head, Ledger, read_head, row_digest, write_head
from store.identity import read_identity
from store.inspection import inspect
from store.keys import KEY, DigestKey
from store.marks import SUPERSEDED
from store.records import Fence, Timestamp, timestamp
from store.schema import migrate
from store.settings import JournalSettings
from store.statements import STATEMENTS
from store.verify import verify
from store.view import View

RESTORED: Final = "restored_backup"
"""The reason of the fence that a backup comes up with."""
CHUNK_BYTES: Final = 4_194_304
"""Copied at once, between two words about the progress."""
NICENESS: Final = 10
"""A copy beside a running daemon gives way to it."""

_RESTORED_TABLE: Final = """CREATE TABLE restored (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  digest_key BLOB NOT NULL,
  made_at TEXT NOT NULL,
  digest TEXT NOT NULL
) STRICT"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """A backup that is whole, and on the disk."""

    file: str
    bytes: int
    journal_id: str
    last_seq: int
    made_at: Timestamp


def check_target(target: Path) -> None:
    """Raise `BackupExists` or `BackupUnwritable` where no backup can be made at `target`."""
    if target.is_symlink() or target.exists():
        raise BackupExists(target)
    if not target.parent.is_dir():
        raise BackupUnwritable(target, "its folder does not exist")


def back_up(source: Path, target: Path, report: Report, *, now: datetime) -> Backup:
    """Copy the journal `source`, which must stand still, to `target`; return when it is on the disk.

    Raises `BackupExists`, `BackupUnwritable`, or `BackupDamaged` where the journal does not hold what it
    says: then there is no backup.
    """
    check_target(target)
    part = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        with _removed(part):
            _copy(source, part, report)
            made = _finish(part, source.with_name(KEY), target, report, now=now)
            _name(part, target)
        sync_folder(target.parent)
    except OSError as error:
        raise BackupUnwritable(target, error.strerror or str(error)) from error
    except sqlite3.Error as error:
        raise BackupUnwritable(target, str(error)) from error
    return made


def back_up_at_rest(settings: JournalSettings, target: Path, report: Report, *, now: datetime) -> Backup:
    """Copy the journal of a state folder that no daemon uses, under its lock. Otherwise as `back_up`.

    Raises an `OpenRefused`, too, for what is no journal of this folder, or is in use.
    """
    check_target(target)
    with entered(settings) as folder:
        identity = read_identity(folder.path)
        if identity is None or identity.journal is None:
            raise BackupEmpty(folder.path)
        path = identity.path(folder.path)
        inspect(path, identity)
        return back_up(path, target, report, now=now)


@contextmanager
def _removed(part: Path) -> Generator[None]:
    """Remove the unfinished copy at the end, whatever happens."""
    try:
        yield
    finally:
        for item in (part, files.wal(part), files.shm(part), files.rollback_journal(part)):
            item.unlink(missing_ok=True)


def _copy(source: Path, part: Path, report: Report) -> None:
    """Copy file and `-wal`, byte by byte: the file first, for it stands still, and the `-wal` grows."""
    total = source.stat().st_size
    done = _copy_file(source, part, 0, total, report)
    with suppress(FileNotFoundError):
        _copy_file(files.wal(source), files.wal(part), done, None, report)


def _copy_file(source: Path, copy: Path, done: int, total: int | None, report: Report) -> int:
    with source.open("rb") as reading, new_file(copy) as descriptor:
        while chunk := reading.read(CHUNK_BYTES):
            done += _write(descriptor, chunk)
            report(Progress(check="copy", done=done, total=None if total is None else max(total, done)))
    return done


def _write(descriptor: int, chunk: bytes) -> int:
    left = memoryview(chunk)
    while left:
        left = left[os.write(descriptor, left) :]
    return len(chunk)


def _finish(part: Path, key_file: Path, target: Path, report: Report, *, now: datetime) -> Backup:
    """Bring the copy into one file, look at it, mark it as what it is, and bring it to the disk."""
    key = key_file.read_bytes() if key_file.exists() else b""
    made_at = timestamp(now)
    with closing(sqlite3.connect(uri(part, "rw"), uri=True, isolation_level=None)) as connection:
        configure(connection, part)
        migrate(connection)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        head = read_head(connection)
        ledger = Ledger(connection, head, DigestKey(key) if key else None)
        findings = verify(View(ledger, now, has_room=lambda: False), report)
        if findings:
            raise BackupDamaged(target, findings[0].subject, findings[0].problem, len(findings))
        _mark(connection, head, key, made_at)
        if connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() != (0, 0, 0):
            raise BackupUnwritable(target, "SQLite could not bring it into one file")
    with open(os.open(part, os.O_RDONLY | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123 - its flags
        os.fsync(file.fileno())
        size = os.fstat(file.fileno()).st_size
    return Backup(
        file=str(target), bytes=size, journal_id=head.journal_id, last_seq=head.last_seq, made_at=made_at
    )


def _mark(connection: sqlite3.Connection, head: Head, key: bytes, made_at: Timestamp) -> None:
    """Give the copy an identity of its own, the fence of a backup, and the folder's key: in one commit."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(_RESTORED_TABLE)
    connection.execute(
        "INSERT INTO restored (one, digest_key, made_at, digest) VALUES (1, ?, ?, ?)",
        (key, made_at, row_digest(made_at, key.hex())),
    )
    if head.fence is not None and head.fence.reason == SUPERSEDED:
        # another life has taken over: that is true of the backup, too
        row = (SUPERSEDED, head.fence.detail, head.fence.at)
        connection.execute(STATEMENTS["set_mark"], (*row, row_digest(*row)))
    detail = f"this is a backup of {made_at}, as of event {head.last_seq}"
    fence = Fence(reason=RESTORED, detail=detail, at=made_at)
    write_head(connection, replace(head, file_id=uuid4().hex, fence=fence))
    connection.execute("COMMIT")


def _name(part: Path, target: Path) -> None:
    """Give the copy its name, unless somebody was quicker. A link fails where a rename would replace."""
    try:
        os.link(part, target, follow_symlinks=False)
    except FileExistsError:
        raise BackupExists(target) from None
    sync_folder(target.parent)


def main(arguments: list[str]) -> int:
    """Copy `arguments[0]` to `arguments[1]`; say how far it is, and what came of it, in lines of JSON."""
    source, target = Path(arguments[0]), Path(arguments[1])
    os.umask(0o077)
    with suppress(OSError):
        os.nice(NICENESS)
    signal.signal(signal.SIGTERM, _given_up)

    def report(reached: Progress) -> None:
        _say({"type": "progress", **asdict(reached)})

    try:
        made = back_up(source, target, report, now=datetime.now(UTC))
    except StoreError as error:
        _say({"type": "failed", "message": str(error)})
        return 1
    _say({"type": "made", **asdict(made)})
    return 0


def _given_up(number: int, _frame: object) -> None:
    """Let what was written be removed on the way out."""
    raise SystemExit(128 + number)


def _say(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
