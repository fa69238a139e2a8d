"""The loop: when a run is triaged, what it costs, and that nothing but one verdict settles an operation."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import cast

import anyio
import pytest
from anyio.abc import TaskGroup

from store.events import Draft, OperationSucceeded, OperationUnknown
from store.journal import Journal
from store.lifecycle import Effect, Source
from store.records import JsonObject, OperationRecord, RunId, TriageRecord, moment, timestamp
from store.transaction import Transaction
from store.view import View
from supervisor.loop import AT_ONCE_MAX, Supervisor
from supervisor.models.model import Judged, ModelFailed
from supervisor.models.rules import RulesModel
from supervisor.recording import Verdict, record
from supervisor.triage import Settings, Triage
from supervisor.verdict import Answer, Malformed, Word
from supervisor.wall import Entry, Wall
from tests.supervisor.stage import (
    PATIENCE_S,
    RUN,
    Clock,
    ScriptedModel,
    all_of_them,
    begin,
    called,
    decided,
    done,
    events_of,
    journal_at,
    lost,
    nothing_unsettled,
    operation,
    operation_id,
    outside_of,
    running,
    supervising,
    triage_command,
    unsettled,
    until,
)

pytestmark = pytest.mark.anyio


def failing(wall: Wall) -> Judged:
    """A model that nobody reaches."""
    del wall
    raise ModelFailed("scripted", "cannot be reached")


async def test_one_verdict_settles_all_operations_of_a_run(tmp_path: Path) -> None:
    """One `supervisor.verdict`, then one best-effort `operation.reconciled` for each, in one transaction."""
    model = ScriptedModel(all_of_them(Effect.OCCURRED))
    async with journal_at(tmp_path) as journal:
        for n in (1, 2, 3):
            await journal.transact(lost(n))
        async with running(supervising(journal, model)):
            await until(journal, nothing_unsettled)
        ((verdict, said),) = await events_of(journal, "supervisor.verdict")
        assert said["operation_ids"] == [operation_id(n) for n in (1, 2, 3)]
        assert (said["model"], said["status"], said["prompt_version"]) == ("scripted", "answered", "1")
        assert said["wall_digest"] == model.walls[0].digest
        assert (verdict.run_id, verdict.command_id, verdict.operation_id) == (RUN, None, None)
        reconciled = await events_of(journal, "operation.reconciled")
        assert [event.seq for event, _ in reconciled] == [verdict.seq + n for n in (1, 2, 3)]
        assert {str(data["actor"]) for _, data in reconciled} == {"supervisor:scripted"}
        for event in (verdict, *(event for event, _ in reconciled)):
            assert b'"best_effort":true' in (event.body or b"")
        settled = await journal.read(operation(2))
        assert (settled.effect, settled.effect_by, settled.best_effort, settled.settled, settled.guards) == (
            Effect.OCCURRED,
            Source.SUPERVISOR,
            True,
            True,
            True,
        )


async def test_a_run_is_triaged_again_for_fresh_operations_and_not_for_old_ones(tmp_path: Path) -> None:
    """Exactly while unsettled operations remain: what has a verdict is not asked about again."""
    model = ScriptedModel(all_of_them(Effect.UNKNOWN))
    async with journal_at(tmp_path) as journal:
        await journal.transact(lost(1))
        async with running(supervising(journal, model)):
            await until(journal, nothing_unsettled)
            await journal.transact(lost(2))
            await until(journal, nothing_unsettled)
            await journal.transact(triage_command(9))
            await journal.transact(done(3))
        assert [wall.operation_ids for wall in model.walls] == [(operation_id(1),), (operation_id(2),)]


async def test_a_thousand_operations_of_one_run_cost_at_most_twenty_calls(
    tmp_path: Path, measure: Callable[[str], None]
) -> None:
    """The bound of the wall at its default, with long arguments and errors: the measure that is promised."""
    model = ScriptedModel(all_of_them(Effect.UNKNOWN))
    async with journal_at(tmp_path) as journal:
        arguments: JsonObject = {"title": "a title " * 100, "body": "b" * 2_000}
        for first in range(0, 1_000, 50):
            await journal.transact(partial(_lose_some, first, arguments))
        async with running(supervising(journal, model)):
            await until(journal, nothing_unsettled)
        asked = [name for wall in model.walls for name in wall.operation_ids]
        assert sorted(asked) == [operation_id(n) for n in range(1_000)]
        largest = max(wall.size for wall in model.walls)
        calls = len(model.walls)
        line = f"1,000 unsettled operations of one run: {calls} model calls, {largest:,} bytes at most"
        assert largest <= 64_000
        measure(line)
        assert calls <= 20
        assert len(await events_of(journal, "operation.reconciled")) == 1_000
        assert await journal.read(lambda view: view.triage(RUN)) is None


def _lose_some(first: int, arguments: JsonObject, tx: Transaction) -> None:
    for n in range(first, first + 50):
        lost(n, arguments=arguments, message="the provider said: " + "e" * 1_500)(tx)


@pytest.mark.parametrize("where", ["open", "awaiting a probe", "young"])
async def test_a_run_that_is_not_at_rest_is_left_alone(tmp_path: Path, where: str) -> None:
    """What still runs, waits for a probe, or has just ended, may settle itself."""
    model = ScriptedModel(all_of_them(Effect.UNKNOWN))
    looked = anyio.Event()
    awaiting = [where == "awaiting a probe"]

    def awaits(view: View, record: OperationRecord) -> bool:
        looked.set()
        return awaiting[0]

    clock = Clock()
    async with journal_at(tmp_path, clock) as journal:
        await journal.transact(lost(1))
        if where == "open":
            await journal.transact(called(2, None))
        age = 3_600.0 if where == "young" else 0.0
        watched = supervising(journal, model, min_age_s=age, outside=outside_of(awaits=awaits))
        async with running(watched):
            for n in range(3):
                looked = anyio.Event()
                await journal.transact(triage_command(100 + n))
                await looked.wait()
            assert model.walls == []
            awaiting[0] = False
            clock.ahead = timedelta(hours=2)
            if where == "open":
                await journal.transact(decided_end)
            await journal.transact(triage_command(9))
            await until(journal, nothing_unsettled)
        assert len(model.walls) == 1


def decided_end(tx: Transaction) -> None:
    """The end of operation 2."""
    data = OperationSucceeded(result={}, receipt=None, attempts=1, duration_ms=1)
    tx.append(Draft(data=data, operation_id=operation_id(2)))


async def test_what_waits_for_a_probe_stays_out_of_the_wall_of_the_others(tmp_path: Path) -> None:
    """The others do not wait for it."""
    model = ScriptedModel(all_of_them(Effect.UNKNOWN))
    outside = outside_of(awaits=lambda _, record: record.operation_id == operation_id(1))
    async with journal_at(tmp_path) as journal:
        await journal.transact(lost(1))
        await journal.transact(lost(2))
        async with running(supervising(journal, model, outside=outside)):
            await until(journal, lambda view: view.unsettled()[0] == 1)
        (wall,) = model.walls
        assert wall.operation_ids == (operation_id(2),)
        assert wall.head["waiting_for_probes"] == 1


async def test_attempts_are_counted_backed_off_and_end_with_the_rules(tmp_path: Path) -> None:
    """A model that nobody reaches is asked `max_attempts` times, and then the rules say: look at it."""
    model = ScriptedModel(failing)
    async with journal_at(tmp_path) as journal:
        await journal.transact(lost(1))
        supervisor = supervising(journal, model, interval_s=0.01)
        async with running(supervisor):
            await until(journal, nothing_unsettled)
        assert len(model.walls) == 3
        assert supervisor.calls == {"failed": 3}
        ((_, said),) = await events_of(journal, "supervisor.verdict")
        assert (said["model"], said["status"], said["needs_attention"]) == ("rules", "fallback", True)
        assert "cannot be reached" in str(said["summary"])
        assert (await journal.read(operation(1))).effect is Effect.UNKNOWN


async def test_attempts_of_earlier_lives_count(tmp_path: Path) -> None:
    """A crash loop cannot spend money: the attempt is on the disk before the question leaves."""
    calls = 0
    for _ in range(6):
        async with journal_at(tmp_path) as journal:
            if calls == 0:
                await journal.transact(lost(1))
            crash = anyio.Event()

            def dying(wall: Wall, crash: anyio.Event = crash) -> Judged:
                crash.set()
                raise ModelFailed("scripted", "died with its process")

            model = ScriptedModel(dying)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(supervising(journal, model, interval_s=0.01).run)
                tasks.start_soon(_cancel_at, crash, tasks.cancel_scope)
                tasks.start_soon(_cancel_when_settled, journal, tasks.cancel_scope)
            calls += len(model.walls)
    assert calls == 3
    async with journal_at(tmp_path) as journal:
        assert await journal.read(nothing_unsettled)


async def test_without_the_durable_attempt_a_crash_loop_would_ask_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: what is not on the disk does not count."""

    def forgetful(self: Triage, tx: Transaction, run_id: RunId, *, asked: bool) -> TriageRecord:
        return TriageRecord(run_id=run_id, attempts=1, not_before=timestamp(tx.now))

    monkeypatch.setattr(Triage, "_begin", forgetful)
    calls = 0
    for life in range(5):
        async with journal_at(tmp_path) as journal:
            if life == 0:
                await journal.transact(lost(1))
            model = ScriptedModel(failing)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(supervising(journal, model, interval_s=0.01).run)
                tasks.start_soon(_cancel_at, model.asked, tasks.cancel_scope)
            calls += len(model.walls)
    assert calls == 5


async def _cancel_at(crash: anyio.Event, scope: anyio.CancelScope) -> None:
    await crash.wait()
    scope.cancel()


async def _cancel_when_settled(journal: Journal, scope: anyio.CancelScope) -> None:
    await until(journal, nothing_unsettled)
    scope.cancel()


async def test_an_answer_that_is_none_twice_comes_to_the_rules_at_once(tmp_path: Path) -> None:
    """Asking a third time would cost, and not help."""

    def garbled(wall: Wall) -> Judged:
        raise Malformed(problem="it holds no JSON object")

    model = ScriptedModel(garbled)
    async with journal_at(tmp_path) as journal:
        await journal.transact(lost(1))
        async with running(supervising(journal, model)):
            await until(journal, nothing_unsettled)
        assert len(model.walls) == 1
        ((_, said),) = await events_of(journal, "supervisor.verdict")
        assert (said["status"], said["needs_attention"]) == ("fallback", True)


async def test_a_bug_in_the_supervisor_stops_nobody_and_no_other_run(tmp_path: Path) -> None:
    """What goes wrong with one run is logged, and that run rests."""

    def broken_for_one(wall: Wall) -> Judged:
        if wall.run_id == "run-a":
            raise ZeroDivisionError
        return all_of_them(Effect.UNKNOWN)(wall)

    model = ScriptedModel(broken_for_one, is_paid=False)
    async with journal_at(tmp_path) as journal:
        await journal.transact(lost(1, run="run-a"))
        await journal.transact(lost(2, run="run-b"))
        async with running(supervising(journal, model)):
            await until(journal, lambda view: view.unsettled()[0] == 1)
        assert (await journal.read(operation(2))).settled
        assert not (await journal.read(operation(1))).settled


async def test_an_operator_who_decides_while_the_model_thinks_wins(tmp_path: Path) -> None:
    """Conditional on still being unsettled: better evidence stays, and the verdict does not name it."""
    async with journal_at(tmp_path) as journal:
        for n in (1, 2):
            await journal.transact(lost(n))
        thinking, decide = anyio.Event(), anyio.Event()

        class Slow(ScriptedModel):
            async def judge(self, wall: Wall) -> Judged:
                thinking.set()
                await decide.wait()
                return await super().judge(wall)

        model = Slow(all_of_them(Effect.NONE))
        async with running(supervising(journal, model)):
            await thinking.wait()
            await journal.transact(decided(1, Effect.OCCURRED))
            decide.set()
            await until(journal, nothing_unsettled)
        first, second = await journal.read(operation(1)), await journal.read(operation(2))
        assert (first.effect, first.effect_by) == (Effect.OCCURRED, Source.OPERATOR)
        assert (second.effect, second.effect_by) == (Effect.NONE, Source.SUPERVISOR)
        ((_, said),) = await events_of(journal, "supervisor.verdict")
        assert said["operation_ids"] == [operation_id(2)]


async def test_an_attempt_that_began_meanwhile_is_not_judged_by_the_old_wall(tmp_path: Path) -> None:
    """The model has seen one attempt; the second, whose end is lost too, comes on a wall of its own."""
    async with journal_at(tmp_path) as journal:
        await journal.transact(lost(1))
        supervisor = supervising(journal, RulesModel())
        wall = await supervisor.wall(RUN)
        assert wall is not None
        await journal.transact(begin(1, attempt=2))
        again = OperationUnknown(reason="connection_lost", phase="written", attempts=2)
        await journal.transact(lambda tx: tx.append(Draft(data=again, operation_id=operation_id(1))))
        judged = all_of_them(Effect.NONE)(wall)
        verdict = Verdict(wall=wall, answer=judged.answer, model="late", status="answered")
        assert await journal.transact(lambda tx: record(tx, verdict)) == ()
        assert not (await journal.read(operation(1))).settled
        assert await events_of(journal, "supervisor.verdict") == []


async def test_two_supervisors_on_one_journal_settle_each_operation_once(tmp_path: Path) -> None:
    """One wins: none lost, none doubled, and each verdict names only what it settled."""
    async with journal_at(tmp_path) as journal:
        for n in range(40):
            await journal.transact(lost(n, run=f"run-{n % 4}"))
        models = [ScriptedModel(all_of_them(Effect.UNKNOWN), name=name, is_paid=False) for name in "ab"]
        async with running(supervising(journal, models[0])), running(supervising(journal, models[1])):
            await until(journal, nothing_unsettled)
        reconciled = [event.operation_id for event, _ in await events_of(journal, "operation.reconciled")]
        assert sorted(str(name) for name in reconciled) == [operation_id(n) for n in range(40)]
        named = [
            name
            for _, said in await events_of(journal, "supervisor.verdict")
            for name in cast("list[str]", said["operation_ids"])
        ]
        assert sorted(str(name) for name in named) == [operation_id(n) for n in range(40)]


async def test_without_the_condition_an_operation_would_be_settled_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: the look inside the transaction is what makes one of them lose."""

    def always(tx: Transaction, entry: Entry) -> bool:
        return True

    monkeypatch.setattr("supervisor.recording._is_as_shown", always)
    async with journal_at(tmp_path) as journal:
        await journal.transact(lost(1))
        wall = await supervising(journal, RulesModel()).wall(RUN)
        assert wall is not None
        judged = all_of_them(Effect.NONE)(wall)
        for _ in range(2):
            verdict = Verdict(wall=wall, answer=judged.answer, model="m", status="answered")
            await journal.transact(partial(record, verdict=verdict))
        assert len(await events_of(journal, "operation.reconciled")) == 2


async def test_a_peer_that_asks_for_time_gets_it(tmp_path: Path) -> None:
    """`Retry-After` puts the next attempt off, over a restart as well; `run.triage` does not wait for it."""
    asked = anyio.Event()

    def busy(wall: Wall) -> Judged:
        asked.set()
        raise ModelFailed("scripted", "answered HTTP 429", retry_after_s=3_000.0)

    async with journal_at(tmp_path) as journal:
        await journal.transact(lost(1))
        async with running(supervising(journal, ScriptedModel(busy), interval_s=0.01)):
            await asked.wait()
            await until(journal, lambda view: _put_off(view, 2_000))
    async with journal_at(tmp_path) as journal:
        assert await journal.read(lambda view: _put_off(view, 2_000))
        model = ScriptedModel(all_of_them(Effect.UNKNOWN))
        async with running(supervising(journal, model, interval_s=0.01)):
            await journal.transact(triage_command(9))
            await until(journal, nothing_unsettled)
        assert len(model.walls) == 1


def _put_off(view: View, seconds: float) -> bool:
    triage = view.triage(RUN)
    return triage is not None and moment(triage.not_before) - view.now > timedelta(seconds=seconds)


async def test_a_daemon_that_may_not_act_asks_nobody(tmp_path: Path) -> None:
    """Draining, or fenced: what is unsettled stays so."""
    allowed: list[bool] = [False]
    looked = anyio.Event()

    def may_act() -> bool:
        looked.set()
        return allowed[0]

    model = ScriptedModel(all_of_them(Effect.UNKNOWN))
    async with journal_at(tmp_path) as journal:
        await journal.transact(lost(1))
        async with running(supervising(journal, model, outside=outside_of(may_act=may_act))):
            await looked.wait()
            assert model.walls == []
            allowed[0] = True
            await journal.transact(lost(2))
            await until(journal, nothing_unsettled)


async def test_the_rules_need_nobody_and_record_no_attempt(tmp_path: Path) -> None:
    """The embedded model is free: no durable attempt stands before it."""
    async with journal_at(tmp_path) as journal:
        await journal.transact(unsettled(1, "internal error"))
        async with running(supervising(journal, RulesModel())):
            await until(journal, nothing_unsettled)
        ((_, said),) = await events_of(journal, "supervisor.verdict")
        assert (said["model"], said["status"], said["needs_attention"]) == ("rules", "answered", True)


async def test_an_invented_id_settles_nothing(tmp_path: Path) -> None:
    """A model may name any operation: only those of its wall are touched."""

    def inventive(wall: Wall) -> Judged:
        words = (Word(operation_id(2), Effect.NONE, "mine"), Word("op_nowhere", Effect.NONE, "invented"))
        return Judged(Answer(needs_attention=False, summary="", words=words), "answered")

    async with journal_at(tmp_path) as journal:
        await journal.transact(lost(1))
        await journal.transact(called(2, None, run="run-2"))
        async with running(supervising(journal, ScriptedModel(inventive))):
            await until(journal, nothing_unsettled)
        assert (await journal.read(operation(1))).effect is Effect.UNKNOWN
        assert (await journal.read(operation(2))).effect_by is None
        assert await journal.read(lambda view: view.run(RunId("run-2"))) is not None


class Held(ScriptedModel):
    """Answers about some runs only once it is let go."""

    def __init__(self, says: Callable[[Wall], Judged], *runs: str) -> None:
        super().__init__(says)
        self.held = frozenset(runs)
        self.let_go = anyio.Event()

    async def judge(self, wall: Wall) -> Judged:
        self.walls.append(wall)
        self.asked.set()
        if wall.run_id in self.held:
            await self.let_go.wait()
        return self.says(wall)

    def asked_about(self) -> list[str]:
        """The runs, in the order in which they were asked about."""
        return [wall.run_id for wall in self.walls]

    async def until_asked(self, *runs: str) -> None:
        """Return once it was asked about these, each as often as it stands here, in any order."""
        with anyio.fail_after(PATIENCE_S):
            while sorted(self.asked_about()) != sorted(runs):
                self.asked = anyio.Event()
                await self.asked.wait()


class Watched(Supervisor):
    """Has room for so many, and tells when somebody finds none."""

    def __init__(self, journal: Journal, model: Held, room: int) -> None:
        settings = Settings(interval_s=0.05, max_attempts=3, wall_bytes_max=64_000, min_age_s=0.0)
        super().__init__(journal, model, settings, outside_of())
        self._slots = anyio.Semaphore(room)
        self.short = anyio.Event()

    async def _begin(self, tasks: TaskGroup, run_id: RunId, *, asked: bool) -> None:
        if not self._slots.value:
            self.short.set()
        await super()._begin(tasks, run_id, asked=asked)


async def test_a_model_that_never_answers_about_one_run_holds_up_no_other(tmp_path: Path) -> None:
    """Neither those that were unsettled then, nor those that become so; and its run is asked about once."""
    model = Held(all_of_them(Effect.UNKNOWN), "run-a")
    async with journal_at(tmp_path) as journal:
        await journal.transact(lost(1, run="run-a"))
        await journal.transact(lost(2, run="run-b"))
        async with running(supervising(journal, model)):
            await until(journal, lambda view: view.unsettled()[0] == 1)
            await model.until_asked("run-a", "run-b")
            await journal.transact(triage_command(9, run="run-a"))
            await journal.transact(lost(3, run="run-c"))
            await until(journal, lambda view: view.unsettled()[0] == 1)
            assert sorted(model.asked_about()) == ["run-a", "run-b", "run-c"]
            assert await journal.read(partial(_attempts, ("run-a", "run-b", "run-c"))) == [1, 0, 0]
            model.let_go.set()
            await until(journal, nothing_unsettled)
        assert sorted(model.asked_about()) == ["run-a", "run-b", "run-c"]


async def test_with_room_for_one_the_others_would_wait_for_it(tmp_path: Path) -> None:
    """Negative control: what lets the others pass is the room beside it."""
    model = Held(all_of_them(Effect.UNKNOWN), "run-a")
    async with journal_at(tmp_path) as journal:
        await journal.transact(lost(1, run="run-a"))
        await journal.transact(lost(2, run="run-b"))
        supervisor = Watched(journal, model, 1)
        async with running(supervisor):
            await supervisor.short.wait()
            await model.until_asked("run-a")
            assert await journal.read(lambda view: view.unsettled()[0]) == 2
            model.let_go.set()
            await until(journal, nothing_unsettled)


async def test_so_many_runs_are_triaged_at_once_and_no_more(tmp_path: Path) -> None:
    """Each of them with its attempt on the disk, and the one that waits for room without one."""
    names = [f"run-{n}" for n in range(AT_ONCE_MAX + 1)]
    model = Held(all_of_them(Effect.UNKNOWN), *names)
    async with journal_at(tmp_path) as journal:
        for n, name in enumerate(names):
            await journal.transact(lost(n, run=name))
        supervisor = Watched(journal, model, AT_ONCE_MAX)
        async with running(supervisor):
            await supervisor.short.wait()
            await model.until_asked(*names[:AT_ONCE_MAX])
            assert await journal.read(partial(_attempts, names)) == [1] * AT_ONCE_MAX + [0]
            model.let_go.set()
            await until(journal, nothing_unsettled)
        assert sorted(model.asked_about()) == names


async def test_what_was_asked_for_while_a_run_was_triaged_is_not_forgotten(tmp_path: Path) -> None:
    """`run.triage` ends a wait that begins after it, too, where the run was passed over meanwhile."""
    model = Held(failing, "run-a")
    async with journal_at(tmp_path) as journal:
        await journal.transact(lost(1, run="run-a"))
        async with running(supervising(journal, model, interval_s=3_000.0)):
            await model.until_asked("run-a")
            await journal.transact(triage_command(9, run="run-a"))
            await journal.transact(lost(2, run="run-b"))
            await model.until_asked("run-a", "run-b")
            model.let_go.set()
            await model.until_asked("run-a", "run-b", "run-a")
            assert await journal.read(partial(_attempts, ("run-a", "run-b"))) == [2, 1]


async def test_without_the_note_of_who_is_triaged_a_run_would_be_asked_about_twice_at_once(
    tmp_path: Path,
) -> None:
    """Negative control: the durable attempt bounds how often, and not how often at once."""

    class Forgetful(set[RunId]):
        def __contains__(self, run_id: object) -> bool:
            return False

    model = Held(all_of_them(Effect.UNKNOWN), "run-a")
    async with journal_at(tmp_path) as journal:
        await journal.transact(lost(1, run="run-a"))
        supervisor = supervising(journal, model)
        supervisor._judging = Forgetful()
        async with running(supervisor):
            await model.until_asked("run-a")
            await journal.transact(triage_command(9, run="run-a"))
            await model.until_asked("run-a", "run-a")


def _attempts(runs: Sequence[str], view: View) -> list[int]:
    found = [view.triage(RunId(run)) for run in runs]
    return [0 if triage is None else triage.attempts for triage in found]
