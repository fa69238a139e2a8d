"""What a start reads of a disk, and a disk that was kept."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults import specimen
from tests.faults.look import Looker
from tests.faults.platter import Platter
from tests.faults.promises import Promises
from tests.faults.view import FRAME_BYTES, HEADER, Viewer

DB = "state/journal.db"
LOG = f"{DB}-wal"


@pytest.fixture
def disk(tmp_path: Path) -> dict[str, bytes]:
    """A database and its `-wal` of some commits."""
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (x)")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for number in range(4):
            connection.execute("INSERT INTO t VALUES (?)", (number,))
        return {DB: path.read_bytes(), LOG: path.with_name("x.db-wal").read_bytes()}


def view(files: Mapping[str, bytes]) -> bytes:
    """The view of these files."""
    return Viewer().view(Platter(files).build({}))


def flipped(content: bytes, at: int) -> bytes:
    """The same with one bit changed."""
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def test_what_sqlite_does_not_read_is_not_in_the_view(disk: dict[str, bytes]) -> None:
    """A page below one of the `-wal`, a torn frame behind the last commit, and what a `-shm` holds."""
    assert view({**disk, DB: flipped(disk[DB], 4_096 + 4_000)}) == view(disk)
    torn = bytes(FRAME_BYTES)
    assert view({**disk, LOG: disk[LOG] + torn}) == view(disk)
    assert view({**disk, f"{DB}-shm": b"a"}) == view({**disk, f"{DB}-shm": b"b"})


def test_what_sqlite_reads_is_in_the_view(disk: dict[str, bytes]) -> None:
    """A bit in a committed frame, the last commit, a page that no frame holds, and every other file."""
    assert view({**disk, LOG: flipped(disk[LOG], HEADER.size + 30)}) != view(disk)
    assert view({**disk, LOG: disk[LOG][:-FRAME_BYTES]}) != view(disk)
    assert view({**disk, LOG: flipped(disk[LOG], 5)}) != view(disk)
    assert view({**disk, DB: flipped(disk[DB], 20)}) != view(disk)
    assert view({**disk, "state/CURRENT": b"{}"}) != view(disk)


def test_a_frame_of_this_use_behind_the_last_commit_is_seen(disk: dict[str, bytes]) -> None:
    """The look before an opening sees it, too, and may take it for a loss."""
    last = disk[LOG][-FRAME_BYTES:]
    assert view({**disk, LOG: disk[LOG] + last}) != view(disk)


def test_a_disk_that_broke_a_promise_is_opened_again(tmp_path: Path) -> None:
    """From the folder in which it was kept, with what had been told, and as often as it takes."""
    looker = Looker(tmp_path)
    image = Platter({}).build({})
    told = Promises(seq=3, chain="x", gone=frozenset({"canary"}))
    wrong = told.broken(looker.look(image))
    assert wrong == ["I5: event 3 was told, and the journal ends at 0"]
    folder = specimen.keep(image, told, frozenset(), tmp_path)
    assert specimen.replay(folder) == wrong
    assert specimen.replay(folder) == wrong
