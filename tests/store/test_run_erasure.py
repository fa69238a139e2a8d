"""What erasing a run removes, from every file, and what stays."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from anyio import to_thread

from store.erasure import AT_ONCE, BEGIN, WALKED, RunErasure
from store.events import ApprovalRequested, Draft, LateResult, OperationAnnotated, SupervisorVerdict
from store.gaps import MANY
from store.journal import Journal
from store.lifecycle import Effect
from store.records import RunId, StoredEvent, Timestamp
from store.settings import JournalSettings
from store.transaction import Transaction
from store.verify import verify_file, verify_journal
from store.view import View
from tests.store.conftest import Open
from tests.store.drafts import (
    accepted,
    accepted_command,
    command_id,
    completed,
    digest,
    failed,
    operation_id,
    reconciled,
    recording,
    secret,
    started,
    succeeded,
    unknown,
)

pytestmark = pytest.mark.anyio

RUN = RunId("run-1")
CANARY = "canary"


def word(n: int) -> str:
    """What call `n` must not leave behind."""
    return f"{CANARY}-{n:06d}"


def told(n: int, run: str = "run-1") -> Draft:
    """A call whose arguments hold its word."""
    return replace(accepted(n, run=run), payload=json.dumps({"arguments": {"text": word(n)}}).encode())


def annotated(n: int) -> Draft:
    """The host's reference, with the word in it."""
    return Draft(data=OperationAnnotated(metadata={"title": word(n)}), operation_id=operation_id(n))


def asked(n: int) -> Draft:
    """A person is shown the arguments."""
    data = ApprovalRequested(
        approval_id=f"approval-{n}",
        tool="issues/create",
        args_digest=digest(n),
        arguments={"text": word(n)},
        expires_at=Timestamp("2031-01-01T00:00:00.000000Z"),
    )
    return Draft(data=data, operation_id=operation_id(n))


def whole(n: int, run: str = "run-1") -> Callable[[Transaction], tuple[StoredEvent, ...]]:
    """A unit that records a call with its word everywhere."""
    answer = succeeded(n, result={"content": [word(n)]}, receipt=word(n))
    return recording(told(n, run), asked(n), started(n), answer, annotated(n))


def words_in(state: Path) -> set[str]:
    """The words that any file of the folder holds."""
    everything = b"".join(item.read_bytes() for item in state.iterdir() if item.is_file())
    pieces = everything.split(CANARY.encode() + b"-")[1:]
    return {f"{CANARY}-{piece[:6].decode('ascii', 'replace')}" for piece in pieces}


async def words_found(settings: JournalSettings) -> set[str]:
    """The same, while the journal is in use: a copy is looked at, for no raw look may take its locks."""
    copy = settings.state_dir.with_name("copy")

    def look() -> set[str]:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(settings.state_dir, copy)
        return words_in(copy)

    return await to_thread.run_sync(look)


async def erase(journal: Journal, run: RunId = RUN) -> RunErasure:
    """Acknowledge everything, and erase the run until it is in no file; return what that came to."""
    await journal.transact(lambda tx: tx.acknowledge(tx.last_seq))
    found = BEGIN
    while found.after is not None:
        found = await journal.transact(partial(_walk, run=run, so_far=found))
    while not await journal.transact(lambda tx: tx.vanishes()):
        pass
    return found


def _walk(tx: Transaction, *, run: RunId, so_far: RunErasure) -> RunErasure:
    return tx.erase_run(run, so_far)


async def is_rebuilt(settings: JournalSettings, journal: Journal) -> Callable[[], object]:
    """A look at the file at rest, for after the journal is closed."""
    now = await journal.read(lambda view: view.now)
    return partial(verify_file, settings, lambda _: None, now=now, deep=True)


async def test_nothing_of_a_settled_operation_is_left_in_any_file(
    opened: Open, settings: JournalSettings
) -> None:
    """Arguments, result, receipt, references: gone from the journal and its `-wal` when that is answered."""
    async with opened() as journal:
        await journal.transact(whole(1))
        await journal.transact(recording(told(2), started(2), unknown(2), reconciled(2, Effect.NONE)))
        assert await words_found(settings) == {word(1), word(2)}
        answer = await erase(journal)
        assert answer == RunErasure(erased=2, unsettled=0, unacknowledged=0, kept=())
        assert await words_found(settings) == set()
        assert await verify_journal(journal, lambda _: None) == ()
        look = await is_rebuilt(settings, journal)
    assert await to_thread.run_sync(look) == ()
    assert words_in(settings.state_dir) == set()


async def test_identities_outcomes_and_the_chain_stay(opened: Open) -> None:
    """And what the operation is listed with, but for what the provider and the host said."""
    async with opened() as journal:
        events = await journal.transact(whole(1))
        before = await journal.read(lambda view: view.operation(operation_id(1)))
        assert before is not None
        await erase(journal)
        after = await journal.read(lambda view: view.operation(operation_id(1)))
        assert after == replace(before, receipt=None, metadata={})
        for event in events:
            stored = await journal.read(partial(_event, seq=event.seq))
            assert stored == replace(event, body=None)
        assert await journal.read(lambda view: view.command_payload(command_id(1))) is None
        assert await journal.read(lambda view: view.result(operation_id(1))) is None
        assert await journal.read(lambda view: view.is_erased(operation_id(1)))


def _event(view: View, *, seq: int) -> StoredEvent | None:
    return view.event(seq)


async def test_unsettled_ones_are_kept_and_named(opened: Open, settings: JournalSettings) -> None:
    """Somebody may have to look at them; a supervisor's word is not the last one."""
    async with opened() as journal:
        await journal.transact(whole(1))
        await journal.transact(recording(told(2), started(2), unknown(2)))
        await journal.transact(recording(told(3), started(3)))
        await journal.transact(recording(told(4), started(4), failed(4, unsettled=True)))
        await journal.transact(recording(told(5), started(5), unknown(5)))
        await journal.transact(recording(reconciled(5, Effect.NONE, actor="supervisor:rules")))
        answer = await erase(journal)
        kept = tuple(operation_id(n) for n in (2, 3, 4, 5))
        assert answer == RunErasure(erased=1, unsettled=4, unacknowledged=0, kept=kept)
        assert await words_found(settings) == {word(n) for n in (2, 3, 4, 5)}
        await journal.transact(recording(reconciled(2, Effect.OCCURRED)))
        assert (await erase(journal)).erased == 1
        assert word(2) not in await words_found(settings)


async def test_what_is_not_acknowledged_is_kept(opened: Open, settings: JournalSettings) -> None:
    """The plane gets each event whole, once."""
    async with opened() as journal:
        events = await journal.transact(whole(1))
        await journal.transact(lambda tx: tx.acknowledge(events[-1].seq - 1))
        answer = await journal.transact(lambda tx: tx.erase_run(RUN))
        assert answer == RunErasure(erased=0, unsettled=0, unacknowledged=1, kept=(operation_id(1),))
        assert await words_found(settings) == {word(1)}


async def test_other_runs_are_left_alone(opened: Open, settings: JournalSettings) -> None:
    """So is one that nobody knows."""
    async with opened() as journal:
        await journal.transact(whole(1))
        await journal.transact(whole(2, run="run-2"))
        assert (await erase(journal, RunId("run-9"))).erased == 0
        assert (await erase(journal, RunId("run-2"))).erased == 1
        assert await words_found(settings) == {word(1)}


async def test_the_notes_of_commands_go_too(opened: Open, settings: JournalSettings) -> None:
    """What operators said; but not that the run was ended, and how."""
    note = accepted_command(2, "operation.reconcile", {"note": word(2)})
    end = accepted_command(3, "run.end", {"outcome": "done"})
    async with opened() as journal:
        await journal.transact(recording(note, completed(2, {"note": word(2)}), end, completed(3)))
        await erase(journal)
        assert await words_found(settings) == set()
        run = await journal.read(lambda view: view.run(RUN))
        assert run is not None
        assert (run.ended, run.outcome) == (True, "done")
        look = await is_rebuilt(settings, journal)
    assert await to_thread.run_sync(look) == ()


async def test_what_comes_later_keeps_only_identity_and_effect(
    opened: Open, settings: JournalSettings
) -> None:
    """A late answer moves the effect, and leaves nothing of what it said."""
    data = LateResult(attempt=1, effect=Effect.OCCURRED, result={"text": word(1)}, receipt=word(1))
    answer = Draft(data=data, operation_id=operation_id(1))
    async with opened() as journal:
        await journal.transact(recording(told(1), started(1), unknown(1), reconciled(1, Effect.NONE)))
        await erase(journal)
        (event,) = await journal.transact(recording(answer))
        assert event.body is not None
        data = json.loads(event.body)["data"]
        assert (data["effect"], data["result"], data["receipt"]) == ("occurred", None, None)
        (event,) = await journal.transact(recording(annotated(1)))
        operation = await journal.read(lambda view: view.operation(operation_id(1)))
        assert operation is not None
        assert (operation.effect, operation.receipt, operation.metadata) == (Effect.OCCURRED, None, {})
        assert await words_found(settings) == set()
        assert await verify_journal(journal, lambda _: None) == ()
        look = await is_rebuilt(settings, journal)
    assert await to_thread.run_sync(look) == ()


async def test_secrets_and_cut_results_go_with_the_rest(opened: Open, settings: JournalSettings) -> None:
    """What stands beside the events, under whichever digest."""
    async with opened() as journal:
        await journal.transact(recording(secret(1), started(1), succeeded(1, result=word(1) * 9_000)))
        await journal.transact(recording(told(2), started(2), succeeded(2, result=word(2) * 9_000)))
        await erase(journal)
        assert await words_found(settings) == set()
        assert await verify_journal(journal, lambda _: None) == ()


async def test_a_large_run_is_erased_in_steps(opened: Open, settings: JournalSettings) -> None:
    """So many commands with each commit; the journal is whole after each, and what is left says so."""
    count = WALKED * 2 + 3
    async with opened() as journal:
        for first in range(0, count, 20):
            for n in range(first, min(first + 20, count)):
                await journal.transact(whole(n))
        await journal.transact(lambda tx: tx.acknowledge(tx.last_seq))
        found, pages = BEGIN, 0
        while found.after is not None:
            found = await journal.transact(partial(_walk, run=RUN, so_far=found))
            assert await verify_journal(journal, lambda _: None) == ()
            pages += 1
        assert (found.erased, pages >= 3) == (count, True)
        while not await journal.transact(lambda tx: tx.vanishes()):
            assert await verify_journal(journal, lambda _: None) == ()
        assert await words_found(settings) == set()
        look = await is_rebuilt(settings, journal)
    assert await to_thread.run_sync(look) == ()


async def test_what_was_said_of_an_operation_goes_in_steps(opened: Open, settings: JournalSettings) -> None:
    """A host may replace its annotation thousands of times; the newest one is erased, and keeps its place."""
    async with opened() as journal:
        await journal.transact(recording(told(1), started(1), *(annotated(1) for _ in range(MANY * 3))))
        await journal.transact(recording(succeeded(1), annotated(1)))
        await journal.transact(lambda tx: tx.acknowledge(tx.last_seq))
        found, commits, gone = BEGIN, 0, False
        while not gone:
            found, gone = await journal.transact(partial(_walk_on, run=RUN, so_far=found))
            assert await verify_journal(journal, lambda _: None, deep=True) == ()
            commits += 1
        assert (found.erased, commits) == (1, 4)
        assert await words_found(settings) == set()
        look = await is_rebuilt(settings, journal)
    assert await to_thread.run_sync(look) == ()


def _walk_on(tx: Transaction, run: RunId, so_far: RunErasure) -> tuple[RunErasure, bool]:
    """A step of a walk, and whether it was the last one."""
    if so_far.after is not None:
        so_far = tx.erase_run(run, so_far)
    return so_far, so_far.after is None and tx.vanishes()


async def test_a_stop_finishes_what_was_demanded(opened: Open, settings: JournalSettings) -> None:
    """What a walk has come to is erased without anybody asking again."""
    async with opened() as journal:
        for n in range(AT_ONCE * 3):
            await journal.transact(whole(n))
        await journal.transact(lambda tx: tx.acknowledge(tx.last_seq))
        found = BEGIN
        while found.after is not None:
            found = await journal.transact(partial(_walk, run=RUN, so_far=found))
    assert words_in(settings.state_dir) == set()


async def test_how_far_a_walk_has_come_is_remembered(opened: Open, settings: JournalSettings) -> None:
    """Over a restart, until the command has its receipt."""
    walk = RunErasure(erased=3, unsettled=1, unacknowledged=2, kept=(operation_id(1),), after=7)
    over = replace(walk, after=None)
    command = accepted_command(1, "run.erase", {})
    async with opened() as journal:
        await journal.transact(recording(command))
        assert await journal.transact(lambda tx: tx.walk(command_id(1))) is None
        await journal.transact(lambda tx: tx.set_walk(command_id(1), walk))
    async with opened() as journal:
        assert await journal.transact(lambda tx: tx.walk(command_id(1))) == walk
        await journal.transact(lambda tx: tx.set_walk(command_id(1), over))
        assert await journal.transact(lambda tx: tx.walk(command_id(1))) == over
        assert await verify_journal(journal, lambda _: None) == ()
        await journal.transact(recording(completed(1)))
        assert await journal.transact(lambda tx: tx.walk(command_id(1))) is None
        assert await verify_journal(journal, lambda _: None) == ()


async def test_erasing_twice_changes_nothing(opened: Open) -> None:
    """What is erased already is not counted again."""
    async with opened() as journal:
        await journal.transact(whole(1))
        assert (await erase(journal)).erased == 1
        assert await erase(journal) == RunErasure(erased=0, unsettled=0, unacknowledged=0, kept=())


def verdict(*numbers: int) -> Draft:
    """What a supervisor says of these operations at once."""
    data = SupervisorVerdict(
        needs_attention=True,
        summary=word(numbers[0]),
        causes=(word(numbers[0]),),
        remedies=(),
        lesson=word(numbers[0]),
        operation_ids=tuple(operation_id(n) for n in numbers),
        wall_digest=digest(0),
        model="rules",
        status="ok",
    )
    return Draft(data=data, run_id=RUN, best_effort=True)


async def test_a_supervisors_words_go_with_the_last_operation_that_they_are_about(
    opened: Open, settings: JournalSettings
) -> None:
    """They quote what they were shown; as long as one operation is kept, they are."""
    async with opened() as journal:
        for n in (1, 2):
            await journal.transact(recording(told(n), started(n), unknown(n)))
        await journal.transact(recording(verdict(1, 2), reconciled(1, Effect.NONE)))
        assert (await erase(journal)).unsettled == 1
        assert await words_found(settings) == {word(1), word(2)}
        await journal.transact(recording(reconciled(2, Effect.NONE)))
        assert (await erase(journal)).erased == 1
        assert await words_found(settings) == set()
        assert await verify_journal(journal, lambda _: None) == ()
        look = await is_rebuilt(settings, journal)
    assert await to_thread.run_sync(look) == ()
