"""A journal that fails: everybody hears of it, and nothing more is written."""

# ruff: noqa: PT012 - a journal that fails raises out of the block in which it was used

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio import CancelScope, create_task_group, to_thread
from anyio.abc import TaskStatus
from anyio.lowlevel import checkpoint

import store.files as files  # noqa: PLR0402 - for pyright, `store` alone would be the folder of these tests
from store.errors import JournalFailed
from store.journal import Journal
from store.records import StoredEvent
from store.settings import JournalSettings
from store.transaction import Transaction
from store.view import View
from tests.store.conftest import Clock, Open
from tests.store.disk import FULL, IOERR_FSYNC, IOERR_READ, SQLITE_OK, failing_disk
from tests.store.drafts import (
    accepted,
    operation_id,
    recording,
    started,
    succeeded,
)
from tests.store.test_journal import record

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("code", [IOERR_FSYNC, FULL])
async def test_a_commit_that_fails_stops_everything(
    opened: Open, settings: JournalSettings, code: int
) -> None:
    """Everyone who waits is told, the block is left with `JournalFailed`, and not another byte is written."""
    told: list[JournalFailed] = []
    with failing_disk() as disk, pytest.raises(JournalFailed) as raised:
        async with opened() as journal:
            await journal.transact(record)
            if code == FULL:
                disk.on_write = lambda name: code if name.endswith("-wal") else SQLITE_OK
            else:
                disk.on_sync = lambda name: code if name.endswith("-wal") else SQLITE_OK

            async def wait() -> None:
                try:
                    await journal.transact(record)
                except JournalFailed as error:
                    disk.on_write = disk.on_sync = lambda _: SQLITE_OK
                    told.append(error)

            with CancelScope(shield=True):
                async with create_task_group() as tasks:
                    for _ in range(5):
                        tasks.start_soon(wait)
            with pytest.raises(JournalFailed):
                await journal.transact(record)
            await checkpoint()
    assert len(told) == 5
    assert raised.value.exit_code == 70
    assert raised.value.ambiguous is True
    marks = list(settings.runtime_dir.glob("*.fsync-failed")) if settings.runtime_dir.exists() else []
    assert len(marks) == (1 if code == IOERR_FSYNC else 0)
    # the close after a failure neither checkpoints nor removes what the next start must read
    assert (settings.state_dir / "journal.db-wal").stat().st_size > 0


async def test_after_a_failure_the_restart_reads_what_is_true(opened: Open) -> None:
    """A commit whose fsync failed may be there: the journal opens and is whole either way."""
    with failing_disk() as disk:
        with pytest.raises(JournalFailed):
            async with opened() as journal:
                await journal.transact(record)
                disk.on_sync = lambda _: IOERR_FSYNC
                await journal.transact(record)
        disk.on_sync = lambda _: SQLITE_OK
        async with opened() as journal:
            assert await journal.read(lambda view: view.last_seq) in (1, 2)
            assert journal.statistics().rotated
            await journal.transact(record)


async def test_a_read_that_fails_stops_everything(opened: Open) -> None:
    """An I/O error in a read is the disk's: it ends the journal, and marks no failed fsync."""

    def ask(n: int, view: View) -> None:
        view.operation(operation_id(n))

    with failing_disk() as disk, pytest.raises(JournalFailed, match="IOERR"):
        async with opened() as journal:
            for n in range(40):
                await journal.transact(recording(*[accepted(n * 50 + k) for k in range(50)]))
            disk.on_read = lambda _: IOERR_READ
            for n in range(2_000):
                await journal.read(partial(ask, n))


async def test_a_failure_right_after_a_checkpoint_leaves_a_journal_that_opens(
    opened: Open, settings: JournalSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite then removes the `-wal` at the close: the next start must not call that a loss."""

    def fail(_: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken, pytest.raises(JournalFailed, match="looking at the disk"):
        async with opened() as journal:
            await journal.transact(record)
            broken.setattr("store.writer.CHECKPOINT_PAGES", 0)
            broken.setattr("store.writer.ROOM_CACHED_S", -1.0)
            await journal.transact(record)
            await journal.read(lambda view: view.last_seq)  # it comes after the checkpoint
            assert files.unclean_mark(settings.state_dir / files.FIRST).exists()
            broken.setattr("store.writer.os.statvfs", fail)
            await journal.transact(record)
    async with opened() as journal:
        assert await journal.read(lambda view: view.last_seq) == 2


async def test_a_commit_after_which_the_wal_cannot_be_read_leaves_the_mark(
    opened: Open, settings: JournalSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands in the `-wal` alone, though all before it was copied: whoever loses the `-wal` is told."""

    def fail(_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken, pytest.raises(JournalFailed, match="Input/output"):
        async with opened() as journal:
            broken.setattr("store.writer.CHECKPOINT_PAGES", 0)
            await journal.transact(record)
            await journal.read(lambda view: view.last_seq)  # it comes after the checkpoint
            broken.setattr("store.wal.Filling.look", fail)
            await journal.transact(record)
    assert files.unclean_mark(settings.state_dir / files.FIRST).exists()
    async with opened() as journal:
        assert await journal.read(lambda view: view.last_seq) == 2


async def test_a_process_without_descriptors_goes_on_committing(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All files of the journal are open: a crowd that takes every other descriptor does not end it."""

    def fail(*_: object, **__: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async with opened() as journal:
        await journal.transact(record)
        with monkeypatch.context() as broken:
            broken.setattr(os, "open", fail)
            await journal.transact(record)
        assert await journal.read(lambda view: view.last_seq) == 2


async def test_a_failure_of_the_owner_itself_is_a_failure_of_the_journal(opened: Open) -> None:
    """A bug in a listener or a boundary cannot leave callers waiting for ever."""

    def listen(_: Sequence[StoredEvent]) -> None:
        raise ZeroDivisionError

    with pytest.raises(JournalFailed, match="ZeroDivisionError") as raised:
        async with opened() as journal:
            journal.subscribe(listen)
            await journal.transact(record)
            await anyio.sleep_forever()
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


async def test_a_replaced_wal_is_noticed_before_the_next_commit(
    opened: Open, settings: JournalSettings
) -> None:
    """Commits must not go into a file that has no name any more."""
    with pytest.raises(JournalFailed, match="replaced"):
        async with opened() as journal:
            await journal.transact(record)
            log = settings.state_dir / "journal.db-wal"
            content = await anyio.Path(log).read_bytes()
            await anyio.Path(log).rename(settings.state_dir / "elsewhere")
            await anyio.Path(log).write_bytes(content)
            await journal.transact(record)


async def test_boundaries_are_named_around_each_commit(opened: Open) -> None:
    """Tests kill the process there: before and after each commit that writes, and at no other."""
    names: list[str] = []
    async with opened(boundary=names.append) as journal:
        await journal.transact(record)
        await journal.transact(lambda tx: tx.last_seq)
    assert names == ["journal.before_commit", "journal.after_commit"]


async def test_statistics_tell_how_the_journal_does(opened: Open, clock: Clock) -> None:
    """They are a frozen picture, and cost no hop to the connection's thread."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), succeeded(1)))
        journal.later(lambda tx: tx.acknowledge(2))
        await journal.transact(record)
        found = journal.statistics()
        assert (found.commits, found.events, found.last_seq, found.acked_seq) == (2, 4, 4, 2)
        assert found.bytes > 0
        assert found.last_commit_at is not None
        assert not found.volatile


async def test_new_work_is_told_when_room_runs_out(opened: Open, settings: JournalSettings) -> None:
    """`room` is false once the journal and its reserve no longer fit, and what runs can still be settled."""
    async with opened(replace(settings, max_bytes=100_000, reserve_bytes=50_000)) as journal:
        assert not await journal.transact(lambda tx: tx.room)
        await journal.transact(record)
    async with opened() as journal:
        assert await journal.transact(lambda tx: tx.room)


def work(tx: Transaction, most: int) -> int:
    """Take new work, up to `most`, as long as there is room; returns how much."""
    taken = 0
    while tx.room and taken < most:
        tx.append(replace(accepted(tx.last_seq), payload=b"x" * 20_000))
        taken += 1
    return taken


def settle(tx: Transaction) -> bool:
    """Record more about old work, if there is room for that; returns whether there was."""
    if not tx.settling_room:
        return False
    tx.append(replace(accepted(tx.last_seq), payload=b"x" * 20_000))
    return True


async def fill_up(journal: Journal, most: int) -> int:
    """Take new work, `most` in each commit, until there is no room; returns how much."""
    taken = 0
    for _ in range(200):
        more = await journal.transact(partial(work, most=most))
        if not more:
            return taken
        taken += more
    pytest.fail("there was always room")


def bytes_in(folder: Path) -> int:
    """What the files of a folder take."""
    return sum(file.stat().st_size for file in folder.iterdir())


@pytest.mark.parametrize("most", [1, 1_000])
async def test_what_was_written_since_the_last_look_takes_room(
    opened: Open, settings: JournalSettings, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """However much comes between two looks, in many commits or in one, new work leaves the reserve."""
    monkeypatch.setattr("store.writer.ROOM_CACHED_S", 3_600.0)
    async with opened(replace(settings, max_bytes=4_000_000, reserve_bytes=1_000_000)) as journal:
        assert await fill_up(journal, most) > 20
        assert not await journal.read(lambda view: view.room)
        assert await to_thread.run_sync(bytes_in, settings.state_dir) <= 3_100_000


async def test_the_disks_room_is_counted_down_between_two_looks(
    opened: Open, settings: JournalSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another limit than the journal's own, and the same arithmetic."""
    few = os.statvfs_result((4_096, 1, 0, 0, 3_000_000, 0, 0, 0, 0, 255))
    monkeypatch.setattr("store.writer.os.statvfs", {settings.state_dir: few}.__getitem__)
    monkeypatch.setattr("store.writer.ROOM_CACHED_S", 3_600.0)
    async with opened(replace(settings, reserve_bytes=1_000_000)) as journal:
        assert await fill_up(journal, 1) > 10


async def test_a_journal_that_only_reads_hears_of_room_that_was_made(
    opened: Open, settings: JournalSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written while new work is refused: whoever asks looks, or it would be refused for ever."""
    monkeypatch.setattr("store.writer.ROOM_CACHED_S", 0.0)
    free = {settings.state_dir: os.statvfs_result((4_096, 1, 0, 0, 0, 0, 0, 0, 0, 255))}
    monkeypatch.setattr("store.writer.os.statvfs", free.__getitem__)
    async with opened(replace(settings, reserve_bytes=1_000_000)) as journal:
        assert not await journal.read(lambda view: view.room)
        free[settings.state_dir] = os.statvfs_result((4_096, 1, 0, 0, 2_000_000, 0, 0, 0, 0, 255))
        assert await journal.read(lambda view: view.room)


async def test_what_settles_goes_on_beyond_the_room_for_new_work_and_not_for_ever(
    opened: Open, settings: JournalSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may use the reserve once more, and then it is too much as well."""
    monkeypatch.setattr("store.writer.SETTLED_BYTES_MIN", 0)
    async with opened(replace(settings, max_bytes=4_000_000, reserve_bytes=1_000_000)) as journal:
        await fill_up(journal, 1)
        assert await journal.transact(lambda tx: tx.settling_room)
        said = 0
        while await journal.transact(settle):
            said += 1
        assert 5 < said < 500


async def test_half_of_what_the_disk_keeps_free_is_for_outcomes(
    opened: Open, settings: JournalSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What settles stops before a disk is full, as new work does earlier."""
    monkeypatch.setattr("store.writer.ROOM_CACHED_S", 0.0)
    for free, may in ((2_000_000, True), (700_000, True), (400_000, False)):
        few = os.statvfs_result((4_096, 1, 0, 0, free, 0, 0, 0, 0, 255))
        monkeypatch.setattr("store.writer.os.statvfs", {settings.state_dir: few}.__getitem__)
        async with opened(replace(settings, reserve_bytes=1_000_000)) as journal:
            await journal.transact(lambda tx: tx.last_seq)
            assert await journal.transact(lambda tx: tx.room) == (free == 2_000_000)
            assert await journal.transact(lambda tx: tx.settling_room) is may


async def test_a_task_may_start_the_journal_and_others_use_it(opened: Open) -> None:
    """The journal lives in whichever task opened it, and serves all of them."""

    async def own(*, task_status: TaskStatus[object]) -> None:
        async with opened() as journal:
            task_status.started(journal)
            await anyio.sleep_forever()

    async with create_task_group() as tasks:
        journal = await tasks.start(own)
        assert (await journal.transact(record)).seq == 1
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("digest", [b"", object()], ids=["its key is taken", "no value of SQLite's"])
async def test_a_row_that_cannot_be_written_is_nobody_elses_error(opened: Open, digest: object) -> None:
    """What waits of one unit fails the commit, and neither the unit that has it written nor none at all."""
    told: list[JournalFailed] = []

    def leave_a_row(tx: Transaction) -> None:
        tx.append(accepted(1))
        for _ in range(2):  # its key can be there once
            tx.writing().write("insert_payload", (1, digest, None, b"", None))

    def have_it_written(tx: Transaction) -> None:
        tx.writing().execute("delete_erasure", (4711,))

    with pytest.raises(JournalFailed):
        async with opened() as journal:

            async def wait(unit: Callable[[Transaction], None]) -> None:
                try:
                    await journal.transact(unit)
                except JournalFailed as error:
                    told.append(error)

            with CancelScope(shield=True):
                async with create_task_group() as tasks:
                    tasks.start_soon(wait, leave_a_row)
                    tasks.start_soon(wait, have_it_written)
    assert len(told) == 2
