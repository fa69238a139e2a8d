"""Erasing: secrets leave the journal once their operation is settled and its receipt is acknowledged."""

import json
import shutil
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from anyio import fail_after, to_thread
from anyio.lowlevel import checkpoint

from store.erasure import ERASED_MAX
from store.events import Draft
from store.journal import Journal
from store.lifecycle import Effect
from store.pace import STEP_BYTES
from store.pieces import PIECE_BYTES
from store.records import Digest, RunId, StoredData
from store.settings import JournalSettings
from store.transaction import Transaction
from store.verify import verify_file, verify_journal
from store.view import View
from tests.store.conftest import Open
from tests.store.drafts import (
    ALIKE,
    REDACT,
    accepted,
    command_id,
    digest,
    driver_started,
    failed,
    late,
    not_executed,
    operation_id,
    reconciled,
    recording,
    secret,
    started,
    succeeded,
    token,
    unknown,
)

pytestmark = pytest.mark.anyio


async def data_of(journal: Journal, n: int) -> StoredData:
    """What is kept of the `data` of command `n`."""
    found = await journal.read(lambda view: view.command_data(command_id(n)))
    assert found is not None
    return found


async def acknowledge(journal: Journal) -> None:
    """Everything so far; what that allows is erased with the same commit."""
    await journal.transact(lambda tx: tx.acknowledge(tx.last_seq))


async def is_erased(journal: Journal, n: int) -> bool:
    """Whether the `data` of command `n` is gone."""
    return (await data_of(journal, n)).body is None


ENDINGS: dict[str, tuple[tuple[Draft, ...], bool]] = {
    "accepted": ((), False),
    "started": ((started(1),), False),
    "succeeded": ((started(1), succeeded(1)), True),
    "failed, reported": ((started(1), failed(1)), True),
    "failed, unsettled": ((started(1), failed(1, unsettled=True)), False),
    "not executed": ((not_executed(1),), True),
    "unknown": ((started(1), unknown(1)), False),
    "unknown, an operator's verdict": ((started(1), unknown(1), reconciled(1, Effect.NONE)), True),
    "unknown, an operator's unknown": ((started(1), unknown(1), reconciled(1, Effect.UNKNOWN)), True),
    "unknown, a probe's verdict": (
        (started(1), unknown(1), reconciled(1, Effect.OCCURRED, actor="probe:find")),
        True,
    ),
    "unknown, a supervisor's verdict": (
        (started(1), unknown(1), reconciled(1, Effect.NONE, actor="supervisor:rules")),
        False,
    ),
    "unknown, a late answer": ((started(1), unknown(1), late(1)), True),
    "attempted again": ((started(1), unknown(1), reconciled(1, Effect.NONE), started(1, attempt=2)), False),
}


@pytest.mark.parametrize(("drafts", "erased"), ENDINGS.values(), ids=ENDINGS)
async def test_what_is_settled_and_acknowledged_is_erased(
    opened: Open, drafts: tuple[Draft, ...], *, erased: bool
) -> None:
    """What may still be needed is not: another attempt, a probe or a person needs the arguments."""
    async with opened() as journal:
        await journal.transact(recording(secret(1), *drafts))
        assert not await is_erased(journal, 1)
        await acknowledge(journal)
        assert await is_erased(journal, 1) is erased
        found = await data_of(journal, 1)
        assert found.redact == REDACT
        assert (await journal.read(lambda view: view.command_payload(command_id(1))) is None) is erased


async def test_what_was_settled_and_is_not_any_more_stays(opened: Open) -> None:
    """A further attempt that begins before the acknowledgement needs the arguments."""
    async with opened() as journal:
        await journal.transact(recording(secret(1), not_executed(1)))
        await journal.transact(recording(started(1)))
        await acknowledge(journal)
        assert not await is_erased(journal, 1)
        await journal.transact(recording(succeeded(1)))
        await acknowledge(journal)
        assert await is_erased(journal, 1)


async def test_an_acknowledgement_of_less_erases_nothing(opened: Open) -> None:
    """The receipt itself must be acknowledged."""
    async with opened() as journal:
        receipt = (await journal.transact(recording(secret(1), started(1), succeeded(1))))[-1].seq
        await journal.transact(lambda tx: tx.acknowledge(receipt - 1))
        await journal.transact(recording(driver_started()))
        assert not await is_erased(journal, 1)
        await journal.transact(lambda tx: tx.acknowledge(receipt))
        assert await is_erased(journal, 1)


async def test_the_data_of_other_tools_stays(opened: Open) -> None:
    """Only where a contract withholds something is anything erased."""
    async with opened() as journal:
        await journal.transact(recording(secret(1), accepted(2), started(2), succeeded(2)))
        await acknowledge(journal)
        found = await data_of(journal, 2)
        assert found.body is not None
        assert found.redact == ()


async def test_a_contract_that_withholds_more_by_now_erases_too(opened: Open) -> None:
    """The call was accepted before its tool was redacted: its outcome says what holds."""

    def redacted(draft: Draft) -> Draft:
        return Draft(data=draft.data, operation_id=draft.operation_id, redact=REDACT)

    async with opened() as journal:
        await journal.transact(recording(accepted(1)))
        await journal.transact(recording(redacted(started(1)), redacted(succeeded(1))))
        assert (await data_of(journal, 1)).redact == REDACT
        assert await verify_journal(journal, lambda _: None) == ()
        await acknowledge(journal)
        assert await is_erased(journal, 1)


async def test_erasing_goes_in_bounded_steps(opened: Open) -> None:
    """So many with each commit, and the next ones with the next."""
    count = ERASED_MAX + 5
    async with opened() as journal:
        for n in range(count):
            await journal.transact(recording(secret(n), not_executed(n)))
        await acknowledge(journal)
        erased = [await is_erased(journal, n) for n in range(count)]
        assert erased == [n < ERASED_MAX for n in range(count)]
        await journal.transact(recording(driver_started()))
        assert await is_erased(journal, count - 1)


def left(view: View) -> int:
    """How many bytes of payloads are in pieces."""
    return int(
        view.ledger.connection.execute("SELECT coalesce(sum(length(body)), 0) FROM pieces").fetchone()[0]
    )


async def test_large_payloads_are_erased_piece_by_piece(opened: Open, settings: JournalSettings) -> None:
    """What is overwritten with one commit has a bound; they read as erased from the first commit on."""
    async with opened() as journal:
        for n in range(2):
            await journal.transact(recording(secret(n, padding=STEP_BYTES * 2), not_executed(n)))
        lefts = [await journal.read(left)]
        await acknowledge(journal)
        assert [await is_erased(journal, n) for n in range(2)] == [True, True]
        while lefts[-1]:
            lefts.append(await journal.read(left))
            assert await verify_journal(journal, lambda _: None) == ()
            await journal.transact(recording(driver_started()))
        steps = [before - after for before, after in pairwise(lefts)]
        assert max(steps) <= STEP_BYTES + PIECE_BYTES
        assert len(steps) >= 4
    assert held(settings.state_dir, 2) == set()


async def test_what_is_left_of_a_large_payload_goes_in_the_next_life(
    opened: Open, settings: JournalSettings
) -> None:
    """A life that ends between two pieces leaves a sound journal, and fewer of them."""
    async with opened() as journal:
        await journal.transact(recording(secret(1, padding=STEP_BYTES * 8), not_executed(1)))
        await acknowledge(journal)
        assert 0 < await journal.read(left) < STEP_BYTES * 8
        copy = settings.state_dir.with_name("copy")
        await to_thread.run_sync(shutil.copytree, settings.state_dir, copy)
    killed = replace(settings, state_dir=copy)
    async with opened(killed) as journal:
        assert await journal.read(left) > 0
        assert await verify_journal(journal, lambda _: None) == ()
    assert held(copy, 2) == set()


def held(state: Path, count: int) -> set[int]:
    """Which calls' secrets any file of the folder holds."""
    everything = b""
    for item in state.iterdir():
        with suppress(FileNotFoundError):  # the mark of an unclean journal comes and goes
            everything += item.read_bytes()
    return {n for n in range(count) if token(n) in everything}


async def test_an_idle_journal_erases_by_itself(opened: Open, settings: JournalSettings) -> None:
    """An acknowledgement rides with the next commit; where none comes, secrets do not wait for one."""
    async with opened() as journal:
        await journal.transact(recording(*(secret(n, padding=n * 50) for n in range(90))))
        await journal.transact(recording(*(not_executed(n) for n in range(90))))
        assert await to_thread.run_sync(held, settings.state_dir, 90) == set(range(90))
        journal.later(lambda tx: tx.acknowledge(tx.last_seq))
        with fail_after(30):
            while await to_thread.run_sync(held, settings.state_dir, 90):
                await checkpoint()


async def test_an_idle_journal_empties_its_wal(
    opened: Open, settings: JournalSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a commit of others has erased, too: old copies of its pages go when nobody wants anything."""
    monkeypatch.setattr("store.journal.ERASE_AFTER_S", 3.0)  # time enough to look before that
    async with opened() as journal:
        await journal.transact(recording(secret(1), not_executed(1)))
        await acknowledge(journal)
        assert await is_erased(journal, 1)
        assert await to_thread.run_sync(held, settings.state_dir, 2) == {1}
        with fail_after(30):
            while await to_thread.run_sync(held, settings.state_dir, 2):
                await checkpoint()
        await journal.transact(recording(driver_started()))
    assert await to_thread.run_sync(held, settings.state_dir, 2) == set()


async def test_no_file_holds_a_secret_after_a_stop(opened: Open, settings: JournalSettings) -> None:
    """Neither the journal nor its `-wal`: what is erased is overwritten, and old copies of pages go."""
    async with opened() as journal:
        for n in range(40):
            await journal.transact(recording(secret(n, padding=n * 200), started(n), succeeded(n)))
        journal.later(lambda tx: tx.acknowledge(tx.last_seq))
    assert held(settings.state_dir, 40) == set()


async def test_without_an_acknowledgement_the_file_holds_them(
    opened: Open, settings: JournalSettings
) -> None:
    """Negative control: the search above would find them."""
    async with opened() as journal:
        for n in range(40):
            await journal.transact(recording(secret(n, padding=n * 200), started(n), succeeded(n)))
    assert held(settings.state_dir, 40) == set(range(40))


async def test_a_restart_goes_on_erasing(opened: Open, settings: JournalSettings) -> None:
    """What is due stands in the journal, and so does what an earlier life's `-wal` still held."""
    state, copy = settings.state_dir, settings.state_dir.with_name("killed")
    async with opened() as journal:
        await journal.transact(recording(*(secret(n) for n in range(ERASED_MAX * 2))))
        await journal.transact(recording(*(not_executed(n) for n in range(ERASED_MAX * 2))))
        await acknowledge(journal)
        await to_thread.run_sync(shutil.copytree, state, copy)
    await to_thread.run_sync(shutil.rmtree, state)
    copy.rename(state)
    assert held(state, ERASED_MAX * 2) == set(range(ERASED_MAX * 2))
    async with opened() as journal:
        # the start has emptied the -wal: the pages that were overwritten are all that is left
        assert held(state, ERASED_MAX * 2) == set(range(ERASED_MAX, ERASED_MAX * 2))
        await journal.transact(recording(driver_started()))
        assert await is_erased(journal, ERASED_MAX * 2 - 1)
    assert held(state, ERASED_MAX * 2) == set()


async def test_a_close_erases_what_is_due(opened: Open, settings: JournalSettings) -> None:
    """More than one commit's worth."""
    async with opened() as journal:
        await journal.transact(recording(*(secret(n) for n in range(ERASED_MAX * 3))))
        await journal.transact(recording(*(not_executed(n) for n in range(ERASED_MAX * 3))))
        await acknowledge(journal)
    assert held(settings.state_dir, ERASED_MAX * 3) == set()


async def test_an_erased_journal_is_whole(opened: Open, settings: JournalSettings) -> None:
    """Erasing breaks no chain and no projection; the digests stay."""
    async with opened() as journal:
        await journal.transact(recording(secret(1), started(1), succeeded(1), secret(2), started(2)))
        await acknowledge(journal)
        assert await is_erased(journal, 1)
        assert await verify_journal(journal, lambda _: None) == ()
        now = await journal.read(lambda view: view.now)
    look = partial(verify_file, settings, lambda _: None, now=now, deep=True)
    assert await to_thread.run_sync(look) == ()


# ------------------------------------------------------------ digests


async def test_a_secret_payload_has_a_digest_under_the_key(opened: Open) -> None:
    """In the event and in the row; a plain one could be guessed from."""
    async with opened() as journal:
        (event,) = await journal.transact(recording(secret(1)))
        assert event.body is not None
        named = json.loads(event.body)["data"]["payload_digest"]
        payload = (await data_of(journal, 1)).body
        assert payload is not None
        assert named == journal.key.digest(payload)


async def test_a_cut_result_of_a_redacting_tool_has_one_too(opened: Open) -> None:
    """What is left of a result may be guessed as well; it stays, because nothing in it is withheld."""
    whole = "y" * 70_000
    async with opened() as journal:
        await journal.transact(recording(secret(1), started(1)))
        (event,) = await journal.transact(recording(succeeded(1, result=whole)))
        assert event.body is not None
        stored = json.dumps(whole).encode()
        assert json.loads(event.body)["data"]["payload_digest"] == journal.key.digest(stored)
        await acknowledge(journal)
        assert await is_erased(journal, 1)
        assert await journal.read(lambda view: view.result(operation_id(1))) == stored
        assert await verify_journal(journal, lambda _: None) == ()


async def test_twins_are_found_under_either_digest(opened: Open) -> None:
    """A contract may begin or cease to withhold between two calls: the arguments are the same."""
    runs = [RunId("run-1")]
    keyed = Digest("b" * 64)
    async with opened() as journal:
        await journal.transact(recording(accepted(1, args=ALIKE), secret(2, args=keyed), accepted(3)))
        found = await journal.read(lambda view: view.twins(runs, ALIKE, keyed))
        assert [twin.operation_id for twin in found] == [operation_id(2), operation_id(1)]
        assert len(await journal.read(lambda view: view.twins(runs, keyed))) == 1
        assert await journal.read(lambda view: view.twins(runs)) == ()
        assert await journal.read(lambda view: view.twins(runs, digest(9), digest(9))) == ()


async def test_a_unit_that_fails_leaves_no_key_behind(opened: Open) -> None:
    """A keyed digest that was undone was never used."""

    def fail(tx: Transaction) -> None:
        tx.append(secret(1))
        raise LookupError

    async with opened() as journal:
        with pytest.raises(LookupError):
            await journal.transact(fail)
        await journal.transact(recording(driver_started()))
        assert not await journal.read(lambda view: view.has_keyed_digests)
