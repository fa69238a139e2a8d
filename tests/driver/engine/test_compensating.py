"""Compensations: only what is declared, once, after the forward effect, and an operation of their own."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from driver.core.attempts import Answered, NotSent, PeerError, Phase, Report
from driver.core.contracts import Compensation, Contract
from driver.core.expressions import Expression
from driver.core.redaction import redaction
from driver.core.templates import Template
from store.lifecycle import Effect, State
from store.records import CommandId, JsonObject, JsonValue, OperationId, OperationRecord, Origin
from store.view import View
from tests.driver.engine.again import (
    DEDUPLICATING,
    GONE,
    LATE,
    ask_again,
    believing,
    receipt,
    receipt_now,
    refused,
    say,
)
from tests.driver.engine.rig import Rig, ScriptedProvider, call, command, engine, limits

pytestmark = pytest.mark.anyio


def revertible(**arguments: JsonValue) -> Contract:
    """A tool whose effect `undo` takes back."""
    template: JsonObject = arguments or {"key": "=key", "n": "=arguments.n"}
    return Contract(
        declared=True,
        receipt=Expression("result.id"),
        compensate=Compensation(tool="undo", arguments=Template(template)),
    )


FORWARD = revertible()
UNDO = {"undo": Contract(declared=True)}


async def compensate(rig: Rig, command_id: str = "undo-1", of: str = "cmd-1") -> OperationRecord:
    """Deliver an `operation.compensate`; return the forward operation."""
    record = await rig.operation(of)
    await rig.intake.deliver([command("operation.compensate", command_id, operation_id=record.operation_id)])
    return record


async def compensation(rig: Rig, of: str = "cmd-1") -> OperationRecord | None:
    """The compensation of a command's operation."""
    forward = await rig.operation(of)

    def find(view: View) -> OperationRecord | None:
        record = view.command(CommandId(f"compensate:{forward.operation_id}"))
        assert record is None or record.operation_id is not None
        return None if record is None else view.operation(OperationId(str(record.operation_id)))

    return await rig.journal.read(find)


async def compensated(rig: Rig) -> list[tuple[str | None, str]]:
    """Each `operation.compensated`: of which operation, and its effect."""
    return [
        (event.operation_id, json.loads(event.body or b"{}")["data"]["effect"])
        for event in await rig.events()
        if event.kind == "operation.compensated"
    ]


def undone(provider: ScriptedProvider) -> list[JsonObject]:
    """The arguments of the compensating calls."""
    return [item.arguments for item in provider.executed if item.tool == "undo"]


async def test_a_compensation_is_an_operation_of_its_own(tmp_path: Path) -> None:
    """Accepted, started, answered, with a receipt; of this machine, in the same run, under its own key."""
    provider = ScriptedProvider()
    async with engine(tmp_path, provider, contract=FORWARD, others=UNDO) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        forward = await compensate(rig)
        kind, data = await receipt(rig, "undo-1")
        made = await compensation(rig)
        assert made is not None
        kinds = [event.kind for event in await rig.events() if event.operation_id == made.operation_id]
        told = await compensated(rig)
    assert kinds == ["command.accepted", "operation.started", "operation.succeeded"]
    assert (made.origin, made.run_id, made.tool, made.parent_operation_id) == (
        Origin.LOCAL,
        forward.run_id,
        "tools/undo",
        None,
    )
    assert made.operation_id != forward.operation_id
    assert (kind, data["compensation_operation_id"], data["state"], data["effect"]) == (
        "command.completed",
        made.operation_id,
        "succeeded",
        "occurred",
    )
    assert undone(provider) == [{"key": forward.operation_id, "n": 1}]
    assert told == [(forward.operation_id, "occurred")]


async def test_it_happens_once_whatever_is_asked_for(tmp_path: Path) -> None:
    """A second command, and a redelivery of the first, say what became of it."""
    provider = ScriptedProvider()
    async with engine(tmp_path, provider, contract=FORWARD, others=UNDO) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await compensate(rig)
        await receipt(rig, "undo-1")
        await compensate(rig)
        await compensate(rig, "undo-2")
        _, again = await receipt(rig, "undo-2")
        await rig.quiet()
        told = await compensated(rig)
    assert again["effect"] == "occurred"
    assert (len(undone(provider)), len(told)) == (1, 1)


@pytest.mark.parametrize(
    "answer", [GONE, PeerError(code=-32000, message="no"), NotSent(reason="connect_failed", message="no")]
)
async def test_one_that_did_not_succeed_is_not_called_again_by_a_second_wish(
    tmp_path: Path, answer: Report
) -> None:
    """Its own `unknown` is settled, or retried, as any other."""
    provider = ScriptedProvider(answers=[Answered(result={}), answer])
    async with engine(tmp_path, provider, contract=FORWARD, others=UNDO) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await compensate(rig)
        _, first = await receipt(rig, "undo-1")
        await compensate(rig, "undo-2")
        _, second = await receipt(rig, "undo-2")
        assert first == second
        assert len(undone(provider)) == 1
        made = await compensation(rig)
        assert made is not None
        assert made.state is not State.SUCCEEDED


async def test_a_lost_compensation_is_retried_by_rule_r_and_told_again(tmp_path: Path) -> None:
    """`operation.compensated` says each time what is known then."""
    provider = ScriptedProvider(answers=[Answered(result={}), GONE])
    async with engine(tmp_path, provider, contract=FORWARD, others=UNDO) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await compensate(rig)
        await receipt(rig, "undo-1")
        made = await compensation(rig)
        assert made is not None
        retry = command("operation.retry", "retry-1", operation_id=made.operation_id)
        await rig.intake.deliver([retry])
        assert (await receipt(rig))[1]["code"] == "not_proven_none"
        await say(rig, Effect.NONE, command_id=made.command_id)
        await rig.intake.deliver([replace(retry, command_id=CommandId("retry-2"))])
        assert (await receipt(rig, "retry-2"))[1]["outcome"] == "succeeded"
        told = [effect for _, effect in await compensated(rig)]
    assert told == ["unknown", "none", "occurred"]
    assert len(undone(provider)) == 2


async def test_what_nobody_declared_is_not_compensated(tmp_path: Path) -> None:
    """There is no guess at how to take something back."""
    provider = ScriptedProvider()
    async with engine(tmp_path, provider, others=UNDO) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await compensate(rig)
        assert (await receipt(rig, "undo-1"))[1]["code"] == "no_compensation_declared"
        await rig.intake.deliver([command("operation.compensate", "undo-2", operation_id="op_" + "0" * 32)])
        assert (await receipt(rig, "undo-2"))[1]["code"] == "unknown_operation"


async def test_it_does_not_overtake_what_it_takes_back(tmp_path: Path) -> None:
    """Refused while the forward operation runs, and while an attempt of it may still land."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN, answers=[LATE])
    async with engine(tmp_path, provider, contract=FORWARD, others=UNDO) as rig:
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
        await compensate(rig, "undo-1")
        assert (await receipt(rig, "undo-1"))[1]["code"] == "still_running"
        provider.gate.set()
        await rig.settled()
        await compensate(rig, "undo-2")
        assert (await receipt(rig, "undo-2"))[1]["code"] == "may_still_land"
        assert undone(provider) == []
        rig.clock.ahead = timedelta(hours=2)
        await compensate(rig, "undo-3")
        assert (await receipt(rig, "undo-3"))[1]["code"] == "may_still_land"
        rig.clock.pass_by(61)
        await compensate(rig, "undo-4")
        assert (await receipt(rig, "undo-4"))[1]["effect"] == "occurred"


async def test_it_waits_for_an_attempt_that_was_asked_for(tmp_path: Path) -> None:
    """A retry that waits for its turn would land behind what takes it back: refused, either way round."""
    provider = ScriptedProvider(answers=[GONE])
    contract = replace(DEDUPLICATING, compensate=FORWARD.compensate)
    async with engine(tmp_path, provider, contract=contract, others=UNDO) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        provider.held_in_prepare = True
        await ask_again(rig)
        await provider.arrived.wait()
        await compensate(rig, "undo-1")
        assert (await receipt(rig, "undo-1"))[1]["code"] == "still_running"
        await rig.intake.deliver([command("command.cancel", "cancel-1", target_command_id="retry-1")])
        await receipt(rig)
        await compensate(rig, "undo-2")
        assert await refused(rig, "retry-2") == "still_running"
        provider.gate.set()
        assert (await receipt(rig, "undo-2"))[1]["effect"] == "occurred"
    assert [item.tool for item in provider.executed] == ["act", "undo"]


@pytest.mark.parametrize("answer", [Answered(result={}), GONE])
async def test_what_was_taken_back_is_not_tried_again(tmp_path: Path, answer: Report) -> None:
    """Its effect would come behind its only compensation, and stand as taken back."""
    provider = ScriptedProvider(answers=[GONE, answer])
    contract = replace(DEDUPLICATING, compensate=FORWARD.compensate)
    async with engine(tmp_path, provider, contract=contract, others=UNDO) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        forward = await compensate(rig)
        await receipt(rig, "undo-1")
        assert await refused(rig) == "compensated"
        made = await compensation(rig)
        assert made is not None
        if made.state is State.UNKNOWN:
            await say(rig, Effect.NONE, "supervisor:rules", made.command_id)
            assert await refused(rig, "retry-2") == "compensated"
            await say(rig, Effect.NONE, command_id=made.command_id)
            await ask_again(rig, "retry-3")
            assert (await receipt(rig, "retry-3"))[1]["outcome"] == "succeeded"
    assert forward.state is State.UNKNOWN
    assert [item.tool for item in provider.executed][:2] == ["act", "undo"]


async def test_a_compensation_that_is_tried_again_overtakes_nothing(tmp_path: Path) -> None:
    """What it takes back may be tried again meanwhile, or land: the compensation waits for that."""
    provider = ScriptedProvider(answers=[GONE, LATE])
    contract = replace(DEDUPLICATING, compensate=FORWARD.compensate)
    async with engine(tmp_path, provider, contract=contract, others=UNDO) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        provider.objection = NotSent(reason="connect_failed", message="refused")
        await compensate(rig)
        await receipt(rig, "undo-1")
        provider.objection = None
        made = await compensation(rig)
        assert made is not None
        assert made.effect is Effect.NONE
        rig.posture.confirmed = False
        await ask_again(rig)
        await ask_again(rig, "retry-2", made.command_id)
        assert (await receipt(rig, "retry-2"))[1]["code"] == "still_running"
        rig.posture.confirmed = True
        rig.engine.pump()
        await receipt(rig)
        await ask_again(rig, "retry-3", made.command_id)
        assert (await receipt(rig, "retry-3"))[1]["code"] == "may_still_land"
        rig.clock.pass_by(61)
        await ask_again(rig, "retry-4", made.command_id)
        assert (await receipt(rig, "retry-4"))[1]["outcome"] == "succeeded"
    assert [item.tool for item in provider.executed] == ["act", "act", "undo"]


async def test_an_effect_that_never_happened_needs_no_compensation(tmp_path: Path) -> None:
    """Proven: nothing is called, and the command is done."""
    provider = ScriptedProvider(answers=[GONE])
    async with engine(tmp_path, provider, contract=FORWARD, others=UNDO) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await say(rig, Effect.NONE)
        await compensate(rig)
        kind, data = await receipt(rig, "undo-1")
        assert await compensation(rig) is None
    assert (kind, data["effect"], data["compensation_operation_id"]) == ("command.completed", "none", None)


@pytest.mark.parametrize("verdict", [None, *Effect])
async def test_who_asks_for_it_decides_where_nobody_knows(tmp_path: Path, verdict: Effect | None) -> None:
    """I8: with a supervisor's word, whatever it is, exactly as without one."""
    provider = ScriptedProvider(answers=[GONE])
    async with engine(tmp_path, provider, contract=FORWARD, others=UNDO) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        if verdict is not None:
            await say(rig, verdict, "supervisor:rules")
        await compensate(rig)
        assert (await receipt(rig, "undo-1"))[1]["effect"] == "occurred"


@pytest.mark.parametrize(
    "template", [{"id": "=receipt"}, {"id": "=arguments.missing"}, {"id": "=length(arguments.n)"}]
)
async def test_arguments_that_cannot_be_made_leave_no_trace(
    tmp_path: Path, template: dict[str, JsonValue]
) -> None:
    """A call without the reference could take back something else: nothing is accepted."""
    provider = ScriptedProvider(answers=[GONE])
    async with engine(tmp_path, provider, contract=revertible(**template), others=UNDO) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await compensate(rig)
        kind, data = await receipt(rig, "undo-1")
        assert await compensation(rig) is None
    assert (kind, data["code"]) == ("command.failed", "expression_failed")


async def test_arguments_that_were_erased_are_named(tmp_path: Path) -> None:
    """What is withheld goes once it is settled and acknowledged."""
    contract = replace(FORWARD, redact=redaction(("arguments.n",)))
    async with engine(tmp_path, ScriptedProvider(), contract=contract, others=UNDO) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await rig.journal.transact(lambda tx: tx.acknowledge(tx.last_seq))
        await rig.journal.transact(lambda tx: tx.acknowledge(tx.last_seq))
        await compensate(rig)
        assert (await receipt(rig, "undo-1"))[1]["code"] == "arguments_erased"


async def test_a_run_that_has_ended_is_compensated_and_refuses_other_calls(tmp_path: Path) -> None:
    """It is its own intent: no limit of the run holds it back."""
    provider = ScriptedProvider(answers=[GONE])
    bounds = limits(run_unsettled_max=1)
    async with engine(tmp_path, provider, contract=FORWARD, others=UNDO, bounds=bounds) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await rig.intake.deliver([command("run.end", "end-1")])
        await compensate(rig)
        assert (await receipt(rig, "undo-1"))[1]["effect"] == "occurred"


async def test_an_approval_is_asked_for_where_the_compensating_tool_needs_one(tmp_path: Path) -> None:
    """Its contract holds for it; the command waits as long."""
    provider = ScriptedProvider()
    others = {"undo": Contract(declared=True, approval="required")}
    async with engine(tmp_path, provider, contract=FORWARD, others=others) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await compensate(rig)
        await rig.reaches("operation.approval_requested")
        await rig.intake.deliver([command("command.cancel", "cancel-1", target_command_id="undo-1")])
        _, data = await receipt(rig, "undo-1")
    assert (data["state"], data["reason"], data["effect"]) == ("not_executed", "cancelled", "none")
    assert undone(provider) == []


async def test_it_is_carried_on_after_a_crash(tmp_path: Path) -> None:
    """Accepted and not begun: the next process life calls it, once, and ends the command."""
    provider = ScriptedProvider()
    async with engine(tmp_path, provider, contract=FORWARD, others=UNDO) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        rig.posture.confirmed = False
        await compensate(rig)
    async with engine(tmp_path, provider, contract=FORWARD, others=UNDO) as rig:
        assert (await receipt(rig, "undo-1"))[1]["effect"] == "occurred"
    assert len(undone(provider)) == 1


# ------------------------------------------------------------ a whole run


async def run_of(rig: Rig, count: int) -> list[OperationRecord]:
    """Have a run of so many writes."""
    names = [f"cmd-{number}" for number in range(1, count + 1)]
    for number, name in enumerate(names, 1):
        await rig.intake.deliver([call(name, arguments={"n": number})])
        await rig.settled(name)
    return [await rig.operation(name) for name in names]


async def compensate_run(rig: Rig, command_id: str = "run-undo-1") -> Mapping[str, Any]:
    """Deliver a `run.compensate`; return its result."""
    await rig.intake.deliver([command("run.compensate", command_id)])
    kind, data = await receipt(rig, command_id)
    assert kind == "command.completed"
    return data


async def test_a_run_is_compensated_from_its_newest_operation_to_its_oldest(tmp_path: Path) -> None:
    """One after the other, each once."""
    provider = ScriptedProvider()
    async with engine(tmp_path, provider, contract=FORWARD, others=UNDO) as rig:
        made = await run_of(rig, 3)
        data = await compensate_run(rig)
        again = await compensate_run(rig, "run-undo-2")
    assert [item["n"] for item in undone(provider)] == [3, 2, 1]
    assert (data["complete"], data["stopped_at"]) == (True, None)
    assert [item["operation_id"] for item in data["compensated"]] == [
        item.operation_id for item in reversed(made)
    ]
    assert again == data


async def test_it_stops_at_the_first_that_is_not_certain_and_can_be_resumed(tmp_path: Path) -> None:
    """Nobody knows whether it happened: a guess, and older ones, wait for somebody who does."""
    provider = ScriptedProvider(answers=[Answered(result={}), GONE, Answered(result={})])
    async with engine(tmp_path, provider, contract=FORWARD, others=UNDO) as rig:
        made = await run_of(rig, 3)
        first = await compensate_run(rig)
        await say(rig, Effect.OCCURRED, "supervisor:rules", "cmd-2")
        second = await compensate_run(rig, "run-undo-2")
        await say(rig, Effect.OCCURRED, command_id="cmd-2")
        third = await compensate_run(rig, "run-undo-3")
    for data in (first, second):
        assert (data["complete"], data["stopped_at"]["code"]) == (False, "not_certain")
        assert data["stopped_at"]["operation_id"] == made[1].operation_id
        assert [item["operation_id"] for item in data["compensated"]] == [made[2].operation_id]
    assert third["complete"]
    assert [item["n"] for item in undone(provider)] == [3, 2, 1]


async def test_a_walk_that_believes_a_supervisor_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control of I8: a guess that it happened would be taken back."""
    monkeypatch.setattr("driver.engine.proof.proof", believing)
    provider = ScriptedProvider(answers=[GONE])
    async with engine(tmp_path, provider, contract=FORWARD, others=UNDO) as rig:
        await run_of(rig, 1)
        await say(rig, Effect.OCCURRED, "supervisor:rules")
        assert (await compensate_run(rig))["complete"]
    assert len(undone(provider)) == 1


async def test_it_stops_at_a_compensation_that_is_not_certain(tmp_path: Path) -> None:
    """Older effects may rest on it."""
    provider = ScriptedProvider(answers=[Answered(result={}), Answered(result={}), GONE])
    async with engine(tmp_path, provider, contract=FORWARD, others=UNDO) as rig:
        made = await run_of(rig, 2)
        data = await compensate_run(rig)
        undo = await compensation(rig, "cmd-2")
        assert undo is not None
        await say(rig, Effect.OCCURRED, command_id=undo.command_id)
        resumed = await compensate_run(rig, "run-undo-2")
    assert data["stopped_at"]["code"] == "compensation_not_certain"
    assert data["stopped_at"]["operation_id"] == made[1].operation_id
    assert data["stopped_at"]["compensation_operation_id"] == undo.operation_id
    assert resumed["complete"]
    assert [item["n"] for item in undone(provider)] == [2, 1]


async def test_what_did_not_happen_is_passed_and_what_cannot_be_taken_back_is_named(tmp_path: Path) -> None:
    """The walk goes on; whoever reads the result sees what stays."""
    provider = ScriptedProvider(answers=[Answered(result={}), GONE])
    others = {**UNDO, "plain": Contract(declared=True)}
    async with engine(tmp_path, provider, contract=FORWARD, others=others) as rig:
        await run_of(rig, 2)
        await say(rig, Effect.NONE, command_id="cmd-2")
        await rig.intake.deliver([call("cmd-3", tool="tools/plain")])
        plain = await rig.settled("cmd-3")
        data = await compensate_run(rig)
    assert data["complete"]
    assert data["not_compensable"] == [plain.operation_id]
    assert [item["n"] for item in undone(provider)] == [1]


async def test_a_walk_is_carried_on_after_a_crash(tmp_path: Path) -> None:
    """In mid-compensation: that one is unknown, so the walk stops there, and calls nothing again."""
    provider = ScriptedProvider()
    async with engine(tmp_path, provider, contract=FORWARD, others=UNDO) as rig:
        await run_of(rig, 3)
        provider.held_at = Phase.WRITTEN
        await rig.intake.deliver([command("run.compensate", "run-undo-1")])
        await provider.arrived.wait()
    provider.held_at = None
    async with engine(tmp_path, provider, contract=FORWARD, others=UNDO) as rig:
        _, data = await receipt(rig, "run-undo-1")
    assert data["stopped_at"]["code"] == "compensation_not_certain"
    assert [item["n"] for item in undone(provider)] == [3]


async def test_a_walk_waits_while_the_daemon_may_not_act(tmp_path: Path) -> None:
    """Nothing is accepted, and it goes on when it may."""
    provider = ScriptedProvider()
    async with engine(tmp_path, provider, contract=FORWARD, others=UNDO) as rig:
        await run_of(rig, 2)
        provider.held_at = Phase.WRITTEN
        await rig.intake.deliver([command("run.compensate", "run-undo-1")])
        await provider.arrived.wait()
        rig.posture.confirmed = False
        provider.gate.set()
        await rig.quiet()
        assert await receipt_now(rig, "run-undo-1") is None
        assert len(undone(provider)) == 1
        rig.posture.confirmed = True
        rig.engine.pump()
        assert (await receipt(rig, "run-undo-1"))[1]["complete"]
    assert [item["n"] for item in undone(provider)] == [2, 1]


# ------------------------------------------------------------ what somebody took back already


@pytest.mark.parametrize(
    ("undo", "answer", "code"),
    [
        (Contract(declared=True), GONE, "lookalike_unsettled"),
        (Contract(declared=True), Answered(result={}), None),
        (Contract(declared=True, identical="once-per-run"), GONE, "lookalike_unsettled"),
        (Contract(declared=True, identical="once-per-run"), Answered(result={}), "duplicate_completed"),
        (Contract(declared=True, identical="allow"), GONE, None),
    ],
)
@pytest.mark.parametrize("walk", [False, True])
async def test_what_an_agent_took_back_itself_is_not_taken_back_again(
    tmp_path: Path, undo: Contract, answer: Report, code: str | None, *, walk: bool
) -> None:
    """The compensation would be the second equal call: what its tool says of those holds."""
    contract = revertible(n="=arguments.n")
    provider = ScriptedProvider(answers=[Answered(result={"id": 1}), answer])
    async with engine(tmp_path, provider, contract=contract, others={"undo": undo}) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await rig.intake.deliver([call("cmd-2", tool="tools/undo")])
        await rig.settled("cmd-2")
        if walk:
            await rig.intake.deliver([command("run.compensate", "undo-1")])
        else:
            await compensate(rig)
        _, data = await receipt(rig, "undo-1")
        made = await compensation(rig)
    if walk and answer is GONE:
        assert data["stopped_at"]["code"] == "not_certain"  # of the call that took it back, which is newer
        return
    assert (made is None) == (code is not None)
    assert len(undone(provider)) == 1 + (code is None)
    if code is not None:
        assert (data["stopped_at"] if walk else data)["code"] == code


async def test_two_compensations_with_equal_arguments_are_two(tmp_path: Path) -> None:
    """Each takes another operation back, which their ids say: though the first of them is not settled."""
    contract = revertible(what="it")
    provider = ScriptedProvider(answers=[Answered(result={}), GONE, Answered(result={})])
    async with engine(tmp_path, provider, contract=contract, others=UNDO) as rig:
        for n in (1, 2):
            await rig.intake.deliver([call(f"cmd-{n}", arguments={"n": n})])
            await rig.settled(f"cmd-{n}")
            await compensate(rig, f"undo-{n}", f"cmd-{n}")
            await receipt(rig, f"undo-{n}")
    assert len(undone(provider)) == 2
