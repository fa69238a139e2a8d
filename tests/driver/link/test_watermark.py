"""Acknowledgements on their way into the journal."""

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from driver.link.watermark import Watermark
from store.errors import QueueFull
from store.events import Draft, DriverStopping
from store.journal import Journal
from store.records import JournalId
from tests.driver.engine.rig import ScriptedProvider, engine

pytestmark = pytest.mark.anyio


async def commit(journal: Journal) -> None:
    """Record one event."""
    await journal.transact(lambda tx: tx.append(Draft(data=DriverStopping(reason=""))))


def fill(journal: Journal) -> None:
    """Let lazy writes wait until no more is taken."""
    while True:
        journal.later(lambda _: None)


async def test_however_many_arrive_the_newest_is_written_once(tmp_path: Path) -> None:
    """Between two commits only one lazy write waits, so that a quiet journal collects nothing."""
    async with engine(tmp_path, ScriptedProvider()) as rig:
        await commit(rig.journal)
        await commit(rig.journal)
        journal_id = await rig.journal.read(lambda view: view.journal_id)
        watermark = Watermark(rig.journal)
        before = rig.journal.statistics().units
        for _ in range(10_000):
            watermark.move(journal_id, 1)
        watermark.move(journal_id, 2)
        await commit(rig.journal)
        assert rig.journal.statistics().acked_seq == 2
        assert rig.journal.statistics().units - before == 2
        watermark.move(journal_id, 1)
        await commit(rig.journal)
        assert rig.journal.statistics().acked_seq == 1


async def test_a_queue_of_lazy_writes_that_is_full_costs_one_mark(tmp_path: Path) -> None:
    """Losing a mark costs a resend; the next one is written again."""
    async with engine(tmp_path, ScriptedProvider()) as rig:
        await commit(rig.journal)
        await commit(rig.journal)
        journal_id = await rig.journal.read(lambda view: view.journal_id)
        watermark = Watermark(rig.journal)
        with pytest.raises(QueueFull):
            fill(rig.journal)
        watermark.move(journal_id, 1)
        await commit(rig.journal)
        watermark.move(journal_id, 2)
        while rig.journal.statistics().acked_seq < 2:
            await commit(rig.journal)


async def test_everybody_who_waits_for_an_acknowledgement_hears_of_it(tmp_path: Path) -> None:
    """Each waits for a place of its own in the stream."""
    async with engine(tmp_path, ScriptedProvider()) as rig:
        await commit(rig.journal)
        journal_id = await rig.journal.read(lambda view: view.journal_id)
        watermark = Watermark(rig.journal)
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watermark.reached, 1)
                tasks.start_soon(watermark.reached, 1)
                await anyio.wait_all_tasks_blocked()
                watermark.move(journal_id, 1)


async def test_a_mark_of_another_history_is_dropped(tmp_path: Path) -> None:
    """After an accepted rollback, what was acknowledged of the old journal says nothing of the new."""
    async with engine(tmp_path, ScriptedProvider()) as rig:
        await commit(rig.journal)
        Watermark(rig.journal).move(JournalId("0" * 32), 1)
        await commit(rig.journal)
        assert rig.journal.statistics().acked_seq == 0


async def test_a_mark_may_follow_the_last_commit_of_a_journal_that_closes(tmp_path: Path) -> None:
    """Stand-alone, commits acknowledge themselves, and the last one while the journal closes: no failure."""
    async with engine(tmp_path, ScriptedProvider()) as rig:
        journal_id = await rig.journal.read(lambda view: view.journal_id)
        watermark = Watermark(rig.journal)
        rig.journal.subscribe(lambda events: watermark.move(journal_id, events[-1].seq))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(commit, rig.journal)
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()


async def test_whoever_waits_for_a_mark_is_told_when_it_is_reached(tmp_path: Path) -> None:
    """A stop waits for the plane to have the last receipts, and no longer."""
    async with engine(tmp_path, ScriptedProvider()) as rig:
        await commit(rig.journal)
        await commit(rig.journal)
        journal_id = await rig.journal.read(lambda view: view.journal_id)
        watermark = Watermark(rig.journal)
        with anyio.move_on_after(0.01) as early:
            await watermark.reached(2)
        assert early.cancelled_caught
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watermark.reached, 2)
            watermark.move(journal_id, 1)
            watermark.move(journal_id, 2)
