"""A person retries and compensates: over the operator's socket, answered at once, done when it is done."""

import json
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from click.testing import Result

from driver.cli.errands import concerns
from driver.cli.replies import CommandGiven, Event, RunCommandGiven
from driver.core.attempts import Answered
from driver.core.contracts import Compensation, Contract
from driver.core.templates import Template
from store.lifecycle import Effect
from store.records import COMPENSATION_PREFIX, JsonObject
from tests.driver.engine.again import GONE, receipt, say
from tests.driver.engine.rig import Rig, ScriptedProvider, call
from tests.driver.local.stage import effectd, serving
from tests.driver.local.world import World

pytestmark = pytest.mark.anyio

PLAIN = Contract(declared=True)
UNDONE = Contract(declared=True, compensate=Compensation(tool="undo", arguments=Template({"key": "=key"})))
NOBODY = "op_" + "0" * 32


async def post(served: World, path: str, socket: str = "operator.sock") -> tuple[int, JsonObject]:
    """Give a command; the body is optional."""
    async with served.client(socket) as client:
        response = await client.post(f"/v1/{path}")
        return response.status_code, response.json()


async def show(served: World, operation_id: str) -> JsonObject:
    """Return an operation alone."""
    async with served.client("inspect.sock") as client:
        found: JsonObject = (await client.get(f"/v1/operations/{operation_id}")).json()
        return found


async def lost(rig: Rig) -> str:
    """Have a call whose outcome nobody knows."""
    await rig.intake.deliver([call()])
    return (await rig.settled()).operation_id


async def test_a_retry_is_accepted_or_refused_with_the_part_of_the_rule_that_fails(tmp_path: Path) -> None:
    """202 with the command's id; 409 with the code; 404 and 403 as everywhere; `allowed` says so before."""
    async with serving(tmp_path, ScriptedProvider(answers=[GONE]), PLAIN) as (rig, served):
        operation_id = await lost(rig)
        before = await show(served, operation_id)
        status, problem = await post(served, f"operations/{operation_id}/retry")
        assert (status, problem["code"]) == (409, "not_proven_none")
        await say(rig, Effect.NONE)
        proven = await show(served, operation_id)
        assert (await post(served, f"operations/{operation_id}/retry", "inspect.sock"))[0] == 403
        assert (await post(served, f"operations/{NOBODY}/retry"))[0] == 404
        status, answer = await post(served, f"operations/{operation_id}/retry")
        assert (status, answer["operation_id"]) == (202, operation_id)
        assert (await receipt(rig, str(answer["command_id"])))[1]["outcome"] == "succeeded"
    assert "retry" not in before["allowed"]  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]
    assert "retry" in proven["allowed"]  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]


async def test_a_compensation_is_shown_from_both_sides(tmp_path: Path) -> None:
    """The forward operation names it, and it names the forward operation."""
    async with serving(tmp_path, ScriptedProvider(), UNDONE) as (rig, served):
        operation_id = await lost(rig)
        before = await show(served, operation_id)
        assert (await post(served, f"operations/{operation_id}/compensate", "inspect.sock"))[0] == 403
        assert (await post(served, f"operations/{NOBODY}/compensate"))[0] == 404
        status, answer = await post(served, f"operations/{operation_id}/compensate")
        assert status == 202
        _, data = await receipt(rig, str(answer["command_id"]))
        forward = await show(served, operation_id)
        undo = await show(served, str(data["compensation_operation_id"]))
    assert "compensate" in before["allowed"]  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]
    assert "compensate" not in forward["allowed"]  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]
    found = forward["compensation"]
    assert isinstance(found, dict)
    assert (found["operation_id"], found["state"], found["effect"]) == (
        undo["operation_id"],
        "succeeded",
        "occurred",
    )
    assert isinstance(found["seq"], int)
    assert (undo["compensates"], forward["compensates"], undo["origin"]) == (operation_id, None, "local")


async def test_what_is_not_declared_is_a_conflict(tmp_path: Path) -> None:
    """With its own code."""
    async with serving(tmp_path, ScriptedProvider(), PLAIN) as (rig, served):
        operation_id = await lost(rig)
        status, problem = await post(served, f"operations/{operation_id}/compensate")
    assert (status, problem["code"]) == (409, "no_compensation_declared")


async def test_a_run_is_compensated(tmp_path: Path) -> None:
    """202; an unknown run is 404."""
    async with serving(tmp_path, ScriptedProvider(), UNDONE) as (rig, served):
        await lost(rig)
        assert (await post(served, "runs/nobody/compensate"))[0] == 404
        status, answer = await post(served, "runs/run-1/compensate")
        assert (status, answer["run_id"]) == (202, "run-1")
        assert (await receipt(rig, str(answer["command_id"])))[1]["complete"]


async def test_the_command_line_waits_for_what_came_of_it(tmp_path: Path) -> None:
    """And says it, for people and for machines; a refusal is an exit code."""
    provider = ScriptedProvider(answers=[GONE, Answered(result={})])
    async with serving(tmp_path, provider, UNDONE) as (rig, _):
        operation_id = await lost(rig)
        refused = await effectd(tmp_path, "retry", operation_id)
        await say(rig, Effect.NONE)
        done = await effectd(tmp_path, "retry", "cmd-1")
        asked = await effectd(tmp_path, "compensate", operation_id, "--no-wait", "--json")
        undone = await effectd(tmp_path, "compensate", operation_id)
        walked = await effectd(tmp_path, "compensate", "--run", "run-1", "--json")
        neither = await effectd(tmp_path, "compensate")
    assert (refused.exit_code, "not_proven_none" in refused.stderr) == (1, True)
    assert (done.exit_code, "Succeeded" in done.stdout) == (0, True), done.stderr
    assert set(json.loads(asked.stdout)) == {"command_id", "operation_id"}
    assert (undone.exit_code, "Taken back" in undone.stdout) == (0, True), undone.stderr
    assert json.loads(walked.stdout)["complete"]
    assert neither.exit_code == 2


async def test_what_did_not_succeed_is_an_exit_code_too(tmp_path: Path) -> None:
    """A script that goes on only where something was done is not misled; a person is told why."""
    async with serving(tmp_path, ScriptedProvider(answers=[GONE] * 3), UNDONE) as (rig, _):
        operation_id = await lost(rig)
        undone = await effectd(tmp_path, "compensate", operation_id)
        walked = await effectd(tmp_path, "compensate", "--run", "run-1")
    assert (undone.exit_code, undone.stdout.startswith("Unknown: ")) == (1, True), undone.output
    assert "connection_lost: " in undone.stdout
    assert "effectd show op_" in undone.stdout
    assert (walked.exit_code, walked.stdout.startswith("Stopped: ")) == (1, True), walked.output


async def test_a_retry_that_fails_again_says_so(tmp_path: Path) -> None:
    """With exit code 1, and where its story stands."""
    async with serving(tmp_path, ScriptedProvider(answers=[GONE, GONE]), PLAIN) as (rig, _):
        operation_id = await lost(rig)
        await say(rig, Effect.NONE)
        again = await effectd(tmp_path, "retry", operation_id)
    assert (again.exit_code, f"Unknown: {operation_id}, attempt 2" in again.stdout) == (1, True), again.output
    assert f"effectd show {operation_id}" in again.stdout


async def test_whoever_waits_for_a_person_is_told(tmp_path: Path) -> None:
    """A retry that needs an approval does not hang in silence: what decides it is said."""
    contract = replace(PLAIN, approval="required")
    async with serving(tmp_path, ScriptedProvider(answers=[GONE]), contract) as (rig, served):
        await rig.intake.deliver([call()])
        await rig.reaches("operation.approval_requested")
        forward = await effectd(tmp_path, "approve", "cmd-1")
        operation_id = (await rig.settled()).operation_id
        await say(rig, Effect.NONE)
        told: list[Result] = []
        status = 0

        async def ask() -> None:
            told.append(await effectd(tmp_path, "retry", operation_id))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await rig.reaches("operation.approval_requested", count=2)
            status, _ = await post(served, f"operations/{operation_id}/approve")
    assert (forward.exit_code, status) == (0, 202), forward.output
    assert told[0].exit_code == 0, told[0].output
    assert f"effectd approve {operation_id} --config" in told[0].stderr


def test_what_is_about_a_compensation_is_told_apart() -> None:
    """By the id of its command, of an operation and of a run."""
    asked = Event.model_validate(
        {
            "journal_id": "4f0c" * 8,
            "seq": 1,
            "kind": "operation.approval_requested",
            "at": "2026-11-29T10:40:18Z",
            "run_id": "run-1",
            "command_id": f"{COMPENSATION_PREFIX}{NOBODY}",
            "operation_id": "op_1",
            "terminal": False,
            "best_effort": False,
            "data": {},
        }
    )
    assert concerns(asked, CommandGiven(command_id="local:1", operation_id=NOBODY))
    assert not concerns(asked, CommandGiven(command_id="local:1", operation_id="op_2"))
    assert concerns(asked, RunCommandGiven(command_id="local:1", run_id="run-1"))
    assert not concerns(asked, RunCommandGiven(command_id="local:1", run_id="run-2"))
