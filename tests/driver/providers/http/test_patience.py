"""How long an HTTP API is waited for: deadlines, late answers, cancellations, and the end."""

import contextlib
import socket

import anyio
import pytest
from anyio.abc import AnyByteStream, SocketAttribute

from driver.core.attempts import Answered, HttpStatus, NotSent, Phase, Silence, ToolCall
from tests.driver.providers.http.site import (
    PATIENCE_S,
    Request,
    Script,
    Site,
    http,
    says,
    shrunk,
    slowly,
    then_hangs_up,
    then_resets,
)
from tests.driver.providers.http.stage import (
    DEADLINE_S,
    Stage,
    endpoint,
    on_stage,
    settings,
    staged,
)
from tests.driver.providers.http.test_provider import HALF_A_HEAD, WRITTEN
from tests.driver.providers.http.test_unsent import deaf_site, reaching

pytestmark = pytest.mark.anyio


async def overdue(stage: Stage) -> ToolCall:
    """Let a call pass its deadline after it was sent, and return it."""
    call = stage.call(timeout_s=DEADLINE_S)
    report = await stage.run(call)
    assert isinstance(report, Silence)
    assert report.cause == "deadline"
    return call


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param((b"", http()), id="nothing yet"),
        pytest.param((HALF_A_HEAD, b"ngth: 2\r\n\r\n{}"), id="half a head"),
        pytest.param((http()[:-4], http()[-4:]), id="half a body"),
    ],
)
async def test_an_answer_after_the_deadline_is_reported_late(pieces: tuple[bytes, ...]) -> None:
    """The caller waits no longer; the answer is still heard, and belongs to its call."""
    async with on_stage(slowly(*pieces)) as (made, stage):
        call = await overdue(stage)
        assert stage.phases[-1] is Phase.WRITTEN
        made.go_on.set()
        assert isinstance(await stage.hear(), Answered)
        assert stage.late[0][:2] == (call.operation_id, 1)
        assert stage.phases[-1] is Phase.WRITTEN


async def test_a_late_status_is_reported_as_it_is() -> None:
    """What a late failure proves is decided elsewhere."""
    async with on_stage(slowly(b"", http(500, b"{}"))) as (made, stage):
        await overdue(stage)
        made.go_on.set()
        report = await stage.hear()
        assert isinstance(report, HttpStatus)
        assert report.status == 500


async def test_listening_ends_and_takes_the_connection_with_it() -> None:
    """After `late_result_s` the connection is closed, so that the call can land no more."""
    async with on_stage(slowly(b"", http()), late_result_s=0.05) as (made, stage):
        await overdue(stage)
        await made.until(lambda made: made.gone == 1)
        assert stage.late == []


@pytest.mark.parametrize("script", [then_hangs_up(), then_resets(HALF_A_HEAD), says(b"garbage\r\n\r\n")])
async def test_what_is_no_answer_is_not_reported_late(script: Script) -> None:
    """A connection that dies in the late window says nothing."""

    async def late(made: Site, stream: AnyByteStream, request: Request) -> None:
        await made.told_to_go_on(stream)
        await script(made, stream, request)

    async with on_stage(late) as (made, stage):
        await overdue(stage)
        made.go_on.set()
        await made.until(lambda made: made.gone == 1)
        assert stage.late == []


async def test_a_limit_bounds_how_many_late_answers_are_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it a call is hung up on at its deadline."""
    monkeypatch.setattr("driver.providers.http.provider.LISTENED_MAX", 1)
    async with on_stage(slowly(b"", http())) as (made, stage):
        await overdue(stage)
        await overdue(stage)
        await made.until(lambda made: len(made.requests) == 2)
        made.go_on.set()
        await stage.hear()
        await made.until(lambda made: made.gone == 2)
        assert len(stage.late) == 1


async def test_a_request_that_is_not_written_whole_by_the_deadline_is_cut_off() -> None:
    """A server that does not read cannot be sent the rest of a call after its deadline."""
    tools = {"act": endpoint(body="=arguments.text")}
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        staged(settings(f"http://127.0.0.1:{shrunk(listener)}", tools)) as stage,
    ):
        report = await stage.run(stage.call("act", {"text": "x" * 8_000_000}, timeout_s=DEADLINE_S))
        assert isinstance(report, Silence)
        assert (report.cause, stage.phases) == ("deadline", [Phase.WRITING])
        arrived = await anyio.to_thread.run_sync(drained, listener.extra(SocketAttribute.raw_socket))
        assert 0 < arrived < 8_000_000


def drained(listener: socket.socket) -> int:
    """Take the connection that waits, and return how much comes over it until its end."""
    stream, _ = listener.accept()
    with stream:
        stream.settimeout(PATIENCE_S)
        arrived = 0
        with contextlib.suppress(ConnectionError):
            while data := stream.recv(65_536):
                arrived += len(data)
    return arrived


# ------------------------------------------------------------------ cancel and close


async def test_a_cancel_before_the_first_byte_withdraws_the_call() -> None:
    """Nothing arrives, and the phases prove it."""
    async with deaf_site() as port, reaching(f"https://127.0.0.1:{port}") as stage:
        await cancelled_at(Phase.CONNECTING, stage)
        assert stage.phases == [Phase.CONNECTING]


async def cancelled_at(phase: Phase, stage: Stage) -> None:
    """Dispatch a call, and cancel its scope when it has reached `phase`."""
    scope = anyio.CancelScope()

    def progress(reached: Phase) -> None:
        stage.phases.append(reached)
        if reached is phase:
            scope.cancel()

    with scope:
        await stage.provider.dispatch(stage.call(), progress)
    assert scope.cancelled_caught


async def test_a_cancel_of_a_prepared_call_leaves_nothing_behind() -> None:
    """A scope that is cancelled before `dispatch` gets going sends nothing."""
    async with on_stage(says(http())) as (made, stage):
        call = stage.call()
        assert await stage.provider.prepare(call) is None
        with anyio.CancelScope() as scope:
            scope.cancel()
            await stage.dispatch(call)
        await made.until(lambda made: made.gone == 1)
        assert (stage.phases, made.requests) == ([], [])


async def test_a_cancel_while_preparing_leaves_nothing_behind() -> None:
    """A connection in the making is given up."""
    async with deaf_site() as port, reaching(f"https://127.0.0.1:{port}") as stage:
        with anyio.move_on_after(0.1) as scope:
            await stage.provider.prepare(stage.call())
        assert scope.cancelled_caught


async def test_a_cancel_after_the_first_byte_closes_the_connection() -> None:
    """Hanging up is the only sign that HTTP has; nothing is listened for any more."""
    async with on_stage(slowly(b"", http())) as (made, stage):
        await cancelled_at(Phase.WRITTEN, stage)
        assert stage.phases == WRITTEN
        made.go_on.set()
        await made.until(lambda made: made.gone == 1)
        assert stage.late == []


async def test_closing_ends_what_is_in_flight() -> None:
    """A call under way is silence, one that is asked for afterwards is not sent, and `close` returns."""
    async with on_stage(slowly(b"", http())) as (made, stage):
        reports: list[object] = []

        async def run() -> None:
            reports.append(await stage.dispatch())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await made.until(lambda made: len(made.requests) == 1)
            await stage.provider.close()
        assert [type(report) for report in reports] == [Silence]
        refused = await stage.provider.prepare(stage.call())
        assert isinstance(refused, NotSent)
        assert refused.reason == "connect_failed"
