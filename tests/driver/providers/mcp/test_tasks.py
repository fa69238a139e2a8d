"""Tasks: a handle in place of a result, asked after until it has ended, by a real server over stdio."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

import anyio
import pytest

from driver.core.attempts import Answered, PeerError, Phase, Report, TaskPending
from driver.providers.mcp.tasks import poll_s
from store.records import JsonObject, JsonValue
from tests.driver.providers.mcp.stage import Stage, staged, stdio

pytestmark = pytest.mark.anyio

PATIENT_S: Final = 3.0
"""For a call whose handle comes in time, and nothing else: long enough for that on any machine."""
HANDLE: Final[JsonObject] = {"taskId": "task-1", "status": "working", "pollInterval": 1}
DONE: Final[JsonObject] = {"content": [{"type": "text", "text": "done"}]}
FAILED: Final[JsonObject] = {"content": [{"type": "text", "text": "no"}], "isError": True}


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same questions, sooner."""
    monkeypatch.setattr("driver.providers.mcp.tasks.POLL_S_MIN", 0.02)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncGenerator[Stage]:
    """The hostile server, started and connected."""
    ledger = tmp_path / "ledger"
    async with staged(stdio("hostile_mcp.py", ledger), ledger) as stage:
        assert isinstance(await stage.act("honest"), Answered)
        yield stage


def cancelled(stage: Stage) -> list[JsonValue]:
    """Return what the server was told to cancel."""
    return [effect["cancelled"] for effect in stage.effects() if "cancelled" in effect]


async def test_a_task_that_ends_in_time_has_an_answer(stage: Stage) -> None:
    """What the server answers to `tasks/result` is the answer to the call, as it came."""
    assert await stage.act("task", result=DONE) == Answered(result=DONE)
    assert stage.phases[-1] is Phase.ANSWERED
    assert stage.late == []


async def test_the_newer_eras_handle_and_answer_are_understood_too(stage: Stage) -> None:
    """There the handle is the result, and the answer stands in what the task says of itself."""
    assert await stage.act("task", flat=True, ends={"result": DONE}) == Answered(result=DONE)
    refused = {"status": "failed", "error": {"code": -32603, "message": "no"}}
    assert await stage.act("task", flat=True, ends=refused) == PeerError(code=-32603, message="no")


async def test_a_tasks_answer_is_held_against_the_output_schema(stage: Stage) -> None:
    """Like any other answer of the tool."""
    for content, invalid in (({"id": 7}, False), ({"id": "seven"}, True)):
        result: JsonObject = {**DONE, "structuredContent": dict(content)}
        call = stage.call("strict", {"mode": "task", "result": result})
        assert await stage.dispatch(call) == Answered(result=result, output_invalid=invalid)


async def test_a_task_that_ends_late_is_a_late_answer(stage: Stage, tmp_path: Path) -> None:
    """Its handle at the deadline, and its answer as soon as there is one; nobody cancels it."""
    gate = tmp_path / "gate"
    call = stage.call("act", {"mode": "task", "until": str(gate)}, timeout_s=PATIENT_S)
    assert await stage.dispatch(call) == TaskPending(handle=HANDLE)
    assert isinstance(await stage.act("honest"), Answered)
    gate.touch()
    await stage.hear()
    assert stage.late == [(call.operation_id, 1, Answered(result=DONE))]
    assert cancelled(stage) == []


async def test_a_task_that_never_ends_keeps_its_handle(tmp_path: Path) -> None:
    """Beyond `late_result_s` nobody asks any more, and the server goes on with it, and with us."""
    ledger = tmp_path / "ledger"
    async with staged(stdio("hostile_mcp.py", ledger), ledger, late_result_s=0.1) as stage:
        await stage.connect()
        never = str(tmp_path / "never")
        call = stage.call("act", {"mode": "task", "until": never}, timeout_s=PATIENT_S)
        assert await stage.dispatch(call) == TaskPending(handle=HANDLE)
        assert stage.provider is not None
        await stage.provider.listened(call.operation_id, call.attempt)
        assert isinstance(await stage.act("honest"), Answered)
        assert (stage.late, cancelled(stage), len(stage.pids())) == ([], [], 1)


@pytest.mark.parametrize(
    ("answer", "report"),
    [
        ({"result": FAILED}, Answered(result=FAILED, is_error=True)),
        ({"error": -32001}, PeerError(code=-32001, message="its own words")),
    ],
)
async def test_a_failed_task_has_the_error_of_its_call(
    stage: Stage, answer: JsonObject, report: Report
) -> None:
    """Whether the tool or the server says that it failed."""
    arguments: JsonObject = {"mode": "task", "ends": {"status": "failed"}, **answer}
    assert await stage.dispatch(stage.call("act", arguments)) == report


async def test_a_task_that_says_that_it_failed_has_failed(stage: Stage) -> None:
    """A result that reads like success does not take that back."""
    report = await stage.act("task", ends={"status": "failed", "statusMessage": "why"}, result=DONE)
    assert isinstance(report, Answered)
    assert (report.is_error, report.code, report.interrupted) == (True, "task_failed", False)
    assert report.result["statusMessage"] == "why"


async def test_a_task_that_somebody_else_cancelled_is_an_error_that_proves_nothing(stage: Stage) -> None:
    """It stopped somewhere."""
    report = await stage.act("task", ends={"status": "cancelled"})
    assert isinstance(report, Answered)
    assert (report.is_error, report.code, report.interrupted) == (True, "task_cancelled", True)


STATUSES: Final[tuple[JsonValue, ...]] = ("done", "COMPLETED", "", None, 7, [], {}, "input_required")
"""What does not exist, and a wish that nobody can fulfil: no last words."""
RESULTS: Final[tuple[JsonValue, ...]] = ("done", None, {"resultType": "input_required"})
"""What a completed task has in place of an answer: that it cannot be had proves no failure."""
STATES: Final[tuple[JsonObject, ...]] = (
    *({"status": status} for status in STATUSES),
    {"taskId": "of-another"},
)
"""What it says of itself, or of another one."""


def odd() -> list[JsonObject]:
    """Return tasks that end, if at all, in one of these ways."""
    said: list[JsonObject] = [{"ends": state} for state in STATES]
    return [*said, *({"result": result} for result in RESULTS), {"error": -32602}]


async def test_only_a_clear_word_ends_a_task(stage: Stage) -> None:
    """Whatever else is said of it, it is pending at the deadline, and its handle is known."""

    async def never_ends(task: JsonObject) -> None:
        arguments: JsonObject = {"mode": "task", **task}
        report = await stage.dispatch(stage.call("act", arguments, timeout_s=PATIENT_S))
        assert isinstance(report, TaskPending), task
        assert report.handle["status"] == "working"

    async with anyio.create_task_group() as calls:
        for task in odd():
            calls.start_soon(never_ends, task)


@pytest.mark.parametrize("handle", [{"taskId": "t-1"}, {"taskId": 7}, {"taskId": None}])
async def test_a_task_that_nobody_can_ask_after_is_pending_at_once(stage: Stage, handle: JsonObject) -> None:
    """A server without `tasks/get`, or an id that is none: the handle is all that there will be."""
    with anyio.fail_after(60):
        assert await stage.act("result", result={"task": handle}, timeout_s=3600) == TaskPending(
            handle=handle
        )


async def test_a_server_that_dies_leaves_the_handle(stage: Stage) -> None:
    """Its answer can come no more; the next call is served by another."""
    with anyio.fail_after(60):
        assert await stage.act("task", dies=2, timeout_s=3600) == TaskPending(handle=HANDLE)
    assert isinstance(await stage.act("honest"), Answered)
    assert stage.late == []


async def cancel_once_asked(stage: Stage, **arguments: JsonValue) -> None:
    """Cancel a call once its handle has come."""
    call = stage.call("act", {"mode": "task", **arguments}, timeout_s=3600)
    scope = anyio.CancelScope()

    def progress(reached: Phase) -> None:
        if reached is Phase.ANSWERED:
            scope.cancel()

    assert stage.provider is not None
    with scope:
        await stage.provider.dispatch(call, progress)
    assert scope.cancelled_caught
    await stage.provider.listened(call.operation_id, call.attempt)


async def test_cancelling_a_call_cancels_its_task(stage: Stage, tmp_path: Path) -> None:
    """The server is told by the task's own name; that it stopped then says nothing new."""
    await cancel_once_asked(stage, until=str(tmp_path / "never"))
    assert (cancelled(stage), stage.late) == (["task-1"], [])


async def test_a_task_that_ends_all_the_same_is_heard_after_a_cancel(stage: Stage) -> None:
    """Told or not, an answer is the best evidence there is."""
    await cancel_once_asked(stage, stubborn=True)
    assert cancelled(stage) == ["task-1"]
    assert [report for _, _, report in stage.late] == [Answered(result=DONE)]


@pytest.mark.parametrize(
    ("state", "seconds"),
    [
        ({}, 3.0),
        ({"pollInterval": 1_000}, 1.0),
        ({"pollIntervalMs": 2_500}, 2.5),
        ({"pollInterval": 1}, 0.5),
        ({"pollInterval": -1}, 0.5),
        ({"pollInterval": 10**400}, 10.0),
        ({"pollInterval": "1000"}, 3.0),
        ({"pollInterval": True}, 3.0),
        ({"pollInterval": None}, 3.0),
    ],
)
def test_the_servers_hint_is_followed_within_bounds(
    monkeypatch: pytest.MonkeyPatch, state: JsonObject, seconds: float
) -> None:
    """Neither a flood of questions nor an hour between two; what is no number is no hint."""
    monkeypatch.setattr("driver.providers.mcp.tasks.POLL_S_MIN", 0.5)
    assert poll_s(state, 3.0) == seconds
