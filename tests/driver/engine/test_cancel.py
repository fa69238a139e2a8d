"""A cancel in each moment of an operation's life, and what a cancelled call still says."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import pytest

from driver.core.answers import Done
from driver.core.attempts import Answered, NotSent, PeerError, Phase, Report, Silence, ToolCall
from driver.core.contracts import Contract, MetaKey
from store.lifecycle import Effect, State
from store.records import CommandId, JsonObject
from tests.driver.engine.again import receipt
from tests.driver.engine.rig import RUN, Rig, ScriptedProvider, call, command, engine, limits

pytestmark = pytest.mark.anyio

RETRIED = Contract(
    declared=True,
    idempotent=True,
    dedupe_horizon_s=100.0,
    key_carrier=MetaKey(),
    retry="same-key",
    retry_backoff_s=30.0,
)


async def cancelled(
    tmp_path: Path, provider: ScriptedProvider, contract: Contract | None = None
) -> tuple[State, str | None, Effect, list[str]]:
    """Cancel a call that has left; return what it ended as, and what the journal says."""
    async with engine(tmp_path, provider, contract=contract) as rig:
        await rig.intake.deliver([call(expires_in_ms=60_000)])
        await provider.arrived.wait()
        await rig.intake.deliver([command("command.cancel", "cancel-1", target_command_id="cmd-1")])
        await rig.settled()
        while rig.dispatcher.slots.in_use:
            await anyio.lowlevel.checkpoint()
        ended = await rig.operation()
        kinds = await rig.kinds()
    return ended.state, ended.reason, ended.effect, kinds


async def test_a_tool_that_had_done_it_already_says_so(tmp_path: Path) -> None:
    """The answer is the outcome: the cancel came too late."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN, parting=Answered(result={"content": []}))
    state, reason, effect, kinds = await cancelled(tmp_path, provider)
    assert (state, reason, effect) == (State.SUCCEEDED, None, Effect.OCCURRED)
    assert "operation.late_result" not in kinds


@pytest.mark.parametrize(
    "parting", [PeerError(code=-32800, message="cancelled"), Answered(result={}, is_error=True)]
)
@pytest.mark.parametrize("error_means", ["reported", "none"])
async def test_an_error_after_a_cancel_settles_nothing(
    tmp_path: Path, parting: Report, error_means: str
) -> None:
    """It may be about the cancel, from a tool that was stopped halfway: it is kept, and proves nothing."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN, parting=parting)
    contract = replace(Contract(declared=True), error_means=error_means)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    state, reason, effect, kinds = await cancelled(tmp_path, provider, contract)
    assert (state, reason, effect) == (State.UNKNOWN, "cancelled_after_dispatch", Effect.UNKNOWN)
    assert kinds[-2:] == ["operation.unknown", "operation.late_result"]


async def test_a_deaf_tool_is_waited_for_a_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the outcome is what is known: nothing."""
    monkeypatch.setattr("driver.engine.calling.CANCEL_DRAIN_S", 0.2)
    provider = ScriptedProvider(held_at=Phase.WRITTEN, deaf=True)
    began = anyio.current_time()
    with anyio.fail_after(30):  # half of what the call itself may take
        state, reason, _, _ = await cancelled(tmp_path, provider)
    assert anyio.current_time() - began >= 0.2
    assert (state, reason) == (State.UNKNOWN, "cancelled_after_dispatch")


@pytest.mark.parametrize(("execution_s", "expires_in_ms"), [(60.0, 20_600), (20.6, 60_000)])
async def test_a_deaf_tool_is_never_waited_for_beyond_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, execution_s: float, expires_in_ms: int
) -> None:
    """The command's own expiry is the ceiling, and the outcome is recorded so much before it."""
    monkeypatch.setattr("driver.engine.calling.CANCEL_DRAIN_S", 60.0)
    monkeypatch.setattr("driver.engine.calling.MARGIN_S", 20.0)
    provider = ScriptedProvider(held_at=Phase.WRITTEN, deaf=True)
    contract = Contract(declared=True, execution_s=execution_s)
    async with engine(tmp_path, provider, contract=contract) as rig:
        await rig.intake.deliver([call(expires_in_ms=expires_in_ms)])
        await provider.arrived.wait()
        await rig.intake.deliver([command("run.cancel", "cancel-1")])
        ended = await rig.settled()
    assert (ended.state, ended.reason) == (State.UNKNOWN, "cancelled_after_dispatch")
    assert ended.ended_at is not None
    assert ended.deadline_at is not None
    assert ended.ended_at < ended.deadline_at


async def test_an_answer_that_comes_after_the_wait_is_a_late_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It settles the operation all the same."""
    monkeypatch.setattr("driver.engine.calling.CANCEL_DRAIN_S", 0.05)
    provider = ScriptedProvider(held_at=Phase.WRITTEN, deaf=True)
    async with engine(tmp_path, provider) as rig:
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
        await rig.intake.deliver([command("run.cancel", "cancel-1")])
        unknown = await rig.settled()
        while rig.dispatcher.slots.in_use:
            await anyio.lowlevel.checkpoint()
        rig.dispatcher.late(unknown.operation_id, 1, Answered(result={"content": []}))
        await rig.reaches("operation.late_result")
        settled = await rig.operation()
    assert (unknown.state, settled.state, settled.effect) == (State.UNKNOWN, State.UNKNOWN, Effect.OCCURRED)


async def test_a_drain_waits_for_cancelled_calls_within_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is cancelled at the end of a drain may still tell what it did."""
    monkeypatch.setattr("driver.engine.calling.CANCEL_DRAIN_S", 0.2)
    provider = ScriptedProvider(held_at=Phase.WRITTEN, deaf=True)
    async with engine(tmp_path, provider, bounds=limits(drain_s=0.05)) as rig:
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
        rig.posture.draining = True
        await rig.dispatcher.drain()
        assert rig.dispatcher.slots.in_use == 0
        assert (await rig.operation()).reason == "cancelled_after_dispatch"


async def test_one_cancel_of_a_run_ends_its_operations_in_every_moment(tmp_path: Path) -> None:
    """Waiting for a slot, for a person, for another attempt, or running: each ends as it can be proven."""
    lost = Silence(cause="connection_lost", message="gone")
    provider = ScriptedProvider(answers=[lost])
    asked = Contract(declared=True, approval="required")
    async with engine(
        tmp_path, provider, contract=RETRIED, others={"ask": asked}, bounds=limits(inflight_max=1)
    ) as rig:
        await rig.intake.deliver([call("resting")])
        await rig.reaches("operation.attempt_ended")
        await rig.intake.deliver([call("asking", tool="tools/ask")])
        await rig.reaches("operation.approval_requested")
        provider.held_at = Phase.WRITTEN
        await rig.intake.deliver([call("running", arguments={"n": 2}), call("waiting", arguments={"n": 3})])
        await provider.arrived.wait()
        await rig.intake.deliver([command("run.cancel", "cancel-1")])
        for name in ("resting", "asking", "running", "waiting"):
            await rig.settled(name)
        found = {
            name: ((await rig.operation(name)).state, (await rig.operation(name)).reason)
            for name in ("resting", "asking", "running", "waiting")
        }
        assert (rig.dispatcher.depth, rig.dispatcher.unapproved) == (0, 0)
    assert found == {
        "resting": (State.UNKNOWN, "connection_lost"),
        "asking": (State.NOT_EXECUTED, "cancelled"),
        "running": (State.UNKNOWN, "cancelled_after_dispatch"),
        "waiting": (State.NOT_EXECUTED, "cancelled"),
    }
    assert len(provider.executed) == 2


@pytest.mark.parametrize("boundary", ["dispatch.intent_committed", "dispatch.before_call"])
async def test_a_cancel_at_the_point_of_no_return_is_seen_before_the_first_byte(
    tmp_path: Path, boundary: str
) -> None:
    """After the intent and before the call nothing has left, and that is proof."""
    provider = ScriptedProvider()
    strike: list[Callable[[], None]] = []

    def at(name: str) -> None:
        if name == boundary and strike:
            strike.pop()()

    async with engine(tmp_path, provider, boundary=at) as rig:

        def cancel() -> None:
            for running in list(rig.dispatcher._running):
                rig.dispatcher.cancel(running)

        strike.append(cancel)
        await rig.intake.deliver([call()])
        ended = await rig.settled()
    assert (ended.state, ended.reason) == (State.NOT_EXECUTED, "cancelled")
    assert provider.executed == []


@dataclass
class Slow(ScriptedProvider):
    """Is told of a cancel of its first preparation, and does not let go before `freed`."""

    freed: anyio.Event = field(default_factory=anyio.Event)

    async def prepare(self, call: ToolCall) -> NotSent | None:
        if not self.prepared:
            self.prepared.append(call)
            self.arrived.set()
            with anyio.CancelScope(shield=True):
                await self.freed.wait()
            await anyio.lowlevel.checkpoint_if_cancelled()
        return None


async def test_a_preparation_that_ends_late_takes_no_cancel_from_the_attempt_behind_it(
    tmp_path: Path,
) -> None:
    """What was cancelled was asked for again, and that is cancelled, too: nothing leaves."""
    provider = Slow(connected=False, held_at=Phase.CONNECTING)
    async with engine(tmp_path, provider) as rig:
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
        await rig.intake.deliver([command("command.cancel", "cancel-1", target_command_id="cmd-1")])
        operation_id = (await rig.settled()).operation_id
        await rig.intake.deliver([command("operation.retry", "retry-1", operation_id=operation_id)])
        await rig.reaches("operation.started")
        provider.freed.set()
        await rig.quiet()
        await rig.intake.deliver([command("command.cancel", "cancel-2", target_command_id="retry-1")])
        ended = await rig.settled()
    assert (ended.state, ended.reason, provider.executed) == (State.NOT_EXECUTED, "cancelled", [])


# ------------------------------------------------------------ before the plane has confirmed the history


CANCELS: list[tuple[str, JsonObject]] = [
    ("command.cancel", {"target_command_id": "cmd-1"}),
    ("run.cancel", {}),
]


@asynccontextmanager
async def accepted_earlier(tmp_path: Path, provider: ScriptedProvider) -> AsyncGenerator[Rig]:
    """A life whose history nobody has confirmed yet, behind one that accepted the call."""
    async with engine(tmp_path, provider, confirmed=False) as rig:
        await rig.intake.deliver([call()])
    async with engine(tmp_path, provider, confirmed=False) as rig:
        yield rig


async def cancel_unconfirmed(rig: Rig, kind: str, data: JsonObject) -> CommandId:
    """Cancel the call; return the command that did, and that has no receipt yet."""
    done = await rig.local.submit(kind, RUN, data)
    assert isinstance(done, Done)
    await rig.quiet()
    assert done.result is None
    assert (await rig.operation()).state is State.ACCEPTED
    return done.command_id


@pytest.mark.parametrize(("kind", "data"), CANCELS)
@pytest.mark.parametrize("restarts", [False, True])
async def test_what_an_earlier_life_accepted_is_cancelled_once_the_history_is_confirmed(
    tmp_path: Path, kind: str, data: JsonObject, *, restarts: bool
) -> None:
    """Whoever cancels it before, an agent for one: nothing is said before, and nothing leaves after."""
    provider = ScriptedProvider()
    async with accepted_earlier(tmp_path, provider) as rig:
        command_id = await cancel_unconfirmed(rig, kind, data)
        if not restarts:
            await confirmed_and_cancelled(rig, command_id)
    if restarts:
        async with engine(tmp_path, provider, confirmed=False) as rig:
            await confirmed_and_cancelled(rig, command_id)
    assert provider.executed == []


async def confirmed_and_cancelled(rig: Rig, command_id: CommandId) -> None:
    """Let the plane confirm the history: the call is cancelled, and whoever did that is told."""
    rig.desk.history_confirmed()
    ended = await rig.settled()
    assert (ended.state, ended.reason) == (State.NOT_EXECUTED, "cancelled")
    assert (await receipt(rig, command_id))[0] == "command.completed"


@pytest.mark.parametrize(("kind", "data"), CANCELS)
async def test_a_cancel_in_a_journal_that_turns_out_to_be_old_proves_nothing(
    tmp_path: Path, kind: str, data: JsonObject
) -> None:
    """Another life may have executed the call: it is unknown, and an equal one is refused."""
    provider = ScriptedProvider()
    async with accepted_earlier(tmp_path, provider) as rig:
        command_id = await cancel_unconfirmed(rig, kind, data)
        await rig.desk.fence("rolled_back", "d")
        await rig.engine.fences.lift(accept_rollback=True, actor="operator:0")
        rig.desk.history_confirmed()
        assert (await receipt(rig, command_id))[1]["code"] == "rolled_back"
        found = await rig.operation()
    assert (found.state, found.reason, found.guards) == (State.UNKNOWN, "rolled_back", True)
