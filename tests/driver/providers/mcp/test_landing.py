"""Whether a call without an answer may still be carried out: only a process that is gone proves it cannot."""

from pathlib import Path

import pytest

from driver.core.attempts import Silence, ToolCall
from driver.providers.landing import Landing
from store.records import OperationId
from tests.driver.providers.mcp.stage import DEADLINE_S, Stage, staged, stdio
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


async def test_of_calls_that_this_life_does_not_know_nothing_is_proven(tmp_path: Path) -> None:
    """An earlier life may have sent them to a process that outlived it."""
    ledger = tmp_path / "ledger"
    async with staged(stdio("hostile_mcp.py", ledger), ledger) as stage:
        assert stage.provider is not None
        assert stage.provider.may_land(OperationId("op_" + "0" * 32), 1)
