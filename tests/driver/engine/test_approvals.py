"""`approval = "required"`: who is asked, what a decision binds, and that it is used once."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from driver.core.answers import Reply, Silent
from driver.core.attempts import NotSent, Phase, Silence
from driver.core.contracts import Contract
from driver.core.frames import CommandFrame
from driver.core.identity import definition_digest
from store.lifecycle import Effect, State
from store.records import CommandId, JsonObject
from tests.driver.engine.rig import RUN, Rig, ScriptedProvider, call, command, engine, limits

pytestmark = pytest.mark.anyio

ASKED = Contract(declared=True, approval="required", approval_expires_s=60.0, execution_s=30.0)


def decision(
    request: JsonObject, operation_id: str, verdict: str = "grant", command_id: str = "approve-1"
) -> CommandFrame:
    """A person's word about a request."""
    data: JsonObject = {
        "operation_id": operation_id,
        "approval_id": request["approval_id"],
        "decision": verdict,
        "approver": "operator:1000",
        "reason": "looked at it",
    }
    return CommandFrame(command_id=CommandId(command_id), run_id=RUN, kind="operation.approve", data=data)


async def requests(rig: Rig) -> list[JsonObject]:
    """Everything that a person was asked, oldest first."""
    events = [event for event in await rig.events() if event.kind == "operation.approval_requested"]
    return [json.loads(event.body or b"")["data"] for event in events]


async def asked(rig: Rig, count: int = 1, command_id: str = "cmd-1") -> tuple[JsonObject, str]:
    """The newest request about a command's operation, once there are so many, and its operation."""
    await rig.reaches("operation.approval_requested", count)
    while rig.dispatcher.slots.in_use:
        await anyio.lowlevel.checkpoint()
    return (await requests(rig))[-1], (await rig.operation(command_id)).operation_id


async def receipt(rig: Rig, command_id: str = "approve-1") -> JsonObject:
    """What became of a decision."""
    (found,) = [event for event in await rig.events() if event.terminal and event.command_id == command_id]
    data: JsonObject = json.loads(found.body or b"")["data"]
    return {"kind": found.kind, **data}


async def test_a_person_is_asked_before_anything_is_started(tmp_path: Path) -> None:
    """With what would be done, until when it can be decided, and without holding a slot."""
    async with engine(tmp_path, provider := ScriptedProvider(), contract=ASKED) as rig:
        await rig.intake.deliver([call()])
        request, operation_id = await asked(rig)
        operation = await rig.operation()
        assert operation.state is State.AWAITING_APPROVAL
        assert request["arguments"] == {"n": 1}
        assert (request["tool"], request["args_digest"]) == ("tools/act", operation.args_digest)
        assert request["definition_digest"] == definition_digest(provider.served)
        assert (rig.dispatcher.slots.in_use, rig.dispatcher.depth, rig.dispatcher.unapproved) == (0, 0, 1)
        assert provider.executed == []
        await rig.intake.deliver([decision(request, operation_id)])
        ended = await rig.settled()
        kinds = await rig.kinds()
        assert rig.dispatcher.unapproved == 0
    assert ended.state is State.SUCCEEDED
    assert kinds == [
        "command.accepted",
        "operation.approval_requested",
        "command.accepted",
        "operation.approval_decided",
        "command.completed",
        "operation.started",
        "operation.succeeded",
    ]
    assert len(provider.executed) == 1


async def test_the_intent_names_the_approval_and_the_call_its_definition(tmp_path: Path) -> None:
    """So that it can be seen what was used, and nothing else can be called with it."""
    async with engine(tmp_path, provider := ScriptedProvider(), contract=ASKED) as rig:
        await rig.intake.deliver([call()])
        request, operation_id = await asked(rig)
        await rig.intake.deliver([decision(request, operation_id)])
        await rig.settled()
        (started,) = [event for event in await rig.events() if event.kind == "operation.started"]
    assert json.loads(started.body or b"")["data"]["approval_id"] == request["approval_id"]
    assert provider.executed[0].definition == definition_digest(provider.served)


async def test_a_denial_ends_the_operation(tmp_path: Path) -> None:
    """In the denial's own commit."""
    async with engine(tmp_path, provider := ScriptedProvider(), contract=ASKED) as rig:
        await rig.intake.deliver([call()])
        request, operation_id = await asked(rig)
        await rig.intake.deliver([decision(request, operation_id, "deny")])
        ended = await rig.operation()
        assert rig.dispatcher.unapproved == 0
        assert (await receipt(rig))["kind"] == "command.completed"
        await rig.intake.deliver([decision(request, operation_id, "grant", "approve-2")])
        again = await receipt(rig, "approve-2")
    assert (ended.state, ended.reason, ended.effect) == (State.NOT_EXECUTED, "approval_denied", Effect.NONE)
    assert (again["kind"], again["code"]) == ("command.failed", "not_awaiting_approval")
    assert provider.executed == []


async def test_what_nobody_decides_in_time_ends_by_itself(tmp_path: Path) -> None:
    """The request's own time, and before it the command's: the ceiling that nothing moves."""
    contract = replace(ASKED, approval_expires_s=0.05)
    async with engine(tmp_path, provider := ScriptedProvider(), contract=contract) as rig:
        await rig.intake.deliver([call()])
        ended = await rig.settled()
    assert (ended.state, ended.reason) == (State.NOT_EXECUTED, "approval_expired")
    async with engine(tmp_path, provider, contract=replace(ASKED, approval_expires_s=600.0)) as rig:
        await rig.intake.deliver([call("cmd-2", arguments={"n": 2}, expires_in_ms=60_000)])
        request, _ = await asked(rig, 2, "cmd-2")
        rig.clock.ahead = timedelta(minutes=2)
        rig.dispatcher.pump()
        expired = await rig.settled("cmd-2")
    assert (expired.state, expired.reason) == (State.NOT_EXECUTED, "expired")
    assert request["expires_at"] == expired.expires_at
    assert provider.executed == []


async def test_a_late_grant_grants_nothing(tmp_path: Path) -> None:
    """It fails with its own code, and the operation ends as one that nobody decided about."""
    async with engine(tmp_path, provider := ScriptedProvider(), contract=ASKED) as rig:
        await rig.intake.deliver([call()])
        request, operation_id = await asked(rig)
        rig.clock.ahead = timedelta(minutes=2)
        await rig.intake.deliver([decision(request, operation_id)])
        late, ended = await receipt(rig), await rig.operation()
        assert rig.dispatcher.unapproved == 0
    assert (late["kind"], late["code"]) == ("command.failed", "approval_expired")
    assert (ended.state, ended.reason) == (State.NOT_EXECUTED, "approval_expired")
    assert provider.executed == []


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"approval_id": "ap_0"}, "stale_approval"),
        ({"operation_id": f"op_{'0' * 32}"}, "unknown_operation"),
    ],
)
async def test_a_decision_about_anything_else_fails(tmp_path: Path, changed: JsonObject, code: str) -> None:
    """And changes nothing about what waits."""
    async with engine(tmp_path, ScriptedProvider(), contract=ASKED) as rig:
        await rig.intake.deliver([call()])
        request, operation_id = await asked(rig)
        right = decision(request, operation_id)
        wrong = replace(right, data={**right.data, **changed})
        await rig.intake.deliver([wrong])
        assert (await receipt(rig))["code"] == code
        assert (await rig.operation()).state is State.AWAITING_APPROVAL
        await rig.intake.deliver([replace(right, command_id=CommandId("approve-2"))])
        assert (await rig.settled()).state is State.SUCCEEDED


async def test_a_second_decision_about_one_request_fails(tmp_path: Path) -> None:
    """The first one counts, also within one batch."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN)
    async with engine(tmp_path, provider, contract=ASKED, bounds=limits(inflight_max=1)) as rig:
        await rig.intake.deliver([call()])
        request, operation_id = await asked(rig)
        await rig.intake.deliver(
            [
                decision(request, operation_id, "grant", "approve-1"),
                decision(request, operation_id, "deny", "approve-2"),
            ]
        )
        assert (await receipt(rig, "approve-2"))["code"] == "already_decided"
        provider.gate.set()
        assert (await rig.settled()).state is State.SUCCEEDED


async def test_a_definition_that_changed_is_asked_about_again(tmp_path: Path) -> None:
    """The grant was for something else; the new request has an id of its own, and the old one is stale."""
    async with engine(tmp_path, provider := ScriptedProvider(), contract=ASKED) as rig:
        await rig.intake.deliver([call()])
        first, operation_id = await asked(rig)
        provider.served = {"name": "act", "description": "deletes everything"}
        await rig.intake.deliver([decision(first, operation_id)])
        second, _ = await asked(rig, 2)
        assert provider.executed == []
        assert second["approval_id"] != first["approval_id"]
        assert second["definition_digest"] == definition_digest(provider.served)
        await rig.intake.deliver([decision(first, operation_id, "grant", "approve-2")])
        assert (await receipt(rig, "approve-2"))["code"] == "stale_approval"
        await rig.intake.deliver([decision(second, operation_id, "grant", "approve-3")])
        assert (await rig.settled()).state is State.SUCCEEDED
    assert len(provider.executed) == 1


@pytest.mark.parametrize("objection", ["connect_failed", "unknown_tool", "invalid_arguments"])
async def test_nobody_is_asked_about_what_cannot_be_called(tmp_path: Path, objection: str) -> None:
    """The provider is prepared first."""
    refusal = NotSent(reason=objection, message="no")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    async with engine(tmp_path, ScriptedProvider(objection=refusal), contract=ASKED) as rig:
        await rig.intake.deliver([call()])
        ended = await rig.settled()
        kinds = await rig.kinds()
    assert (ended.state, ended.reason) == (State.NOT_EXECUTED, objection)
    assert "operation.approval_requested" not in kinds


async def test_a_wait_for_a_person_does_not_eat_the_budget(tmp_path: Path) -> None:
    """`execution_s` counts from dispatch."""
    provider = ScriptedProvider()
    async with engine(tmp_path, provider, contract=replace(ASKED, approval_expires_s=600.0)) as rig:
        await rig.intake.deliver([call(expires_in_ms=900_000)])
        request, operation_id = await asked(rig)
        rig.clock.ahead = timedelta(minutes=5)
        await rig.intake.deliver([decision(request, operation_id)])
        ended = await rig.settled()
    assert ended.state is State.SUCCEEDED
    assert provider.executed[0].timeout_s > 25.0


async def test_a_grant_that_waits_too_long_for_a_slot_is_too_late(tmp_path: Path) -> None:
    """A person's word is not good for ever."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN)
    async with engine(tmp_path, provider, contract=ASKED, bounds=limits(inflight_max=1)) as rig:
        await rig.intake.deliver([call()])
        first, first_id = await asked(rig)
        await rig.intake.deliver([call("cmd-2", arguments={"n": 2})])
        second, second_id = await asked(rig, 2, "cmd-2")
        await rig.intake.deliver([decision(first, first_id)])
        await provider.arrived.wait()
        await rig.intake.deliver([decision(second, second_id, "grant", "approve-2")])
        rig.clock.ahead = timedelta(minutes=2)
        provider.gate.set()
        late = await rig.settled("cmd-2")
    assert (late.state, late.reason) == (State.NOT_EXECUTED, "approval_expired")
    assert len(provider.executed) == 1


async def test_those_that_wait_for_a_person_have_a_bound_of_their_own(tmp_path: Path) -> None:
    """Beyond it a call that needs one is refused `overloaded`; any other is taken."""
    bounds = limits(approvals_max=2)
    async with engine(tmp_path, ScriptedProvider(), contract=ASKED, bounds=bounds) as rig:
        answers = await rig.intake.deliver([call(f"cmd-{n}", arguments={"n": n}) for n in range(3)])
        assert answers[:2] == [Silent(), Silent()]
        assert isinstance(answers[2], Reply)
        assert '"code":"overloaded"' in answers[2].frame
        assert "approvals_max" in answers[2].frame
        await asked(rig, 2, "cmd-1")
        (again,) = await rig.intake.deliver([call("cmd-4", arguments={"n": 4})])
        assert isinstance(again, Reply)
        assert await rig.intake.deliver([call("cmd-5", tool="tools/other", arguments={"n": 5})]) == [Silent()]
        requested = (await requests(rig))[0]
        operation_id = (await rig.operation("cmd-0")).operation_id
        await rig.intake.deliver([decision(requested, operation_id, "deny")])
        assert await rig.intake.deliver([call("cmd-6", arguments={"n": 6})]) == [Silent()]


async def test_what_waits_for_a_person_takes_no_place_in_the_queue(tmp_path: Path) -> None:
    """However many people have to be asked, other calls are taken and run."""
    bounds = limits(queue_max=3, inflight_max=1)
    async with engine(tmp_path, ScriptedProvider(), contract=ASKED, bounds=bounds) as rig:
        for n in range(6):
            await rig.intake.deliver([call(f"cmd-{n}", arguments={"n": n})])
            await asked(rig, n + 1, f"cmd-{n}")
        await rig.intake.deliver([call("free", tool="tools/other")])
        assert (await rig.settled("free")).state is State.SUCCEEDED


# ------------------------------------------------------------ cancel, drain, fence, the last look


@pytest.mark.parametrize("kind", ["command.cancel", "run.cancel"])
async def test_a_cancel_ends_what_waits_for_a_person(tmp_path: Path, kind: str) -> None:
    """Nobody can grant it afterwards."""
    async with engine(tmp_path, provider := ScriptedProvider(), contract=ASKED) as rig:
        await rig.intake.deliver([call()])
        request, operation_id = await asked(rig)
        one = command("command.cancel", "cancel-1", target_command_id="cmd-1")
        await rig.intake.deliver([command(kind, "cancel-1") if kind == "run.cancel" else one])
        ended = await rig.operation()
        assert rig.dispatcher.unapproved == 0
        await rig.intake.deliver([decision(request, operation_id)])
        assert (await receipt(rig))["code"] == "not_awaiting_approval"
    assert (ended.state, ended.reason) == (State.NOT_EXECUTED, "cancelled")
    assert provider.executed == []


async def test_a_cancel_before_anybody_was_asked(tmp_path: Path) -> None:
    """While the provider is prepared there is no request yet, and then there never is one."""
    provider = ScriptedProvider(connected=False, held_in_prepare=True)
    async with engine(tmp_path, provider, contract=ASKED) as rig:
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
        await rig.intake.deliver([command("command.cancel", "cancel-1", target_command_id="cmd-1")])
        ended = await rig.settled()
        while rig.dispatcher.slots.in_use:
            await anyio.lowlevel.checkpoint()
        kinds = await rig.kinds()
    assert (ended.state, ended.reason) == (State.NOT_EXECUTED, "cancelled")
    assert "operation.approval_requested" not in kinds


async def test_a_cancel_after_the_grant_and_before_the_first_byte(tmp_path: Path) -> None:
    """The approval is used up, and nothing was sent."""
    provider = ScriptedProvider(held_at=Phase.CONNECTING)
    async with engine(tmp_path, provider, contract=ASKED) as rig:
        await rig.intake.deliver([call()])
        request, operation_id = await asked(rig)
        await rig.intake.deliver([decision(request, operation_id)])
        await provider.arrived.wait()
        await rig.intake.deliver([command("run.cancel", "cancel-1")])
        ended = await rig.settled()
    assert (ended.state, ended.reason) == (State.NOT_EXECUTED, "cancelled")
    assert provider.executed == []


async def test_a_drain_keeps_what_waits_for_a_person(tmp_path: Path) -> None:
    """The request is the same one after the restart."""
    async with engine(tmp_path, provider := ScriptedProvider(), contract=ASKED) as rig:
        await rig.intake.deliver([call()])
        request, _ = await asked(rig)
        rig.posture.draining = True
        await rig.dispatcher.drain()
    async with engine(tmp_path, provider, contract=ASKED) as rig:
        operation = await rig.operation()
        assert operation.state is State.AWAITING_APPROVAL
        assert rig.dispatcher.unapproved == 1
        await rig.intake.deliver([decision(request, operation.operation_id)])
        assert (await rig.settled()).state is State.SUCCEEDED
        assert len(await requests(rig)) == 1


async def test_a_fenced_daemon_hears_no_decision(tmp_path: Path) -> None:
    """And ends nothing that waits: another life may act on it."""
    async with engine(tmp_path, provider := ScriptedProvider(), contract=ASKED) as rig:
        await rig.intake.deliver([call()])
        request, operation_id = await asked(rig)
        await rig.desk.fence("superseded", "another life")
        (answer,) = await rig.intake.deliver([decision(request, operation_id)])
        assert isinstance(answer, Reply)
        assert '"code":"fenced"' in answer.frame
        rig.clock.ahead = timedelta(hours=2)
        rig.dispatcher.pump()
        await rig.quiet()
        assert (await rig.operation()).state is State.AWAITING_APPROVAL
    assert provider.executed == []


# ------------------------------------------------------------ restarts


async def test_a_crash_between_grant_and_start_asks_again(tmp_path: Path) -> None:
    """Nobody can tell on which side of the first byte the crash was: the grant is worth nothing now."""
    provider = ScriptedProvider(connected=False)
    async with engine(tmp_path, provider, contract=ASKED, bounds=limits(inflight_max=1)) as rig:
        await rig.intake.deliver([call()])
        first, operation_id = await asked(rig)
        provider.held_in_prepare = True
        await rig.intake.deliver([decision(first, operation_id)])
        await provider.arrived.wait()
    provider.held_in_prepare = False
    async with engine(tmp_path, provider, contract=ASKED, confirmed=False) as rig:
        await rig.quiet()
        assert len(await requests(rig)) == 1
        rig.desk.history_confirmed()
        second, _ = await asked(rig, 2)
        assert provider.executed == []
        assert second["approval_id"] != first["approval_id"]
        await rig.intake.deliver([decision(second, operation_id, "grant", "approve-2")])
        assert (await rig.settled()).state is State.SUCCEEDED
    assert len(provider.executed) == 1


async def test_a_crash_after_the_start_is_unknown_and_asks_nobody(tmp_path: Path) -> None:
    """The approval was used: what came of it has to be found out."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN)
    async with engine(tmp_path, provider, contract=ASKED) as rig:
        await rig.intake.deliver([call()])
        request, operation_id = await asked(rig)
        await rig.intake.deliver([decision(request, operation_id)])
        await provider.arrived.wait()
    async with engine(tmp_path, provider, contract=ASKED) as rig:
        ended = await rig.operation()
        assert len(await requests(rig)) == 1
    assert (ended.state, ended.reason, len(provider.executed)) == (State.UNKNOWN, "crash_window", 1)


async def test_before_the_history_is_confirmed_nobody_decides_and_nothing_expires(tmp_path: Path) -> None:
    """Another life of this journal may have acted on it: a denial could be a lie."""
    async with engine(tmp_path, provider := ScriptedProvider(), contract=ASKED) as rig:
        await rig.intake.deliver([call()])
        request, operation_id = await asked(rig)
    async with engine(tmp_path, provider, contract=ASKED, confirmed=False) as rig:
        await rig.intake.deliver([decision(request, operation_id, "deny")])
        assert (await receipt(rig))["code"] == "history_not_confirmed"
        rig.clock.ahead = timedelta(hours=1)
        rig.dispatcher.pump()
        await rig.quiet()
        assert (await rig.operation()).state is State.AWAITING_APPROVAL
        rig.desk.history_confirmed()
        assert (await rig.settled()).reason == "approval_expired"


async def test_what_was_asked_is_waited_for_though_the_contract_asks_no_more(tmp_path: Path) -> None:
    """And what was accepted without a question is asked about where the contract asks now."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN)
    free = Contract(declared=True)
    async with engine(tmp_path, provider, contract=free, bounds=limits(inflight_max=1)) as rig:
        await rig.intake.deliver([call("busy"), call("cmd-2", arguments={"n": 2})])
        await provider.arrived.wait()
    provider.held_at = None
    async with engine(tmp_path, provider, contract=ASKED) as rig:
        request, operation_id = await asked(rig, 1, "cmd-2")
    async with engine(tmp_path, provider, contract=free) as rig:
        await rig.quiet()
        assert (await rig.operation("cmd-2")).state is State.AWAITING_APPROVAL
        await rig.intake.deliver([decision(request, operation_id)])
        assert (await rig.settled("cmd-2")).state is State.SUCCEEDED


async def test_an_outcome_after_an_approval_is_as_honest_as_any(tmp_path: Path) -> None:
    """A person's word does not make silence a success, nor is it asked for a second try."""
    lost = Silence(cause="connection_lost", message="gone")
    async with engine(tmp_path, provider := ScriptedProvider(answer=lost), contract=ASKED) as rig:
        await rig.intake.deliver([call()])
        request, operation_id = await asked(rig)
        await rig.intake.deliver([decision(request, operation_id)])
        ended = await rig.settled()
    assert (ended.state, ended.reason, len(provider.executed)) == (State.UNKNOWN, "connection_lost", 1)
