"""Pruning, erasing, other histories and restarts, in any order: what is kept is always whole."""

from datetime import timedelta
from functools import partial
from random import Random

import pytest
from anyio import to_thread

from store.journal import Journal
from store.lifecycle import Effect
from store.records import JournalId, OperationFilter, RunId
from store.retention import Retention, RetentionSettings, Step
from store.rollback import accept_rollback
from store.settings import JournalSettings
from store.verify import verify_file, verify_journal
from tests.store.conftest import Clock, Open
from tests.store.drafts import (
    accepted,
    accepted_command,
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

SETTINGS = RetentionSettings(
    retention=timedelta(days=10), retention_unknown=timedelta(days=20), tombstones=timedelta(days=30)
)
ROUNDS = 40


async def act(journal: Journal, chance: Random, clock: Clock, n: int) -> None:
    """Let something happen, with `n` as its number."""
    run = f"run-{chance.randrange(4)}"
    ends = (
        (succeeded(n),),
        (failed(n),),
        (failed(n, unsettled=True),),
        (unknown(n),),
        (unknown(n), reconciled(n, Effect.NONE)),
        (unknown(n), reconciled(n, Effect.OCCURRED, actor="supervisor:rules")),
        (unknown(n), late(n)),
        (),
    )
    match chance.randrange(9):
        case 0:
            await journal.transact(recording(refused(n, run=run), driver_started()))
        case 1:
            end = accepted_command(n, "run.end", {"outcome": "x"}, run=run)
            await journal.transact(recording(end, completed(n)))
        case 2:
            await journal.transact(recording(secret(n, run=run), not_executed(n)))
        case 3:
            clock.now += timedelta(days=chance.randrange(1, 8))
        case 4:
            seq = chance.randrange(await journal.read(lambda view: view.last_seq) + 1)
            base = await journal.read(lambda view: view.base)
            await journal.transact(lambda tx: tx.acknowledge(max(seq, base)))
        case _:
            resumes = (RunId("run-0"),) if run != "run-0" and chance.random() < 0.3 else None
            if resumes and await journal.read(lambda view: view.run(RunId("run-0"))) is None:
                resumes = None
            begun = (accepted(n, run=run, resumes=resumes), started(n))
            await journal.transact(recording(*begun, *chance.choice(ends)))


async def end(journal: Journal, chance: Random, clock: Clock, n: int) -> None:
    """Let something of it be over."""
    match chance.randrange(6):
        case 0 | 1:
            await journal.transact(lambda tx: tx.acknowledge(tx.last_seq))
            done, retention = Step(), Retention(SETTINGS)
            while not done.finished:
                done = done.then(await journal.transact(retention.step))
        case 2:
            await journal.transact(lambda tx: tx.acknowledge(tx.last_seq))
            await journal.transact(lambda tx: tx.erase_run(RunId(f"run-{chance.randrange(4)}")))
        case 3:
            name = JournalId(f"{n:032x}")
            await journal.transact(lambda tx: accept_rollback(tx, name, reason="forked", actor="operator:0"))
        case _:
            page = await journal.read(lambda view: view.operations(OperationFilter(unsettled=True), None, 5))
            for record in page.items:
                number = int(record.operation_id.removeprefix("op_"), 16)
                await journal.transact(recording(reconciled(number, chance.choice(list(Effect)))))


@pytest.mark.parametrize("seed", range(6))
async def test_what_is_kept_is_whole(
    opened: Open, settings: JournalSettings, clock: Clock, seed: int
) -> None:
    """The chain, the rows and a rebuild from what is left agree; a command is there, or its tombstone is."""
    chance, n = Random(seed), 0
    for _ in range(ROUNDS // 10):
        async with opened() as journal:
            for _ in range(10):
                for _ in range(5):
                    n += 1
                    await act(journal, chance, clock, n)
                await end(journal, chance, clock, n)
            assert await verify_journal(journal, lambda _: None) == ()
            for number in range(1, n + 1):
                await _is_one_thing(journal, number)
            now = clock.now
        look = partial(verify_file, settings, lambda _: None, now=now, deep=True)
        assert await to_thread.run_sync(look) == ()


async def _is_one_thing(journal: Journal, number: int) -> None:
    command = await journal.read(lambda view: view.command(command_id(number)))
    operation = await journal.read(lambda view: view.operation(operation_id(number)))
    grave = await journal.read(lambda view: view.tombstone(command_id(number)))
    assert grave is None or (command is None and operation is None)
    assert operation is None or command is not None
