"""Whether a call without an answer may still be carried out: only a process that is gone proves it cannot."""

from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from driver.core.attempts import Answered, NotSent, Report, Silence, ToolCall
from driver.providers.landing import Landing
from store.records import OperationId
from tests.driver.providers.mcp.stage import DEADLINE_S, Stage, is_running, staged, stdio
from tests.driver.providers.mcp.test_patience import hurried

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("hurried")]

__all__ = ["hurried"]


async def lost(stage: Stage, mode: str) -> ToolCall:
    """Have a call that is given up at its deadline."""
    assert stage.provider is not None
    call = stage.call("act", {"mode": mode}, timeout_s=DEADLINE_S)
    assert await stage.provider.prepare(call) is None
    assert isinstance(await stage.provider.dispatch(call, lambda _phase: None), Silence)
    return call


async def test_a_call_may_land_until_its_server_is_gone(tmp_path: Path) -> None:
    """A deaf server that is still listened to may do it yet; one that was ended, with its group, may not."""
    ledger = tmp_path / "ledger"
    async with staged(stdio("hostile_mcp.py", ledger), ledger) as stage:
        provider = stage.provider
        assert isinstance(provider, Landing)
        call = await lost(stage, "deaf")
        assert provider.may_land(call.operation_id, call.attempt)
        await provider.close()
        assert not provider.may_land(call.operation_id, call.attempt)


async def test_a_call_that_must_be_alone_ends_the_process_of_its_earlier_attempt(tmp_path: Path) -> None:
    """It answers pings, and nobody listens any more: what it still does would land beside the next one."""
    ledger, gate = tmp_path / "ledger", tmp_path / "gate"
    async with staged(stdio("hostile_mcp.py", ledger), ledger, late_result_s=0.1) as stage:
        call = await outlived(stage, gate)
        again = replace(call, attempt=2, arguments={"mode": "honest"}, timeout_s=30.0)
        assert isinstance(await stage.dispatch(replace(again, operation_id=OperationId("op_x"))), Answered)
        (first,) = stage.pids()
        assert stage.provider is not None
        assert await stage.provider.prepare(replace(again, alone=True)) is None
        assert not is_running(first)
        assert not stage.provider.may_land(call.operation_id, call.attempt)
        assert isinstance(await stage.dispatch(replace(again, alone=True)), Answered)
        assert len(stage.pids()) == 2


async def test_a_call_that_need_not_be_alone_ends_no_process(tmp_path: Path) -> None:
    """A server that deduplicates may remember the key in its memory."""
    ledger, gate = tmp_path / "ledger", tmp_path / "gate"
    async with staged(stdio("hostile_mcp.py", ledger), ledger, late_result_s=0.1) as stage:
        call = await outlived(stage, gate)
        again = replace(call, attempt=2, arguments={"mode": "honest"}, timeout_s=30.0)
        assert stage.provider is not None
        assert await stage.provider.prepare(again) is None
        assert isinstance(await stage.dispatch(again), Answered)
        assert len(stage.pids()) == 1


async def test_a_late_answer_leaves_nothing_to_end(tmp_path: Path) -> None:
    """Its call is over, and the process goes on."""
    ledger, gate = tmp_path / "ledger", tmp_path / "gate"
    async with staged(stdio("hostile_mcp.py", ledger), ledger) as stage:
        assert stage.provider is not None
        call = stage.call("act", {"mode": "late", "until": str(gate)}, timeout_s=DEADLINE_S)
        assert isinstance(await stage.dispatch(call), Silence)
        gate.touch()
        await stage.hear()
        again = replace(call, attempt=2, arguments={"mode": "honest"}, timeout_s=30.0, alone=True)
        assert await stage.provider.prepare(again) is None
        assert isinstance(await stage.dispatch(again), Answered)
        assert len(stage.pids()) == 1


async def test_a_process_that_others_wait_for_is_not_ended_for_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their outcome would be lost: the call that must be alone is not sent, and can be tried again."""
    monkeypatch.setattr("driver.providers.mcp.provider.PARTING_S", 0.2)
    ledger, gate = tmp_path / "ledger", tmp_path / "gate"
    async with staged(stdio("hostile_mcp.py", ledger), ledger, late_result_s=0.1) as stage:
        provider = stage.provider
        assert provider is not None
        call = await outlived(stage, gate)
        other = stage.call("act", {"mode": "late", "until": str(gate)}, timeout_s=60.0)
        heard: list[Report] = []
        sent = anyio.Event()

        async def wait_for_other() -> None:
            heard.append(await provider.dispatch(other, lambda _phase: sent.set()))

        alone = replace(call, attempt=2, arguments={"mode": "honest"}, timeout_s=30.0, alone=True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_for_other)
            await sent.wait()
            refusal = await provider.prepare(alone)
            assert isinstance(refusal, NotSent)
            assert refusal.reason == "connect_failed"
            gate.touch()
        assert isinstance(heard[0], Answered)
        monkeypatch.setattr("driver.providers.mcp.provider.PARTING_S", 30.0)
        assert await provider.prepare(alone) is None


async def outlived(stage: Stage, gate: Path) -> ToolCall:
    """Have a call that is given up at its deadline, and that its server is at until the gate is there."""
    provider = stage.provider
    assert provider is not None
    call = stage.call("act", {"mode": "late", "until": str(gate)}, timeout_s=DEADLINE_S)
    assert await provider.prepare(call) is None
    assert isinstance(await provider.dispatch(call, lambda _phase: None), Silence)
    await provider.listened(call.operation_id, call.attempt)
    return call


async def test_of_calls_that_this_life_does_not_know_nothing_is_proven(tmp_path: Path) -> None:
    """An earlier life may have sent them to a process that outlived it."""
    ledger = tmp_path / "ledger"
    async with staged(stdio("hostile_mcp.py", ledger), ledger) as stage:
        assert stage.provider is not None
        assert stage.provider.may_land(OperationId("op_" + "0" * 32), 1)
