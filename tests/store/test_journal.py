"""Group commit, cancellation, bounds and failure of the one owner."""

# ruff: noqa: PT012 - a journal that fails raises out of the block in which it was used

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio import CancelScope, create_task_group, fail_after, to_thread
from anyio.abc import TaskStatus
from anyio.lowlevel import checkpoint

from store.errors import JournalClosed, JournalFailed, QueueFull
from store.journal import Journal
from store.records import StoredEvent
from store.settings import JournalSettings
from store.transaction import Transaction
from store.view import View
from tests.store.conftest import FILES, Clock, Open
from tests.store.disk import FULL, IOERR_FSYNC, IOERR_READ, SQLITE_OK, failing_disk
from tests.store.drafts import (
    accepted,
    command_id,
    driver_started,
    operation_id,
    recording,
    started,
    succeeded,
)

pytestmark = pytest.mark.anyio


def record(tx: Transaction) -> StoredEvent:
    """Record one event."""
    return tx.append(driver_started())


async def test_what_was_committed_is_there_after_a_reopen(opened: Open) -> None:
    """A transaction that returned survives the end of the process's life, whole."""
    async with opened() as journal:
        first = await journal.transact(recording(accepted(1), started(1)))
    async with opened() as journal:
        assert await journal.read(lambda view: view.events(0, 10, 10_000)) == first


async def test_callers_that_wait_share_one_commit_and_one_flush(opened: Open) -> None:
    """Sixty-four callers cost one fdatasync of the -wal, and one commit; alone, each costs its own."""
    with failing_disk() as disk:
        async with opened() as journal:
            await journal.transact(record)
            disk.syncs.clear()
            async with create_task_group() as tasks:
                for _ in range(64):
                    tasks.start_soon(journal.transact, record)
            assert disk.syncs == ["journal.db-wal"]
            assert journal.statistics().commits == 2
            for _ in range(3):
                await journal.transact(record)
            assert disk.syncs == ["journal.db-wal"] * 4


async def test_what_arrives_during_a_commit_goes_into_the_next_one(opened: Open) -> None:
    """While one commit is in flight, callers gather for exactly one more."""
    async with opened() as journal:
        counts: list[int] = []
        journal.subscribe(lambda events: counts.append(len(events)))
        async with create_task_group() as tasks:
            tasks.start_soon(journal.transact, record)
            await checkpoint()
            await checkpoint()
            for _ in range(10):
                tasks.start_soon(journal.transact, record)
        assert sum(counts) == 11
        assert len(counts) <= 3


async def test_a_unit_that_raises_before_it_writes_fails_its_caller_alone(opened: Open) -> None:
    """Its neighbours in the same group commit are committed."""

    def refuse(_: Transaction) -> None:
        raise LookupError("no such thing")

    async with opened() as journal:
        async with create_task_group() as tasks:
            tasks.start_soon(journal.transact, record)
            with pytest.raises(LookupError):
                await journal.transact(refuse)
            await journal.transact(record)
        assert await journal.read(lambda view: view.last_seq) == 2


async def test_a_unit_that_raises_after_it_wrote_leaves_nothing_behind(opened: Open) -> None:
    """Its savepoint takes back rows, seq, counts and place in the chain; its neighbours stay."""

    def half(tx: Transaction) -> None:
        tx.append(accepted(2))
        tx.raise_fence("rollback", "")
        raise LookupError("changed my mind")

    async with opened() as journal:

        async def give_up() -> None:
            with pytest.raises(LookupError):
                await journal.transact(half)

        async with create_task_group() as tasks:
            tasks.start_soon(journal.transact, recording(accepted(1)))
            tasks.start_soon(give_up)
            tasks.start_soon(journal.transact, recording(accepted(3)))
        events = await journal.read(lambda view: view.events(0, 10, 10_000))
        assert [event.command_id for event in events] == [command_id(1), command_id(3)]
        assert await journal.read(lambda view: (view.fence, view.command(command_id(2)))) == (None, None)
        assert await journal.read(lambda view: sum(view.counts().values())) == 2


async def test_a_cancelled_caller_only_stops_waiting(opened: Open) -> None:
    """Its unit is committed, whole, and so are its neighbours'."""
    async with opened() as journal:
        with CancelScope() as scope:
            scope.cancel()
            await journal.transact(recording(accepted(1), started(1)))
        assert scope.cancelled_caught
        await journal.transact(recording(accepted(2)))
        assert await journal.read(lambda view: view.last_seq) == 3


async def test_cancelled_callers_never_tear_a_unit(opened: Open) -> None:
    """However callers are cancelled, each operation has both of its events or none."""
    async with opened() as journal:

        async def call(n: int) -> None:
            with anyio.move_on_after(0.0002 * (n % 7)):
                await journal.transact(recording(accepted(n), started(n)))

        async with create_task_group() as tasks:
            for n in range(60):
                tasks.start_soon(call, n)
        events = await journal.read(lambda view: view.events(0, 1_000, 10_000_000))
        assert [event.kind for event in events] == ["command.accepted", "operation.started"] * (
            len(events) // 2
        )
        for first, second in zip(events[::2], events[1::2], strict=True):
            assert first.operation_id == second.operation_id


async def test_reads_see_what_was_committed_before_them(opened: Open) -> None:
    """A read that is asked after a commit returned sees it; what a read raises reaches its caller alone."""

    def wrong(_: View) -> None:
        raise LookupError("no")

    async with opened() as journal:
        await journal.transact(record)
        with pytest.raises(LookupError):
            await journal.read(wrong)
        assert await journal.read(lambda view: view.last_seq) == 1


async def test_a_read_that_nobody_waits_for_is_not_made(opened: Open) -> None:
    """Callers who ask and go away do not hold up the commits behind them."""
    made: list[int] = []

    def make(n: int, _view: View) -> None:
        made.append(n)

    async def ask(journal: Journal, count: int) -> None:
        async with create_task_group() as tasks:
            for n in range(count):
                tasks.start_soon(journal.read, partial(make, n))
            await checkpoint()
            tasks.cancel_scope.cancel()

    async with opened() as journal:
        async with create_task_group() as tasks:
            tasks.start_soon(journal.transact, record)  # the reads wait behind it
            await checkpoint()
            tasks.start_soon(ask, journal, 100)
        assert made == []
        await journal.read(lambda _view: made.append(-1))
        assert made == [-1]


async def test_a_lazy_write_rides_with_the_next_commit(opened: Open) -> None:
    """It costs no flush of its own, and comes before what was asked after it."""
    async with opened() as journal:
        await journal.transact(record)
        journal.later(lambda tx: tx.acknowledge(1))
        assert await journal.read(lambda view: view.acked_seq) == 0
        assert await journal.transact(lambda tx: tx.acked_seq) == 1
        assert journal.statistics().commits == 2


async def test_a_lazy_write_is_committed_at_the_latest_at_the_close(opened: Open) -> None:
    """Nothing that was accepted lazily is dropped by a clean stop."""
    async with opened() as journal:
        await journal.transact(record)
        journal.later(lambda tx: tx.acknowledge(1))
    async with opened() as journal:
        assert await journal.read(lambda view: view.acked_seq) == 1


async def test_many_lazy_writes_are_committed_by_themselves(opened: Open, settings: JournalSettings) -> None:
    """At a quarter of their bound they no longer wait for a commit; at the bound they are refused by name."""
    async with opened(replace(settings, later_max=8)) as journal:
        await journal.transact(record)
        journal.later(lambda tx: tx.acknowledge(0))
        journal.later(lambda tx: tx.acknowledge(1))
        with fail_after(5):
            while await journal.read(lambda view: view.acked_seq) == 0:
                await checkpoint()
        with pytest.raises(QueueFull, match="8 lazy writes"):
            for _ in range(9):
                journal.later(lambda tx: tx.acknowledge(1))


async def test_a_lazy_write_that_raises_is_counted_and_undone(opened: Open) -> None:
    """It neither stops the journal nor harms the commit that it rode with."""
    async with opened() as journal:
        journal.later(lambda tx: tx.acknowledge(7))
        await journal.transact(record)
        assert journal.statistics().lazy_errors == 1


async def test_the_queue_is_bounded_and_callers_wait_for_room(
    opened: Open, settings: JournalSettings
) -> None:
    """Never more than `queue_max` units wait; a caller cancelled while it waits for room wrote nothing."""
    async with opened(replace(settings, queue_max=4, batch_max=2)) as journal:
        seen: list[int] = []

        def look(tx: Transaction) -> None:
            seen.append(journal.statistics().waiting)
            record(tx)

        async with create_task_group() as tasks:
            for _ in range(40):
                tasks.start_soon(journal.transact, look)
            await checkpoint()
            assert journal.statistics().waiting <= 4
            with anyio.move_on_after(0):
                await journal.transact(recording(accepted(9)))
        assert max(seen) <= 4
        assert await journal.read(lambda view: (view.last_seq, view.command(command_id(9)))) == (40, None)


async def test_subscribers_get_each_event_once_and_in_order(opened: Open) -> None:
    """They are called in the loop after the commit, before its callers go on, until they unsubscribe."""
    got: list[int] = []
    async with opened() as journal:
        stop = journal.subscribe(lambda events: got.extend(event.seq for event in events))
        async with create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(journal.transact, record)
        assert got == list(range(1, 21))
        event = await journal.transact(record)
        assert got[-1] == event.seq
        stop()
        await journal.transact(record)
        assert got[-1] == event.seq


async def test_a_closed_journal_says_so(opened: Open) -> None:
    """Nothing is queued behind the close."""
    async with opened() as journal:
        pass
    with pytest.raises(JournalClosed):
        await journal.transact(record)
    with pytest.raises(JournalClosed):
        journal.later(lambda tx: tx.acknowledge(0))


async def test_what_waits_at_the_end_of_the_block_is_committed(opened: Open) -> None:
    """A body that is cancelled leaves, and what its tasks had handed in is durable."""
    with CancelScope() as scope:
        async with opened() as journal, create_task_group() as tasks:
            for n in range(30):
                tasks.start_soon(journal.transact, recording(accepted(n)))
            await checkpoint()
            scope.cancel()
    async with opened() as journal:
        assert await journal.read(lambda view: view.last_seq) == 30


async def test_an_exception_of_the_block_passes_as_it_is(opened: Open) -> None:
    """The journal's own task group does not wrap what its user raises, and the journal is closed cleanly."""
    with pytest.raises(LookupError, match="mine"):
        async with opened() as journal:
            await journal.transact(record)
            raise LookupError("mine")
    async with opened() as journal:
        assert await journal.read(lambda view: view.last_seq) == 1


async def test_a_clean_stop_leaves_one_file(opened: Open, settings: JournalSettings) -> None:
    """No -wal, no -shm and no mark are left beside the journal; while it is open there is no -shm either."""
    async with opened() as journal:
        await journal.transact(record)
        present = {item.name for item in settings.state_dir.iterdir()}
        assert present == FILES | {"journal.db-unclean", "journal.db-wal"}
    assert {item.name for item in settings.state_dir.iterdir()} == FILES


async def test_the_wal_is_checkpointed_as_it_grows(opened: Open) -> None:
    """It stays at a few megabytes however much is written, and the file itself grows instead."""
    async with opened() as journal:
        for n in range(150):
            await journal.transact(recording(*[accepted(n * 100 + k) for k in range(30)]))
        statistics = journal.statistics()
        assert statistics.checkpoints >= 2
        assert statistics.wal_bytes < 6_000_000


# ---------------------------------------------------------------- failure


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
