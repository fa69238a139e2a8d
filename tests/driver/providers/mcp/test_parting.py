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
from tests.driver.providers.mcp.stage import LATE_S, Stage, staged, stdio
from tests.driver.providers.mcp.web import LEGACY, MODERN, Request, Web, done, rpc, web

pytestmark = pytest.mark.anyio

SOON_S = LATE_S / 2
"""Long before the late window ends, and far longer than anything here takes."""


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same patience at the end, in less time."""
    monkeypatch.setattr("driver.providers.mcp.child.POLITE_EXIT_S", 0.2)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncGenerator[Stage]:
    """The hostile server, started and connected."""
    ledger = tmp_path / "ledger"
    async with staged(stdio("hostile_mcp.py", ledger), ledger) as stage:
        assert isinstance(await stage.act("honest"), Answered)
        yield stage


async def heard_out(stage: Stage, call: ToolCall) -> None:
    """Wait until nothing more is to be heard of a call: not as long as one listens to who is silent."""
    assert isinstance(stage.provider, Listening)
    with anyio.fail_after(SOON_S):
        await stage.provider.listened(call.operation_id, call.attempt)


async def test_it_ends_with_the_answer_which_was_told_by_then(stage: Stage) -> None:
    """Whoever waited knows the answer without looking anywhere."""
    call = stage.call("act", {"mode": "late", "seconds": 0.3})
    await stage.cancel(call)
    await heard_out(stage, call)
    assert [(operation_id, type(report)) for operation_id, _, report in stage.late] == [
        (call.operation_id, Answered)
    ]


async def test_it_ends_where_the_server_confirms_the_cancel(stage: Stage) -> None:
    """Nothing was told, and nothing more comes."""
    call = stage.call("act", {"mode": "late-error", "code": -32800, "seconds": 0.2})
    await stage.cancel(call)
    await heard_out(stage, call)
    assert stage.late == []


async def test_it_ends_where_the_server_does(stage: Stage) -> None:
    """A pipe that is gone brings no answer."""
    call = stage.call("act", {"mode": "silent"})
    await stage.cancel(call)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stage.act, "dies-before")
        await heard_out(stage, call)
    assert stage.late == []


async def test_it_ends_with_the_late_window_at_the_latest(tmp_path: Path) -> None:
    """A deaf server is not waited for for ever."""
    ledger = tmp_path / "ledger"
    async with staged(stdio("hostile_mcp.py", ledger), ledger, late_result_s=0.3) as stage:
        call = stage.call("act", {"mode": "silent"})
        await stage.cancel(call)
        began = anyio.current_time()
        await heard_out(stage, call)
        assert anyio.current_time() - began > 0.2
        assert stage.late == []


async def test_what_is_not_listened_to_ends_at_once(stage: Stage) -> None:
    """A call that was answered, and one that nobody knows."""
    call = stage.call("act", {"mode": "honest"})
    assert isinstance(await stage.dispatch(call), Answered)
    await heard_out(stage, call)
    assert isinstance(stage.provider, Listening)
    with anyio.fail_after(SOON_S):
        await stage.provider.listened(OperationId("op_nobody"), 1)


@pytest.mark.parametrize(("era", "hears"), [(MODERN, False), (LEGACY, True)])
async def test_over_http_it_depends_on_how_a_cancel_is_told(tmp_path: Path, era: str, *, hears: bool) -> None:
    """The newer protocol hangs up, and hears nothing more; the older one sends a message, and listens on."""
    answers = anyio.Event()

    async def answer(_web: Web, stream: SocketStream, request: Request) -> None:
        await answers.wait()
        await stream.send(rpc(request, done()))

    async with web(era=era, answer=answer) as server:
        url = HttpServer(url=f"http://127.0.0.1:{server.port}/mcp")
        async with staged(url, tmp_path / "ledger") as stage:
            assert isinstance(stage.provider, Listening)
            await stage.provider.list_tools()
            call = stage.call("act")
            await stage.cancel(call)
            if hears:
                with anyio.move_on_after(0.2) as waited:
                    await stage.provider.listened(call.operation_id, call.attempt)
                assert waited.cancelled_caught
                answers.set()
            await heard_out(stage, call)
            assert bool(stage.late) == hears
            answers.set()
