"""Group commit, cancellation, bounds and failure of the one owner."""

# ruff: noqa: PT012 - a journal that fails raises out of the block in which it was used

from dataclasses import replace
from functools import partial

import anyio
import pytest
from anyio import CancelScope, create_task_group, fail_after
from anyio.lowlevel import checkpoint

from store.errors import JournalClosed, QueueFull
from store.journal import Journal
from store.records import StoredEvent
from store.settings import JournalSettings
from store.transaction import Transaction
from store.view import View
from tests.store.conftest import FILES, Open
from tests.store.disk import failing_disk
from tests.store.drafts import (
    accepted,
    command_id,
    driver_started,
    recording,
    started,
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
        with fail_after(30):
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


async def test_the_size_of_the_wal_is_the_one_of_now(
    opened: Open, settings: JournalSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the last look at the disk saw, and though nothing is written after the last commit."""
    monkeypatch.setattr("store.writer.ROOM_CACHED_S", 3_600.0)
    async with opened() as journal:
        for _ in range(3):
            await journal.transact(record)
            size = (settings.state_dir / "journal.db-wal").stat().st_size
            assert journal.statistics().wal_bytes == size > 0


async def test_the_wal_is_checkpointed_as_it_grows(opened: Open) -> None:
    """It stays at a few megabytes however much is written, and the file itself grows instead."""
    async with opened() as journal:
        for n in range(150):
            await journal.transact(recording(*[accepted(n * 100 + k) for k in range(30)]))
        statistics = journal.statistics()
        assert statistics.checkpoints >= 2
        assert statistics.wal_bytes < 6_000_000
