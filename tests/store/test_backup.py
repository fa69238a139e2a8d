"""A backup: whole, of one file, never over another, and fenced where it becomes a journal."""

import shutil
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from anyio import to_thread

from store.backup import RESTORED, Backup, back_up
from store.errors import (
    BackupDamaged,
    BackupExists,
    BackupNotAlone,
    BackupUnwritable,
    IdentityMissing,
    JournalForeign,
    OpenRefused,
)
from store.journal import Journal, open_journal
from store.marks import SUPERSEDED
from store.records import OperationFilter
from store.settings import JournalSettings
from store.verify import verify_file, verify_journal
from tests.store.conftest import FILES, Clock, Ids, Open
from tests.store.drafts import accepted, driver_started, not_executed, recording, secret, token
from tests.store.filled import fill

pytestmark = pytest.mark.anyio

NOW = datetime(2030, 2, 1, tzinfo=UTC)


def make(source: Path, target: Path) -> Backup:
    """A backup of a journal that stands still."""
    return back_up(source, target, lambda _: None, now=NOW)


def names(folder: Path) -> set[str]:
    """What is in a folder."""
    return {item.name for item in folder.iterdir()}


async def operations(journal: Journal) -> list[str]:
    """What a journal holds."""
    page = await journal.read(lambda view: view.operations(OperationFilter(), None, 500))
    return [record.operation_id for record in page.items]


def restored(settings: JournalSettings, backup: Path) -> JournalSettings:
    """A fresh folder with the backup in it, as docs/operations.md says."""
    folder = settings.state_dir.with_name("restored")
    folder.mkdir(mode=0o700)
    shutil.copy(backup, folder / "journal.db")
    return replace(settings, state_dir=folder)


async def test_a_backup_becomes_a_journal_that_is_fenced(
    settings: JournalSettings, journal_file: Path, tmp_path: Path
) -> None:
    """It holds what the journal held, and acts on nothing; its folder gets all that it needs."""
    target = tmp_path / "backup.db"
    made = await to_thread.run_sync(make, journal_file, target)
    assert (made.file, made.bytes) == (str(target), target.stat().st_size)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert await to_thread.run_sync(names, tmp_path) <= {"backup.db", "state", "run"}
    fresh = restored(settings, target)
    async with open_journal(settings, clock=Clock(), new_id=Ids()) as journal:
        before = await operations(journal)
        chain = await journal.read(lambda view: view.chain)
        journal_id = await journal.read(lambda view: view.journal_id)
    for _ in range(2):  # and again: it is a journal as any other from then on
        async with open_journal(fresh, clock=Clock(), new_id=Ids()) as journal:
            fence = await journal.read(lambda view: view.fence)
            assert fence is not None
            assert fence.reason == RESTORED
            assert "2030-02-01" in fence.detail
            assert await operations(journal) == before
            assert await journal.read(lambda view: (view.chain, view.journal_id)) == (chain, journal_id)
            assert await verify_journal(journal, lambda _: None) == ()
    assert names(fresh.state_dir) == FILES
    look = partial(verify_file, fresh, lambda _: None, now=NOW, deep=True)
    assert await to_thread.run_sync(look) == ()
    key = (settings.state_dir / "digest.key").read_bytes()
    assert (fresh.state_dir / "digest.key").read_bytes() == key
    assert key not in (fresh.state_dir / "journal.db").read_bytes()


async def test_a_live_journal_is_copied_while_it_goes_on(opened: Open, tmp_path: Path) -> None:
    """By a process of its own, while checkpoints wait; what is committed meanwhile is in it, or is not."""
    target = tmp_path / "backup.db"
    async with opened() as journal:
        await fill(journal)
        first = await operations(journal)
        async with journal.held() as path:
            size = path.stat().st_size
            program = [sys.executable, "-m", "store.backup", str(path), str(target)]
            with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as child:  # noqa: ASYNC220
                for n in range(100, 500):
                    await journal.transact(recording(accepted(n), not_executed(n)))
                said, _ = await to_thread.run_sync(child.communicate)
            assert child.returncode == 0, said
            assert path.stat().st_size == size
        await journal.transact(recording(driver_started()))
        last = await operations(journal)
        settings = JournalSettings(state_dir=tmp_path / "state", runtime_dir=tmp_path / "run")
    async with open_journal(restored(settings, target), clock=Clock(), new_id=Ids()) as journal:
        found = await operations(journal)
        assert set(first) <= set(found) <= set(last)
        assert await verify_journal(journal, lambda _: None) == ()


async def test_checkpoints_wait_no_longer_than_the_copy(opened: Open, settings: JournalSettings) -> None:
    """Afterwards the `-wal` is emptied as ever, old copies of secrets included."""
    async with opened() as journal:
        await journal.transact(recording(secret(1), not_executed(1)))
        async with journal.held() as path:
            await journal.transact(lambda tx: tx.acknowledge(tx.last_seq))
            for n in range(2, 400):
                await journal.transact(recording(accepted(n), not_executed(n)))
            assert journal.statistics().checkpoints == 0
        for n in range(400, 402):
            await journal.transact(recording(accepted(n), not_executed(n)))
        assert journal.statistics().checkpoints > 0
    assert token(1) not in path.read_bytes()


async def test_a_folder_that_was_killed_is_backed_up_with_its_wal(
    opened: Open, settings: JournalSettings, tmp_path: Path
) -> None:
    """The newest commits stand in the `-wal` alone, and belong to the backup."""
    killed = settings.state_dir.with_name("killed")
    async with opened() as journal:
        await fill(journal)
        last = await operations(journal)
        await to_thread.run_sync(shutil.copytree, settings.state_dir, killed)
    target = tmp_path / "backup.db"
    await to_thread.run_sync(make, killed / "journal.db", target)
    async with open_journal(restored(settings, target), clock=Clock(), new_id=Ids()) as journal:
        assert await operations(journal) == last


def test_nothing_is_ever_overwritten(journal_file: Path, tmp_path: Path) -> None:
    """Not a file, and not a link, wherever it leads; nothing is left of the attempt."""
    target, link = tmp_path / "backup.db", tmp_path / "link"
    target.write_bytes(b"precious")
    link.symlink_to(tmp_path / "nowhere")
    for name in (target, link):
        with pytest.raises(BackupExists, match="never overwritten"):
            make(journal_file, name)
    assert target.read_bytes() == b"precious"
    with pytest.raises(BackupUnwritable, match="folder does not exist"):
        make(journal_file, tmp_path / "none" / "backup.db")
    assert [item.name for item in tmp_path.iterdir() if item.name.startswith(".")] == []


def test_a_damaged_journal_makes_no_backup(journal_file: Path, tmp_path: Path) -> None:
    """It is looked at whole, and the backups that there are are not replaced by a worse one."""
    with closing(sqlite3.connect(journal_file, isolation_level=None)) as connection:
        connection.execute("UPDATE events SET digest = 'f' WHERE seq = 9")
    with pytest.raises(BackupDamaged, match="event 9"):
        make(journal_file, tmp_path / "backup.db")
    assert not (tmp_path / "backup.db").exists()


@pytest.mark.parametrize("name", ["journal.db-wal", "journal.db-unclean", "journal-2.db", "digest.key"])
async def test_a_backup_beside_what_another_journal_left_is_refused(
    settings: JournalSettings, journal_file: Path, tmp_path: Path, name: str
) -> None:
    """A stale `-wal` above all: nothing is changed, and what to do is said."""
    await to_thread.run_sync(make, journal_file, tmp_path / "backup.db")
    fresh = restored(settings, tmp_path / "backup.db")
    (fresh.state_dir / name).write_bytes(b"left")
    (fresh.state_dir / name).chmod(0o600)
    with pytest.raises(BackupNotAlone, match="empty state folder") as refused:
        async with open_journal(fresh, clock=Clock(), new_id=Ids()):
            pass
    assert refused.value.beside == (name,)
    assert (fresh.state_dir / name).read_bytes() == b"left"


async def test_a_backup_over_the_journal_that_it_was_made_of_is_refused(
    settings: JournalSettings, journal_file: Path, tmp_path: Path
) -> None:
    """It has an identity of its own: no `-wal` of the old file can ever be taken for one of it."""
    await to_thread.run_sync(make, journal_file, tmp_path / "backup.db")
    shutil.copy(tmp_path / "backup.db", journal_file)
    with pytest.raises(JournalForeign):
        async with open_journal(settings, clock=Clock(), new_id=Ids()):
            pass


async def test_a_journal_that_was_merely_copied_is_no_backup(
    settings: JournalSettings, journal_file: Path
) -> None:
    """Negative control: without the mark it is refused, as ever."""
    fresh = restored(settings, journal_file)
    with pytest.raises(IdentityMissing):
        async with open_journal(fresh, clock=Clock(), new_id=Ids()):
            pass


async def test_a_start_that_was_cut_off_is_finished_by_the_next(
    settings: JournalSettings, journal_file: Path, tmp_path: Path
) -> None:
    """The key is written first, and is then the backup's own."""
    await to_thread.run_sync(make, journal_file, tmp_path / "backup.db")
    fresh = restored(settings, tmp_path / "backup.db")
    shutil.copy(settings.state_dir / "digest.key", fresh.state_dir / "digest.key")
    async with open_journal(fresh, clock=Clock(), new_id=Ids()) as journal:
        assert await verify_journal(journal, lambda _: None) == ()


@pytest.mark.parametrize("garble", ["digest_key = zeroblob(32)", "digest_key = 'text'", "made_at = 7"])
async def test_a_garbled_key_is_found(
    settings: JournalSettings, journal_file: Path, tmp_path: Path, garble: str
) -> None:
    """A backup whose own part was damaged is refused, before anything is made of it."""
    await to_thread.run_sync(make, journal_file, tmp_path / "backup.db")
    fresh = restored(settings, tmp_path / "backup.db")
    with closing(sqlite3.connect(fresh.state_dir / "journal.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_schema SET sql = replace(sql, 'STRICT', '') WHERE name = 'restored'"
        )
    with closing(sqlite3.connect(fresh.state_dir / "journal.db", isolation_level=None)) as connection:
        connection.execute(f"UPDATE restored SET {garble}")
    with pytest.raises(OpenRefused, match="does not match its digest"):
        async with open_journal(fresh, clock=Clock(), new_id=Ids()):
            pass
    assert not (fresh.state_dir / "CURRENT").exists()


async def test_a_takeover_is_remembered_beside_the_backups_own_fence(
    opened: Open, settings: JournalSettings, tmp_path: Path
) -> None:
    """Another life has taken over: restoring an old copy does not change that."""
    async with opened() as journal:
        await journal.transact(recording(driver_started()))
        await journal.transact(lambda tx: tx.raise_fence(SUPERSEDED, "by another life"))
    await to_thread.run_sync(make, settings.state_dir / "journal.db", tmp_path / "backup.db")
    async with open_journal(
        restored(settings, tmp_path / "backup.db"), clock=Clock(), new_id=Ids()
    ) as journal:
        fence = await journal.read(lambda view: view.fence)
        assert fence is not None
        assert fence.reason == RESTORED
        assert await journal.read(lambda view: view.mark(SUPERSEDED)) == "by another life"
        assert await verify_journal(journal, lambda _: None) == ()


async def test_a_copy_whose_daemon_is_gone_gives_up(journal_file: Path, tmp_path: Path) -> None:
    """Nobody holds the checkpoints back any more: what it copies may change under its hands."""
    folder = tmp_path / "backups"
    folder.mkdir()
    program = [sys.executable, "-m", "store.backup", str(journal_file), str(folder / "backup.db")]

    def run() -> int:
        with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
            assert child.stdout is not None
            child.stdout.close()
            return child.wait()

    assert await to_thread.run_sync(run) != 0
    assert names(folder) == set()
