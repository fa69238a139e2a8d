"""Beside a call that waits: which of what its provider says of its progress a client can hold."""

from types import SimpleNamespace
from typing import Any, Final, cast

import anyio
import pytest
from mcp_types import ClientCapabilities, ElicitationCapability
from mcp_types.version import LATEST_HANDSHAKE_VERSION

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

SPEAKER: Final = Speaker(holder="relay", run_id=RunId("run-1"), uid=0, relayed=True)


def waiting() -> Wait:
    """A call on its way."""
    return Wait(
        command_id=CommandId("gateway:1"),
        operation_id=OperationId("op_" + "0" * 32),
        run_id=RunId("run-1"),
        tool="tools/act",
        digest=Digest("x"),
    )


async def test_progress_that_no_client_could_hold_is_left_out() -> None:
    """Some end their session at a number above any double; what comes behind it is passed on."""
    heard: list[tuple[float, float | None, str | None]] = []
    whole = anyio.Event()

    async def report(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))
        if len(heard) == len(HEARD):
            whole.set()

    ctx = SimpleNamespace(meta={"progress_token": 1}, session=SimpleNamespace(report_progress=report))
    company = Company(cast("Any", ctx), SPEAKER, cast("Any", None), GatewayLimits())
    wait = waiting()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(company.meanwhile, wait)
        for said in SAID:
            company.progressed(said)
        with anyio.fail_after(60):
            await whole.wait()
        tasks.cancel_scope.cancel()
    assert heard == HEARD


@pytest.mark.parametrize(
    ("offered", "asked"),
    [({}, True), ({"form": {}}, True), ({"url": {}, "form": {}}, True), ({"url": {}}, False)],
)
async def test_a_client_is_asked_in_a_form_only_if_it_takes_forms(
    offered: dict[str, Any], asked: bool
) -> None:
    """Who takes addresses alone must be sent no form; who names no way takes forms, as it was once."""
    questions: list[str] = []

    async def elicit(question: str, _schema: object, **_options: object) -> None:
        questions.append(question)
        await anyio.sleep_forever()

    async def report(*_said: object) -> None: ...

    capabilities = ClientCapabilities(elicitation=ElicitationCapability.model_validate(offered))
    session = SimpleNamespace(
        client_capabilities=capabilities, client_params=None, elicit_form=elicit, report_progress=report
    )
    ctx = SimpleNamespace(meta=None, session=session, protocol_version=LATEST_HANDSHAKE_VERSION, request_id=1)
    company = Company(cast("Any", ctx), SPEAKER, cast("Any", SimpleNamespace(may_ask=bool)), GatewayLimits())
    wait = waiting()
    wait.approval_id = "a-1"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(company.meanwhile, wait)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert bool(questions) is asked
