"""Every wrong journal file has its own answer: a clear refusal, and the file left in place, byte for byte."""

# ruff: noqa: ASYNC240 - a look at a file of a page or two, in a test

import errno
import hashlib
import os
import resource
import shutil
import sqlite3
import struct
import sys
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from anyio import to_thread

from store.connection import PAGE_BYTES
from store.errors import (
    FolderInsecure,
    FolderUnusable,
    IdentityMissing,
    IdentityUnreadable,
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
    StoreError,
    WalDamaged,
    WalForeign,
    WalMissing,
)
from store.files import FIRST, shm, wal
from store.inspection import TAIL
from store.settings import JournalSettings
from store.wal import FRAME, HEADER
from tests.store.conftest import FILES, Open
from tests.store.disk import IOERR_FSYNC, IOERR_READ, SQLITE_OK, failing_disk
from tests.store.drafts import accepted, command_id, driver_started, recording, started, succeeded

pytestmark = pytest.mark.anyio


@pytest.fixture
def state(settings: JournalSettings) -> Path:
    """The state folder."""
    return settings.state_dir


@pytest.fixture
def journal_file(state: Path) -> Path:
    """The journal's file in it."""
    return state / FIRST


async def fill(opened: Open, count: int = 20, *, first: int = 0) -> None:
    """Record whole operations, and close cleanly."""
    async with opened() as journal:
        for n in range(first, first + count):
            await journal.transact(recording(accepted(n), started(n), succeeded(n)))


async def crash(opened: Open, state: Path, count: int = 20) -> None:
    """Record operations and die.

    The folder as it stood while the journal was open replaces what a clean stop makes of it.
    """
    copy = state.with_name("crashed")
    async with opened() as journal:
        for n in range(1_000, 1_000 + count):
            await journal.transact(recording(accepted(n), started(n)))
        await to_thread.run_sync(shutil.copytree, state, copy)
    await to_thread.run_sync(shutil.rmtree, state)
    copy.rename(state)


def contents(folder: Path) -> dict[str, str]:
    """What stands in the folder, by name."""
    return {
        item.name: hashlib.sha256(item.read_bytes()).hexdigest()
        for item in folder.iterdir()
        if item.name not in ("lock", "journal.db-shm")
    }


async def refused(opened: Open, kind: type[OpenRefused], match: str, state: Path) -> OpenRefused:
    """Open, and be refused, twice alike; the folder is as it was."""
    before = contents(state)
    with pytest.raises(OpenRefused, match=match):
        async with opened():
            pass
    with pytest.raises(OpenRefused, match=match) as raised:
        async with opened():
            pass
    assert type(raised.value) is kind
    assert raised.value.exit_code == 2
    assert contents(state) == before
    return raised.value


async def test_an_emptied_file_is_refused(opened: Open, state: Path, journal_file: Path) -> None:
    """SQLite would take it for a new journal."""
    await fill(opened)
    os.truncate(journal_file, 0)
    await refused(opened, JournalEmptied, "something has emptied", state)


async def test_a_missing_file_is_refused(opened: Open, state: Path, journal_file: Path) -> None:
    """A history does not begin again unnoticed where one is known to have been."""
    await fill(opened)
    journal_file.unlink()
    await refused(opened, JournalMissing, "is missing", state)


@pytest.mark.parametrize("size", [4096 * 5, 4096 * 5 + 100, 5000, 100])
async def test_a_truncated_file_is_refused(opened: Open, state: Path, journal_file: Path, size: int) -> None:
    """Cut at a page or within one, or so short that not even its header is whole."""
    await fill(opened, 60)
    os.truncate(journal_file, size)
    before = contents(state)
    with pytest.raises((JournalTruncated, NotAJournal)):
        async with opened():
            pass
    assert contents(state) == before


async def test_another_programs_file_is_refused(opened: Open, state: Path, journal_file: Path) -> None:
    """Text, or a database that effectd did not make, is named as what it is."""
    await fill(opened, 1)
    journal_file.write_bytes(b"dear diary, " * 1_000)
    await refused(opened, NotAJournal, "not an SQLite database", state)
    journal_file.unlink()
    with closing(sqlite3.connect(journal_file)) as other:
        other.execute("CREATE TABLE t (a)")
        other.commit()
    journal_file.chmod(0o600)
    await refused(opened, NotAJournal, "application_id", state)


async def test_another_folders_journal_is_refused(
    opened: Open, settings: JournalSettings, state: Path, journal_file: Path, tmp_path: Path
) -> None:
    """A journal that was copied over this one has another identity than `CURRENT` names."""
    await fill(opened)
    other = replace(settings, state_dir=tmp_path / "other")
    async with opened(other) as journal:
        await journal.transact(recording(accepted(1)))
    await to_thread.run_sync(shutil.copy, other.state_dir / FIRST, journal_file)
    refusal = await refused(opened, JournalForeign, "another machine's or folder's", state)
    assert isinstance(refusal, JournalForeign)
    assert refusal.expected != refusal.found


async def test_a_newer_schema_is_refused(opened: Open, state: Path, journal_file: Path) -> None:
    """Journals are not downgraded."""
    await fill(opened, 1)
    with closing(sqlite3.connect(journal_file)) as other:
        other.execute("PRAGMA user_version = 99")
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    await refused(opened, JournalNewer, "schema is 99", state)


async def test_a_newer_schema_that_stands_in_the_wal_alone_is_refused_as_one(
    opened: Open, state: Path, journal_file: Path
) -> None:
    """A newer program was killed right after its migration: whoever moves this `-wal` away loses commits."""
    await fill(opened, 1)
    await crash(opened, state)
    copy = state.with_name("migrated")
    with closing(sqlite3.connect(journal_file)) as newer:
        newer.execute("PRAGMA wal_autocheckpoint = 0")
        newer.execute("PRAGMA user_version = 99")
        await to_thread.run_sync(shutil.copytree, state, copy)
    await to_thread.run_sync(shutil.rmtree, state)
    copy.rename(state)
    await refused(opened, JournalNewer, "schema is 99", state)


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("PRAGMA user_version = 0", "version of its schema is 0"),
        ("PRAGMA user_version = -7", "version of its schema is -7"),
        ("DROP TABLE deliveries", "lacks deliveries"),
        ("DROP VIEW event_rows", "lacks event_rows"),
        ("ALTER TABLE attempts ADD COLUMN more TEXT", "lacks attempts"),
    ],
)
async def test_a_schema_that_nobody_made_is_refused(
    opened: Open, state: Path, journal_file: Path, sql: str, problem: str
) -> None:
    """Neither migrated once more, nor opened only to fail at the first statement that needs what is gone."""
    await fill(opened, 1)
    with closing(sqlite3.connect(journal_file)) as other:
        other.execute(sql)
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    await refused(opened, JournalDamaged, problem, state)


async def test_what_others_add_beside_the_schema_is_none_of_its_business(
    opened: Open, journal_file: Path
) -> None:
    """`ANALYZE`, or an index of somebody's own, changes no answer."""
    await fill(opened, 1)
    with closing(sqlite3.connect(journal_file)) as other:
        other.execute("CREATE INDEX mine ON events (kind)")
        other.execute("DROP INDEX operations_with_reason")
        other.execute("ANALYZE")
        other.commit()
    async with opened() as journal:
        assert await journal.read(lambda view: view.last_seq) == 3


async def test_a_copy_without_its_wal_is_refused(opened: Open, state: Path, journal_file: Path) -> None:
    """The mark of a life that did not end cleanly says that the newest commits stood in the -wal."""
    await fill(opened)
    await crash(opened, state)
    wal(journal_file).unlink()
    await refused(opened, WalMissing, "without it", state)
    wal(journal_file).touch(mode=0o600)
    await refused(opened, WalMissing, "missing or empty", state)


async def test_a_foreign_wal_is_refused(
    opened: Open, settings: JournalSettings, state: Path, journal_file: Path, tmp_path: Path
) -> None:
    """SQLite would silently put the other journal's pages into this one; neither file is changed."""
    await fill(opened)
    await crash(opened, state)
    other = replace(settings, state_dir=tmp_path / "other")
    async with opened(other) as journal:
        for n in range(3):
            await journal.transact(recording(accepted(n)))
        await to_thread.run_sync(shutil.copy, wal(other.state_dir / FIRST), wal(journal_file))
    await refused(opened, WalForeign, "belongs to another journal", state)


async def test_another_programs_wal_is_refused(
    opened: Open, state: Path, journal_file: Path, tmp_path: Path
) -> None:
    """The same for the -wal of some other database."""
    await fill(opened)
    with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = WAL")
        for _ in range(20):
            other.execute("CREATE TABLE IF NOT EXISTS t (a)")
            other.execute("INSERT INTO t VALUES (randomblob(3000))")
        await to_thread.run_sync(shutil.copy, tmp_path / "x.db-wal", wal(journal_file))
    wal(journal_file).chmod(0o600)
    await refused(opened, WalForeign, "belongs to another journal", state)


async def test_a_wal_that_cannot_be_read_is_not_called_foreign(
    opened: Open, state: Path, journal_file: Path
) -> None:
    """Where there is no room for a `-shm` (here by a limit on new files), the `-wal` is still ours.

    Whoever was told to move it away would lose what stands in it.
    """
    await fill(opened)
    await crash(opened, state)
    shm(journal_file).unlink(missing_ok=True)
    before = contents(state)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_192, limits[1]))
    try:
        with pytest.raises(JournalFailed, match="opening"):
            async with opened():
                pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert contents(state) == before
    async with opened() as journal:
        found = await journal.read(lambda view: view.command(command_id(1_019)))
    assert found is not None


async def test_a_rollback_journal_is_refused(opened: Open, state: Path, journal_file: Path) -> None:
    """SQLite would roll its content back into the journal, whoever put it there."""
    await fill(opened, 1)
    journal_file.with_name("journal.db-journal").write_bytes(bytes(5_000))
    await refused(opened, JournalDamaged, "which effectd never makes", state)


async def test_a_garbage_wal_is_refused_where_commits_stood_in_it(
    opened: Open, state: Path, journal_file: Path
) -> None:
    """SQLite would silently ignore it, and the newest commits with it."""
    await fill(opened)
    await crash(opened, state)
    wal(journal_file).write_bytes(b"\x00" * 50_000)
    await refused(opened, WalDamaged, "its header", state)


async def test_a_garbage_wal_without_a_promise_is_ignored(opened: Open, journal_file: Path) -> None:
    """After a clean stop no promise stands in a -wal: a torn first header is no damage."""
    await fill(opened, 1)
    wal(journal_file).write_bytes(b"\x00" * 50_000)
    wal(journal_file).chmod(0o600)
    async with opened() as journal:
        assert await journal.read(lambda view: view.last_seq) == 3


async def test_a_flipped_bit_in_the_wal_is_refused(opened: Open, state: Path, journal_file: Path) -> None:
    """SQLite would end the log there, and drop every commit behind it without a word."""
    await fill(opened)
    await crash(opened, state)
    log = wal(journal_file)
    content = bytearray(log.read_bytes())
    content[32 + (24 + 4096) * 30 + 1_000] ^= 1
    log.write_bytes(content)
    await refused(opened, WalDamaged, "does not match its checksum", state)


async def test_a_torn_last_transaction_is_no_damage(opened: Open, state: Path, journal_file: Path) -> None:
    """What was being written, and promised to nobody, may be torn: the journal opens without it."""
    await fill(opened)
    await crash(opened, state)
    log = wal(journal_file)
    content = bytearray(log.read_bytes())
    content[-2_000] ^= 1  # in the last frame, which carries the last commit
    log.write_bytes(content)
    async with opened() as journal:
        assert await journal.read(lambda view: view.last_seq) == 20 * 3 + 19 * 2


@pytest.mark.parametrize("whole", [False, True])
async def test_a_header_torn_between_two_sectors_ends_no_transaction(
    opened: Open, state: Path, journal_file: Path, whole: bool
) -> None:
    """Its first half may be left from an earlier use of the `-wal`: only a checksum says whose end it is."""
    large = [accepted(1_000), started(1_000), succeeded(1_000, result="x" * 300_000)]
    copy = state.with_name("crashed")
    async with opened() as journal:
        await journal.transact(recording(accepted(1)))
        await journal.transact(recording(*large))
        await to_thread.run_sync(shutil.copytree, state, copy)
    await to_thread.run_sync(shutil.rmtree, state)
    copy.rename(state)
    log = wal(journal_file)
    content = bytearray(log.read_bytes())
    frames = range(HEADER.size, len(content), FRAME.size + PAGE_BYTES)
    split = next(at for at in frames if at % 512 == 504)
    content[split - 2_000] ^= 1  # a frame of the same transaction did not come
    if whole:
        seal(content, split)
    else:
        struct.pack_into(">I", content, split + 4, 70)
    log.write_bytes(content)
    if whole:
        await refused(opened, WalDamaged, "would be lost", state)
        return
    async with opened() as journal:
        assert await journal.read(lambda view: view.last_seq) == 1


def seal(content: bytearray, at: int) -> None:
    """Let a frame end a transaction, as SQLite does it: its checksum follows from the frame before it."""
    struct.pack_into(">I", content, at + 4, 70)
    first, second = struct.unpack_from(">II", content, at - PAGE_BYTES - 8)
    words = [*struct.unpack_from("<2I", content, at), *struct.unpack_from("<1024I", content, at + FRAME.size)]
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFF_FFFF
        second = (second + odd + first) & 0xFFFF_FFFF
    struct.pack_into(">II", content, at + 16, first, second)


async def test_a_file_cut_short_beside_a_whole_wal_is_refused(
    opened: Open, state: Path, journal_file: Path
) -> None:
    """A page that stands in neither of the two is missing, wherever it is."""
    await fill(opened, 400)
    await crash(opened, state, 3)
    os.truncate(journal_file, journal_file.stat().st_size // 2 // 4096 * 4096)
    with pytest.raises((JournalTruncated, JournalDamaged)):
        async with opened():
            pass


async def test_a_wal_left_by_a_kill_is_recovered(opened: Open, state: Path) -> None:
    """What had been committed is there, in order, and the next clean stop leaves one file."""
    await fill(opened)
    await crash(opened, state)
    async with opened() as journal:
        assert await journal.read(lambda view: view.last_seq) == 20 * 3 + 20 * 2
    assert {item.name for item in state.iterdir()} == FILES


@pytest.fixture
def edited(journal_file: Path) -> Callable[[str], None]:
    """Change rows behind the journal's back."""

    def edit(sql: str) -> None:
        with closing(sqlite3.connect(journal_file)) as other:
            other.executescript(sql)
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    return edit


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("DELETE FROM events WHERE seq = 60", "newest event is 59"),
        ("DELETE FROM events WHERE seq = 58", "event 58 is missing"),
        (
            "UPDATE events SET body = CAST(replace(body, 'issue-7', 'issue-8') AS BLOB) WHERE seq = 57",
            "does not match its digest",
        ),
        ("UPDATE events SET chain = 'b' || substr(chain, 2) || 'b' WHERE seq = 59", "event 59"),
        ("UPDATE events SET digest = 'b' || substr(digest, 2) || 'b' WHERE seq = 59", "event 59"),
        ("UPDATE journal SET last_seq = 59", "does not match its digest"),
        ("UPDATE journal SET acked_seq = 60", "does not match its digest"),
        ("DELETE FROM journal", "is missing"),
    ],
)
async def test_a_damaged_end_is_refused_at_open(
    opened: Open, state: Path, edited: Callable[[str], None], sql: str, problem: str
) -> None:
    """The newest events must lead to the head before anything is dispatched from them."""
    await fill(opened)
    await to_thread.run_sync(edited, sql)
    await refused(opened, JournalDamaged, problem, state)


async def test_opening_looks_at_a_bounded_tail(opened: Open, edited: Callable[[str], None]) -> None:
    """Damage further back costs no start; `effectd verify` finds it."""
    await fill(opened, TAIL)
    await to_thread.run_sync(
        edited, "UPDATE events SET body = CAST(replace(body, 'cmd', 'cmb') AS BLOB) WHERE seq = 3"
    )
    async with opened():
        pass


async def test_a_journal_without_current_is_refused(opened: Open, state: Path) -> None:
    """Nothing says that it is this folder's."""
    await fill(opened, 1)
    (state / "CURRENT").unlink()
    await refused(opened, IdentityMissing, "without the file CURRENT", state)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format":2}', '{"format":1}', '{"format":1,"file_id":"a","journal":"../x.db"}']
)
async def test_a_damaged_current_is_refused(opened: Open, state: Path, text: str) -> None:
    """It is never guessed which file is the journal."""
    await fill(opened, 1)
    (state / "CURRENT").write_text(text)
    await refused(opened, IdentityUnreadable, "does not name a journal", state)


@pytest.mark.parametrize("name", ["CURRENT", "digest.key", "journal.db", "lock"])
async def test_files_that_others_can_read_or_change_are_refused(opened: Open, state: Path, name: str) -> None:
    """Their content may be somebody else's work, or in somebody else's hands."""
    await fill(opened, 1)
    (state / name).chmod(0o644)
    await refused(opened, FolderInsecure, "chmod 600", state)


@pytest.mark.parametrize("name", ["CURRENT", "digest.key", "journal.db"])
async def test_links_are_refused(opened: Open, state: Path, tmp_path: Path, name: str) -> None:
    """A link in the state folder leads to what somebody else chose."""
    await fill(opened, 1)
    (state / name).rename(tmp_path / name)
    (state / name).symlink_to(tmp_path / name)
    with pytest.raises(FolderInsecure, match="not a regular file"):
        async with opened():
            pass


@pytest.fixture
def shell(journal_file: Path) -> Generator[Callable[[], sqlite3.Connection]]:
    """Another program that opens the journal, as an sqlite3 shell would."""
    connections: list[sqlite3.Connection] = []

    def open_() -> sqlite3.Connection:
        connections.append(
            sqlite3.connect(journal_file, isolation_level=None, check_same_thread=False, timeout=0)
        )
        connections[-1].execute("SELECT count(*) FROM sqlite_schema").fetchone()
        return connections[-1]

    yield open_
    for connection in connections:
        connection.close()


async def test_a_journal_that_another_program_has_open_is_refused(
    opened: Open, shell: Callable[[], sqlite3.Connection], state: Path
) -> None:
    """Its connection could checkpoint, or unlink the -wal; and its own files are not touched."""
    await fill(opened, 1)
    await to_thread.run_sync(shell)
    assert (state / "journal.db-shm").exists()
    with pytest.raises(JournalBusy, match="another program"):
        async with opened():
            pass
    assert (state / "journal.db-shm").exists()


async def test_no_other_program_gets_in_while_the_journal_is_open(
    opened: Open, shell: Callable[[], sqlite3.Connection]
) -> None:
    """`sqlite3 journal.db "select 1"` is refused, instead of unlinking the live -wal at its end."""
    async with opened() as journal:
        await journal.transact(recording(driver_started()))
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            await to_thread.run_sync(shell)
        await journal.transact(recording(driver_started()))


@pytest.mark.parametrize("number", [1, 2])
async def test_a_disk_that_fails_while_it_is_opened_is_a_refusal(
    opened: Open, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Whichever call it is: while the files are looked at, or once the connection is there."""
    await fill(opened, 1)
    original, passed = Path.unlink, 0

    def unlink(path: Path, missing_ok: bool = False) -> None:
        nonlocal passed
        passed += path.name.endswith("-shm")
        if path.name.endswith("-shm") and passed == number:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        original(path, missing_ok=missing_ok)

    with monkeypatch.context() as failing:
        failing.setattr(Path, "unlink", unlink)
        with pytest.raises(FolderUnusable, match="Input/output error"):
            async with opened():
                pass
    assert passed == number
    async with opened() as journal:
        assert await journal.read(lambda view: view.last_seq) > 0


async def test_a_start_that_fails_at_any_read_takes_nothing_from_the_next(
    opened: Open, state: Path, journal_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the `-wal` was just begun anew: SQLite then removes it at the close, and leaves the mark."""
    found = state.with_name("found")
    with monkeypatch.context() as often:
        often.setattr("store.writer.CHECKPOINT_PAGES", 0)
        async with opened() as journal:
            await journal.transact(recording(driver_started()))
            await journal.read(lambda view: view.last_seq)  # it comes after the checkpoint
            await to_thread.run_sync(shutil.copytree, state, found)
    log = found / wal(journal_file).name
    log.write_bytes(log.read_bytes()[: HEADER.size])
    with failing_disk() as disk:
        for count in range(1, 200):
            await to_thread.run_sync(shutil.rmtree, state)
            await to_thread.run_sync(shutil.copytree, found, state)
            left = count

            def fail(_: str) -> int:
                nonlocal left
                left -= 1
                return SQLITE_OK if left else IOERR_READ

            disk.on_read = fail
            try:
                async with opened():
                    disk.on_read = lambda _: SQLITE_OK
            except StoreError:
                pass
            disk.on_read = lambda _: SQLITE_OK
            async with opened() as journal:
                assert await journal.read(lambda view: view.last_seq) == 1, count
            if left > 0:
                break
        else:
            pytest.fail("no start ever came to its end")
    assert count > 3


async def test_a_creation_that_was_cut_off_is_made_again(opened: Open, state: Path) -> None:
    """Nothing can have been recorded before `CURRENT` names the file, so a half-made one is no loss."""
    with failing_disk() as disk:
        for count in range(1, 30):
            left = count

            def fail(_: str) -> int:
                nonlocal left
                left -= 1
                return SQLITE_OK if left else IOERR_FSYNC

            disk.on_sync = fail
            try:
                async with opened() as journal:
                    await journal.transact(recording(driver_started()))
            except Exception:  # noqa: BLE001 - each fails somewhere else
                pass
            disk.on_sync = lambda _: SQLITE_OK
            async with opened() as journal:
                assert await journal.read(lambda view: view.last_seq) <= 1
            await to_thread.run_sync(shutil.rmtree, state)
            if left > 0:
                break
        else:
            pytest.fail("the creation of a journal never came to its end")
    assert count > 3


async def test_no_file_of_the_journal_is_opened_but_by_sqlite(opened: Open, state: Path) -> None:
    """Closing any descriptor of it would drop SQLite's locks; Python's audit hook sees every open."""
    await fill(opened, 3)
    await crash(opened, state)
    watch = _Watch()
    with watch:
        await fill(opened, 3, first=100)
    ours = [name for name in watch.seen if Path(name).name in (FIRST, "journal.db-shm")]
    assert ours == [str(state / "journal.db-shm")]  # before the one connection: how far SQLite reads the -wal
    assert any(Path(name).name == "journal.db-wal" for name in watch.seen)  # so the hook works


class _Watch:
    """Every open that Python sees; its audit hooks cannot be removed, but this one falls silent."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._watching = False
        sys.addaudithook(self._hook)

    def __enter__(self) -> None:
        self._watching = True

    def __exit__(self, *_: object) -> None:
        self._watching = False

    def _hook(self, event: str, arguments: tuple[object, ...]) -> None:
        if self._watching and event == "open" and isinstance(arguments[0], str | Path):
            self.seen.append(str(arguments[0]))
