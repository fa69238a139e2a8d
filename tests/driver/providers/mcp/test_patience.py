"""Deadlines, cancellations, late answers, and servers that stop listening."""

import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from driver.core.attempts import Answered, NotSent, PeerError, Phase, Report, Silence, ToolCall
from driver.providers.listening import Listening
from store.records import JsonObject
from tests.driver.providers.mcp.stage import DEADLINE_S, Stage, gone, is_running, program, staged, stdio

pytestmark = pytest.mark.anyio

PING_S = 0.4
LISTENED_S = 0.3
SENT = [Phase.WRITING, Phase.WRITTEN]


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same patience with who is deaf, in less time: who only is slow would be taken for deaf as well."""
    monkeypatch.setattr("driver.providers.mcp.life.PING_S", PING_S)
    monkeypatch.setattr("driver.providers.mcp.child.POLITE_EXIT_S", 0.2)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncGenerator[Stage]:
    """The hostile server, started and connected."""
    ledger = tmp_path / "ledger"
    async with staged(stdio("hostile_mcp.py", ledger), ledger) as stage:
        assert isinstance(await stage.act("honest"), Answered)
        yield stage


def cancelled(stage: Stage) -> int:
    """How many cancellations the server has heard of."""
    return sum("cancelled" in effect for effect in stage.effects())


async def told(stage: Stage) -> None:
    """Return once the server has heard of a cancellation; honest calls are answered meanwhile."""
    with anyio.fail_after(30):
        while not cancelled(stage):
            assert isinstance(await stage.act("honest"), Answered)


async def test_a_deadline_ends_the_wait_and_a_late_answer_is_told_to_its_own_call(
    stage: Stage, tmp_path: Path
) -> None:
    """Silence at the deadline, the peer goes on undisturbed, and what comes then is handed over once."""
    gate = tmp_path / "gate"
    call = stage.call("act", {"mode": "late", "until": str(gate)}, timeout_s=DEADLINE_S)
    report = await stage.dispatch(call)
    assert report == Silence(cause="deadline", message="no answer within 1 s")
    assert stage.phases == SENT
    assert isinstance(await stage.act("honest"), Answered)
    gate.touch()
    await stage.hear()
    ((operation_id, attempt, late),) = stage.late
    assert (operation_id, attempt) == (call.operation_id, 1)
    assert isinstance(late, Answered)
    assert late.result["content"] == [{"type": "text", "text": "late"}]
    assert cancelled(stage) == 0


async def test_an_answer_beyond_the_late_window_is_dropped(tmp_path: Path) -> None:
    """After `late_result_s` nobody listens any more, and the answer reaches no other call."""
    ledger = tmp_path / "ledger"
    gate = tmp_path / "gate"
    async with staged(stdio("hostile_mcp.py", ledger), ledger, late_result_s=0.1) as stage:
        await stage.connect()
        call = stage.call("act", {"mode": "late", "until": str(gate)}, timeout_s=DEADLINE_S)
        assert isinstance(await stage.dispatch(call), Silence)
        assert isinstance(stage.provider, Listening)
        await stage.provider.listened(call.operation_id, call.attempt)
        gate.touch()
        assert isinstance(await stage.act("late", seconds=0.2), Answered)
        assert stage.late == []


async def test_the_peer_is_told_when_nobody_listens_any_more(tmp_path: Path) -> None:
    """A server that is told drops its answer or stops halfway: told at the deadline, it could not be late."""
    ledger = tmp_path / "ledger"
    async with staged(stdio("hostile_mcp.py", ledger), ledger, late_result_s=LISTENED_S) as stage:
        await stage.connect()
        began = anyio.current_time()
        await stage.act("silent", timeout_s=DEADLINE_S)
        await told(stage)
        assert anyio.current_time() - began >= DEADLINE_S + LISTENED_S
        assert isinstance(await stage.act("honest"), Answered)
        assert cancelled(stage) == 1


async def test_an_error_that_answers_our_cancellation_is_no_late_answer(stage: Stage, tmp_path: Path) -> None:
    """It says that the tool was interrupted somewhere, which is what we knew; any other error is told."""
    calls: list[ToolCall] = []
    for code in (-32800, -32603):
        arguments: JsonObject = {"mode": "late-error", "code": code, "until": str(tmp_path / str(code))}
        calls.append(stage.call("act", arguments, timeout_s=DEADLINE_S))
        assert isinstance(await stage.dispatch(calls[-1]), Silence)
    assert isinstance(stage.provider, Listening)
    with anyio.fail_after(20):
        (tmp_path / "-32800").touch()
        await stage.provider.listened(calls[0].operation_id, 1)
        (tmp_path / "-32603").touch()
        await stage.hear()
    assert [report for _, _, report in stage.late] == [PeerError(code=-32603, message="cancelled")]


async def test_a_cancelled_call_tells_the_peer_and_listens_on(stage: Stage, tmp_path: Path) -> None:
    """Cancelling the caller's scope is a cancellation of the call; its answer may still come late."""
    gate = tmp_path / "gate"
    call = stage.call("act", {"mode": "late", "until": str(gate)})
    await stage.cancel(call)
    assert stage.phases == SENT
    await told(stage)
    gate.touch()
    await stage.hear()
    assert [operation_id for operation_id, _, _ in stage.late] == [call.operation_id]
    assert cancelled(stage) == 1


async def test_a_call_cancelled_before_the_first_byte_never_leaves(stage: Stage) -> None:
    """A scope that is cancelled already sends nothing, and says so by its phases."""
    with anyio.CancelScope() as scope:
        scope.cancel()
        await stage.act("honest")
    assert scope.cancelled_caught
    assert stage.phases == []
    assert len(stage.effects()) == 1


async def test_a_call_past_its_deadline_never_leaves(stage: Stage) -> None:
    """No time left is no reason to send and not to wait."""
    report = await stage.act("honest", timeout_s=0)
    assert isinstance(report, NotSent)
    assert report.reason == "deadline"
    assert stage.phases == []
    assert len(stage.effects()) == 1


async def test_a_server_that_answers_pings_is_kept_after_a_deadline(stage: Stage) -> None:
    """A slow call is no reason to replace a server that listens."""
    assert isinstance(await stage.act("silent", timeout_s=DEADLINE_S), Silence)
    assert isinstance(await stage.act("honest"), Answered)
    assert len(stage.pids()) == 1


@pytest.mark.usefixtures("hurried")
async def test_a_deaf_server_is_replaced_and_only_listened_to(tmp_path: Path) -> None:
    """Calls are held while it is pinged, a fresh server takes them, and its late answer still counts."""
    ledger, gate = tmp_path / "ledger", tmp_path / "gate"
    async with staged(stdio("hostile_mcp.py", ledger), ledger) as stage:
        assert stage.provider is not None
        began = anyio.current_time()
        assert isinstance(await stage.act("deaf", until=str(gate), timeout_s=DEADLINE_S), Silence)
        assert not stage.provider.ready(stage.call("act", {"mode": "honest"}))
        assert isinstance(await stage.act("honest"), Answered)
        assert anyio.current_time() - began >= PING_S
        gate.touch()
        await stage.hear()
        ((_, _, late),) = stage.late
        assert isinstance(late, Answered)
        assert late.result["content"] == [{"type": "text", "text": "at last"}]
        effects = [(effect["mode"], effect["pid"]) for effect in stage.effects() if "mode" in effect]
        assert [mode for mode, _ in effects] == ["honest", "deaf"]
        assert len(stage.pids()) == 2


@pytest.mark.usefixtures("hurried")
async def test_a_deaf_server_is_ended_when_nobody_listens_to_it_any_more(tmp_path: Path) -> None:
    """After `late_result_s` the old process is gone, and the new one serves on."""
    ledger = tmp_path / "ledger"
    async with staged(stdio("hostile_mcp.py", ledger), ledger, late_result_s=0.1) as stage:
        await stage.act("honest")
        (old,) = stage.pids()
        await stage.act("deaf", timeout_s=DEADLINE_S)
        await stage.act("honest")
        (new,) = stage.pids() - {old}
        await gone(old)
        assert is_running(new)


@pytest.mark.usefixtures("hurried")
async def test_a_deaf_server_is_ended_at_once_when_the_provider_closes(stage: Stage) -> None:
    """A drain does not wait for the late window; a call that still waits gets its silence."""
    assert stage.provider is not None
    await stage.act("deaf", timeout_s=DEADLINE_S)
    reports: list[Report] = []

    async def one() -> None:
        reports.append(await stage.act("silent", timeout_s=60))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            assert isinstance(await stage.act("honest"), Answered)
            tasks.start_soon(one)
            await anyio.wait_all_tasks_blocked()
            await stage.provider.close()
    assert [report.cause for report in reports if isinstance(report, Silence)] == ["connection_lost"]
    assert not any(is_running(pid) for pid in stage.pids())


@pytest.mark.usefixtures("hurried")
async def test_what_a_full_pipe_did_not_take_can_be_withdrawn(stage: Stage) -> None:
    """A server that reads nothing leaves calls in our queue: past their deadline they are not sent."""
    reports: list[tuple[list[Phase], Report]] = []

    async def one(size: int) -> None:
        phases: list[Phase] = []
        call = stage.call("act", {"mode": "honest", "pad": "x" * size}, timeout_s=DEADLINE_S)
        assert stage.provider is not None
        reports.append((phases, await stage.provider.dispatch(call, phases.append)))
        if len(reports) == 2:
            both.set()

    both = anyio.Event()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stage.act, "deaf")
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(one, 200_000)  # three times what a pipe holds
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(one, 10)
        with anyio.fail_after(30):
            await both.wait()
        tasks.cancel_scope.cancel()
    (partly, first), (queued, second) = sorted(reports, key=lambda each: -len(each[0]))
    assert (partly, type(first)) == ([Phase.WRITING], Silence)
    assert (queued, type(second)) == ([], NotSent)
    assert isinstance(second, NotSent)
    assert second.reason == "deadline"


async def test_a_start_that_outlasts_the_deadline_is_not_sent(tmp_path: Path) -> None:
    """The deadline counts from `dispatch`, and a start under way goes on for whoever calls next."""
    ledger = tmp_path / "ledger"
    async with staged(program(tmp_path, ["sleep", "60"]), ledger) as stage:
        report = await stage.dispatch(stage.call("any", timeout_s=DEADLINE_S))
        assert isinstance(report, NotSent)
        assert report.reason == "deadline"
        assert stage.phases == [Phase.CONNECTING]


async def test_a_caller_that_gives_up_does_not_end_the_start(tmp_path: Path) -> None:
    """The server is started in a task of its own: another caller still gets it."""
    ledger, gate = tmp_path / "ledger", tmp_path / "gate"
    script = f'until test -e {gate}; do sleep 0.02; done; exec "{sys.executable}" -I -S "$0" "$1"'
    server = stdio("hostile_mcp.py", ledger)
    slow = program(tmp_path, ["sh", "-c", script, server.argv[3], str(ledger)])
    async with staged(slow, ledger) as stage:
        with anyio.move_on_after(0.1) as scope:
            await stage.act("honest")
        assert scope.cancelled_caught
        gate.touch()
        assert isinstance(await stage.act("honest"), Answered)
        assert len(stage.effects()) == 1


async def test_a_handshake_that_never_ends_is_a_failed_connect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that says nothing is given up within `CONNECT_S`, and nothing was sent."""
    monkeypatch.setattr("driver.providers.mcp.life.CONNECT_S", 0.3)
    ledger = tmp_path / "ledger"
    async with staged(stdio("hostile_mcp.py", ledger, "mute"), ledger) as stage:
        assert stage.provider is not None
        failed = await stage.provider.prepare(stage.call("act"))
        assert isinstance(failed, NotSent)
        assert failed.reason == "connect_failed"
        assert "no handshake within" in failed.message
