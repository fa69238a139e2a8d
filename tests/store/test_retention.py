"""What retention prunes, what it leaves behind, and what it costs the commits beside it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from statistics import median, quantiles
from time import perf_counter, thread_time
from typing import TypeVar

import pytest
from anyio import to_thread

from store.errors import ImpossibleEvent
from store.events import CommandAccepted, Draft, OperationAnnotated
from store.gaps import MANY
from store.journal import Journal
from store.lifecycle import Effect, Source, State
from store.pace import STEP_PAGES
from store.records import (
    Chain,
    CommandId,
    Digest,
    JournalId,
    JsonValue,
    OperationFilter,
    OperationId,
    RunId,
    StoredEvent,
    TriageRecord,
    timestamp,
)
from store.retention import LOOKED_AT, Retention, RetentionSettings, Step
from store.rollback import begin_history
from store.settings import JournalSettings
from store.transaction import Transaction
from store.verify import verify_file, verify_journal
from store.view import View
from tests.store.conftest import Clock, Open
from tests.store.drafts import (
    ALIKE,
    accepted,
    accepted_command,
    command_id,
    completed,
    digest,
    driver_started,
    failed,
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
from tests.store.stalls import probed

pytestmark = pytest.mark.anyio

T = TypeVar("T")

SETTINGS = RetentionSettings(
    retention=timedelta(days=30), retention_unknown=timedelta(days=100), tombstones=timedelta(days=365)
)


async def acknowledge(journal: Journal) -> None:
    """The plane has everything."""
    await journal.transact(lambda tx: tx.acknowledge(tx.last_seq))


async def prune(journal: Journal, settings: RetentionSettings = SETTINGS) -> Step:
    """One whole pass. Returns what its steps did in all."""
    retention = Retention(settings)
    done = Step()
    while not done.finished:
        done = done.then(await journal.transact(retention.step))
    return done


async def aged(journal: Journal, clock: Clock, days: float = 31) -> Step:
    """Acknowledge everything, let time pass, record something new, and prune."""
    await acknowledge(journal)
    clock.now += timedelta(days=days)
    await journal.transact(recording(driver_started()))
    return await prune(journal)


async def kept(journal: Journal) -> list[OperationId]:
    """The operations that the journal still has, oldest first."""
    page = await journal.read(lambda view: view.operations(OperationFilter(), None, 500))
    return [record.operation_id for record in reversed(page.items)]


async def is_sound(journal: Journal) -> bool:
    """Whether a running journal holds what it says."""
    return await verify_journal(journal, lambda _: None) == ()


async def is_rebuilt(settings: JournalSettings, now: datetime) -> bool:
    """Whether what is at rest is what its events make."""
    look = partial(verify_file, settings, lambda _: None, now=now, deep=True)
    return await to_thread.run_sync(look) == ()


# ------------------------------------------------------------ what goes, by the table of states


async def test_the_table_of_states_says_what_goes(opened: Open, clock: Clock) -> None:
    """Settled and acknowledged goes; what runs, or is unsettled, stays, however old it is."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), succeeded(1)))
        await journal.transact(recording(accepted(2), started(2), failed(2, effect=Effect.NONE)))
        await journal.transact(recording(accepted(3), not_executed(3)))
        await journal.transact(recording(accepted(4), started(4), failed(4)))
        await journal.transact(recording(accepted(5), started(5), failed(5, unsettled=True)))
        await journal.transact(recording(accepted(6), started(6), unknown(6)))
        await journal.transact(recording(accepted(7), started(7)))
        await journal.transact(recording(accepted(8)))
        await journal.transact(recording(accepted(9), started(9), unknown(9), reconciled(9, Effect.NONE)))
        await journal.transact(recording(accepted(10), started(10), unknown(10)))
        await journal.transact(recording(reconciled(10, Effect.UNKNOWN)))
        await journal.transact(recording(accepted(11), started(11), unknown(11)))
        await journal.transact(recording(reconciled(11, Effect.OCCURRED, actor="supervisor:rules")))
        await journal.transact(recording(accepted(12, write=False), started(12), unknown(12)))
        step = await aged(journal, clock)
        assert await kept(journal) == [operation_id(n) for n in (5, 6, 7, 8, 11)]
        assert step.commands == 7
        assert await is_sound(journal)


async def test_a_supervisors_word_is_kept_longer(opened: Open, clock: Clock) -> None:
    """It closes a listing, and is not the last word: somebody may still find out."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), unknown(1)))
        await journal.transact(recording(reconciled(1, Effect.NONE, actor="supervisor:rules")))
        await aged(journal, clock, days=99)
        assert await kept(journal) == [operation_id(1)]
        await aged(journal, clock, days=2)
        assert await kept(journal) == []


async def test_what_the_plane_has_not_acknowledged_stays(opened: Open, clock: Clock) -> None:
    """Not even its receipt's last event may be missing there."""
    async with opened() as journal:
        events = await journal.transact(recording(accepted(1), started(1), succeeded(1)))
        await journal.transact(lambda tx: tx.acknowledge(events[-1].seq - 1))
        clock.now += timedelta(days=31)
        await journal.transact(recording(driver_started()))
        assert (await prune(journal)).commands == 0
        await journal.transact(lambda tx: tx.acknowledge(events[-1].seq))
        assert (await prune(journal)).commands == 1


async def test_what_is_young_stays(opened: Open, clock: Clock) -> None:
    """Age counts from the newest event: a late word makes the whole story young again."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), unknown(1), accepted(2), not_executed(2)))
        clock.now += timedelta(days=29)
        await journal.transact(recording(reconciled(1, Effect.NONE)))
        await aged(journal, clock, days=2)
        assert await kept(journal) == [operation_id(1)]
        await aged(journal, clock, days=29)
        assert await kept(journal) == []


async def ahead(journal: Journal, clock: Clock, n: int, days: float) -> None:
    """Record a call while the clock is that far ahead, and set the clock right again."""
    clock.now += timedelta(days=days)
    await journal.transact(recording(accepted(n), not_executed(n)))
    clock.now -= timedelta(days=days)


async def test_a_clock_that_was_ahead_ends_no_pass(opened: Open, clock: Clock) -> None:
    """What was recorded then stays, and nothing behind it has to wait until that time has come."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), not_executed(1)))
        await ahead(journal, clock, 2, days=3_650)
        await journal.transact(recording(accepted(3), not_executed(3)))
        assert (await aged(journal, clock)).commands == 2
        assert await kept(journal) == [operation_id(2)]
        # the tombstones of what was pruned under such a clock hold up no others either
        clock.now += timedelta(days=3_650)
        assert (await prune(journal)).commands == 1
        clock.now -= timedelta(days=3_650)
        await journal.transact(recording(accepted(4), not_executed(4)))
        await aged(journal, clock)
        assert (await aged(journal, clock, days=366)).tombstones == 1
        assert await journal.read(lambda view: view.tombstone(command_id(2))) is not None
        assert await is_sound(journal)


@pytest.mark.parametrize("cause", ["clock", "rollback"])
async def test_a_thorough_pass_goes_behind_what_is_young(
    opened: Open, clock: Clock, monkeypatch: pytest.MonkeyPatch, *, cause: str
) -> None:
    """A clock that was ahead, or another history's acceptance: what is old behind that is found."""
    monkeypatch.setattr("store.retention.THOROUGH_S", 0.0)
    async with opened() as journal:
        await ahead(journal, clock, 1, days=20 if cause == "clock" else 0)
        await journal.transact(recording(accepted(2), not_executed(2)))
        await acknowledge(journal)
        clock.now += timedelta(days=31)
        if cause == "rollback":
            await journal.transact(lambda tx: begin_history(tx, JournalId("f" * 32)))
            await journal.transact(recording(accepted(1), not_executed(1)))
        await journal.transact(recording(driver_started()))
        retention, passes = Retention(SETTINGS), list[Step]()
        for _ in range(3):
            done = Step()
            while not done.finished:
                done = done.then(await journal.transact(retention.step))
            passes.append(done)
        # the first two end at what is young
        assert [done.commands for done in passes] == [0, 0, 1]
        assert await kept(journal) == [operation_id(1)]


async def test_a_dead_letter_keeps_its_operation(opened: Open, clock: Clock) -> None:
    """It never reached the plane, and somebody has to look at it."""
    async with opened() as journal:
        events = await journal.transact(recording(accepted(1), started(1), succeeded(1)))
        await journal.transact(lambda tx: tx.park(events[1].seq, "invalid", "no"))
        assert (await aged(journal, clock)).commands == 0


async def test_the_newest_event_stays(opened: Open, clock: Clock) -> None:
    """With its command, however old it is: a start looks whether the journal ends as it should."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), not_executed(1), accepted(2), not_executed(2)))
        await acknowledge(journal)
        clock.now += timedelta(days=31)
        await prune(journal)
        assert await kept(journal) == [operation_id(2)]
    async with opened() as journal:
        assert await is_sound(journal)


async def test_a_fenced_journal_is_left_as_it_is(opened: Open, clock: Clock) -> None:
    """What it holds may be what tells two histories apart."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), not_executed(1)))
        await journal.transact(lambda tx: tx.raise_fence("forked", "it is another one"))
        assert (await aged(journal, clock)).events == 0
        await journal.transact(lambda tx: tx.lift_fence())
        assert (await prune(journal)).commands == 1


async def test_other_commands_and_loose_events_go_too(opened: Open, clock: Clock) -> None:
    """Those that are no calls, final refusals, and what happened to the daemon; the newest event stays."""
    async with opened() as journal:
        await journal.transact(recording(driver_started(), refused(1), accepted_command(2, "run.cancel", {})))
        await journal.transact(recording(completed(2), accepted_command(3, "run.cancel", {})))
        step = await aged(journal, clock)
        assert (step.commands, step.events) == (2, 4)
        events = await journal.read(lambda view: view.events(0, 100, 1_000_000))
        assert [event.kind for event in events] == ["command.accepted", "driver.started"]
        assert await is_sound(journal)


@pytest.mark.parametrize("named", [True, False], ids=["its operation", "its run"])
async def test_what_an_open_command_is_about_stays(opened: Open, clock: Clock, *, named: bool) -> None:
    """Another attempt that has not begun is the open command and nothing else: it needs its operation."""
    data: dict[str, JsonValue] = {"operation_id": operation_id(1)} if named else {}
    kind = "operation.retry" if named else "run.compensate"
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), failed(1, effect=Effect.NONE)))
        await journal.transact(recording(accepted(2, run="run-2"), started(2), failed(2, effect=Effect.NONE)))
        await acknowledge(journal)
        clock.now += timedelta(days=31)
        await journal.transact(recording(accepted_command(3, kind, data)))
        await aged(journal, clock, days=0)
        assert await kept(journal) == [operation_id(1)]
        await journal.transact(recording(completed(3)))
        await aged(journal, clock)
        assert await kept(journal) == []
        assert await is_sound(journal)


async def test_a_child_stays_with_its_parent(opened: Open, clock: Clock) -> None:
    """A delegation's effect is judged by what its children did."""
    child = accepted(2, run="run-2")
    assert isinstance(child.data, CommandAccepted)
    child = replace(child, data=replace(child.data, parent_operation_id=operation_id(1)))
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), child, started(2), succeeded(2)))
        await aged(journal, clock)
        assert await kept(journal) == [operation_id(1), operation_id(2)]
        await journal.transact(recording(succeeded(1)))
        await aged(journal, clock)
        assert await kept(journal) == []


@pytest.mark.parametrize("erased", [False, True], ids=["pruned", "erased and pruned"])
async def test_a_child_run_stays_with_its_parent(
    opened: Open, clock: Clock, settings: JournalSettings, monkeypatch: pytest.MonkeyPatch, *, erased: bool
) -> None:
    """Also those of its calls that name no parent: the parent is no `none` as soon as they are old."""
    monkeypatch.setattr("store.pace.STEP_BYTES", 1)  # a step ends between the parent and its children
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), unknown(1), accepted(2), not_executed(2)))
        await journal.transact(recording(accepted(3, run="child"), started(3), succeeded(3)))
        await journal.transact(recording(accepted(4, run="child", parent=1), started(4), unknown(4)))
        await journal.transact(recording(accepted_command(5, "run.end", {}, run="child"), completed(5)))
        if erased:
            await acknowledge(journal)
            await journal.transact(lambda tx: tx.erase_run(RunId("child")))
        await aged(journal, clock)
        assert await kept(journal) == [operation_id(n) for n in (1, 3, 4)]
        await journal.transact(recording(reconciled(4, Effect.NONE)))
        parent = await journal.read(lambda view: view.operation(operation_id(1)))
        assert parent is not None
        assert (parent.effect, parent.effect_by) == (Effect.OCCURRED, Source.OPERATOR)
        assert await is_sound(journal)
        now = clock.now
    assert await is_rebuilt(settings, now)
    async with opened() as journal:
        await aged(journal, clock)
        assert await kept(journal) == []


async def test_what_is_older_than_a_delegation_is_no_part_of_it(opened: Open, clock: Clock) -> None:
    """A run that serves many keeps only what it may have done for those that stay; their own run, nothing."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1, run="child"), started(1), succeeded(1)))
        await journal.transact(recording(accepted(2), started(2), unknown(2), accepted(3), not_executed(3)))
        await journal.transact(recording(accepted(4, run="child", parent=2), not_executed(4)))
        await journal.transact(recording(accepted(5, parent=2), not_executed(5)))
        await journal.transact(recording(accepted(6, run="child"), not_executed(6)))
        await aged(journal, clock)
        assert await kept(journal) == [operation_id(n) for n in (2, 4, 5, 6)]


async def test_runs_that_serve_each_other_keep_nothing_for_ever(opened: Open, clock: Clock) -> None:
    """One calls the other back: what is over goes all the same."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), succeeded(1)))
        await journal.transact(recording(accepted(2, run="child", parent=1), started(2), succeeded(2)))
        await journal.transact(recording(accepted(3, parent=2), started(3), succeeded(3)))
        await journal.transact(recording(accepted(4), not_executed(4), accepted(5, run="child")))
        await journal.transact(recording(not_executed(5)))
        await aged(journal, clock)
        assert await kept(journal) == []


async def test_a_compensation_stays_with_what_it_compensates(opened: Open, clock: Clock) -> None:
    """Its id is what forbids a second one."""
    compensation = replace(accepted(2), command_id=CommandId(f"compensate:{operation_id(1)}"))
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), unknown(1), compensation, not_executed(2)))
        await aged(journal, clock)
        assert await kept(journal) == [operation_id(1), operation_id(2)]


# ------------------------------------------------------------ what is left


async def test_a_tombstone_is_left(opened: Open, clock: Clock) -> None:
    """Identity, content, receipt and effect: what a redelivery is answered with."""
    async with opened() as journal:
        *_, receipt = await journal.transact(recording(accepted(1), started(1), succeeded(1)))
        await journal.transact(recording(refused(2)))
        await aged(journal, clock)
        found = await journal.read(lambda view: view.tombstone(command_id(1)))
        assert found is not None
        assert (found.kind, found.seq, found.content_digest) == (receipt.kind, receipt.seq, digest(1))
        assert (found.operation_id, found.effect, found.run_id) == (
            operation_id(1),
            Effect.OCCURRED,
            RunId("run-1"),
        )
        other = await journal.read(lambda view: view.tombstone(command_id(2)))
        assert other is not None
        assert (other.kind, other.operation_id, other.effect) == ("command.refused", None, None)
        assert await journal.read(lambda view: view.command(command_id(1))) is None


async def test_an_old_id_is_never_accepted_again(opened: Open, clock: Clock) -> None:
    """Whoever forgets to look at the tombstones meets this."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), not_executed(1)))
        await aged(journal, clock)
        with pytest.raises(ImpossibleEvent, match="known already"):
            await journal.transact(recording(accepted(1)))


async def test_pruned_twins_are_still_twins(opened: Open, clock: Clock) -> None:
    """Once-per-run holds, and an operator's `unknown` still guards."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1, args=ALIKE), started(1), succeeded(1)))
        await journal.transact(recording(accepted(2, args=ALIKE), started(2), unknown(2)))
        await journal.transact(recording(reconciled(2, Effect.UNKNOWN), accepted(3, args=ALIKE)))
        await journal.transact(recording(accepted(4, args=ALIKE, write=False), not_executed(4)))
        await aged(journal, clock)
        assert await kept(journal) == [operation_id(3)]
        twins = await journal.read(lambda view: view.twins([RunId("run-1")], ALIKE))
        assert [(twin.operation_id, twin.guards) for twin in twins] == [
            (operation_id(3), True),
            (operation_id(2), True),
            (operation_id(1), False),
        ]
        assert (twins[2].state, twins[2].effect, twins[2].effect_by) == (
            State.SUCCEEDED,
            Effect.OCCURRED,
            Source.PROVIDER,
        )
        assert await journal.read(lambda view: view.twins([RunId("run-1")], Digest("b" * 64))) == ()


async def test_the_chain_goes_over_the_gaps(opened: Open, clock: Clock) -> None:
    """It is known as of the last event of each gap, and nowhere within."""
    async with opened() as journal:
        first = await journal.transact(recording(accepted(1), started(1), succeeded(1)))
        kept_one = await journal.transact(recording(accepted(2), started(2), unknown(2)))
        last = await journal.transact(recording(accepted(3), not_executed(3), accepted(4), not_executed(4)))
        await aged(journal, clock)
        chains = [
            await journal.read(partial(_chain_at, seq=event.seq)) for event in (*first, *kept_one, *last)
        ]
        assert chains[:3] == [None, None, first[-1].chain]
        assert chains[3:6] == [event.chain for event in kept_one]
        assert chains[6:] == [None, None, None, last[-1].chain]
        assert await is_sound(journal)


def _chain_at(view: View, *, seq: int) -> Chain | None:
    return view.chain_at(seq)


async def test_gaps_that_touch_become_one(opened: Open, clock: Clock, settings: JournalSettings) -> None:
    """However much is pruned, they are no more than what is kept between them."""
    async with opened() as journal:
        for n in range(1, 8):
            await journal.transact(recording(accepted(n), not_executed(n)))
        await journal.transact(recording(accepted(8), started(8), unknown(8), accepted(9), not_executed(9)))
        await aged(journal, clock)

        def gaps(view: View) -> list[tuple[int, int]]:
            return view.ledger.connection.execute("SELECT first, last FROM gaps ORDER BY first").fetchall()

        assert await journal.read(gaps) == [(1, 14), (18, 19)]
        await journal.transact(recording(reconciled(8, Effect.NONE)))
        await aged(journal, clock)
        assert await journal.read(gaps) == [(1, 21)]
        assert await is_sound(journal)
        now = clock.now
    assert await is_rebuilt(settings, now)


async def test_a_run_stays_known_while_its_tombstones_do(opened: Open, clock: Clock) -> None:
    """That it was ended, and what it resumes, outlives its events; then nothing of it is left."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), not_executed(1)))
        await journal.transact(
            recording(accepted(2, run="run-2", resumes=(RunId("run-1"),)), not_executed(2))
        )
        await journal.transact(
            recording(accepted_command(3, "run.end", {"outcome": "x"}, run="run-2"), completed(3))
        )
        await aged(journal, clock)
        run = await journal.read(lambda view: view.run(RunId("run-2")))
        assert run is not None
        assert (run.ended, run.outcome, run.operations) == (True, "x", 0)
        assert await journal.read(lambda view: view.resumed(RunId("run-2"))) == (RunId("run-1"),)
        step = await aged(journal, clock, days=366)
        assert step.tombstones == 3
        assert await journal.read(lambda view: view.run(RunId("run-2"))) is None
        assert await journal.read(lambda view: view.run(RunId("run-1"))) is None
        assert await journal.read(lambda view: view.tombstone(command_id(1))) is None
        assert await is_sound(journal)


async def test_a_triage_that_somebody_forestalled_keeps_no_run(opened: Open, clock: Clock) -> None:
    """A model was asked in vain, and then a person said what happened: nothing is left of either."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), unknown(1)))
        asked = TriageRecord(run_id=RunId("run-1"), attempts=1, not_before=timestamp(clock.now))
        await journal.transact(lambda tx: tx.set_triage(asked))
        await journal.transact(recording(reconciled(1, Effect.NONE)))
        await aged(journal, clock)
        await aged(journal, clock, days=366)
        assert await journal.read(lambda view: view.run(RunId("run-1"))) is None
        assert await is_sound(journal)


async def test_what_is_kept_is_rebuilt_from_its_events(
    opened: Open, clock: Clock, settings: JournalSettings
) -> None:
    """Rows keep their rowids, and runs begin with what pruning has left of them."""
    async with opened() as journal:
        for n in range(1, 30):
            run = f"run-{n % 5}"
            end = unknown(n) if n % 7 == 0 else succeeded(n)
            await journal.transact(recording(accepted(n, run=run), started(n), end))
        end_of_run = accepted_command(40, "run.end", {"outcome": "x"}, run="run-3")
        await journal.transact(recording(end_of_run, completed(40), secret(41), not_executed(41)))
        await aged(journal, clock)
        resuming = accepted(50, run="run-9", resumes=(RunId("run-3"), RunId("run-1")))
        await journal.transact(recording(resuming, started(50), accepted(51, run="run-3"), not_executed(51)))
        assert await is_sound(journal)
        now = clock.now
    assert await is_rebuilt(settings, now)
    async with opened() as journal:
        assert await kept(journal) == [operation_id(n) for n in (7, 14, 21, 28, 50, 51)]
        await aged(journal, clock)
        await journal.transact(recording(accepted(60, run="run-60"), not_executed(60)))
        now = clock.now
    assert await is_rebuilt(settings, now)


async def test_a_pruned_journal_opens_again(opened: Open, clock: Clock) -> None:
    """Its newest events may be all that is left, with a gap right before them."""
    async with opened() as journal:
        for n in range(1, 100):
            await journal.transact(recording(accepted(n), not_executed(n)))
        await journal.transact(recording(accepted(200), started(200), unknown(200)))
        await journal.transact(recording(accepted(100), not_executed(100)))
        await aged(journal, clock)
    async with opened() as journal:
        assert await kept(journal) == [operation_id(200)]
        assert await is_sound(journal)


# ------------------------------------------------------------ what it costs


def calls(first: int, count: int) -> Callable[[Transaction], tuple[StoredEvent, ...]]:
    """A unit that records that many calls, from start to end."""
    drafts: list[Draft] = []
    for n in range(first, first + count):
        drafts += [accepted(n, run=f"run-{n % 50}"), started(n), succeeded(n, result="y" * 500)]
    return recording(*drafts)


async def fill(journal: Journal, count: int, size: int = 100) -> None:
    """Record `count` calls."""
    for first in range(1, count, size):
        await journal.transact(calls(first, min(size, count + 1 - first)))


async def test_the_file_becomes_smaller_again(opened: Open, clock: Clock, settings: JournalSettings) -> None:
    """What is pruned is handed back to the file system, and no payload is left behind."""
    async with opened() as journal:
        await fill(journal, 1_000)
    before = (settings.state_dir / "journal.db").stat().st_size
    async with opened() as journal:
        step = await aged(journal, clock)
        assert step.commands == 1_000
        assert step.pages > 0
    after = (settings.state_dir / "journal.db").stat().st_size
    assert after < before / 3


async def test_a_step_is_short(opened: Open, clock: Clock) -> None:
    """However much there is to prune, a step takes a few milliseconds: it looks at the clock in between."""
    ticks = iter(range(1_000_000))
    async with opened() as journal:
        await fill(journal, 3 * LOOKED_AT)
        await acknowledge(journal)
        clock.now += timedelta(days=31)
        await journal.transact(recording(driver_started()))
        # a clock on which each look takes a quarter of a step
        await journal.read(lambda view: setattr(view.ledger.pace, "clock", lambda: next(ticks) * 0.0005))
        step = await journal.transact(Retention(SETTINGS).step)
        assert 1 <= step.commands <= 8
        assert not step.finished


async def test_commits_are_held_up_for_milliseconds(opened: Open, clock: Clock) -> None:
    """A step keeps the journal's thread busy for less than 20 ms, and takes no longer than a few commits.

    The first by its p95, in the thread's own time, the second by its median.
    """
    busy: list[float] = []

    async def timed(unit: Callable[[Transaction], T]) -> tuple[float, T]:
        began = perf_counter()
        done = await journal.transact(unit)
        return perf_counter() - began, done

    def step(tx: Transaction) -> Step:
        began = thread_time()  # of this thread alone: what others do meanwhile is not the step's
        done = retention.step(tx)
        busy.append(thread_time() - began)
        return done

    async with opened() as journal:
        await fill(journal, 1_500)
        await acknowledge(journal)
        clock.now += timedelta(days=31)
        alone = [(await timed(recording(driver_started())))[0] for _ in range(50)]
        retention = Retention(SETTINGS)
        steps: list[float] = []
        finished = False
        while not finished:
            took, done = await timed(step)
            steps.append(took)
            finished = done.finished
    assert len(busy) > 50
    assert quantiles(busy, n=20)[-1] < 0.02  # of some hundred, the garbage collector may take a few
    # a step may take 2 ms beside its fsync; twenty times that is left to a machine that is busy
    assert median(steps) < median(alone) * 4 + 0.04


async def most_copied(opened: Open, clock: Clock, settings: JournalSettings) -> int:
    """Prune what there is, from the start of a life on: how many pages a checkpoint copied at the most."""
    async with opened() as journal:
        await fill(journal, 600)
        await acknowledge(journal)
        clock.now += timedelta(days=31)
        await journal.transact(recording(driver_started()))
    file = settings.state_dir / "journal.db"
    async with opened() as journal, probed(journal, file) as probe:
        await prune(journal)
        await journal.transact(recording(driver_started()))
        assert sum(work.removes for work in probe.done) > 4
        return max((work.frames for work in probe.done if work.checkpoint), default=0)


async def test_what_pruning_changed_is_copied_in_small_parts(
    opened: Open, clock: Clock, settings: JournalSettings
) -> None:
    """From the first checkpoint of a life on: none has more than the last commit brought beyond the limit."""
    assert STEP_PAGES <= await most_copied(opened, clock, settings) < STEP_PAGES * 2


async def test_without_that_it_would_be_copied_at_once(
    opened: Open, clock: Clock, settings: JournalSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: the same pruning leaves more pages than that."""
    monkeypatch.setattr("store.pace.STEP_PAGES", 10_000)
    assert await most_copied(opened, clock, settings) >= STEP_PAGES * 3


async def test_what_was_demanded_goes_before_what_is_old(
    opened: Open, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of retention leaves the commit to the erasure that somebody waits for."""
    monkeypatch.setattr("store.erasure.AT_ONCE", 1)
    monkeypatch.setattr("store.pace.STEP_S", 0.0)
    async with opened() as journal:
        for n in range(1, 5):
            await journal.transact(recording(accepted(n), not_executed(n)))
        await acknowledge(journal)
        clock.now += timedelta(days=31)
        await journal.transact(recording(driver_started()))
        await journal.transact(lambda tx: tx.erase_run(RunId("run-1")))
        monkeypatch.undo()
        retention = Retention(SETTINGS)
        assert await journal.transact(retention.step) == Step()
        while not await journal.transact(lambda tx: tx.vanishes()):
            pass
        assert (await prune(journal)).commands == 4


async def test_an_earlier_history_is_pruned_as_any_other(
    opened: Open, clock: Clock, settings: JournalSettings
) -> None:
    """Its last event may be within a gap, and so may the first one of the history after it."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), not_executed(1), accepted(2), not_executed(2)))
        await journal.transact(lambda tx: begin_history(tx, JournalId("f" * 32)))
        await journal.transact(recording(accepted(3), started(3), unknown(3), accepted(4), not_executed(4)))
        await aged(journal, clock)
        assert await kept(journal) == [operation_id(3)]
        assert await is_sound(journal)
        await journal.transact(lambda tx: begin_history(tx, JournalId("e" * 32)))
        await journal.transact(recording(driver_started(), accepted(5), started(5), unknown(5)))
        await aged(journal, clock)
        assert await is_sound(journal)
        now = clock.now
    assert await is_rebuilt(settings, now)
    async with opened() as journal:
        assert await kept(journal) == [operation_id(3), operation_id(5)]


def annotations(n: int, first: int, count: int) -> tuple[Draft, ...]:
    """So many, each of which replaces the one before."""
    return tuple(
        Draft(data=OperationAnnotated(metadata={"note": f"{each}"}), operation_id=operation_id(n))
        for each in range(first, first + count)
    )


async def test_what_was_said_of_an_operation_goes_in_steps(
    opened: Open, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host may replace its annotation thousands of times: the journal is whole after each step."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), *annotations(1, 0, MANY * 2), succeeded(1)))
        await journal.transact(recording(*annotations(1, MANY * 2, MANY + 3), accepted(2), not_executed(2)))
        await acknowledge(journal)
        clock.now += timedelta(days=31)
        await journal.transact(recording(driver_started()))
        retention, steps, seen = Retention(SETTINGS), list[Step](), set[str]()
        monkeypatch.setattr("store.pace.STEP_BYTES", 1)  # a step ends after the first thing that it removes
        while not steps or not steps[-1].finished:
            steps.append(await journal.transact(retention.step))
            assert await verify_journal(journal, lambda _: None, deep=True) == ()
            operation = await journal.read(lambda view: view.operation(operation_id(1)))
            seen |= set() if operation is None else {str(operation.metadata)}
        assert await kept(journal) == []
        assert seen == {str({"note": str(MANY * 3 + 2)})}
    assert sum(step.events for step in steps) == MANY * 3 + 3 + 3 + 2
    assert max(step.events for step in steps) <= MANY + 6


async def test_an_annotation_that_nobody_may_lose_stays(opened: Open, clock: Clock) -> None:
    """One that the plane did not take, and that was not reported again."""
    async with opened() as journal:
        events = await journal.transact(recording(accepted(1), started(1), *annotations(1, 0, MANY * 2)))
        await journal.transact(recording(succeeded(1)))
        for event in events[2:-1]:
            await journal.transact(partial(_park, seq=event.seq))
        assert (await aged(journal, clock)).events == 0
        await journal.transact(lambda tx: tx.requeue(events[-2].seq))
        assert await is_sound(journal)


def _park(tx: Transaction, seq: int) -> None:
    tx.park(seq, "invalid", "no")


async def test_what_is_pruned_makes_room(opened: Open, clock: Clock, settings: JournalSettings) -> None:
    """A journal that was full takes new work as soon as pages are free in it, before the file shrinks."""
    async with opened() as journal:
        await fill(journal, 2_500)  # much more than a `-wal` can hold
        await acknowledge(journal)
    size = (settings.state_dir / "journal.db").stat().st_size
    async with opened(replace(settings, max_bytes=size + 200_000, reserve_bytes=200_000)) as journal:
        await journal.transact(recording(driver_started()))
        assert not await journal.transact(lambda tx: tx.room)
        await journal.transact(lambda tx: tx.acknowledge(tx.last_seq))
        clock.now += timedelta(days=31)
        await journal.transact(recording(driver_started()))
        retention, step = Retention(SETTINGS), Step()
        while not step.pages:
            step = await journal.transact(retention.step)
        assert await journal.transact(lambda tx: tx.room)
