"""A look at the journal before it is opened: is it ours, is it whole, is its `-wal` its own.

Part of `store`; imports its own modules. Blocks: runs in a worker thread, and takes a bounded time however
long the journal is. Whatever is wrong is raised as an `OpenRefused`, and both files are left as they were: a
connection that may only read neither recovers nor checkpoints.
"""

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from store import chain, files, schema, wal
from store.connection import BUSY_TIMEOUT_S, PAGE_BYTES, lossless_text, uri
from store.errors import (
    JournalBusy,
    JournalDamaged,
    JournalEmptied,
    JournalFailed,
    JournalForeign,
    JournalMissing,
    JournalNewer,
    JournalTruncated,
    NotAJournal,
    OpenRefused,
    WalDamaged,
    WalForeign,
    WalMissing,
)
from store.folder import check_file
from store.head import Head, HeadDamaged, read_head
from store.identity import Identity
from store.records import Chain, Digest
from store.statements import STATEMENTS

TAIL: Final = 64
"""Newest events whose chain is recomputed at each open; `effectd verify` does all of them."""


def inspect(path: Path, identity: Identity, *, tail: bool = True) -> Head:
    """Return the journal's head, once everything that can be told in a short time is right.

    Without `tail`, tables and newest events are not looked at: `store.verify` looks at all, and goes on.

    Raises one of the `OpenRefused`, or `JournalFailed` where the disk does not answer.
    """
    header = _check_files(path)
    with looking(path) as connection:
        head = _identify_with_wal(connection, path, identity, has_wal=header is not None)
        if header is not None:
            _check_wal(path, header)
        if tail:
            _check_schema(connection, path)
            check_tail(connection, head, path)
        return head


def _check_files(path: Path) -> wal.WalHeader | None:
    """Look at the files from outside. Returns the header of a `-wal` that SQLite will read."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        raise JournalMissing(path) from None
    check_file(path, found)
    if found.st_size == 0:
        raise JournalEmptied(path)
    if files.rollback_journal(path).exists():  # SQLite would write its content into the journal
        raise JournalDamaged(path, "a rollback journal stands beside it, which effectd never makes")
    log, marked = files.wal(path), files.unclean_mark(path).exists()
    try:
        check_file(log, log.lstat())
        if log.stat().st_size == 0:
            raise FileNotFoundError
    except FileNotFoundError:
        if marked:
            raise WalMissing(path) from None
        return None
    header = wal.read_header(log)
    if header is None and marked:
        raise WalDamaged(log, "its header is not one")
    return header  # without a mark nothing was ever promised that stands in the -wal alone


@contextmanager
def looking(path: Path, *, alone: bool = False) -> Generator[sqlite3.Connection]:
    """Open the journal to read only: with its `-wal`, or `alone`.

    Neither file is changed, whatever is in them.

    SQLite's own errors become `OpenRefused` or `JournalFailed`.
    """
    made = [file for file in (files.shm(path), files.wal(path)) if not file.exists()]
    target = uri(path, "ro") + ("&immutable=1" if alone else "")
    try:
        with closing(
            sqlite3.connect(target, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        ) as connection:
            connection.text_factory = lossless_text
            connection.execute("PRAGMA cell_size_check = ON")  # as the journal's own connection does
            yield connection
    except sqlite3.DatabaseError as error:
        raise _refusal(path, error) from error
    except UnicodeDecodeError as error:
        raise JournalDamaged(path, _GARBLED) from error
    finally:
        for file in made:
            file.unlink(missing_ok=True)


_GARBLED: Final = "SQLite names something in it that is no text"
"""Python cannot decode such an error message, and raises for that instead."""


def _refusal(path: Path, error: sqlite3.DatabaseError) -> OpenRefused | JournalFailed:
    match error.sqlite_errorcode & 0xFF:
        case sqlite3.SQLITE_NOTADB:
            return NotAJournal(path, "it is not an SQLite database")
        case sqlite3.SQLITE_CORRUPT:
            return JournalDamaged(path, str(error))
        case sqlite3.SQLITE_BUSY:
            return JournalBusy(path, pid=None, daemon=False)
        case sqlite3.SQLITE_ERROR:
            return NotAJournal(path, f"it has not the journal's tables ({error})")
        case _ if error.sqlite_errorcode in _NO_ROOM_TO_LOOK:
            detail = f"there is no room on the disk for {files.shm(path)}, which a look at {path} needs"
            return JournalFailed("opening", f"{detail} ({error.sqlite_errorname})")
        case _:
            return JournalFailed("opening", f"{path}: {error} ({error.sqlite_errorname})")


_NO_ROOM_TO_LOOK: Final = frozenset({sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP})
"""What SQLite says where the file that it maps to find its way in a `-wal` cannot be made long enough."""


_ABOUT_CONTENT: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})


def _blames_content(error: sqlite3.DatabaseError) -> bool:
    """Whether SQLite read the files and could make nothing of them, rather than failed to read them."""
    return error.sqlite_errorcode & 0xFF in _ABOUT_CONTENT


def _identify(connection: sqlite3.Connection, path: Path, identity: Identity) -> Head:
    try:
        application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_CORRUPT:
            raise JournalTruncated(path, str(error)) from error
        raise
    if application_id != schema.APPLICATION_ID:
        raise NotAJournal(path, f"its application_id is {application_id:#x}, not {schema.APPLICATION_ID:#x}")
    if (version := schema.version(connection)) > schema.VERSION:
        raise JournalNewer(path, found=version, known=schema.VERSION)
    if version < schema.FIRST:
        raise JournalDamaged(
            path, f"the version of its schema is {version}, and the first one is {schema.FIRST}"
        )
    try:
        head = read_head(connection)
    except HeadDamaged as error:
        raise JournalDamaged(path, str(error)) from error
    if head.file_id != identity.file_id:
        raise JournalForeign(path, expected=identity.file_id, found=head.file_id)
    return head


def _identify_with_wal(
    connection: sqlite3.Connection, path: Path, identity: Identity, *, has_wal: bool
) -> Head:
    """Identify the journal; where that fails because of a `-wal` that belongs to something else, say so."""
    try:
        return _identify(connection, path, identity)
    except JournalNewer:
        raise  # a newer program's migration stands in the -wal before it stands in the file
    except (sqlite3.DatabaseError, UnicodeDecodeError, OpenRefused) as refusal:
        if isinstance(refusal, sqlite3.DatabaseError) and not _blames_content(refusal):
            raise  # a full disk or a failing one says nothing about whose -wal it is
        if has_wal and (ours := _identified_alone(path, identity)):
            found = refusal.found if isinstance(refusal, JournalForeign) else "of something else"
            raise WalForeign(path, expected=ours.file_id, found=found) from refusal
        raise


def _identified_alone(path: Path, identity: Identity) -> Head | None:
    """Return the head that stands in the file itself, if that is ours."""
    try:
        with looking(path, alone=True) as connection:
            return _identify(connection, path, identity)
    except (OpenRefused, JournalFailed):
        return None


def _check_wal(path: Path, header: wal.WalHeader) -> None:
    """Raise `WalDamaged` or `JournalTruncated` where something is lost that had been promised.

    A last transaction that is torn was never promised: SQLite leaves it out, and so do we (`store.wal`).
    """
    log = files.wal(path)
    found = wal.read_frames(log, header, wal.valid_frames(files.shm(path)))
    if found.commits_lost:
        raise WalDamaged(log, "a frame in its middle does not match its checksum")
    present = path.stat().st_size // PAGE_BYTES
    if missing := set(range(present + 1, found.page_count + 1)) - found.pages:
        raise JournalTruncated(path, f"{len(missing)} pages are neither in it nor in its -wal")


def _check_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Raise `JournalDamaged` where a table or a view is not the one that each statement relies on.

    Indexes are left to `effectd verify`: without one a statement is slow, and right.
    """
    if schema.version(connection) == schema.VERSION and (wrong := schema.missing(connection)):
        raise JournalDamaged(path, f"its schema lacks {', '.join(wrong)}, or has another one of that name")


def check_tail(connection: sqlite3.Connection, head: Head, path: Path) -> None:
    """Raise `JournalDamaged` unless the newest events follow each other, and lead to the head."""
    newest = connection.execute(STATEMENTS["last_seq"]).fetchone()[0] or 0
    if newest != head.last_seq:
        raise JournalDamaged(path, f"its newest event is {newest}, and should be {head.last_seq}")
    after = max(head.base, head.last_seq - TAIL)
    link = chain.origin(head.journal_id) if after == head.base else None
    expected = after
    for seq, digest, value, body in connection.execute(STATEMENTS["links_after"], (after, TAIL)):
        expected += 1
        if seq != expected:
            link = _link_after_gap(connection, expected, seq)
            if link is None:
                raise JournalDamaged(path, f"event {expected} is missing")
            expected = seq
        if problem := broken_link(link, digest=digest, value=value, body=body):
            raise JournalDamaged(path, f"event {seq}: {problem}")
        link = value
    if link is not None and link != head.chain:
        raise JournalDamaged(path, "the hash chain does not lead to its end")


_GAPS_SINCE: Final = 4
"""Versions of the schema before this pruned nothing, and have no such table."""


def _link_after_gap(connection: sqlite3.Connection, expected: int, seq: int) -> Chain | None:
    """Return the chain before event `seq`, where all from `expected` on were pruned; else None."""
    if schema.version(connection) < _GAPS_SINCE:
        return None
    gap = connection.execute(STATEMENTS["gap_before"], (seq - 1,)).fetchone()
    return Chain(gap[2]) if gap is not None and gap[0] <= expected else None


def broken_link(before: Chain | None, *, digest: str, value: str, body: object) -> str | None:
    """Return what is wrong with an event's place in the chain, or None.

    `before` is None where it is not known, and `body` where it was erased; unless damaged, it is bytes.
    """
    if body is not None:
        if not isinstance(body, bytes):
            return "its content is not bytes"
        try:
            inner, sealed = chain.unseal(body)
        except ValueError as error:
            return str(error)
        if chain.digest(inner) != digest or sealed != value:
            return "its content does not match its digest"
    if before is not None and chain.extend(before, Digest(digest)) != value:
        return "it does not follow from the event before it"
    return None
