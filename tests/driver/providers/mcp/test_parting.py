"""How long a cancelled call is listened to: until its answer came, or none can."""

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketStream

from driver.core.attempts import Answered, ToolCall
from driver.providers.listening import Listening
from driver.providers.mcp.settings import HttpServer
from store.records import OperationId
from tests.driver.providers.mcp.stage import Stage, staged, stdio
from tests.driver.providers.mcp.web import LEGACY, MODERN, Request, Web, done, rpc, web

pytestmark = pytest.mark.anyio

LATE_S = 0.6


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same patience, in less time."""
    monkeypatch.setattr("driver.providers.mcp.life.PING_S", 0.4)
    monkeypatch.setattr("driver.providers.mcp.child.POLITE_EXIT_S", 0.2)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncGenerator[Stage]:
    """The hostile server, started and connected."""
    ledger = tmp_path / "ledger"
    async with staged(stdio("hostile_mcp.py", ledger), ledger, late_result_s=LATE_S) as stage:
        assert isinstance(await stage.act("honest"), Answered)
        yield stage


async def cancelled(stage: Stage, call: ToolCall) -> None:
    """Dispatch a call, and cancel it once it has left."""
    with anyio.move_on_after(0.1) as scope:
        await stage.dispatch(call)
    assert scope.cancelled_caught


async def heard_out(stage: Stage, call: ToolCall, within_s: float) -> float:
    """Wait until nothing more is to be heard of a call; return how long that took."""
    assert isinstance(stage.provider, Listening)
    began = anyio.current_time()
    with anyio.fail_after(within_s):
        await stage.provider.listened(call.operation_id, call.attempt)
    return anyio.current_time() - began


async def test_it_ends_with_the_answer_which_was_told_by_then(stage: Stage) -> None:
    """Whoever waited knows the answer without looking anywhere."""
    call = stage.call("act", {"mode": "late", "seconds": 0.3})
    await cancelled(stage, call)
    await heard_out(stage, call, 2)
    assert [(operation_id, type(report)) for operation_id, _, report in stage.late] == [
        (call.operation_id, Answered)
    ]


async def test_it_ends_where_the_server_confirms_the_cancel(stage: Stage) -> None:
    """Nothing was told, and nothing more comes."""
    call = stage.call("act", {"mode": "late-error", "code": -32800, "seconds": 0.2})
    await cancelled(stage, call)
    assert await heard_out(stage, call, 2) < LATE_S
    assert stage.late == []


async def test_it_ends_where_the_server_does(stage: Stage) -> None:
    """A pipe that is gone brings no answer."""
    call = stage.call("act", {"mode": "silent"})
    await cancelled(stage, call)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stage.act, "dies-before")
        assert await heard_out(stage, call, 3) < LATE_S
    assert stage.late == []


async def test_it_ends_with_the_late_window_at_the_latest(stage: Stage) -> None:
    """A deaf server is not waited for for ever."""
    call = stage.call("act", {"mode": "silent"})
    await cancelled(stage, call)
    await heard_out(stage, call, LATE_S + 2)
    assert stage.late == []


async def test_what_is_not_listened_to_ends_at_once(stage: Stage) -> None:
    """A call that was answered, and one that nobody knows."""
    call = stage.call("act", {"mode": "honest"})
    assert isinstance(await stage.dispatch(call), Answered)
    assert await heard_out(stage, call, 1) < 0.1
    assert isinstance(stage.provider, Listening)
    with anyio.fail_after(1):
        await stage.provider.listened(OperationId("op_nobody"), 1)


@pytest.mark.parametrize(("era", "hears"), [(MODERN, False), (LEGACY, True)])
async def test_over_http_it_depends_on_how_a_cancel_is_told(tmp_path: Path, era: str, *, hears: bool) -> None:
    """The newer protocol hangs up, and hears nothing more; the older one sends a message, and listens on."""

    async def answer(_web: Web, stream: SocketStream, request: Request) -> None:
        await anyio.sleep(0.4)
        await stream.send(rpc(request, done()))

    async with web(era=era, answer=answer) as server:
        url = HttpServer(url=f"http://127.0.0.1:{server.port}/mcp")
        async with staged(url, tmp_path / "ledger", late_result_s=2.0) as stage:
            assert stage.provider is not None
            await stage.provider.list_tools()
            call = stage.call("act")
            await cancelled(stage, call)
            took_s = await heard_out(stage, call, 3)
            assert bool(stage.late) == hears
            assert (took_s > 0.1) == hears
