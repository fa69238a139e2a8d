"""The order of the steps of a call: what is in the journal before, and after, anything leaves."""

from pathlib import Path
from typing import Literal

import anyio
import pytest

from driver.core.answers import Answer, Repeat, Reply, Silent
from driver.core.attempts import Answered, NotSent, NotSentReason, PeerError, Phase, Silence
from driver.core.contracts import Contract
from store.lifecycle import Effect, State
from store.records import RunId
from tests.driver.engine.rig import ScriptedProvider, call, command, engine, limits

pytestmark = pytest.mark.anyio


async def test_a_ready_call_is_accepted_and_started_in_one_commit(tmp_path: Path) -> None:
    """Acceptance and intent share a commit where a slot is free and the provider is connected."""
    async with engine(tmp_path, ScriptedProvider()) as rig:
        before = rig.journal.statistics().commits
        assert await rig.intake.deliver([call()]) == [Silent()]
        settled = await rig.settled()
        assert rig.journal.statistics().commits == before + 2
        assert settled.state is State.SUCCEEDED
        assert await rig.kinds() == ["command.accepted", "operation.started", "operation.succeeded"]


async def test_the_intent_is_durable_before_the_provider_sees_the_call(tmp_path: Path) -> None:
    """When the first byte may leave, `operation.started` stands in the journal."""
    provider = ScriptedProvider(held_at=Phase.WRITING)
    async with engine(tmp_path, provider) as rig:
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
        assert await rig.kinds() == ["command.accepted", "operation.started"]
        assert (await rig.operation()).state is State.STARTED
        provider.gate.set()
        await rig.settled()


async def test_the_key_is_the_operation_id(tmp_path: Path) -> None:
    """The provider gets the operation's id as the key, and the tool's own name."""
    async with engine(tmp_path, provider := ScriptedProvider()) as rig:
        await rig.intake.deliver([call()])
        operation = await rig.settled()
    (executed,) = provider.executed
    assert (executed.key, executed.tool) == (operation.operation_id, "act")


async def test_a_provider_that_must_be_started_is_prepared_before_the_intent(tmp_path: Path) -> None:
    """While a provider starts, the operation is accepted only: a crash then leaves no `unknown`."""
    provider = ScriptedProvider(connected=False, held_in_prepare=True)
    async with engine(tmp_path, provider) as rig:
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
        assert await rig.kinds() == ["command.accepted"]
        provider.gate.set()
        assert (await rig.settled()).state is State.SUCCEEDED


@pytest.mark.parametrize("reason", ["connect_failed", "spawn_failed", "invalid_arguments", "unknown_tool"])
async def test_what_a_provider_refuses_to_prepare_is_not_executed(
    tmp_path: Path, reason: NotSentReason
) -> None:
    """A refusal before the intent ends the operation `not_executed`, without an attempt."""
    refusal = NotSent(reason=reason, message="no")
    async with engine(tmp_path, provider := ScriptedProvider(objection=refusal)) as rig:
        await rig.intake.deliver([call()])
        ended = await rig.settled()
    assert (ended.state, ended.reason, ended.attempt_count) == (State.NOT_EXECUTED, reason, 0)
    assert provider.executed == []


@pytest.mark.parametrize("tool", ["nobody/act", "nobody", ""])
async def test_a_tool_without_a_provider_is_accepted_and_not_executed(tmp_path: Path, tool: str) -> None:
    """An unknown provider is the command's end, not a protocol error; an empty name is invalid data."""
    async with engine(tmp_path, ScriptedProvider()) as rig:
        await rig.intake.deliver([call(tool=tool)])
        kinds = await rig.kinds()
    if tool:
        assert kinds == ["command.accepted", "operation.not_executed"]
    else:
        assert kinds == ["command.refused"]


@pytest.mark.parametrize(
    ("report", "state", "effect"),
    [
        (Answered(result={}), State.SUCCEEDED, Effect.OCCURRED),
        (Answered(result={}, is_error=True), State.FAILED, Effect.UNKNOWN),
        (PeerError(code=-32001, message="timed out"), State.FAILED, Effect.UNKNOWN),
        (Silence(cause="connection_lost", message="gone"), State.UNKNOWN, Effect.UNKNOWN),
        (NotSent(reason="connect_failed", message="?"), State.UNKNOWN, Effect.UNKNOWN),
    ],
)
async def test_the_outcome_is_what_the_report_proves(
    tmp_path: Path, report: Answered | PeerError | Silence | NotSent, state: State, effect: Effect
) -> None:
    """Only an answer is a success or a failure; a `NotSent` that the phase contradicts is not believed."""
    async with engine(tmp_path, ScriptedProvider(answer=report)) as rig:
        await rig.intake.deliver([call()])
        ended = await rig.settled()
    assert (ended.state, ended.effect) == (state, effect)


async def test_an_exception_of_ours_after_the_first_byte_is_unknown(tmp_path: Path) -> None:
    """A bug in a provider never becomes the peer's word, and takes no other operation down."""
    provider = ScriptedProvider(fails=RuntimeError("bug"))
    async with engine(tmp_path, provider) as rig:
        await rig.intake.deliver([call()])
        assert (await rig.settled()).reason == "protocol_error"
        provider.fails = None
        await rig.intake.deliver([call("cmd-2", arguments={"n": 2})])
        assert (await rig.settled("cmd-2")).state is State.SUCCEEDED


async def test_the_deadline_is_the_tools_budget_capped_by_the_expiry(tmp_path: Path) -> None:
    """A call that is not answered in time is `unknown/execution_timeout`."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN)
    async with engine(tmp_path, provider, contract=Contract(execution_s=1.0)) as rig:
        await rig.intake.deliver([call(expires_in_ms=60_000)])
        assert (await rig.settled()).reason == "execution_timeout"
        await rig.intake.deliver([call("cmd-2", expires_in_ms=500, arguments={"n": 2})])
        second = await rig.settled("cmd-2")
    assert second.reason in {"execution_timeout", "expired"}
    assert second.deadline_at is None or second.deadline_at == second.expires_at


async def test_no_more_than_inflight_max_execute_at_once_and_the_rest_wait_in_order(tmp_path: Path) -> None:
    """What waits is accepted without an intent, and gets the slots in the order of arrival."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN)
    async with engine(tmp_path, provider, bounds=limits(inflight_max=2)) as rig:
        await rig.intake.deliver([call(f"cmd-{n}", arguments={"n": n}) for n in range(5)])
        await provider.arrived.wait()
        assert (await rig.kinds()).count("operation.started") == 2
        assert rig.dispatcher.depth == 3
        provider.gate.set()
        for n in range(5):
            await rig.settled(f"cmd-{n}")
    assert [item.arguments["n"] for item in provider.executed] == [0, 1, 2, 3, 4]


async def test_a_full_queue_refuses_new_calls_and_remembers_nothing(tmp_path: Path) -> None:
    """`overloaded` is a frame: the same command can be delivered again, and is accepted then."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN)
    async with engine(tmp_path, provider, bounds=limits(inflight_max=1, queue_max=1)) as rig:
        answers = await rig.intake.deliver([call(f"cmd-{n}", arguments={"n": n}) for n in range(3)])
        assert isinstance(answers[2], Reply)
        assert '"code":"overloaded"' in answers[2].frame
        assert len(await rig.kinds()) == 3
        provider.gate.set()
        await rig.settled("cmd-1")
        assert await rig.intake.deliver([call("cmd-2", arguments={"n": 2})]) == [Silent()]
        await rig.settled("cmd-2")


@pytest.mark.parametrize("approval", ["none", "required"])
async def test_calls_that_come_at_once_fill_the_queue_no_further_than_to_its_bound(
    tmp_path: Path, approval: Literal["none", "required"]
) -> None:
    """They share a commit: none stands in a queue when the next one is looked at, and each counts."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN)
    contract = Contract(declared=True, approval=approval)
    bounds = limits(inflight_max=1, queue_max=100 if approval == "required" else 2, approvals_max=3)
    answers: list[Answer] = []
    async with engine(tmp_path, provider, contract=contract, bounds=bounds) as rig:

        async def deliver(n: int) -> None:
            answers.extend(await rig.intake.deliver([call(f"cmd-{n}", arguments={"n": n})]))

        async with anyio.create_task_group() as tasks:
            for n in range(12):
                tasks.start_soon(deliver, n)
        assert sum(isinstance(answer, Silent) for answer in answers) == 3
        assert (await rig.kinds()).count("command.accepted") == 3


async def test_a_redelivery_executes_nothing_and_repeats_the_same_bytes(tmp_path: Path) -> None:
    """What is known is answered with its stored acceptance and receipt."""
    async with engine(tmp_path, provider := ScriptedProvider()) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        stored = await rig.events()
        (answer,) = await rig.intake.deliver([call()])
    assert isinstance(answer, Repeat)
    assert [event.body for event in answer.events] == [stored[0].body, stored[2].body]
    assert len(provider.executed) == 1


async def test_two_deliveries_in_one_batch_are_one_command(tmp_path: Path) -> None:
    """The second of a pair sees the first, though neither is committed yet."""
    async with engine(tmp_path, provider := ScriptedProvider()) as rig:
        await rig.intake.deliver([call(), call()])
        await rig.settled()
    assert len(provider.executed) == 1


async def test_other_content_under_a_known_id_is_a_conflict(tmp_path: Path) -> None:
    """The original goes on, and the other is refused without a trace."""
    async with engine(tmp_path, provider := ScriptedProvider()) as rig:
        await rig.intake.deliver([call()])
        (answer,) = await rig.intake.deliver([call(arguments={"n": 2})])
        await rig.settled()
    assert isinstance(answer, Reply)
    assert '"code":"conflict"' in answer.frame
    assert [item.arguments for item in provider.executed] == [{"n": 1}]


async def test_a_look_alike_of_a_running_write_is_refused_and_repeat_lets_it_pass(tmp_path: Path) -> None:
    """A second write with equal arguments is a likely resend while the first may be happening."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN)
    async with engine(tmp_path, provider) as rig:
        await rig.intake.deliver([call()])
        await rig.intake.deliver(
            [call("cmd-2"), call("cmd-3", repeat=True), call("cmd-4", run_id=RunId("other"))]
        )
        provider.gate.set()
        for name in ("cmd-1", "cmd-3", "cmd-4"):
            await rig.settled(name)
        kinds = await rig.kinds()
    assert kinds.count("command.refused") == 1
    assert len(provider.executed) == 3


async def test_a_command_that_another_journal_may_have_executed_is_unknown(tmp_path: Path) -> None:
    """A lost disk never becomes a second effect."""
    async with engine(tmp_path, provider := ScriptedProvider()) as rig:
        await rig.intake.deliver([call(delivered_to=("a" * 32,))])
        lost = await rig.operation()
    assert (lost.state, lost.reason) == (State.UNKNOWN, "journal_lost")
    assert provider.executed == []


# ------------------------------------------------------------ cancel, expiry, drain, fence


async def test_a_waiting_operation_is_cancelled_in_the_cancels_own_commit(tmp_path: Path) -> None:
    """Before its intent nothing was dispatched, and that is recorded proof."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN)
    async with engine(tmp_path, provider, bounds=limits(inflight_max=1)) as rig:
        await rig.intake.deliver([call(), call("cmd-2", arguments={"n": 2})])
        await rig.intake.deliver([command("command.cancel", "cancel-1", target_command_id="cmd-2")])
        cancelled = await rig.operation("cmd-2")
        provider.gate.set()
        await rig.settled()
    assert (cancelled.state, cancelled.reason) == (State.NOT_EXECUTED, "cancelled")
    assert len(provider.executed) == 1


async def test_a_cancel_after_the_first_byte_stays_honest(tmp_path: Path) -> None:
    """The provider is told, and nobody claims to know what it did."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN)
    async with engine(tmp_path, provider) as rig:
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
        await rig.intake.deliver([command("run.cancel", "cancel-1")])
        ended = await rig.settled()
    assert (ended.state, ended.reason) == (State.UNKNOWN, "cancelled_after_dispatch")


async def test_a_cancel_before_the_first_byte_is_not_executed(tmp_path: Path) -> None:
    """Between the intent and the first byte an attempt can still end with nothing done."""
    provider = ScriptedProvider(held_at=Phase.CONNECTING)
    async with engine(tmp_path, provider) as rig:
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
        await rig.intake.deliver([command("command.cancel", "cancel-1", target_command_id="cmd-1")])
        ended = await rig.settled()
    assert (ended.state, ended.reason) == (State.NOT_EXECUTED, "cancelled")
    assert provider.executed == []


async def test_what_expires_while_it_waits_is_never_dispatched(tmp_path: Path) -> None:
    """An expired call ends by itself, without another event waking the daemon."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN)
    async with engine(tmp_path, provider, bounds=limits(inflight_max=1)) as rig:
        await rig.intake.deliver([call(), call("cmd-2", arguments={"n": 2}, expires_in_ms=30)])
        expired = await rig.settled("cmd-2")
        provider.gate.set()
        await rig.settled()
    assert (expired.state, expired.reason) == (State.NOT_EXECUTED, "expired")


async def test_what_expires_while_its_provider_starts_is_never_dispatched(tmp_path: Path) -> None:
    """A slow start is cut at the command's expiry, and leaves no intent behind."""
    provider = ScriptedProvider(connected=False, held_in_prepare=True)
    async with engine(tmp_path, provider) as rig:
        await rig.intake.deliver([call(expires_in_ms=30)])
        expired = await rig.settled()
        kinds = await rig.kinds()
    assert (expired.state, expired.reason) == (State.NOT_EXECUTED, "expired")
    assert "operation.started" not in kinds


async def test_an_ended_run_gets_no_more_calls(tmp_path: Path) -> None:
    """A call after `run.end` is a final refusal, remembered for its redelivery."""
    async with engine(tmp_path, provider := ScriptedProvider()) as rig:
        await rig.intake.deliver([command("run.end", "end-1")])
        await rig.intake.deliver([call()])
        (again,) = await rig.intake.deliver([call()])
        kinds = await rig.kinds()
    assert kinds == ["command.accepted", "command.completed", "command.refused"]
    assert isinstance(again, Repeat)
    assert provider.executed == []


async def test_a_drain_lets_what_runs_finish_and_keeps_what_waits(tmp_path: Path) -> None:
    """What waits stays accepted for the next start; new calls are refused `draining`."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN)
    async with engine(tmp_path, provider, bounds=limits(inflight_max=1, drain_s=5)) as rig:
        await rig.intake.deliver([call(), call("cmd-2", arguments={"n": 2})])
        await provider.arrived.wait()
        rig.posture.draining = True
        (answer,) = await rig.intake.deliver([call("cmd-3", arguments={"n": 3})])
        assert isinstance(answer, Reply)
        provider.gate.set()
        await rig.dispatcher.drain()
        assert (await rig.operation()).state is State.SUCCEEDED
        assert (await rig.operation("cmd-2")).state is State.ACCEPTED


async def test_a_drain_that_is_over_cancels_what_still_runs(tmp_path: Path) -> None:
    """The bound holds, and the outcome is honest."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN)
    async with engine(tmp_path, provider, bounds=limits(drain_s=0.05)) as rig:
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
        rig.posture.draining = True
        await rig.dispatcher.drain()
        ended = await rig.operation()
    assert (ended.state, ended.reason) == (State.UNKNOWN, "cancelled_after_dispatch")


async def test_a_fence_stops_everything_new_and_lets_what_runs_end(tmp_path: Path) -> None:
    """Fenced, the daemon dispatches nothing and answers with `fenced`; outcomes are committed."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN)
    async with engine(tmp_path, provider, bounds=limits(inflight_max=1)) as rig:
        await rig.intake.deliver([call(), call("cmd-2", arguments={"n": 2})])
        await provider.arrived.wait()
        await rig.desk.fence("forked", "another history")
        answers = await rig.intake.deliver([call(), call("cmd-9", arguments={"n": 9})])
        assert all(isinstance(answer, Reply) and "fenced" in answer.frame for answer in answers)
        provider.gate.set()
        assert (await rig.settled()).state is State.SUCCEEDED
        assert (await rig.operation("cmd-2")).state is State.ACCEPTED
        opening = await rig.desk.opening()
        assert (opening.hello.state, opening.fence) == ("fenced", "forked")
    assert len(provider.executed) == 1


async def test_a_late_answer_settles_an_unknown_operation(tmp_path: Path) -> None:
    """The best evidence there is wins over what was inferred, and the receipt stays the one it was."""
    lost = Silence(cause="deadline", message="no answer in time")
    async with engine(tmp_path, ScriptedProvider(answer=lost)) as rig:
        await rig.intake.deliver([call()])
        unknown = await rig.settled()
        assert (unknown.state, unknown.effect) == (State.UNKNOWN, Effect.UNKNOWN)
        committed = anyio.Event()
        rig.journal.subscribe(lambda _events: committed.set())
        rig.dispatcher.late(unknown.operation_id, 1, Answered(result={"content": []}))
        await committed.wait()
        late = await rig.operation()
        terminal = [event for event in await rig.events() if event.terminal]
    assert (late.state, late.effect, late.settled) == (State.UNKNOWN, Effect.OCCURRED, True)
    assert [event.kind for event in terminal] == ["operation.unknown"]


async def test_an_answer_that_comes_while_the_daemon_ends_is_nobodys(tmp_path: Path) -> None:
    """A provider that still listens while it closes finds a dispatcher that has ended, and no error."""
    async with engine(tmp_path, ScriptedProvider(answer=Silence(cause="deadline", message=""))) as rig:
        await rig.intake.deliver([call()])
        unknown = await rig.settled()
    rig.dispatcher.late(unknown.operation_id, 1, Answered(result={"content": []}))
    async with engine(tmp_path, ScriptedProvider()) as rig:
        assert (await rig.operation()).state is State.UNKNOWN
