"""What an accepted rollback does to attempts that run, and to what was proven before it."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import pytest

from driver.core.attempts import Answered, NotSent, PeerError, Phase, Report, Silence, ToolCall
from driver.core.contracts import Contract
from driver.core.probes import Finding
from driver.core.unfencing import Unfenced
from driver.engine.looks import Look, record_look
from driver.providers.protocol import Progress
from store.lifecycle import Effect, Source, State
from tests.driver.engine.again import DEDUPLICATING, SAFE, ask_again, receipt, receipt_now, refused, say
from tests.driver.engine.rig import Clock, Rig, ScriptedProvider, call, command, engine
from tests.driver.engine.test_compensating import (
    FORWARD,
    UNDO,
    compensate,
    compensated,
    compensation,
    undone,
)
from tests.driver.engine.test_probing import LOST, READ, data_of, found, with_probe

pytestmark = pytest.mark.anyio

NO = PeerError(code=-32000, message="no")
NOTHING_DONE = replace(DEDUPLICATING, error_means="none")


def two_events() -> dict[int, anyio.Event]:
    """One for each attempt."""
    return {attempt: anyio.Event() for attempt in (1, 2)}


@dataclass
class OneByOne(ScriptedProvider):
    """Holds each attempt at its own gate, from its effect on."""

    gates: dict[int, anyio.Event] = field(default_factory=two_events)
    came: dict[int, anyio.Event] = field(default_factory=two_events)

    async def dispatch(self, call: ToolCall, progress: Progress) -> Report:
        for phase in (Phase.CONNECTING, Phase.WRITING, Phase.WRITTEN):
            progress(phase)
        self.executed.append(call)
        self.came[call.attempt].set()
        await self.gates[call.attempt].wait()
        progress(Phase.ANSWERED)
        return self.answers.pop(0) if self.answers else self.answer


async def roll_back(rig: Rig) -> None:
    """The plane holds all, knows another history, and an operator accepts that."""
    await rig.journal.transact(lambda tx: tx.acknowledge(tx.last_seq))
    await rig.desk.fence("rolled_back", "d")
    lifted = await rig.engine.fences.lift(accept_rollback=True, actor="operator:0")
    assert isinstance(lifted, Unfenced)
    rig.desk.history_confirmed()


async def outlive_a_rollback(rig: Rig, provider: OneByOne) -> None:
    """Let an attempt run on over a rollback, another one begin that was asked for, and the first one end."""
    await rig.intake.deliver([call()])
    await provider.came[1].wait()
    await roll_back(rig)
    await ask_again(rig)
    await provider.came[2].wait()
    provider.gates[1].set()
    await rig.quiet()


async def test_an_attempt_that_outlives_a_rollback_does_not_end_the_one_behind_it(tmp_path: Path) -> None:
    """Its answer is a late one about itself; the attempt that was asked for since runs on, and guards."""
    provider = OneByOne(answers=[NO])
    async with engine(tmp_path, provider, contract=NOTHING_DONE) as rig:
        await outlive_a_rollback(rig, provider)
        between = await rig.operation()
        assert (between.state, between.guards) == (State.STARTED, True)
        assert (await rig.last())["attempt"] == 1
        assert await receipt_now(rig) is None
        provider.gates[2].set()
        _, data = await receipt(rig)
        attempts = await rig.attempts()
    assert (data["attempt"], data["outcome"]) == (2, "succeeded")
    assert attempts == [("unknown", "rolled_back"), ("succeeded", None)]


async def test_an_attempt_that_outlives_a_rollback_takes_no_cancel_from_the_one_behind_it(
    tmp_path: Path,
) -> None:
    """Whichever of the two ends first, the other one is still cancelled."""
    provider = OneByOne()
    async with engine(tmp_path, provider, contract=DEDUPLICATING) as rig:
        await outlive_a_rollback(rig, provider)
        await rig.intake.deliver([command("command.cancel", "cancel-1", target_command_id="retry-1")])
        _, data = await receipt(rig)
    assert (data["attempt"], data["reason"]) == (2, "cancelled_after_dispatch")


async def test_a_denial_does_not_renew_a_none_from_before_the_rollback(tmp_path: Path) -> None:
    """The operation is told to be what it was, and what rested on the old history still does."""
    contract = replace(NOTHING_DONE, approval="required")
    clock = Clock()
    async with engine(tmp_path, ScriptedProvider(answer=NO), contract=contract, clock=clock) as rig:
        await rig.intake.deliver([call()])
        await decide(rig, "grant")
        await rig.settled()
        await roll_back(rig)
        await ask_again(rig)
        await decide(rig, "deny")
        assert (await receipt(rig))[1]["code"] == "approval_denied"
        assert (await rig.operation()).state is State.FAILED
        clock.pass_by(1_000)
        assert await refused(rig, "retry-2") == "past_horizon"
    assert len(rig.provider.executed) == 1


async def decide(rig: Rig, decision: str) -> None:
    """Let a person decide about the newest request."""
    record = await rig.until(lambda found: found.state is State.AWAITING_APPROVAL)
    request = [event for event in await rig.events() if event.kind == "operation.approval_requested"][-1]
    assert request.body is not None
    approve = command(
        "operation.approve",
        f"{decision}-1",
        operation_id=record.operation_id,
        approval_id=json.loads(request.body)["data"]["approval_id"],
        decision=decision,
        approver="person",
    )
    await rig.intake.deliver([approve])


async def test_a_none_from_before_the_rollback_allows_no_attempt_by_itself(tmp_path: Path) -> None:
    """One that was asked for could not be sent; where the key is forgotten by then, none follows it."""
    clock = Clock()
    async with engine(tmp_path, ScriptedProvider(answer=NO), contract=NOTHING_DONE, clock=clock) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await roll_back(rig)
    today = replace(SAFE, error_means="none", retry_backoff_s=60.0)
    away = NotSent(reason="connect_failed", message="refused")
    async with engine(tmp_path, ScriptedProvider(refusals=[away]), contract=today, clock=clock) as rig:
        clock.pass_by(60)
        await ask_again(rig)
        _, data = await receipt(rig)
        ended = await rig.operation()
    assert (data["attempt"], data["outcome"], ended.state) == (2, "not_executed", State.FAILED)
    assert rig.provider.executed == []


async def test_what_was_seen_of_an_attempt_before_the_rollback_is_not_said_of_the_one_behind_it(
    tmp_path: Path,
) -> None:
    """A look that was begun before another attempt names an intent of the history that ended."""
    error, lost = Answered(result={}, is_error=True), Silence(cause="connection_lost", message="gone")
    provider = ScriptedProvider(answers=[error, lost])
    async with engine(tmp_path, provider, contract=DEDUPLICATING) as rig:
        await rig.intake.deliver([call()])
        seen = await rig.settled()
        await roll_back(rig)
        provider.held_at = Phase.WRITTEN
        await ask_again(rig)
        await provider.arrived.wait()
        look = Look(
            operation_id=seen.operation_id, tool="tools/find", started_seq=seen.started_seq, attempts=1
        )
        absent = Finding(verdict="absent", matches=0, detail="0 matches")
        assert await rig.journal.transact(lambda tx: record_look(tx, look, absent))
        provider.gate.set()
        assert (await receipt(rig))[1]["outcome"] == "unknown"
        ended = await rig.operation()
        assert (ended.effect, ended.settled, ended.guards) == (Effect.UNKNOWN, False, True)
        found = await rig.journal.read(lambda view: view.evidence(seen.operation_id))
    assert [word.attempt for word in found if word.source is Source.PROBE] == [1]


async def test_what_may_have_been_taken_back_before_the_rollback_is_not_taken_back_again(
    tmp_path: Path,
) -> None:
    """A compensation that the lost time may have made is unknown at once, by whichever command."""
    clock, provider = Clock(), ScriptedProvider()
    async with engine(tmp_path, provider, contract=FORWARD, others=UNDO, clock=clock) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await roll_back(rig)
        forward = await compensate(rig)
        _, data = await receipt(rig, "undo-1")
        await rig.intake.deliver([command("run.compensate", "undo-all")])
        _, walked = await receipt(rig, "undo-all")
        made = await compensation(rig)
        assert made is not None
        told = await compensated(rig)
        assert undone(provider) == []
        assert (data["state"], data["effect"], data["reason"]) == ("unknown", "unknown", "rolled_back")
        assert (made.state, made.settled, made.attempt_count) == (State.UNKNOWN, False, 0)
        assert walked["complete"] is False
        assert walked["stopped_at"]["code"] == "compensation_not_certain"
        assert told == [(forward.operation_id, "unknown")]
        # somebody has looked, once it can have come from nowhere any more
        clock.pass_by(1_000)
        await say(rig, Effect.NONE, command_id=made.command_id)
        await ask_again(rig, of=made.command_id)
        assert (await receipt(rig))[1]["outcome"] == "succeeded"
    assert undone(provider) == [{"key": forward.operation_id, "n": 1}]


async def test_the_first_compensation_that_the_lost_time_may_have_made_ends_a_walk(tmp_path: Path) -> None:
    """What is newer than the rollback is taken back; behind that nobody knows."""
    provider = ScriptedProvider()
    async with engine(tmp_path, provider, contract=FORWARD, others=UNDO) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await roll_back(rig)
        await rig.intake.deliver([call("cmd-2", arguments={"n": 2})])
        newer = await rig.settled("cmd-2")
        await rig.intake.deliver([command("run.compensate", "undo-all")])
        _, walked = await receipt(rig, "undo-all")
        older = await rig.operation()
    assert undone(provider) == [{"key": newer.operation_id, "n": 2}]
    assert [pair["operation_id"] for pair in walked["compensated"]] == [newer.operation_id]
    assert walked["stopped_at"]["operation_id"] == older.operation_id


async def test_a_read_that_takes_back_is_called_after_a_rollback(tmp_path: Path) -> None:
    """A read may always run again, whatever the lost time has made."""
    provider, others = ScriptedProvider(), {"undo": Contract(declared=True, effect="read")}
    async with engine(tmp_path, provider, contract=FORWARD, others=others) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await roll_back(rig)
        await compensate(rig)
        assert (await receipt(rig, "undo-1"))[1]["state"] == "succeeded"
    assert len(undone(provider)) == 1


async def test_what_another_life_may_still_execute_is_not_absent(tmp_path: Path) -> None:
    """It was lost before the rollback, too; the life that went on may have begun another attempt since."""
    provider = ScriptedProvider(answers=[LOST, LOST], answer=found())
    contract = with_probe(attempts=2)
    async with engine(tmp_path, provider, contract=contract, others=READ) as rig:
        await rig.intake.deliver([call()])
        await rig.reaches("operation.probed")
        await roll_back(rig)
        await rig.reaches("operation.probed", 2)
        operation = await rig.operation()
        verdicts = [data["verdict"] for data in await data_of(rig, "operation.probed")]
    assert verdicts == ["undetermined", "undetermined"]
    assert (operation.effect, operation.reason) == (Effect.UNKNOWN, "rolled_back")


@pytest.mark.parametrize("settled", [False, True])
async def test_nothing_is_tried_again_while_another_life_may_have_an_attempt(
    tmp_path: Path, *, settled: bool
) -> None:
    """Somebody has looked too early: what that life has begun has its whole budget, and the late window."""
    clock, provider = Clock(), ScriptedProvider(answers=[LOST])
    async with engine(tmp_path, provider, contract=Contract(declared=True), clock=clock) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        if settled:
            await say(rig, Effect.NONE)
        await roll_back(rig)
        await say(rig, Effect.NONE)
        assert await refused(rig) == "may_still_land"
        clock.pass_by(121)
        await ask_again(rig, "retry-2")
        assert (await receipt(rig, "retry-2"))[1]["outcome"] == "succeeded"
    assert len(provider.executed) == 2
