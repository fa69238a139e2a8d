"""An accepted rollback: another history in the same file, with what the plane may not hold yet."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from store.chain import digest, extend, origin, unseal
from store.events import CommandFailed, Draft, OperationSucceeded, OperationUnknown
from store.journal import Journal
from store.lifecycle import Effect, State
from store.records import Fence, JournalId, Origin, StoredEvent
from store.retention import Retention, RetentionSettings
from store.rollback import RolledBack, accept_rollback
from store.settings import JournalSettings
from store.verify import verify_file, verify_journal
from store.view import View
from tests.store.conftest import Clock, Open
from tests.store.drafts import (
    accepted,
    accepted_command,
    attempt_ended,
    attempt_unsent,
    command_id,
    completed,
    driver_started,
    failed,
    late,
    not_executed,
    operation_id,
    reconciled,
    recording,
    refused,
    secret,
    started,
    succeeded,
    unknown,
)

pytestmark = pytest.mark.anyio

NOW = datetime(2030, 1, 1, tzinfo=UTC)
NEXT = JournalId("e" * 32)


async def roll_back(journal: Journal, journal_id: JournalId = NEXT) -> RolledBack:
    """Accept a rollback, as an operator does."""
    return await journal.transact(
        lambda tx: accept_rollback(tx, journal_id, reason="rolled_back", actor="operator:0")
    )


async def stream(journal: Journal) -> list[dict[str, Any]]:
    """The events of the present history, as the plane would get them."""
    events = await journal.read(lambda view: view.events(view.base, 1_000, 10_000_000))
    return [json.loads(event.body or b"") for event in events]


async def sound(journal: Journal) -> None:
    """Nothing is wrong with the journal as it runs."""
    assert await verify_journal(journal, lambda _: None) == ()


async def deep(settings: JournalSettings) -> None:
    """Nothing is wrong with the closed journal, and its projections are what its events make of it."""
    assert await to_thread.run_sync(lambda: verify_file(settings, lambda _: None, now=NOW, deep=True)) == ()


async def test_another_history_begins_and_names_the_old_one(opened: Open, settings: JournalSettings) -> None:
    """A new journal_id, seq again from 1, and the first event has the old journal, its seq and its chain."""
    async with opened() as journal:
        await journal.transact(recording(driver_started(), accepted(1), started(1), succeeded(1)))
        await journal.transact(lambda tx: tx.acknowledge(4))
        old_id, old_chain = await journal.read(lambda view: (view.journal_id, view.chain))
        await journal.transact(lambda tx: tx.raise_fence("rolled_back", "d"))
        found = await roll_back(journal)
        assert (found.journal_id, found.previous_journal_id, found.unknown) == (NEXT, old_id, ())
        assert await journal.read(lambda view: (view.journal_id, view.fence, view.base)) == (NEXT, None, 4)
        (first,) = await stream(journal)
        assert (first["journal_id"], first["seq"], first["kind"]) == (NEXT, 1, "driver.unfenced")
        assert first["data"] == {
            "reason": "rolled_back",
            "actor": "operator:0",
            "previous_journal_id": old_id,
            "previous_seq": 4,
            "previous_chain": old_chain,
        }
        await sound(journal)
    await deep(settings)


async def test_the_chain_begins_with_the_new_name(opened: Open) -> None:
    """The chain is that of the new history alone, so that a plane can check it from its first event."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1)))
        await roll_back(journal)
        link = origin(NEXT)
        for event in await journal.read(lambda view: view.events(view.base, 100, 1_000_000)):
            assert event.body is not None
            inner, value = unseal(event.body)
            link = extend(link, digest(inner))
            assert value == event.chain == link


async def test_what_is_settled_and_acknowledged_is_known_and_not_sent(
    opened: Open, settings: JournalSettings
) -> None:
    """The plane's receipt stands; a redelivery finds the command, and cannot execute it."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), succeeded(1)))
        await journal.transact(lambda tx: tx.acknowledge(3))
        await roll_back(journal)
        assert len(await stream(journal)) == 1
        command = await journal.read(lambda view: view.command(command_id(1)))
        assert command is not None
        assert (command.accepted_seq, command.receipt_seq) == (1, 3)
        assert await journal.read(lambda view: view.wire_seq(3)) == 3
    await deep(settings)


async def test_receipts_that_were_not_acknowledged_are_recorded_again(
    opened: Open, settings: JournalSettings
) -> None:
    """As they were, each behind its acceptance, in their order and with their origin."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), succeeded(1)))
        await journal.transact(lambda tx: tx.acknowledge(3))
        gateway = replace(accepted(2), origin=Origin.GATEWAY)
        await journal.transact(recording(gateway, started(2), succeeded(2)))
        await journal.transact(recording(accepted(3), not_executed(3), refused(4)))
        await journal.transact(recording(accepted_command(5, "run.end", {"outcome": "done"}), completed(5)))
        await journal.transact(recording(accepted(6), started(6), failed(6)))
        before = {event.command_id: json.loads(event.body or b"") for event in await receipts(journal)}
        await roll_back(journal)
        told = await stream(journal)
        assert [(event["command_id"], event["kind"]) for event in told[1:]] == [
            ("cmd-2", "command.accepted"),
            ("cmd-2", "operation.succeeded"),
            ("cmd-3", "command.accepted"),
            ("cmd-3", "operation.not_executed"),
            ("cmd-4", "command.refused"),
            ("cmd-5", "command.accepted"),
            ("cmd-5", "command.completed"),
            ("cmd-6", "command.accepted"),
            ("cmd-6", "operation.failed"),
        ]
        for event in told[1:]:
            if event["terminal"]:
                was = before[event["command_id"]]
                assert (event["data"], event["origin"]) == (was["data"], was["origin"])
                assert (event["run_id"], event["operation_id"]) == (was["run_id"], was["operation_id"])
        found = await journal.read(lambda view: view.operation(operation_id(2)))
        assert found is not None
        assert (found.state, found.effect, found.settled) == (State.SUCCEEDED, Effect.OCCURRED, True)
        await sound(journal)
    await deep(settings)


@pytest.mark.parametrize(
    ("first", "then", "kind"),
    [
        ([not_executed(1)], [succeeded(1, attempts=2)], "operation.succeeded"),
        ([failed(1, effect=Effect.NONE)], [failed(1, attempts=2)], "operation.failed"),
        ([unknown(1), reconciled(1, Effect.NONE)], [succeeded(1, attempts=2)], "operation.succeeded"),
    ],
)
async def test_an_attempt_behind_the_receipt_has_the_last_word_in_the_new_history(
    opened: Open, settings: JournalSettings, first: list[Draft], then: list[Draft], kind: str
) -> None:
    """The receipt as it was would say of an operation that it did nothing, though it did since."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), *first, started(1, attempt=2), *then))
        newest = await journal.read(lambda view: view.last_event())
        assert newest is not None
        word = json.loads(newest.body or b"")
        before = await journal.read(
            lambda view: (view.operation(operation_id(1)), view.result(operation_id(1)))
        )
        assert (await roll_back(journal)).repeated == 1
        told = await stream(journal)
        assert [(event["kind"], event["terminal"]) for event in told[1:]] == [
            ("command.accepted", False),
            (kind, True),
        ]
        word["data"].pop("supersedes")
        assert told[-1]["data"] == word["data"]
        after = await journal.read(
            lambda view: (view.operation(operation_id(1)), view.result(operation_id(1)))
        )
        assert before[0] is not None
        assert after[0] is not None
        assert (after[0].state, after[0].effect, after[1]) == (before[0].state, before[0].effect, before[1])
        assert (await roll_back(journal, JournalId("d" * 32))).repeated == 1
        assert (await stream(journal))[-1]["data"] == word["data"]
        await sound(journal)
    await deep(settings)


async def standing(journal: Journal) -> tuple[State, Effect, bytes | None]:
    """The operation, and what is kept of its answer."""

    def read(view: View) -> tuple[State, Effect, bytes | None]:
        found = view.operation(operation_id(1))
        assert found is not None
        return found.state, found.effect, view.result(operation_id(1))

    return await journal.read(read)


async def receipts(journal: Journal) -> list[StoredEvent]:
    """Every receipt of the present history."""
    events = await journal.read(lambda view: view.events(view.base, 1_000, 10_000_000))
    return [event for event in events if event.terminal]


UNSETTLED = {
    "accepted": [accepted(1)],
    "started": [accepted(1), started(1)],
    "between attempts": [accepted(1), started(1), attempt_ended(1)],
    "unknown": [accepted(1), started(1), unknown(1)],
    "failed, unsettled": [accepted(1), started(1), failed(1, unsettled=True)],
}


@pytest.mark.parametrize("acknowledged", [False, True])
@pytest.mark.parametrize("name", UNSETTLED)
async def test_what_is_not_settled_becomes_unknown(
    opened: Open, settings: JournalSettings, name: str, *, acknowledged: bool
) -> None:
    """Whatever state it was in, and whether the plane has its receipt: it may have gone on elsewhere."""
    async with opened() as journal:
        await journal.transact(recording(*UNSETTLED[name]))
        if acknowledged:
            await journal.transact(lambda tx: tx.acknowledge(tx.last_seq))
        assert (await roll_back(journal)).unknown == (operation_id(1),)
        told = await stream(journal)
        assert [event["kind"] for event in told[1:]] == ["command.accepted", "operation.unknown"]
        assert (told[2]["data"]["reason"], told[2]["terminal"]) == ("rolled_back", True)
        found = await journal.read(lambda view: view.operation(operation_id(1)))
        assert found is not None
        assert (found.state, found.effect, found.reason) == (State.UNKNOWN, Effect.UNKNOWN, "rolled_back")
        assert (found.settled, found.guards) == (False, True)
        assert (await journal.read(lambda view: view.unsettled()))[0] == 1
        await sound(journal)
    await deep(settings)


async def test_what_had_not_happened_may_have_by_now(opened: Open, settings: JournalSettings) -> None:
    """A `none` from before the rollback is no evidence about an operation that became unknown."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), attempt_unsent(1)))
        assert [e.effect for e in await journal.read(lambda v: v.evidence(operation_id(1)))] == [Effect.NONE]
        await roll_back(journal)
        found = await journal.read(lambda view: view.operation(operation_id(1)))
        assert found is not None
        assert (found.effect, found.settled) == (Effect.UNKNOWN, False)
    await deep(settings)


async def test_life_goes_on_in_the_new_history(opened: Open, settings: JournalSettings) -> None:
    """Late answers and verdicts settle what was rolled back; new calls work; so does a second rollback."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), accepted(2), started(2)))
        await roll_back(journal)
        await journal.transact(recording(late(1), reconciled(2, Effect.NONE, started_seq=4)))
        await journal.transact(recording(accepted(3), started(3), succeeded(3)))
        for number, effect in ((1, Effect.OCCURRED), (2, Effect.NONE)):
            found = await journal.read(partial(View.operation, operation_id=operation_id(number)))
            assert found is not None
            assert (found.effect, found.settled) == (effect, True)
        told = await stream(journal)
        assert [event["seq"] for event in told] == list(range(1, len(told) + 1))
        assert [e["data"].get("started_seq") for e in told if e["kind"] == "operation.reconciled"] == [None]
        assert [e["data"]["supersedes"] for e in told if e["kind"] == "operation.late_result"] == [3]
    await deep(settings)
    async with opened() as journal:
        assert await journal.read(lambda view: (view.journal_id, view.base)) == (NEXT, 4)
        again = await roll_back(journal, JournalId("d" * 32))
        assert (again.previous_journal_id, again.unknown, again.repeated) == (NEXT, (), 3)
        assert (await stream(journal))[0]["data"]["previous_seq"] == len(told)
        assert len(await journal.read(lambda view: view.histories())) == 2
        await sound(journal)
    await deep(settings)


async def test_open_commands_fail_and_parked_receipts_come_again(
    opened: Open, settings: JournalSettings
) -> None:
    """A command that is no call gets its one receipt; a dead letter was never delivered."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), succeeded(1)))
        await journal.transact(lambda tx: tx.park(3, "invalid", "m"))
        await journal.transact(recording(accepted_command(2, "operation.probe", {}, target=1)))
        await journal.transact(lambda tx: tx.acknowledge(4))
        await roll_back(journal)
        told = await stream(journal)
        assert [(e["command_id"], e["kind"]) for e in told[1:]] == [
            ("cmd-1", "command.accepted"),
            ("cmd-1", OperationSucceeded.KIND),
            ("cmd-2", "command.accepted"),
            ("cmd-2", CommandFailed.KIND),
        ]
        assert told[4]["data"]["code"] == "rolled_back"
    await deep(settings)


async def test_secrets_and_whole_results_go_with_their_operation(
    opened: Open, settings: JournalSettings
) -> None:
    """What is kept outside the chain is kept once; secrets go once the new receipt is acknowledged."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), succeeded(1, result="x" * 70_000)))
        await journal.transact(recording(secret(2), started(2), succeeded(2)))
        await journal.transact(recording(secret(3), started(3)))
        await roll_back(journal)
        result = await journal.read(lambda view: view.result(operation_id(1)))
        assert result == json.dumps("x" * 70_000).encode()
        for number in (2, 3):
            kept = await journal.read(partial(View.command_data, command_id=command_id(number)))
            assert kept is not None
            assert kept.body is not None
        await journal.transact(lambda tx: tx.acknowledge(tx.last_seq))
        await journal.transact(recording(driver_started()))
        found = [await journal.read(partial(View.command_data, command_id=command_id(n))) for n in (2, 3)]
        assert [item is not None and item.body is not None for item in found] == [False, True]
        await sound(journal)
    await deep(settings)


async def test_both_histories_are_pruned_together(
    opened: Open, settings: JournalSettings, clock: Clock
) -> None:
    """What is over goes with all that any history said of it; its tombstone, the gap and the chain hold."""
    async with opened() as journal:
        await journal.transact(recording(driver_started(), accepted(1), started(1), succeeded(1)))
        await journal.transact(lambda tx: tx.acknowledge(tx.last_seq))
        await journal.transact(recording(accepted(2), started(2), succeeded(2), refused(3)))
        await journal.transact(recording(accepted_command(4, "run.end", {"outcome": "done"}), completed(4)))
        await journal.transact(recording(accepted(5, run="run-5"), started(5)))
        await roll_back(journal)
        await journal.transact(recording(reconciled(5, Effect.NONE), driver_started()))
        await journal.transact(lambda tx: tx.acknowledge(tx.last_seq))
        clock.now += timedelta(days=31)
        await journal.transact(recording(driver_started()))
        retention = Retention(RetentionSettings())
        while not (await journal.transact(retention.step)).finished:
            pass
        for number in (1, 2, 3, 4, 5):
            assert await journal.read(partial(View.command, command_id=command_id(number))) is None
            grave = await journal.read(partial(View.tombstone, command_id=command_id(number)))
            assert grave is not None
            await journal.read(partial(View.wire_seq, seq=grave.seq))
        await sound(journal)
        await journal.transact(recording(accepted(6), started(6), succeeded(6)))
    await deep(settings)
    async with opened() as journal:
        await sound(journal)


@pytest.mark.parametrize("point", ["journal.before_commit", "journal.after_commit"])
async def test_a_crash_leaves_the_old_history_or_the_new_one(
    opened: Open, settings: JournalSettings, point: str
) -> None:
    """The whole of it is one transaction: a copy of the disk at any moment is one or the other."""
    copy = settings.state_dir.with_name("crashed")
    armed: list[Callable[[], None]] = []

    def strike(name: str) -> None:
        if name == point and armed:
            armed.pop()()

    async with opened(boundary=strike) as journal:
        await journal.transact(recording(accepted(1), started(1), accepted(2), started(2), succeeded(2)))
        await journal.transact(lambda tx: tx.raise_fence("forked", "d"))
        old = await journal.read(lambda view: view.journal_id)
        armed.append(lambda: _copy(settings.state_dir, copy))
        await roll_back(journal)
    await to_thread.run_sync(_replace, settings.state_dir, copy)
    async with opened() as journal:
        journal_id, fence = await journal.read(lambda view: (view.journal_id, view.fence))
        if point == "journal.before_commit":
            assert journal_id == old
            assert isinstance(fence, Fence)
            await roll_back(journal)
        else:
            assert (journal_id, fence) == (NEXT, None)
        assert [event["kind"] for event in await stream(journal)] == [
            "driver.unfenced",
            "command.accepted",
            OperationUnknown.KIND,
            "command.accepted",
            OperationSucceeded.KIND,
        ]
    await deep(settings)


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target)


def _replace(target: Path, source: Path) -> None:
    shutil.rmtree(target)
    source.rename(target)


async def test_a_mark_stands_until_the_fence_is_lifted(opened: Open) -> None:
    """What is remembered beside a fence survives a restart, and goes with it; the first word stands."""
    async with opened() as journal:
        await journal.transact(lambda tx: tx.raise_fence("forked", "d"))
        await journal.transact(lambda tx: tx.set_mark("superseded", "first"))
        await journal.transact(lambda tx: tx.set_mark("superseded", "second"))
    async with opened() as journal:
        assert await journal.read(lambda view: view.mark("superseded")) == "first"
        await journal.transact(lambda tx: tx.lift_fence())
        assert await journal.read(lambda view: view.mark("superseded")) is None
