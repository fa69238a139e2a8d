"""Further attempts across restarts of the daemon, and answers that come after them."""

from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from driver.core.attempts import Answered, PeerError, Phase, Silence
from driver.core.contracts import Contract
from store.lifecycle import Effect, State
from tests.driver.engine.again import SAFE
from tests.driver.engine.rig import Clock, Rig, ScriptedProvider, call, engine
from tests.driver.engine.test_retry import BUSY, LOST, PATIENT, at_rest

pytestmark = pytest.mark.anyio


async def test_a_restart_goes_on_with_the_next_attempt_once_the_history_is_confirmed(tmp_path: Path) -> None:
    """It repeats none, and makes none before the plane has spoken."""
    provider = ScriptedProvider(answers=[LOST])
    async with engine(tmp_path, provider, contract=PATIENT) as rig:
        await rig.intake.deliver([call()])
        await at_rest(rig)
    async with engine(tmp_path, provider, contract=SAFE, confirmed=False) as rig:
        await rig.quiet()
        assert (await rig.operation()).state is State.STARTED
        assert len(provider.executed) == 1
        rig.desk.history_confirmed()
        ended = await rig.settled()
    assert (ended.state, [item.attempt for item in provider.executed]) == (State.SUCCEEDED, [1, 2])


async def test_an_attempt_that_a_crash_hid_is_followed_by_another_within_the_horizon(tmp_path: Path) -> None:
    """The crash is that attempt's end, not the operation's: the provider knows the key."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN)
    async with engine(tmp_path, provider, contract=SAFE) as rig:
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
    provider.held_at = None
    async with engine(tmp_path, provider, contract=SAFE, confirmed=False) as rig:
        assert await rig.attempts() == [("unknown", "crash_window")]
        assert len(provider.executed) == 1
        rig.desk.history_confirmed()
        ended = await rig.settled()
        attempts = await rig.attempts()
    assert (ended.state, attempts[1]) == (State.SUCCEEDED, ("succeeded", None))


@pytest.mark.parametrize(
    ("contract", "slept_s"),
    [
        (replace(SAFE, retry="never"), 0.0),
        (replace(SAFE, retry_attempts=1), 0.0),
        (SAFE, 90.0),
        (replace(SAFE, dedupe_horizon_s=1.0), 0.0),
    ],
)
async def test_an_attempt_that_a_crash_hid_is_the_last_where_none_may_follow(
    tmp_path: Path, contract: Contract, slept_s: float
) -> None:
    """Today's contract and every clock must allow it."""
    provider, clock = ScriptedProvider(held_at=Phase.WRITTEN), Clock()
    async with engine(tmp_path, provider, contract=SAFE, clock=clock) as rig:
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
    clock.slept_s = slept_s
    async with engine(tmp_path, provider, contract=contract, clock=clock) as rig:
        ended = await rig.operation()
    assert (ended.state, ended.reason, len(provider.executed)) == (State.UNKNOWN, "crash_window", 1)


async def test_a_crash_loop_uses_attempts_up(tmp_path: Path) -> None:
    """Each crash in mid-call is one, and they are bounded."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN)
    for life in range(4):
        async with engine(tmp_path, provider, contract=SAFE) as rig:
            if life == 0:
                await rig.intake.deliver([call()])
            if life < 3:
                await provider.arrived.wait()
                provider.arrived = anyio.Event()
    async with engine(tmp_path, provider, contract=SAFE) as rig:
        ended = await rig.operation()
        attempts = await rig.attempts()
    assert (ended.state, len(provider.executed)) == (State.UNKNOWN, 3)
    assert attempts == [("unknown", "crash_window")] * 3


async def test_today_s_contract_decides_after_a_restart(tmp_path: Path) -> None:
    """Taken back meanwhile, the promise of a retry ends what rested as its attempts prove."""
    provider = ScriptedProvider(answers=[LOST])
    async with engine(tmp_path, provider, contract=PATIENT) as rig:
        await rig.intake.deliver([call()])
        await at_rest(rig)
    never = replace(SAFE, retry="never")
    async with engine(tmp_path, provider, contract=never, confirmed=False) as rig:
        assert (await rig.operation()).state is State.STARTED
        rig.desk.history_confirmed()
        ended = await rig.settled()
    assert (ended.state, ended.reason, len(provider.executed)) == (State.UNKNOWN, "connection_lost", 1)


# ------------------------------------------------------------ late answers


async def test_a_late_answer_between_two_attempts_is_the_receipt(tmp_path: Path) -> None:
    """What has happened is not tried again."""
    provider = ScriptedProvider(answers=[Silence(cause="deadline", message="no answer in time")])
    async with engine(tmp_path, provider, contract=PATIENT) as rig:
        await rig.intake.deliver([call()])
        await at_rest(rig)
        operation = await rig.operation()
        rig.dispatcher.late(operation.operation_id, 1, Answered(result={"content": ["late"]}))
        ended = await rig.settled()
        last = await rig.last()
        while rig.dispatcher.depth:
            await anyio.lowlevel.checkpoint()
    assert (ended.state, ended.effect, len(provider.executed)) == (State.SUCCEEDED, Effect.OCCURRED, 1)
    assert (last["result"], last["attempts"]) == ({"content": ["late"]}, 1)


async def test_a_late_last_word_between_two_attempts_is_the_receipt(tmp_path: Path) -> None:
    """A provider that says no, late, is not asked again; one that says "not now" is."""
    provider = ScriptedProvider(answers=[Silence(cause="deadline", message="no answer in time")])
    async with engine(tmp_path, provider, contract=PATIENT) as rig:
        await rig.intake.deliver([call()])
        await at_rest(rig)
        operation = await rig.operation()
        rig.dispatcher.late(operation.operation_id, 1, BUSY)
        await rig.reaches("operation.late_result")
        assert (await rig.operation()).state is State.STARTED
        rig.dispatcher.late(operation.operation_id, 1, PeerError(code=-32000, message="no such project"))
        ended = await rig.settled()
        last = await rig.last()
    assert (ended.state, ended.effect, ended.error_means) == (State.FAILED, Effect.UNKNOWN, "reported")
    assert last["error"] == {"code": "-32000", "message": "no such project"}


async def test_a_late_answer_beside_a_further_attempt_wins_over_whatever_that_comes_to(
    tmp_path: Path,
) -> None:
    """Any attempt that happened makes the operation one that happened: the answer is its receipt."""
    silence = Silence(cause="deadline", message="no answer in time")
    provider = ScriptedProvider(answers=[silence, LOST])
    async with engine(tmp_path, provider, contract=SAFE) as rig:
        await rig.intake.deliver([call()])
        await rig.reaches("operation.attempt_ended")
        provider.held_at = Phase.WRITTEN
        await provider.arrived.wait()
        operation = await rig.operation()
        rig.dispatcher.late(operation.operation_id, 1, Answered(result={"content": ["late"]}))
        await rig.reaches("operation.late_result")
        provider.gate.set()
        ended = await rig.settled()
        last, attempts = await rig.last(), await rig.attempts()
    assert (ended.state, ended.effect, len(provider.executed)) == (State.SUCCEEDED, Effect.OCCURRED, 2)
    assert (last["result"], last["attempt"], last["attempts"]) == ({"content": ["late"]}, 1, 2)
    assert attempts == [("unknown", "execution_timeout"), ("unknown", "connection_lost")]


async def test_a_late_answer_just_before_a_further_attempt_stops_it(tmp_path: Path) -> None:
    """The evidence is looked at once more before the first byte."""
    silence = Silence(cause="deadline", message="no answer in time")
    provider = ScriptedProvider(answers=[silence])
    passed = 0
    rigs: list[Rig] = []

    def answer_now(name: str) -> None:
        nonlocal passed
        passed += name == "dispatch.intent_committed"
        if name == "dispatch.intent_committed" and passed == 2:
            rigs[0].dispatcher.late(provider.executed[0].operation_id, 1, Answered(result={"content": []}))

    async with engine(tmp_path, provider, contract=SAFE, boundary=answer_now) as rig:
        rigs.append(rig)
        await rig.intake.deliver([call()])
        ended = await rig.settled()
        attempts = await rig.attempts()
    assert (ended.state, ended.effect) == (State.SUCCEEDED, Effect.OCCURRED)
    assert attempts == [("unknown", "execution_timeout"), ("not_executed", "cancelled")]
    assert len(provider.executed) == 1


async def test_a_late_answer_survives_a_crash_beside_a_further_attempt(tmp_path: Path) -> None:
    """The next life finds it, and ends the operation with it."""
    silence = Silence(cause="deadline", message="no answer in time")
    provider = ScriptedProvider(answers=[silence])
    async with engine(tmp_path, provider, contract=SAFE) as rig:
        await rig.intake.deliver([call()])
        await rig.reaches("operation.attempt_ended")
        provider.held_at = Phase.WRITTEN
        await provider.arrived.wait()
        operation = await rig.operation()
        rig.dispatcher.late(operation.operation_id, 1, Answered(result={"content": ["late"]}))
        await rig.reaches("operation.late_result")
    async with engine(tmp_path, provider, contract=SAFE) as rig:
        ended = await rig.operation()
        last, attempts = await rig.last(), await rig.attempts()
    assert (ended.state, ended.effect, len(provider.executed)) == (State.SUCCEEDED, Effect.OCCURRED, 2)
    assert (last["result"], last["attempt"]) == ({"content": ["late"]}, 1)
    assert attempts == [("unknown", "execution_timeout"), ("unknown", "crash_window")]
