"""A dead letter is reported again as a new event, once; what happened does not happen a second time."""

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from anyio import to_thread

from store.errors import ImpossibleEvent
from store.events import Draft, OperationAnnotated, OperationProbed
from store.journal import Journal
from store.lifecycle import Effect
from store.records import JsonObject, RunId, StoredEvent
from store.retention import Retention, RetentionSettings
from store.settings import JournalSettings
from store.verify import verify_file
from tests.store.conftest import Clock, Open
from tests.store.drafts import (
    accepted,
    accepted_command,
    command_id,
    completed,
    driver_started,
    operation_id,
    reconciled,
    recording,
    started,
    succeeded,
    unknown,
)

pytestmark = pytest.mark.anyio

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def frame(event: StoredEvent) -> Any:  # noqa: ANN401 - JSON, looked into
    """What goes over the wire."""
    assert event.body is not None
    return json.loads(event.body)


async def requeued(journal: Journal, seq: int) -> StoredEvent:
    """Park an event and report it again."""
    await journal.transact(lambda tx: tx.park(seq, "invalid", "too long"))
    return await journal.transact(lambda tx: tx.requeue(seq))


async def sound(settings: JournalSettings) -> bool:
    """Whether nothing is found, and every projection is what the events make of it."""
    look = partial(verify_file, settings, lambda _: None, now=NOW, deep=True)
    return await to_thread.run_sync(look) == ()


async def test_it_says_the_same_and_changes_nothing(opened: Open, settings: JournalSettings) -> None:
    """Kind, address and data are those of the dead letter; it is no receipt, and moves no projection."""
    async with opened() as journal:
        await journal.transact(recording(driver_started(), accepted(1), started(1), unknown(1)))
        parked = await journal.read(lambda view: view.event(4))
        assert parked is not None
        before = await journal.read(
            lambda view: (view.operation(operation_id(1)), view.run(RunId("run-1")), dict(view.counts()))
        )
        again = await requeued(journal, 4)
        old, new = frame(parked), frame(again)
        assert new["data"] == {**old["data"], "requeue_of": 4}
        assert (old["terminal"], new["terminal"], again.seq, again.requeue_of) == (True, False, 5, 4)
        names = ("kind", "run_id", "command_id", "operation_id", "origin", "best_effort")
        assert [new[name] for name in names] == [old[name] for name in names]
        assert before == await journal.read(
            lambda view: (view.operation(operation_id(1)), view.run(RunId("run-1")), dict(view.counts()))
        )
        command = await journal.read(lambda view: view.command(command_id(1)))
        assert command is not None
        assert command.receipt_seq == 4
        letter = await journal.read(lambda view: view.dead_letter(4))
        assert letter is not None
        assert letter.requeued_as == 5
        assert await journal.read(lambda view: view.parked()) == 0
    assert await sound(settings)


async def test_it_can_be_requeued_once(opened: Open, settings: JournalSettings) -> None:
    """The copy may be parked in its turn, and is then a dead letter of its own; nothing else can be."""
    async with opened() as journal:
        await journal.transact(recording(driver_started()))
        with pytest.raises(ImpossibleEvent):
            await journal.transact(lambda tx: tx.requeue(1))
        await requeued(journal, 1)
        with pytest.raises(ImpossibleEvent):
            await journal.transact(lambda tx: tx.requeue(1))
        third = await requeued(journal, 2)
        assert frame(third)["data"]["requeue_of"] == 2
        with pytest.raises(ImpossibleEvent):
            await journal.transact(lambda tx: tx.requeue(9))
    assert await sound(settings)


async def test_every_family_of_events_can_be_requeued(opened: Open, settings: JournalSettings) -> None:
    """Acceptance, intent, verdict, and a command's receipt: a rebuild projects none of them twice."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), unknown(1), reconciled(1, Effect.NONE)))
        await journal.transact(recording(accepted_command(2, "run.end", {"outcome": "done"}), completed(2)))
        last = await journal.read(lambda view: view.last_seq)
        for seq in range(1, last + 1):
            await requeued(journal, seq)
        assert await journal.read(lambda view: view.last_seq) == 2 * last
    assert await sound(settings)


async def test_who_reads_an_operations_events_meets_it_once(opened: Open) -> None:
    """An old word that is reported again is not the newest word."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), unknown(1)))
        old = OperationProbed(verdict="undetermined", matches=None, detail=None)
        new = OperationAnnotated(metadata={"id": "7"})
        drafts = [Draft(data=data, operation_id=operation_id(1)) for data in (old, new)]
        await journal.transact(recording(*drafts))
        again = await requeued(journal, 4)
        assert await journal.read(lambda view: view.operation_events(operation_id(1))) == (1, 2, 3, 4, 5)
        found = await journal.read(lambda view: view.event(again.seq))
        assert found is not None
        assert found.operation_id == operation_id(1)


async def test_a_cut_answer_stays_where_it_is(opened: Open, settings: JournalSettings) -> None:
    """The copy names the digest of a result that is kept beside the first event."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), succeeded(1, result="x" * 70_000)))
        again = await requeued(journal, 3)
        assert frame(again)["data"]["payload_digest"] is not None
        assert await journal.read(lambda view: view.result(operation_id(1))) is not None
    assert await sound(settings)


async def test_what_is_erased_is_erased_in_its_copies(opened: Open, settings: JournalSettings) -> None:
    """Nothing of a command is left in the stream behind it, however often it was requeued."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), succeeded(1, result="secret-7")))
        data: JsonObject = {"note": "secret-7"}
        await journal.transact(recording(accepted_command(2, "run.end", data), completed(2)))
        await requeued(journal, 3)
        await requeued(journal, 5)
        await requeued(journal, 7)
        last = await journal.read(lambda view: view.last_seq)
        await journal.transact(lambda tx: tx.acknowledge(last))
        await journal.transact(lambda tx: tx.erase_run(RunId("run-1")))
        await journal.transact(recording(driver_started()))
        erased = await journal.read(lambda view: [view.event(seq) for seq in (3, 6)])
        assert all(event is not None and event.body is None for event in erased)
        with pytest.raises(ImpossibleEvent):
            await journal.transact(lambda tx: tx.requeue(6))
    assert await sound(settings)


async def test_it_is_pruned_with_what_it_repeats(
    opened: Open, settings: JournalSettings, clock: Clock
) -> None:
    """A dead letter keeps its operation until it is requeued, and that acknowledged; then all of it goes."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), succeeded(1)))
        await journal.transact(lambda tx: tx.park(3, "invalid", ""))
        await journal.transact(lambda tx: tx.acknowledge(3))
        clock.now += timedelta(days=1)
        retention = Retention(RetentionSettings(retention=timedelta()))
        await journal.transact(recording(driver_started()))
        await journal.transact(retention.step)
        assert await journal.read(lambda view: view.operation(operation_id(1))) is not None
        again = await journal.transact(lambda tx: tx.requeue(3))
        await journal.transact(recording(driver_started()))
        await journal.transact(Retention(RetentionSettings(retention=timedelta())).step)
        assert await journal.read(lambda view: view.operation(operation_id(1))) is not None
        await journal.transact(lambda tx: tx.acknowledge(again.seq))
        await journal.transact(Retention(RetentionSettings(retention=timedelta())).step)
        assert await journal.read(lambda view: view.operation(operation_id(1))) is None
        assert await journal.read(lambda view: view.dead_letters(0, 10)) == ()
    assert await sound(settings)
