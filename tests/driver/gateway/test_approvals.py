"""Beside a call that waits: which of what its provider says of its progress a client can hold."""

from types import SimpleNamespace
from typing import Any, Final, cast

import anyio
import pytest

from driver.gateway.approvals import Company
from driver.gateway.limits import GatewayLimits
from driver.gateway.runs import Speaker
from driver.gateway.waiting import Wait
from store.records import CommandId, Digest, JsonObject, OperationId, RunId

pytestmark = pytest.mark.anyio

HUGE: Final = 10**400
SAID: Final[tuple[JsonObject, ...]] = (
    {"progress": HUGE},
    {"progress": True},
    {"progress": "1"},
    {"progress": 1, "total": HUGE, "message": "one"},
    {"progress": 2, "total": 3.5, "message": ["two"]},
    {"progress": 2},
    {"progress": -HUGE},
    {"progress": 3, "total": True},
)
HEARD: Final = [(1, None, "one"), (2, 3.5, None), (3, None, None)]


async def test_progress_that_no_client_could_hold_is_left_out() -> None:
    """Some end their session at a number above any double; what comes behind it is passed on."""
    heard: list[tuple[float, float | None, str | None]] = []
    whole = anyio.Event()

    async def report(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))
        if len(heard) == len(HEARD):
            whole.set()

    ctx = SimpleNamespace(meta={"progress_token": 1}, session=SimpleNamespace(report_progress=report))
    speaker = Speaker(holder="relay", run_id=RunId("run-1"), uid=0, relayed=True)
    company = Company(cast("Any", ctx), speaker, cast("Any", None), GatewayLimits())
    wait = Wait(
        command_id=CommandId("gateway:1"),
        operation_id=OperationId("op_" + "0" * 32),
        run_id=RunId("run-1"),
        tool="tools/act",
        digest=Digest("x"),
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(company.meanwhile, wait)
        for said in SAID:
            company.progressed(said)
        with anyio.fail_after(60):
            await whole.wait()
        tasks.cancel_scope.cancel()
    assert heard == HEARD
