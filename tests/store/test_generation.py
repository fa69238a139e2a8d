"""After a failed fsync: a new generation of the journal, or none, and never half of one."""

# ruff: noqa: PT012 - a journal that fails raises out of the block in which it was used

import shutil
from pathlib import Path

import pytest
from anyio import to_thread

import store.generation as generation  # noqa: PLR0402 - for pyright, `store` alone would be the folder of these tests
from store.errors import JournalDamaged, JournalFailed, NoRoomForGeneration
from store.settings import JournalSettings
from tests.store.conftest import FILES, Open
from tests.store.disk import FULL, IOERR_FSYNC, SQLITE_OK, Disk, failing_disk
from tests.store.drafts import accepted, driver_started, recording

pytestmark = pytest.mark.anyio


async def fail_one_commit(opened: Open, disk: Disk) -> None:
    """A life that recorded fifty events and died of its fifty-first commit's fsync."""
    with pytest.raises(JournalFailed):
        async with opened() as journal:
            for n in range(50):
                await journal.transact(recording(accepted(n)))
            disk.on_sync = lambda name: IOERR_FSYNC if name.endswith("-wal") else SQLITE_OK
            await journal.transact(recording(driver_started()))
    disk.on_sync = lambda _: SQLITE_OK


def names(folder: Path) -> set[str]:
    """What stands in the state folder."""
    return {item.name for item in folder.iterdir()}


async def test_the_next_start_goes_on_in_a_new_file(opened: Open, settings: JournalSettings) -> None:
    """Everything that was committed is in it, the history is the same, and the mark is gone."""
    with failing_disk() as disk:
        await fail_one_commit(opened, disk)
        assert len(list(settings.runtime_dir.iterdir())) == 1
        async with opened() as journal:
            assert journal.statistics().rotated
            assert journal.statistics().file_name == "journal-2.db"
            count = await journal.read(lambda view: view.last_seq)
            assert count in (50, 51)
            await journal.transact(recording(driver_started()))
        assert list(settings.runtime_dir.iterdir()) == []
        assert (settings.state_dir / "journal-2.db").stat().st_mode & 0o777 == 0o600
        async with opened() as journal:
            assert not journal.statistics().rotated
            assert await journal.read(lambda view: view.last_seq) == count + 1


async def test_the_old_file_is_kept_for_one_life(opened: Open, settings: JournalSettings) -> None:
    """Until the new one has been opened again; then it makes room."""
    with failing_disk() as disk:
        await fail_one_commit(opened, disk)
        async with opened():
            assert {"journal.db", "journal.db-wal", "journal-2.db"} <= names(settings.state_dir)
        async with opened():
            pass
    assert names(settings.state_dir) == {"CURRENT", "digest.key", "lock", "journal-2.db"}


async def test_generations_count_up(opened: Open, settings: JournalSettings) -> None:
    """A second failure leads to a third file."""
    with failing_disk() as disk:
        await fail_one_commit(opened, disk)
        with pytest.raises(JournalFailed):
            async with opened() as journal:
                disk.on_sync = lambda _: IOERR_FSYNC
                await journal.transact(recording(driver_started()))
        disk.on_sync = lambda _: SQLITE_OK
        async with opened() as journal:
            assert journal.statistics().file_name == "journal-3.db"
        async with opened():
            pass
    assert names(settings.state_dir) == {"CURRENT", "digest.key", "lock", "journal-3.db"}


async def test_a_failure_in_a_checkpoint_marks_as_well(opened: Open, settings: JournalSettings) -> None:
    """The fsync of the journal's own file is one that can fail."""
    with failing_disk() as disk:
        with pytest.raises(JournalFailed, match="checkpoint"):
            async with opened() as journal:
                await journal.transact(recording(driver_started()))
                disk.on_sync = lambda name: IOERR_FSYNC if name == "journal.db" else SQLITE_OK
        disk.on_sync = lambda _: SQLITE_OK
        assert len(list(settings.runtime_dir.iterdir())) == 1
        async with opened() as journal:
            assert journal.statistics().rotated
            assert await journal.read(lambda view: view.last_seq) == 1


async def test_another_journals_mark_is_not_ours(opened: Open, settings: JournalSettings) -> None:
    """A runtime folder may be shared: the mark names its journal."""
    async with opened():
        pass
    settings.runtime_dir.mkdir()
    (settings.runtime_dir / f"journal-{'f' * 32}.fsync-failed").touch()
    async with opened() as journal:
        assert not journal.statistics().rotated


async def test_no_room_is_said_before_anything_is_copied(
    opened: Open, settings: JournalSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 71: the daemon must not run, the files are as they were, and room lets it go on."""
    with failing_disk() as disk:
        await fail_one_commit(opened, disk)
        before = names(settings.state_dir)
        monkeypatch.setattr(generation, "SLACK_BYTES", 2**60)
        with pytest.raises(NoRoomForGeneration, match="Make room") as raised:
            async with opened():
                pass
        assert raised.value.exit_code == 71
        assert raised.value.free_bytes < raised.value.needed_bytes
        assert names(settings.state_dir) == before
        monkeypatch.undo()
        async with opened() as journal:
            assert journal.statistics().rotated


@pytest.mark.parametrize(("code", "error"), [(FULL, NoRoomForGeneration), (IOERR_FSYNC, JournalFailed)])
async def test_a_copy_that_fails_leaves_the_old_file_in_place(
    opened: Open, settings: JournalSettings, code: int, error: type[Exception]
) -> None:
    """The half copy is removed, `CURRENT` names the old file, and the mark stands."""

    def hook(name: str) -> int:
        return code if name.startswith("journal-2.db") else SQLITE_OK

    with failing_disk() as disk:
        await fail_one_commit(opened, disk)
        before = names(settings.state_dir)
        disk.on_sync, disk.on_write = (hook, disk.on_write) if code == IOERR_FSYNC else (disk.on_sync, hook)
        with pytest.raises(error):
            async with opened():
                pass
        disk.on_sync = disk.on_write = lambda _: SQLITE_OK
        assert names(settings.state_dir) == before
        assert len(list(settings.runtime_dir.iterdir())) == 1
        async with opened() as journal:
            assert journal.statistics().rotated


async def test_a_crash_between_copy_and_switch_is_no_loss(opened: Open, settings: JournalSettings) -> None:
    """A complete copy that `CURRENT` does not name is a leftover: the next start makes a later generation."""
    with failing_disk() as disk:
        await fail_one_commit(opened, disk)
        copy = settings.state_dir / "journal-2.db"
        await to_thread.run_sync(shutil.copy, settings.state_dir / "journal.db", copy)
        async with opened() as journal:
            assert journal.statistics().file_name == "journal-3.db"
        async with opened():
            pass
    assert names(settings.state_dir) == {"CURRENT", "digest.key", "lock", "journal-3.db"}


async def test_a_copy_that_was_cut_off_is_removed(opened: Open, settings: JournalSettings) -> None:
    """After a power loss in its middle, at the next start: what is erased later must not stand in it."""
    async with opened() as journal:
        await journal.transact(recording(driver_started()))
    for name in ("journal-2.db-unfinished", "journal-2.db", "journal-2.db-journal", "CURRENT.tmp"):
        (settings.state_dir / name).write_bytes(b"half of it")
    async with opened() as journal:
        assert await journal.read(lambda view: view.last_seq) == 1
    assert names(settings.state_dir) == FILES


async def test_a_mark_that_outlived_the_switch_removes_nothing(
    opened: Open, settings: JournalSettings
) -> None:
    """What `CURRENT` names is the journal, whatever a mark says that should have gone."""
    async with opened() as journal:
        await journal.transact(recording(driver_started()))
    (settings.state_dir / "journal.db-unfinished").touch()
    async with opened() as journal:
        assert await journal.read(lambda view: view.last_seq) == 1
    assert names(settings.state_dir) == FILES


async def test_the_name_of_a_generation_goes_last(
    opened: Open, settings: JournalSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A removal that is cut off leaves nothing without the name by which the next start finds it."""
    gone: list[str] = []
    unlink = Path.unlink

    def watched(path: Path, missing_ok: bool = False) -> None:
        gone.append(path.name)
        unlink(path, missing_ok)

    with failing_disk() as disk:
        await fail_one_commit(opened, disk)
        async with opened():
            pass
        monkeypatch.setattr(Path, "unlink", watched)
        async with opened():
            pass
    first = [name for name in gone if name.startswith("journal.db")]
    assert {"journal.db", "journal.db-wal"} <= set(first)
    assert first[-1] == "journal.db"


async def test_a_damaged_journal_is_not_copied(
    opened: Open, settings: JournalSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy must not turn damage into a new beginning."""
    with failing_disk() as disk:
        await fail_one_commit(opened, disk)
        path = settings.state_dir / "journal.db"
        content = bytearray(path.read_bytes())
        content[100:4096] = bytes(3996)  # the first page's content
        path.write_bytes(content)
        (settings.state_dir / "journal.db-wal").rename(settings.state_dir / "elsewhere")
        (settings.state_dir / "journal.db-unclean").unlink()
        with pytest.raises(Exception, match="journal") as raised:
            async with opened():
                pass
        assert not isinstance(raised.value, NoRoomForGeneration)
        assert isinstance(raised.value, JournalDamaged | Exception)
        assert not (settings.state_dir / "journal-2.db").exists()
