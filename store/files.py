"""The names of the files that belong to one journal. Part of `store`, pure; imports nothing of ours.

journal.db                the journal, or journal-2.db and so on after a failed fsync
journal.db-wal            SQLite's write-ahead log: the newest commits; gone after a clean stop
journal.db-shm            only while a file is being looked at; never while it is in use
journal.db-unclean        there while commits may stand in the `-wal` alone
journal-2.db-unfinished   there while a generation is being made, and after that was cut off
"""

import re
from pathlib import Path
from typing import Final

FIRST: Final = "journal.db"
_UNFINISHED: Final = "-unfinished"
_GENERATION: Final = re.compile(r"journal(?:-(?P<number>[1-9][0-9]*))?\.db")


def wal(path: Path) -> Path:
    """Return the journal's `-wal`."""
    return path.with_name(path.name + "-wal")


def shm(path: Path) -> Path:
    """Return the journal's `-shm`."""
    return path.with_name(path.name + "-shm")


def rollback_journal(path: Path) -> Path:
    """Return the file that SQLite makes in its other mode, which effectd never uses."""
    return path.with_name(path.name + "-journal")


def unclean_mark(path: Path) -> Path:
    """Return the file that says: commits of this journal stand in its `-wal` alone."""
    return path.with_name(path.name + "-unclean")


def unfinished_mark(path: Path) -> Path:
    """Return the file that says: this generation is being made, and is not the journal yet."""
    return path.with_name(path.name + _UNFINISHED)


def unfinished(name: str) -> str | None:
    """Return which generation's mark a file of this name is; None where it is none."""
    marked = name.removesuffix(_UNFINISHED)
    return marked if marked != name and generation(marked) is not None else None


def failed_fsync_mark(runtime_dir: Path, file_id: str) -> Path:
    """Return the file that says: an fsync of this journal failed since the machine was booted."""
    return runtime_dir / f"journal-{file_id}.fsync-failed"


def generation(name: str) -> int | None:
    """Return which generation a file of this name is; None where it is no journal's name."""
    match = _GENERATION.fullmatch(name)
    return None if match is None else int(match["number"] or 1)


def generation_name(number: int) -> str:
    """Return the name of the journal's generation `number`."""
    return FIRST if number == 1 else f"journal-{number}.db"
