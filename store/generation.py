"""A new generation of the journal: what replaces a file whose fsync has failed.

Part of `store`; imports its own modules. Blocks: runs in a worker thread.

After a failed fsync the kernel calls the pages clean that the disk never got, and a later fsync succeeds
without writing them. Until a reboot the journal still reads right, from memory; so the mark of the failure
stands in the runtime folder, which a reboot clears. While it stands, the journal is not used again: it is
copied, as it reads, into a new file, which is checked and brought to the disk under a name of its own; then
`CURRENT` is switched. The old generation is kept until the next start after that.

A copy that is cut off must not stay: what is erased later would stand in it for ever. So a mark says, durably
and before there is a copy, that it is being made; the next start removes all of it, unless `CURRENT` names
it.
"""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from store import files
from store.connection import uri
from store.creation import new_file
from store.durable import sync_folder, unwritten
from store.errors import JournalDamaged, JournalFailed, NoRoomForGeneration
from store.identity import CURRENT, Identity, write_identity
from store.inspection import looking

SLACK_BYTES: Final = 1_048_576
"""What a copy needs beyond the size of what is copied."""


def is_due(runtime_dir: Path, identity: Identity) -> bool:
    """Whether an fsync of this journal has failed since the last boot."""
    return files.failed_fsync_mark(runtime_dir, identity.file_id).exists()


Change = Callable[[sqlite3.Connection], None]


def rotate(folder: Path, runtime_dir: Path, identity: Identity, change: Change = lambda _: None) -> Identity:
    """Copy the journal into its next generation, and return its identity, durable.

    `change` gets the copy's connection, may change what is in it, and leaves no `-wal` behind. Raises what it
    raises, `NoRoomForGeneration`, `JournalDamaged` or `JournalFailed`; the old generation then stays the
    journal.
    """
    old = identity.path(folder)
    number = max(files.generation(item.name) or 0 for item in folder.iterdir()) + 1
    new = folder / files.generation_name(number)
    _check_room(old)
    mark = files.unfinished_mark(new)
    try:
        mark.touch(mode=0o600)
        sync_folder(folder)
        with new_file(new) as descriptor:
            _copy(old, new, change)
            os.fsync(descriptor)
        sync_folder(folder)
    except BaseException:
        _remove(new)
        mark.unlink(missing_ok=True)
        raise
    switched = Identity(file_id=identity.file_id, journal=new.name)
    write_identity(folder, switched)
    files.failed_fsync_mark(runtime_dir, identity.file_id).unlink(missing_ok=True)
    mark.unlink(missing_ok=True)
    return switched


def _check_room(old: Path) -> None:
    log = files.wal(old)
    needed = old.stat().st_size + (log.stat().st_size if log.exists() else 0) + SLACK_BYTES
    disk = os.statvfs(old.parent)
    if (free := disk.f_bavail * disk.f_frsize) < needed:
        raise NoRoomForGeneration(old, needed_bytes=needed, free_bytes=free)


def _copy(old: Path, new: Path, change: Change) -> None:
    try:
        with (
            looking(old) as source,
            closing(sqlite3.connect(uri(new, "rw"), uri=True, isolation_level=None)) as target,
        ):
            source.backup(target)
            change(target)
            answer = target.execute("PRAGMA integrity_check(1)").fetchone()[0]
    except (JournalDamaged, JournalFailed) as error:
        if (
            isinstance(error.__cause__, sqlite3.Error)
            and error.__cause__.sqlite_errorcode == sqlite3.SQLITE_FULL
        ):
            raise NoRoomForGeneration(old, needed_bytes=old.stat().st_size, free_bytes=0) from error
        raise
    if answer != "ok":
        raise JournalDamaged(old, f"its copy is not whole ({answer})")


def remove_unfinished(folder: Path, identity: Identity) -> None:
    """Remove what a switch to another generation left that was cut off, and its mark. Raises OSError."""
    present = identity.path(folder)
    unwritten(folder / CURRENT).unlink(missing_ok=True)
    for item in sorted(folder.iterdir()):
        name = files.unfinished(item.name)
        if name is None:
            continue
        if name != present.name:
            _remove(folder / name)
            sync_folder(folder)  # before the mark goes
        item.unlink()


def remove_older(folder: Path, identity: Identity) -> None:
    """Remove the generations before the one in use: it was opened again since, and so it is on the disk."""
    present = files.generation(identity.path(folder).name) or 1
    for item in sorted(folder.iterdir()):
        number = files.generation(item.name)
        if number is not None and number < present:
            _remove(item)


def _remove(path: Path) -> None:
    """Remove a generation: its own name last, by which a start finds what is still to be removed."""
    for item in (
        files.wal(path),
        files.shm(path),
        files.unclean_mark(path),
        files.rollback_journal(path),
        path,
    ):
        item.unlink(missing_ok=True)
