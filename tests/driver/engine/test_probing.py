"""Probes: what they settle, what they leave alone, and that they only ever read."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from driver.core.attempts import Answered, NotSent, PeerError, Phase, Report, Silence, ToolCall
from driver.core.contracts import Contract, Probe
from driver.core.expressions import Expression
from driver.core.probes import Unclear, count, is_look
from driver.core.redaction import MARKER, Redaction
from driver.core.templates import Template
from driver.engine.looks import probes_to_come
from driver.engine.probe_loop import ProbeLoop
from driver.engine.probing import LOOKS_MAX
from driver.providers.protocol import Progress
from store.events import Draft, OperationReconciled
from store.lifecycle import Effect, Source, State
from store.records import JsonObject, OperationId, RunId
from store.transaction import Transaction
from tests.driver.engine.again import DEDUPLICATING, ask_again
from tests.driver.engine.again import receipt as retried
from tests.driver.engine.rig import Clock, Rig, ScriptedProvider, call, command, engine, limits

pytestmark = pytest.mark.anyio

READ = {"find": Contract(declared=True, effect="read", execution_s=30.0)}
LOST = Silence(cause="connection_lost", message="the server went away")
FAILED = PeerError(code=-32603, message="the search is down")
PROBE = Probe(
    tool="find",
    arguments=Template({"marker": "=key"}),
    matches=Expression("length(result.found)"),
    visible_after_s=0.0,
    attempts=1,
    authoritative_absence=True,
)
PROBED = Contract(declared=True, probe=PROBE)


def with_probe(
    *, attempts: int = 1, visible_after_s: float = 0.0, authoritative_absence: bool = True
) -> Contract:
    """The contract, with another probe."""
    probe = replace(
        PROBE,
        attempts=attempts,
        visible_after_s=visible_after_s,
        authoritative_absence=authoritative_absence,
    )
    return replace(PROBED, probe=probe)


def found(*matches: str) -> Answered:
    """What the read says."""
    return Answered(result={"found": list(matches)})


def world(*answers: Report, lost: Report = LOST) -> ScriptedProvider:
    """A provider whose first call is lost, and whose reads then say this, one after the other."""
    return ScriptedProvider(answers=[lost, *answers], answer=answers[-1] if answers else FAILED)


class Death(BaseException):
    """The process is gone, at this very point."""


class HeldLooks(ScriptedProvider):
    """Lets each look stand still until the gate opens, and nothing else."""

    async def dispatch(self, call: ToolCall, progress: Progress) -> Report:
        """Hold what is a look."""
        self.held_at = Phase.WRITTEN if is_look(call.operation_id) else None
        return await super().dispatch(call, progress)


async def data_of(rig: Rig, kind: str) -> list[JsonObject]:
    """The data of all events of a kind."""
    return [json.loads(event.body or b"")["data"] for event in await rig.events() if event.kind == kind]


async def receipt(rig: Rig, command_id: str = "probe-1") -> JsonObject:
    """What became of a command."""
    while True:
        ended = [event for event in await rig.events() if event.terminal and event.command_id == command_id]
        if ended:
            return {"kind": ended[0].kind, **json.loads(ended[0].body or b"")["data"]}
        await rig.quiet()


# ------------------------------------------------------------ by itself


@pytest.mark.parametrize(
    ("answer", "verdict", "effect"),
    [
        (found("a"), "occurred", Effect.OCCURRED),
        (found(), "absent", Effect.NONE),
        (found("a", "b"), "duplicated", Effect.OCCURRED),
    ],
)
async def test_a_probe_settles_what_nobody_knows(
    tmp_path: Path, answer: Report, verdict: str, effect: Effect
) -> None:
    """By itself, at once, with a verdict of its own rank, and both are one commit."""
    async with engine(tmp_path, provider := world(answer), contract=PROBED, others=READ) as rig:
        await rig.intake.deliver([call()])
        operation = await rig.until(lambda record: record.effect_by is Source.PROBE)
        (probed,) = await data_of(rig, "operation.probed")
        (reconciled,) = await data_of(rig, "operation.reconciled")
        events = [event for event in await rig.events() if event.kind.startswith("operation.")][-2:]
    assert (operation.state, operation.effect, operation.settled) == (State.UNKNOWN, effect, True)
    assert not operation.best_effort
    assert probed["verdict"] == verdict
    assert (reconciled["actor"], reconciled["basis"]) == ("probe:tools/find", "probe")
    assert reconciled["effect"] == effect
    assert reconciled["started_seq"] == operation.started_seq
    assert reconciled["supersedes"] == probed["supersedes"]
    assert [event.kind for event in events] == ["operation.probed", "operation.reconciled"]
    assert events[0].at == events[1].at
    assert not any(event.terminal for event in events)
    assert [look.tool for look in provider.executed] == ["act", "find"]


async def test_a_look_is_a_read_under_an_id_of_its_own(tmp_path: Path) -> None:
    """No operation, no key, no slot: nothing that it comes to can land on what it asks about."""
    async with engine(tmp_path, provider := world(found("a")), contract=PROBED, others=READ) as rig:
        await rig.intake.deliver([call()])
        operation = await rig.until(lambda record: record.effect_by is Source.PROBE)
        _, look = provider.executed
        before = await rig.kinds()
        rig.dispatcher.late(look.operation_id, look.attempt, found())
        await rig.quiet()
        assert await rig.kinds() == before
    assert is_look(look.operation_id)
    assert look.key is None
    assert look.arguments == {"marker": operation.operation_id}
    assert look.timeout_s == 30.0
    assert [event for event in before if event == "operation.started"] == ["operation.started"]


@pytest.mark.parametrize(
    "answer",
    [
        FAILED,
        LOST,
        Answered(result={"found": []}, is_error=True),
        Answered(result={"found": None}),
        Answered(result={}),
    ],
    ids=["error", "silence", "tool error", "null", "another shape"],
)
async def test_a_failed_look_settles_nothing(tmp_path: Path, answer: Report) -> None:
    """However often it is repeated; then it is the supervisor's, and the list's."""
    contract = with_probe(attempts=2)
    async with engine(tmp_path, provider := world(answer), contract=contract, others=READ) as rig:
        await rig.intake.deliver([call()])
        await rig.reaches("operation.probed", 2)
        await rig.quiet()
        operation = await rig.operation()
        looks = await data_of(rig, "operation.probed")
    assert [look["verdict"] for look in looks] == ["undetermined"] * 2
    assert all(look["matches"] is None and look["detail"] for look in looks)
    assert (operation.effect, operation.effect_by, operation.settled) == (Effect.UNKNOWN, None, False)
    assert [look.tool for look in provider.executed] == ["act", "find", "find"]


async def test_a_provider_that_raises_settles_nothing(tmp_path: Path) -> None:
    """An exception of ours is no answer."""
    provider = ScriptedProvider(fails=RuntimeError("a bug"), answer=found("a"))
    async with engine(tmp_path, provider, contract=with_probe(attempts=2), others=READ) as rig:
        await rig.intake.deliver([call()])
        await rig.reaches("operation.probed")
        (look,) = await data_of(rig, "operation.probed")
    assert (look["verdict"], "RuntimeError" in str(look["detail"])) == ("undetermined", True)


async def test_a_look_that_could_not_leave_settles_nothing(tmp_path: Path) -> None:
    """A provider that cannot be reached has said nothing."""
    async with engine(tmp_path, ScriptedProvider(answer=LOST), contract=Contract(declared=True)) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
    refused = NotSent(reason="connect_failed", message="nobody there")
    provider = ScriptedProvider(objection=refused, answer=found())
    async with engine(tmp_path, provider, contract=PROBED, others=READ) as rig:
        await rig.reaches("operation.probed")
        (look,) = await data_of(rig, "operation.probed")
    assert look["verdict"] == "undetermined"
    assert "nobody there" in str(look["detail"])
    assert provider.executed == []


@pytest.mark.parametrize(
    "others",
    [{}, {"find": Contract(declared=True)}, {"find": Contract(effect="read")}],
    ids=["unknown", "a write", "not declared"],
)
async def test_only_what_is_declared_a_read_is_ever_called(
    tmp_path: Path, others: dict[str, Contract]
) -> None:
    """Whatever the configuration's own rules let through: it is looked up again at the moment of the call."""
    async with engine(tmp_path, provider := world(found("a")), contract=PROBED, others=others) as rig:
        await rig.intake.deliver([call()])
        await rig.reaches("operation.probed")
        (look,) = await data_of(rig, "operation.probed")
    assert look["verdict"] == "undetermined"
    assert "not declared a read" in str(look["detail"])
    assert [look.tool for look in provider.executed] == ["act"]


async def test_more_than_one_match_is_an_alarm(tmp_path: Path) -> None:
    """It happened twice, for one operation: somebody must look, and the log says so."""
    with capture_logs() as logs:
        async with engine(tmp_path, world(found("a", "b")), contract=PROBED, others=READ) as rig:
            await rig.intake.deliver([call()])
            operation = await rig.until(lambda record: record.effect_by is Source.PROBE)
    (alarm,) = [entry for entry in logs if entry["event"] == "effect_duplicated"]
    assert (alarm["log_level"], alarm["operation_id"], alarm["matches"]) == (
        "error",
        operation.operation_id,
        2,
    )


async def test_nothing_found_too_early_proves_nothing(tmp_path: Path) -> None:
    """Before an effect must be visible its absence is none; later it is, and the schedule looks then."""
    clock = Clock()
    contract = with_probe(attempts=2, visible_after_s=600.0)
    async with engine(tmp_path, world(found()), contract=contract, others=READ, clock=clock) as rig:
        await rig.intake.deliver([call()])
        await rig.reaches("operation.probed")
        await rig.quiet()
        early = await rig.operation()
        assert (early.effect_by, early.settled) == (None, False)
        clock.pass_by(601)
        rig.engine.pump()
        late = await rig.until(lambda record: record.effect_by is Source.PROBE)
        looks = await data_of(rig, "operation.probed")
    assert [look["verdict"] for look in looks] == ["undetermined", "absent"]
    assert late.effect is Effect.NONE


async def test_what_may_still_land_is_not_absent(tmp_path: Path) -> None:
    """After a deadline the call may be on its way for as long as it is listened for."""
    clock = Clock()
    contract = replace(with_probe(attempts=2), late_result_s=900.0)
    timeout = Silence(cause="deadline", message="no answer")
    provider = world(found(), lost=timeout)
    async with engine(tmp_path, provider, contract=contract, others=READ, clock=clock) as rig:
        await rig.intake.deliver([call()])
        await rig.reaches("operation.probed")
        assert (await rig.operation()).reason == "execution_timeout"
        clock.pass_by(899)
        rig.engine.pump()
        await rig.quiet()
        assert (await rig.kinds()).count("operation.probed") == 1
        clock.pass_by(2)
        rig.engine.pump()
        await rig.until(lambda record: record.effect_by is Source.PROBE)
        looks = await data_of(rig, "operation.probed")
    assert [look["verdict"] for look in looks] == ["undetermined", "absent"]


async def test_a_clock_that_is_set_forward_makes_nothing_absent(tmp_path: Path) -> None:
    """What may still land is looked for, and not found, at a time that has not come by any other clock."""
    clock = Clock()
    contract = replace(with_probe(attempts=2, visible_after_s=0.0), late_result_s=900.0)
    provider = world(found(), lost=Silence(cause="deadline", message="no answer"))
    async with engine(tmp_path, provider, contract=contract, others=READ, clock=clock) as rig:
        await rig.intake.deliver([call()])
        await rig.reaches("operation.probed")
        clock.ahead = timedelta(hours=2)
        rig.engine.pump()
        await rig.reaches("operation.probed", 2)
        looks = await data_of(rig, "operation.probed")
        assert (await rig.operation()).settled is False
    assert [look["verdict"] for look in looks] == ["undetermined", "undetermined"]


async def test_absence_that_nobody_vouches_for_settles_nothing(tmp_path: Path) -> None:
    """A search that may miss things shows presence, and nothing else."""
    contract = with_probe(authoritative_absence=False)
    async with engine(tmp_path, world(found()), contract=contract, others=READ) as rig:
        await rig.intake.deliver([call()])
        await rig.reaches("operation.probed")
        await rig.quiet()
        (look,) = await data_of(rig, "operation.probed")
        assert (await rig.operation()).effect_by is None
    assert (look["verdict"], look["matches"]) == ("undetermined", 0)


async def test_a_late_answer_during_the_look_is_stronger(tmp_path: Path) -> None:
    """What the provider said meanwhile stands; the look is recorded, and is no verdict."""
    provider = HeldLooks(answers=[LOST], answer=found())
    async with engine(tmp_path, provider, contract=PROBED, others=READ) as rig:
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
        operation = await rig.operation()
        rig.dispatcher.late(operation.operation_id, 1, Answered(result={"ok": True}))
        await rig.until(lambda record: record.effect_by is Source.PROVIDER)
        provider.gate.set()
        await rig.reaches("operation.probed")
        await rig.quiet()
        ended, kinds = await rig.operation(), await rig.kinds()
    assert (ended.effect, ended.effect_by) == (Effect.OCCURRED, Source.PROVIDER)
    assert "operation.reconciled" not in kinds
    assert "operation.diverged" not in kinds


def say(operation_id: OperationId, effect: Effect, actor: str) -> Callable[[Transaction], None]:
    """A verdict of somebody else, as a unit of the journal."""
    data = OperationReconciled(
        effect=effect, actor=actor, basis="test", note="", evidence=(), started_seq=None
    )
    best_effort = actor.startswith("supervisor")
    draft = Draft(data=data, operation_id=operation_id, best_effort=best_effort)

    def unit(tx: Transaction) -> None:
        tx.append(draft)

    return unit


@pytest.mark.parametrize("effect", list(Effect))
async def test_an_operators_word_is_stronger_and_ends_the_schedule(tmp_path: Path, effect: Effect) -> None:
    """Even where it says that nobody can know: that is a last word."""
    contract = with_probe(attempts=4, visible_after_s=600.0)
    async with engine(
        tmp_path, world(found()), contract=contract, others=READ, clock=(clock := Clock())
    ) as rig:
        await rig.intake.deliver([call()])
        await rig.reaches("operation.probed")
        operation = await rig.operation()
        await rig.journal.transact(say(operation.operation_id, effect, "operator:1000"))
        clock.pass_by(700)
        rig.engine.pump()
        await rig.quiet()
        looks = (await rig.kinds()).count("operation.probed")
        ended = await rig.operation()
    assert looks <= 2
    assert (ended.effect, ended.effect_by) == (effect, Source.OPERATOR)


async def test_probes_go_on_after_a_best_effort_verdict(tmp_path: Path) -> None:
    """A supervisor has looked at nothing: what a probe sees is stronger, and comes all the same."""
    contract = with_probe(attempts=2, visible_after_s=600.0)
    async with engine(
        tmp_path, world(found()), contract=contract, others=READ, clock=(clock := Clock())
    ) as rig:
        await rig.intake.deliver([call()])
        await rig.reaches("operation.probed")
        operation = await rig.operation()
        await rig.journal.transact(say(operation.operation_id, Effect.OCCURRED, "supervisor:rules"))
        guessed = await rig.operation()
        assert (guessed.effect, guessed.best_effort) == (Effect.OCCURRED, True)
        assert await rig.journal.read(lambda view: probes_to_come(view, guessed, contract))
        clock.pass_by(700)
        rig.engine.pump()
        ended = await rig.until(lambda record: record.effect_by is Source.PROBE)
        assert not await rig.journal.read(lambda view: probes_to_come(view, ended, contract))
    assert (ended.effect, ended.best_effort) == (Effect.NONE, False)


# ------------------------------------------------------------ across restarts


async def test_a_restart_goes_on_where_the_schedule_was(tmp_path: Path) -> None:
    """The looks are counted in the journal: a crash loop does not ask for ever."""
    contract = with_probe(attempts=3, visible_after_s=600.0)
    provider = world(FAILED)
    async with engine(tmp_path, provider, contract=contract, others=READ) as rig:
        await rig.intake.deliver([call()])
        await rig.reaches("operation.probed")
    clock = Clock()
    clock.pass_by(700)
    for expected in (2, 3, 3, 3):
        async with engine(tmp_path, provider, contract=contract, others=READ, clock=clock) as rig:
            await rig.reaches("operation.probed", expected)
            await rig.quiet()
        clock.pass_by(120)
    assert len([look for look in provider.executed if look.tool == "find"]) == 3


async def test_what_a_supervisor_settled_is_found_again_after_a_restart(tmp_path: Path) -> None:
    """It stands on no list any more, and is looked for all the same."""
    contract = with_probe(attempts=2, visible_after_s=600.0)
    async with engine(tmp_path, world(found()), contract=contract, others=READ) as rig:
        await rig.intake.deliver([call()])
        await rig.reaches("operation.probed")
        operation = await rig.operation()
        await rig.journal.transact(say(operation.operation_id, Effect.NONE, "supervisor:rules"))
    clock = Clock()
    clock.pass_by(700)
    provider = ScriptedProvider(answer=found("a"))
    async with engine(tmp_path, provider, contract=contract, others=READ, clock=clock) as rig:
        ended = await rig.until(lambda record: record.effect_by is Source.PROBE)
    assert ended.effect is Effect.OCCURRED


async def test_nothing_is_asked_before_the_plane_has_confirmed_the_history(tmp_path: Path) -> None:
    """In a restored snapshot, the answer would be evidence about another life's operation."""
    contract = with_probe(attempts=2, visible_after_s=0.0)
    async with engine(tmp_path, ScriptedProvider(answers=[LOST]), contract=Contract(declared=True)) as rig:
        await rig.intake.deliver([call()])
        await rig.reaches("operation.unknown")
    provider = ScriptedProvider(answer=found("a"))
    async with engine(tmp_path, provider, contract=contract, others=READ, confirmed=False) as rig:
        await rig.quiet()
        assert provider.executed == []
        rig.desk.history_confirmed()
        ended = await rig.until(lambda record: record.effect_by is Source.PROBE)
    assert ended.effect is Effect.OCCURRED


async def test_a_drain_leaves_looks_to_the_next_life(tmp_path: Path) -> None:
    """No new read is begun, and one that hangs holds nobody up: nothing of it is recorded."""
    provider = HeldLooks(answers=[LOST], answer=found("a"))
    async with engine(tmp_path, provider, contract=PROBED, others=READ) as rig:
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
        rig.posture.draining = True
        await rig.dispatcher.drain()
        assert rig.dispatcher.slots.in_use == 0
    other = ScriptedProvider(answer=found("a"))
    async with engine(tmp_path, other, contract=PROBED, others=READ) as rig:
        ended = await rig.until(lambda record: record.effect_by is Source.PROBE)
        assert (await rig.kinds()).count("operation.probed") == 1
    assert ended.effect is Effect.OCCURRED


class SlowToGetReady(ScriptedProvider):
    """Is not ready for a look before the gate opens."""

    async def prepare(self, call: ToolCall) -> NotSent | None:
        """Hold what is a look."""
        self.held_in_prepare = is_look(call.operation_id)
        return await super().prepare(call)


async def test_a_look_that_waits_is_not_put_once_the_daemon_is_fenced(tmp_path: Path) -> None:
    """Its provider gets ready under the fence: nothing is asked or recorded, and all is looked at later."""
    provider = SlowToGetReady(answers=[LOST], answer=found("a"))
    async with engine(tmp_path, provider, contract=PROBED, others=READ) as rig:
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
        await rig.desk.fence("superseded", "by another life")
        provider.gate.set()
        await rig.quiet()
        assert [asked.tool for asked in provider.executed] == ["act"]
        assert "operation.probed" not in await rig.kinds()
        await rig.engine.fences.lift(accept_rollback=False, actor="operator:0")
        await rig.quiet()
        assert [asked.tool for asked in provider.executed] == ["act"]
        rig.desk.history_confirmed()
        await rig.until(lambda record: record.effect_by is Source.PROBE)
        assert (await rig.kinds()).count("operation.probed") == 1
    assert [asked.tool for asked in provider.executed] == ["act", "find"]


async def test_a_look_whose_turn_comes_under_a_fence_is_not_put(tmp_path: Path) -> None:
    """Those that wait behind others, too: no provider is even made ready for them."""
    provider = HeldLooks(answers=[LOST] * LOOKS_MAX, answer=found("a"))
    async with engine(tmp_path, provider, contract=PROBED, others=READ) as rig:
        await rig.intake.deliver([call(f"cmd-{n}", arguments={"n": n}) for n in range(LOOKS_MAX)])
        await rig.reaches("operation.unknown", LOOKS_MAX)
        await rig.quiet()
        asked = (await rig.operation("cmd-0")).operation_id
        await rig.intake.deliver([command("operation.probe", "probe-1", operation_id=asked)])
        await rig.quiet()
        before = len(provider.prepared)
        await rig.desk.fence("superseded", "by another life")
        provider.gate.set()
        await rig.reaches("operation.probed", LOOKS_MAX)
        await rig.quiet()
        assert len(provider.prepared) == before
        assert rig.engine.errands.depth == 1
        await rig.engine.fences.lift(accept_rollback=False, actor="operator:0")
        rig.desk.history_confirmed()
        assert (await receipt(rig))["kind"] == "command.completed"


async def test_an_answer_from_before_a_rollback_says_nothing_after_it(tmp_path: Path) -> None:
    """Another life may have acted until somebody accepted it: the look is put anew, and that one counts."""
    provider = HeldLooks(answers=[LOST, found()], answer=found("a"))
    async with engine(tmp_path, provider, contract=PROBED, others=READ) as rig:
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
        await rig.desk.fence("rolled_back", "d")
        await rig.engine.fences.lift(accept_rollback=True, actor="operator:0")
        rig.desk.history_confirmed()
        provider.gate.set()
        ended = await rig.until(lambda record: record.effect_by is Source.PROBE)
        assert (await rig.kinds()).count("operation.probed") == 1
    assert ended.effect is Effect.OCCURRED
    assert [asked.tool for asked in provider.executed] == ["act", "find", "find"]


class SlowToLeave(HeldLooks):
    """Holds every further attempt before its first byte, too, at a gate of its own."""

    leaving: anyio.Event
    left: anyio.Event

    async def dispatch(self, call: ToolCall, progress: Progress) -> Report:
        """Stand still on the way to the provider."""
        if call.attempt > 1:
            progress(Phase.CONNECTING)
            self.leaving.set()
            await self.left.wait()
        return await super().dispatch(call, progress)


async def test_what_a_look_finds_withdraws_an_attempt_that_has_not_left(tmp_path: Path) -> None:
    """The look was put before the attempt began, and answered behind its last look at the evidence."""
    provider = SlowToLeave(answers=[LOST, found("a")])
    provider.leaving, provider.left = anyio.Event(), anyio.Event()
    contract = replace(DEDUPLICATING, probe=PROBE)
    async with engine(tmp_path, provider, contract=contract, others=READ) as rig:
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
        await ask_again(rig)
        await provider.leaving.wait()
        provider.gate.set()
        await rig.reaches("operation.reconciled")
        await rig.quiet()
        provider.left.set()
        _, data = await retried(rig)
        operation = await rig.operation()
    assert (data["attempt"], data["outcome"], data["reason"]) == (2, "not_executed", "cancelled")
    assert (operation.effect, operation.effect_by) == (Effect.OCCURRED, Source.PROBE)
    assert [made.tool for made in provider.executed] == ["act", "find"]


async def test_looks_are_bounded_for_each_provider(tmp_path: Path) -> None:
    """A hundred unknowns are no hundred reads at once, and take no slot from a call."""
    provider = HeldLooks(answers=[LOST] * 20, answer=found("a"))
    async with engine(tmp_path, provider, contract=PROBED, others=READ) as rig:
        await rig.intake.deliver([call(f"cmd-{n}", arguments={"n": n}) for n in range(20)])
        await rig.reaches("operation.unknown", 20)
        await rig.quiet()
        at_once = len([look for look in provider.executed if look.tool == "find"])
        assert rig.dispatcher.slots.in_use == 0
        provider.gate.set()
        await rig.reaches("operation.probed", 20)
    assert at_once == LOOKS_MAX


# ------------------------------------------------------------ when somebody asks


async def unsettled(rig: Rig) -> OperationId:
    """An operation that no schedule will probe any more."""
    await rig.intake.deliver([call()])
    await rig.reaches("operation.probed")
    await rig.quiet()
    return (await rig.operation()).operation_id


async def test_a_probe_that_a_rollback_overtakes_ends_with_it(tmp_path: Path) -> None:
    """Its answer is dropped, and its errand waits for nothing more."""
    provider = HeldLooks(answers=[LOST], answer=FAILED)
    provider.gate.set()
    async with engine(tmp_path, provider, contract=PROBED, others=READ) as rig:
        asked = await unsettled(rig)
        provider.gate, provider.arrived = anyio.Event(), anyio.Event()
        await rig.intake.deliver([command("operation.probe", "probe-1", operation_id=asked)])
        await provider.arrived.wait()
        await rig.desk.fence("rolled_back", "d")
        await rig.engine.fences.lift(accept_rollback=True, actor="operator:0")
        rig.desk.history_confirmed()
        provider.gate.set()
        await rig.quiet()
        assert rig.engine.errands.depth == 0
        assert (await receipt(rig))["code"] == "rolled_back"


async def test_a_look_can_be_asked_for(tmp_path: Path) -> None:
    """It is a command of its own, whose receipt says what was found, whenever that is."""
    async with engine(tmp_path, world(FAILED, found("a")), contract=PROBED, others=READ) as rig:
        operation_id = await unsettled(rig)
        await rig.intake.deliver([command("operation.probe", "probe-1", operation_id=operation_id)])
        told = await receipt(rig)
        ended = await rig.operation()
    assert told["kind"] == "command.completed"
    assert told["result"] == {"operation_id": operation_id, "verdict": "occurred", "matches": 1}
    assert (ended.effect, ended.effect_by) == (Effect.OCCURRED, Source.PROBE)


async def test_what_a_look_quotes_is_erased_with_what_it_was_about(tmp_path: Path) -> None:
    """A detail may hold the provider's own words: no receipt of another run has them."""
    quoted = PeerError(code=-32603, message="canary-word")
    async with engine(tmp_path, world(quoted), contract=PROBED, others=READ) as rig:
        operation_id = await unsettled(rig)
        desk = RunId("desk")
        await rig.intake.deliver(
            [command("operation.probe", "probe-1", run_id=desk, operation_id=operation_id)]
        )
        assert (await receipt(rig))["kind"] == "command.completed"
        looks = await data_of(rig, "operation.probed")
        assert all("canary-word" in str(look["detail"]) for look in looks)
        said = [
            command(
                "operation.reconcile",
                "verdict-1",
                operation_id=operation_id,
                effect="none",
                actor="ann",
                note="no",
            )
        ]
        await rig.intake.deliver(said)
        await rig.journal.transact(lambda tx: tx.acknowledge(tx.last_seq))
        await rig.intake.deliver([command("run.erase", "erase-1")])
        erased = (await receipt(rig, "erase-1"))["result"]
        assert isinstance(erased, dict)
        assert erased["erased"] == 1
    files = (tmp_path / "state").iterdir()
    assert not any(b"canary-word" in file.read_bytes() for file in files if file.is_file())


async def test_a_look_at_what_is_settled_changes_nothing(tmp_path: Path) -> None:
    """It may be asked for, and is recorded; a second verdict it is not."""
    async with engine(tmp_path, world(found("a"), found()), contract=PROBED, others=READ) as rig:
        operation_id = await unsettled(rig)
        await rig.intake.deliver([command("operation.probe", "probe-1", operation_id=operation_id)])
        told = await receipt(rig)
        ended, kinds = await rig.operation(), await rig.kinds()
    assert told["kind"] == "command.completed"
    assert kinds.count("operation.probed") == 2
    assert kinds.count("operation.reconciled") == 1
    assert (ended.effect, ended.effect_by) == (Effect.OCCURRED, Source.PROBE)


async def test_a_duplicate_of_what_succeeded_is_seen(tmp_path: Path) -> None:
    """The provider said yes, once; that it happened twice is an incident that only a look can show."""
    provider = world(found("a", "b"), lost=Answered(result={}))
    with capture_logs() as logs:
        async with engine(tmp_path, provider, contract=PROBED, others=READ) as rig:
            await rig.intake.deliver([call()])
            operation = await rig.settled()
            probe = command("operation.probe", "probe-1", operation_id=operation.operation_id)
            await rig.intake.deliver([probe])
            await receipt(rig)
            ended = await rig.operation()
    assert (ended.state, ended.effect_by) == (State.SUCCEEDED, Source.PROVIDER)
    assert [entry for entry in logs if entry["event"] == "effect_duplicated"]


@pytest.mark.parametrize(
    ("contract", "code"), [(PROBED, "still_running"), (Contract(declared=True), "no_probe_declared")]
)
async def test_what_cannot_be_looked_at_is_refused_at_once(
    tmp_path: Path, contract: Contract, code: str
) -> None:
    """In the transaction that accepts the command: an attempt that runs, and a tool without a probe."""
    provider = world(found("a"))
    provider.held_at = Phase.WRITTEN
    async with engine(tmp_path, provider, contract=contract, others=READ) as rig:
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
        operation_id = (await rig.operation()).operation_id
        if code == "no_probe_declared":
            provider.gate.set()
            await rig.settled()
        await rig.intake.deliver([command("operation.probe", "probe-1", operation_id=operation_id)])
        told = await receipt(rig)
        absent = command("operation.probe", "probe-2", operation_id="op_" + "0" * 32)
        await rig.intake.deliver([absent])
        unknown = await receipt(rig, "probe-2")
        assert [look.tool for look in provider.executed] == ["act"]
    assert (told["kind"], told["code"]) == ("command.failed", code)
    assert (unknown["kind"], unknown["code"]) == ("command.failed", "unknown_operation")


async def test_a_look_that_was_recorded_before_a_crash_is_the_receipt_after_it(tmp_path: Path) -> None:
    """Nobody asks twice: what the earlier life found answers the command."""
    provider = world(FAILED, found("a"))

    def die(name: str) -> None:
        if name == "errand.done":
            raise Death

    async def life() -> None:
        async with engine(tmp_path, provider, contract=PROBED, others=READ, boundary=die) as rig:
            operation_id = await unsettled(rig)
            await rig.intake.deliver([command("operation.probe", "probe-1", operation_id=operation_id)])
            await rig.reaches("command.completed")

    with pytest.raises(BaseExceptionGroup):
        await life()
    looks = len(provider.executed)
    async with engine(tmp_path, provider, contract=PROBED, others=READ) as rig:
        told = await receipt(rig)
    assert isinstance(told["result"], dict)
    assert told["result"]["verdict"] == "occurred"
    assert len(provider.executed) == looks


# ------------------------------------------------------------ what is withheld


async def test_nothing_that_is_withheld_stands_in_a_detail(tmp_path: Path) -> None:
    """The provider repeats a redacted argument, and nobody else does."""
    secret = "tr0ub4dor"
    probe = replace(PROBE, arguments=Template({"title": "=arguments.title"}))
    contract = replace(PROBED, probe=probe, redact=Redaction(("arguments.title",)))
    said = PeerError(code=-1, message=f"nothing is called {secret} here")
    async with engine(tmp_path, provider := world(said), contract=contract, others=READ) as rig:
        await rig.intake.deliver([call(arguments={"title": secret})])
        await rig.reaches("operation.probed")
        bodies = b"".join(event.body or b"" for event in await rig.events())
        (look,) = await data_of(rig, "operation.probed")
    assert provider.executed[-1].arguments == {"title": secret}
    assert secret.encode() not in bodies
    assert MARKER in str(look["detail"])


async def test_an_error_about_withheld_results_is_not_quoted(tmp_path: Path) -> None:
    """It may name what was searched for, which is what the contract of the operation withholds."""
    contract = replace(PROBED, redact=Redaction(("result.found",)))
    said = PeerError(code=-1, message="tr0ub4dor is in the way")
    async with engine(tmp_path, world(said), contract=contract, others=READ) as rig:
        await rig.intake.deliver([call()])
        await rig.reaches("operation.probed")
        (look,) = await data_of(rig, "operation.probed")
    assert "tr0ub4dor" not in str(look["detail"])


async def test_without_any_probe_the_loop_is_not_there(tmp_path: Path) -> None:
    """It neither listens nor reads where no contract declares one."""
    async with engine(tmp_path, ScriptedProvider(), contract=Contract(declared=True)) as rig:
        loop: ProbeLoop = rig.engine.probes
        with anyio.fail_after(10):
            await loop.run()


# ------------------------------------------------------------ controls: without the mechanism, it is seen


async def first_look(tmp_path: Path, answer: Report, contract: Contract = PROBED) -> tuple[str, Effect]:
    """The verdict of the first look, and the effect of the operation after it."""
    async with engine(tmp_path, world(answer), contract=contract, others=READ) as rig:
        await rig.intake.deliver([call()])
        await rig.reaches("operation.probed")
        await rig.quiet()
        (look, *_) = await data_of(rig, "operation.probed")
        return str(look["verdict"]), (await rig.operation()).effect


async def test_looks_that_wait_are_bounded(tmp_path: Path) -> None:
    """However many are asked for, at once or one by one, and whatever else is refused by then."""
    async with engine(
        tmp_path, world(FAILED), contract=PROBED, others=READ, bounds=limits(queue_max=2)
    ) as rig:
        await rig.intake.deliver([call()])
        found = await rig.settled()
        rig.posture.confirmed = False
        asked = [
            command("operation.probe", f"look-{number}", operation_id=found.operation_id)
            for number in range(4)
        ]
        answers = [*await rig.intake.deliver(asked[:3]), *await rig.intake.deliver(asked[3:])]
    codes = ['"code":"overloaded"' in getattr(answer, "frame", "") for answer in answers]
    assert codes == [False, False, True, True]


async def test_a_prober_that_takes_failure_for_absence_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control of `undetermined`: it would prove that nothing happened, and rule R would believe it."""
    real = count

    def careless(*arguments: Any, **named: Any) -> int | Unclear:  # noqa: ANN401 - as they come
        found = real(*arguments, **named)
        return 0 if isinstance(found, Unclear) else found

    monkeypatch.setattr("driver.engine.probing.count", careless)
    assert await first_look(tmp_path, FAILED) == ("absent", Effect.NONE)


async def test_a_prober_that_does_not_wait_for_the_effect_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control of `visible_after_s`, and of the time in which an attempt can still land."""
    long_ago = datetime(2000, 1, 1, tzinfo=UTC)

    def at_once(*_: object) -> datetime:
        return long_ago

    monkeypatch.setattr("driver.engine.probing.landed_by_now", at_once)
    contract = with_probe(attempts=2, visible_after_s=600.0)
    assert await first_look(tmp_path, found(), contract) == ("absent", Effect.NONE)


async def test_a_look_under_the_operations_own_id_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control of a look's own id: its late answer would be taken for the operation's."""
    async with engine(tmp_path, provider := world(FAILED), contract=PROBED, others=READ) as rig:
        await rig.intake.deliver([call()])
        await rig.until(lambda record: record.ended_at is not None)
        own = (await rig.operation()).operation_id

        def no_other(_: str) -> OperationId:
            return own

        monkeypatch.setattr("driver.engine.probing.look_id", no_other)
        await rig.intake.deliver([command("operation.probe", "probe-1", operation_id=own)])
        await receipt(rig)
        look = provider.executed[-1]
        rig.dispatcher.late(look.operation_id, look.attempt, found())
        await rig.reaches("operation.late_result")
        assert (await rig.operation()).effect_by is Source.PROVIDER


async def test_what_cannot_be_watched_at_once_is_found_by_a_later_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop remembers a bounded number of operations, and forgets none."""
    monkeypatch.setattr("driver.engine.probe_loop.WATCHED_MAX", 4)
    provider = ScriptedProvider(answer=LOST)
    async with engine(tmp_path, provider, contract=Contract(declared=True)) as rig:
        await rig.intake.deliver([call(f"cmd-{n}", arguments={"n": n}) for n in range(30)])
        await rig.reaches("operation.unknown", 30)
    provider = ScriptedProvider(answer=found("a"))
    async with engine(tmp_path, provider, contract=PROBED, others=READ) as rig:
        await rig.reaches("operation.reconciled", 30)
        await rig.quiet()
        kinds = await rig.kinds()
    assert kinds.count("operation.probed") == 30
    assert len(provider.executed) == 30


async def test_what_was_not_heard_of_is_found_by_a_later_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """News have a bound, too: a storm of them is looked up in the journal."""
    monkeypatch.setattr("driver.engine.probe_loop.NEWS_MAX", 1)
    provider = ScriptedProvider(answers=[LOST] * 30, answer=found("a"))
    async with engine(tmp_path, provider, contract=Contract(declared=True), confirmed=False) as rig:
        await rig.intake.deliver([call(f"cmd-{n}", arguments={"n": n}) for n in range(30)])
    bounds = limits(inflight_max=30)
    async with engine(tmp_path, provider, contract=PROBED, others=READ, bounds=bounds) as rig:
        await rig.reaches("operation.reconciled", 30)
