"""The drill that loses an answer: the effect is real, the outcome is honest, and no second call is struck."""

from pathlib import Path

import pytest

from driver.core.attempts import Answered
from driver.core.contracts import Contract, MetaKey
from store.lifecycle import Effect, State
from store.records import RunId
from tests.driver.engine.rig import RUN, ScriptedProvider, call, engine

pytestmark = pytest.mark.anyio

TOOL = "tools/act"


async def test_the_first_call_of_the_tool_happens_and_its_answer_is_lost(tmp_path: Path) -> None:
    """It ends unknown after one real execution; the next call of the run keeps its answer."""
    async with engine(tmp_path, provider := ScriptedProvider(), lose=TOOL) as rig:
        await rig.intake.deliver([call("cmd-1")])
        lost = await rig.settled("cmd-1")
        await rig.intake.deliver([call("cmd-2", arguments={"n": 2})])
        kept = await rig.settled("cmd-2")
    assert (lost.state, lost.effect, lost.reason) == (State.UNKNOWN, Effect.UNKNOWN, "connection_lost")
    assert kept.state is State.SUCCEEDED
    assert len(provider.executed) == 2


async def test_each_run_has_a_first_call(tmp_path: Path) -> None:
    """Another run is struck once, too."""
    async with engine(tmp_path, ScriptedProvider(), lose=TOOL) as rig:
        for run_id, command_id in ((RUN, "cmd-1"), (RunId("run-2"), "cmd-2")):
            await rig.intake.deliver([call(command_id, run_id=run_id)])
            assert (await rig.settled(command_id)).state is State.UNKNOWN


async def test_a_restart_strikes_no_second_call(tmp_path: Path) -> None:
    """What was struck stands in the journal."""
    async with engine(tmp_path, ScriptedProvider(), lose=TOOL) as rig:
        await rig.intake.deliver([call("cmd-1")])
        await rig.settled("cmd-1")
    async with engine(tmp_path, ScriptedProvider(), lose=TOOL) as rig:
        await rig.intake.deliver([call("cmd-2", arguments={"n": 2})])
        assert (await rig.settled("cmd-2")).state is State.SUCCEEDED


async def test_one_operation_can_be_struck(tmp_path: Path) -> None:
    """By its id, wherever it stands in its run; every other one is left alone."""
    async with engine(tmp_path, ScriptedProvider()) as rig:
        await rig.intake.deliver([call("cmd-2", arguments={"n": 2})])
        wanted = (await rig.settled("cmd-2")).operation_id
    (tmp_path / "drill").mkdir()
    async with engine(tmp_path / "drill", ScriptedProvider(), lose=wanted) as rig:
        await rig.intake.deliver([call("cmd-1")])
        await rig.intake.deliver([call("cmd-2", arguments={"n": 2})])
        assert (await rig.settled("cmd-1")).state is State.SUCCEEDED
        assert (await rig.settled("cmd-2")).state is State.UNKNOWN


async def test_the_next_attempt_is_not_struck(tmp_path: Path) -> None:
    """A retry with the same key, where the contract allows it, gets the answer."""
    contract = Contract(
        declared=True,
        idempotent=True,
        dedupe_horizon_s=3600.0,
        key_carrier=MetaKey(),
        retry="same-key",
        retry_backoff_s=0.01,
    )
    async with engine(tmp_path, provider := ScriptedProvider(), contract=contract, lose=TOOL) as rig:
        await rig.intake.deliver([call()])
        assert (await rig.settled()).state is State.SUCCEEDED
    assert [executed.attempt for executed in provider.executed] == [1, 2]


async def test_an_error_is_not_lost(tmp_path: Path) -> None:
    """A drill is about effects that happened: an answer that says no stays an answer."""
    provider = ScriptedProvider(answer=Answered(result={"content": []}, is_error=True))
    async with engine(tmp_path, provider, lose=TOOL) as rig:
        await rig.intake.deliver([call()])
        assert (await rig.settled()).state is State.FAILED


async def test_without_a_drill_nothing_is_lost(tmp_path: Path) -> None:
    """Off unless asked for."""
    async with engine(tmp_path, ScriptedProvider()) as rig:
        await rig.intake.deliver([call()])
        assert (await rig.settled()).state is State.SUCCEEDED
