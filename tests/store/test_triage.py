"""What the supervisor asks the journal, and the little that it records beside the events."""

import pytest

from store.lifecycle import Effect
from store.records import RunId, Timestamp, TriageRecord
from tests.store.conftest import Open
from tests.store.drafts import (
    accepted,
    failed,
    operation_id,
    reconciled,
    recording,
    started,
    succeeded,
    unknown,
)

pytestmark = pytest.mark.anyio

RUN = RunId("run-1")


async def test_runs_with_unsettled_operations_come_in_pages_oldest_first(opened: Open) -> None:
    """Each run once, whatever number of its operations is unsettled, and none that has nothing."""
    async with opened() as journal:
        for n in range(6):
            end = succeeded(n) if n == 1 else unknown(n)
            await journal.transact(recording(accepted(n, run=f"run-{n % 3}"), started(n), end))
            await journal.transact(recording(accepted(n + 10, run="run-calm"), started(n + 10)))
        first = await journal.read(lambda view: view.unsettled_runs(0, 2))
        assert [(run.run_id, run.unsettled) for run in first.items] == [("run-0", 2), ("run-1", 1)]
        assert first.next is not None
        cursor = first.next
        last = await journal.read(lambda view: view.unsettled_runs(cursor, 2))
        assert [run.run_id for run in last.items] == ["run-2"]
        assert last.next is None


async def test_a_run_without_anything_unsettled_has_no_page(opened: Open) -> None:
    """An empty journal, and one where all is settled, are the same to the supervisor."""
    async with opened() as journal:
        assert (await journal.read(lambda view: view.unsettled_runs(0, 10))).items == ()
        await journal.transact(recording(accepted(1), started(1), succeeded(1)))
        assert (await journal.read(lambda view: view.unsettled_runs(0, 10))).items == ()


async def test_the_unsettled_of_a_run_are_the_oldest_and_its_neighbours_the_newest(opened: Open) -> None:
    """A wall is split oldest first; what stands around it is what happened last."""
    async with opened() as journal:
        for n in range(1, 7):
            end = succeeded(n) if n in (2, 5) else failed(n, unsettled=True)
            await journal.transact(recording(accepted(n), started(n), end))
        await journal.transact(recording(reconciled(3, Effect.NONE, actor="supervisor:rules")))
        unsettled = await journal.read(lambda view: view.unsettled_of_run(RUN, 2))
        assert [record.operation_id for record in unsettled] == [operation_id(1), operation_id(4)]
        settled = await journal.read(lambda view: view.settled_of_run(RUN, 2))
        assert [record.operation_id for record in settled] == [operation_id(5), operation_id(3)]


async def test_an_operation_that_has_not_ended_makes_its_run_open(opened: Open) -> None:
    """Another run's does not, and a further attempt of one that had ended does."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), unknown(1), accepted(2, run="run-2")))
        assert not await journal.read(lambda view: view.has_open_operations(RUN))
        await journal.transact(recording(started(1, attempt=2)))
        assert await journal.read(lambda view: view.has_open_operations(RUN))


async def test_a_triage_is_kept_until_its_end_over_a_restart(opened: Open) -> None:
    """How often a model was asked is the one thing that a crash loop must not forget."""
    waits = TriageRecord(run_id=RUN, attempts=2, not_before=Timestamp("2031-01-01T00:00:00.000000Z"))
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), unknown(1)))
        await journal.transact(lambda tx: tx.set_triage(waits))
    async with opened() as journal:
        assert await journal.read(lambda view: view.triage(RUN)) == waits
        await journal.transact(lambda tx: tx.end_triage(RUN))
        assert await journal.read(lambda view: view.triage(RUN)) is None


async def test_the_first_observation_of_each_side_stands(opened: Open) -> None:
    """What was seen before an attempt cannot be seen again after it."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), unknown(1)))
        await journal.transact(lambda tx: tx.note_observation(operation_id(1), 1, "before", "one"))
        await journal.transact(lambda tx: tx.note_observation(operation_id(1), 1, "before", "two"))
        await journal.transact(lambda tx: tx.note_observation(operation_id(1), 1, "after", "three"))
        found = await journal.read(lambda view: view.observations(operation_id(1)))
        assert [(item.side, item.text) for item in found] == [("before", "one"), ("after", "three")]
