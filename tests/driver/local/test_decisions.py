"""A person decides on this machine: over the operator's socket, by uid, through the same journal as any."""

import json
import os
import pwd
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from driver.core.contracts import Contract
from store.lifecycle import State
from store.records import JsonObject
from tests.driver.engine.rig import Rig, ScriptedProvider, call, engine
from tests.driver.local.stage import effectd, serve
from tests.driver.local.world import World

pytestmark = pytest.mark.anyio

ASKED = Contract(declared=True, approval="required")
ME = f"operator:{os.geteuid()}"


@asynccontextmanager
async def waiting(
    folder: Path, provider: ScriptedProvider | None = None, *, confirmed: bool = True
) -> AsyncGenerator[tuple[Rig, World]]:
    """An engine whose local API is served, and an operation that waits for a person."""
    async with (
        engine(folder, provider or ScriptedProvider(), contract=ASKED, confirmed=confirmed) as rig,
        anyio.create_task_group() as tasks,
    ):
        world = World(journal=rig.journal, runtime_dir=folder / "run", desk=rig.local)
        world.runtime_dir.chmod(0o750)
        await tasks.start(serve, world)
        if confirmed:
            await rig.intake.deliver([call()])
            await rig.reaches("operation.approval_requested")
        yield rig, world
        tasks.cancel_scope.cancel()


async def decide(world: World, operation_id: str, **body: str) -> tuple[int, JsonObject]:
    """Send a decision to the operator's socket."""
    async with world.client("operator.sock") as client:
        response = await client.post(f"/v1/operations/{operation_id}/approve", json=body)
    found: JsonObject = response.json()
    return response.status_code, found


async def decisions(rig: Rig) -> list[JsonObject]:
    """What was decided, as the journal has it."""
    events = [event for event in await rig.events() if event.kind == "operation.approval_decided"]
    return [json.loads(event.body or b"")["data"] for event in events]


async def test_an_empty_body_grants_the_newest_request(tmp_path: Path) -> None:
    """202 with the command's id, whose events say `local`; the operation runs."""
    async with waiting(tmp_path) as (rig, world):
        operation = await rig.operation()
        status, answer = await decide(world, operation.operation_id)
        assert status == 202
        assert (await rig.settled()).state is State.SUCCEEDED
        assert answer["operation_id"] == operation.operation_id
        command = (await world.get(f"/v1/commands/{answer['command_id']}")).json()
        assert (command["kind"], command["origin"], command["receipt_kind"]) == (
            "operation.approve",
            "local",
            "command.completed",
        )
        (decided,) = await decisions(rig)
    label = pwd.getpwuid(os.geteuid()).pw_name
    assert decided == {
        "approval_id": answer["approval_id"],
        "decision": "grant",
        "approver": ME,
        "reason": None,
        "label": label,
    }


async def test_a_name_is_a_label_beside_the_uid(tmp_path: Path) -> None:
    """Nobody becomes somebody else by saying so."""
    async with waiting(tmp_path) as (rig, world):
        operation = await rig.operation()
        await decide(world, operation.operation_id, decision="deny", reason="too much", label="root")
        (decided,) = await decisions(rig)
        ended = await rig.operation()
    assert (decided["approver"], decided["label"], decided["reason"]) == (ME, "root", "too much")
    assert (ended.state, ended.reason) == (State.NOT_EXECUTED, "approval_denied")


@pytest.mark.parametrize(
    "body",
    [{"decision": "maybe"}, {"approver": "operator:0"}, {"approval_id": ""}, {"reason": "x" * 2_001}],
)
async def test_a_wrong_body_is_found_before_anything_is_looked_at(
    tmp_path: Path, body: dict[str, str]
) -> None:
    """422, also for an operation that nobody knows."""
    async with waiting(tmp_path) as (rig, world):
        status, problem = await decide(world, "op_nobody", **body)
        assert (status, problem["code"]) == (422, "invalid_body")
        assert await decisions(rig) == []


async def test_refusals_are_409_with_the_reason(tmp_path: Path) -> None:
    """And an operation that nobody knows is a 404."""
    async with waiting(tmp_path) as (rig, world):
        operation_id = (await rig.operation()).operation_id
        status, problem = await decide(world, "op_nobody")
        assert (status, problem["code"]) == (404, "operation_not_found")
        status, problem = await decide(world, operation_id, approval_id="ap_0")
        assert (status, problem["code"]) == (409, "stale_approval")
        await decide(world, operation_id)
        await rig.settled()
        status, problem = await decide(world, operation_id)
        assert (status, problem["code"]) == (409, "not_awaiting_approval")
        await rig.intake.deliver([call("plain", tool="tools/other")])
        await rig.settled("plain")
        status, problem = await decide(world, (await rig.operation("plain")).operation_id)
        assert (status, problem["code"]) == (409, "not_awaiting_approval")
        await rig.desk.fence("superseded", "another life")
        status, problem = await decide(world, operation_id)
        assert (status, problem["code"]) == (409, "fenced")


async def test_nobody_decides_before_the_daemon_and_its_history_are_ready(tmp_path: Path) -> None:
    """While it starts, 503; while the plane has not confirmed the history, 409."""
    async with waiting(tmp_path):
        pass
    async with waiting(tmp_path, confirmed=False) as (rig, world):
        operation_id = (await rig.operation()).operation_id
        status, problem = await decide(world, operation_id, decision="deny")
        assert (status, problem["code"]) == (409, "history_not_confirmed")
        rig.posture.ready = False
        status, problem = await decide(world, operation_id)
        assert (status, problem["code"]) == (503, "not_ready")
        assert (await rig.operation()).state is State.AWAITING_APPROVAL


async def test_the_inspectors_socket_takes_no_decision(tmp_path: Path) -> None:
    """Whoever may read may not decide."""
    async with waiting(tmp_path) as (rig, world):
        operation_id = (await rig.operation()).operation_id
        async with world.client("inspect.sock") as client:
            response = await client.post(f"/v1/operations/{operation_id}/approve")
        assert (response.status_code, response.json()["code"]) == (403, "read_only_socket")
        assert (await rig.operation()).state is State.AWAITING_APPROVAL


async def test_the_story_tells_what_was_asked_and_decided(tmp_path: Path) -> None:
    """Each request with its digest, and the decision with who gave it."""
    async with waiting(tmp_path) as (rig, world):
        operation = await rig.operation()
        (asked,) = (await world.get(f"/v1/operations/{operation.operation_id}")).json()["approvals"]
        assert (asked["args_digest"], asked["decision"]) == (operation.args_digest, None)
        await decide(world, operation.operation_id, reason="fine")
        await rig.settled()
        (decided,) = (await world.get(f"/v1/operations/{operation.operation_id}")).json()["approvals"]
    assert (decided["decision"], decided["approver"], decided["reason"]) == ("grant", ME, "fine")
    assert decided["decided_at"] >= decided["requested_at"] == asked["requested_at"]


# ------------------------------------------------------------ the command line


async def test_status_ops_and_show_say_who_is_waited_for_and_what_to_type(tmp_path: Path) -> None:
    """Nobody has to know the API to find what waits for them."""
    async with waiting(tmp_path) as (rig, _):
        operation_id = (await rig.operation()).operation_id
        status = await effectd(tmp_path, "status")
        assert "1 wait for a person: see 'effectd ops --state awaiting_approval --config" in status.stdout
        listed = await effectd(tmp_path, "ops", "--state", "awaiting_approval")
        assert operation_id in listed.stdout
        shown = await effectd(tmp_path, "show", "cmd-1")
    flags = f" --config {tmp_path / 'effectd.toml'}"
    assert f"effectd approve {operation_id}{flags}" in shown.stdout
    assert f"effectd deny {operation_id}{flags}" in shown.stdout
    assert "asked for, to be decided by" in shown.stdout
    assert '{"n": 1}' in shown.stdout


@pytest.mark.parametrize(
    ("word", "said", "state"),
    [("approve", "Approved: ", State.SUCCEEDED), ("deny", "Denied: ", State.NOT_EXECUTED)],
)
async def test_approve_and_deny_take_an_operation_or_its_command(
    tmp_path: Path, word: str, said: str, state: State
) -> None:
    """And the story tells who it was afterwards."""
    async with waiting(tmp_path) as (rig, _):
        done = await effectd(tmp_path, word, "cmd-1", "--reason", "as discussed")
        assert (done.exit_code, done.stdout.startswith(said)) == (0, True)
        assert (await rig.settled()).state is state
        again = await effectd(tmp_path, word, (await rig.operation()).operation_id)
        assert again.exit_code == 1
        assert "(not_awaiting_approval)" in again.stderr
        shown = await effectd(tmp_path, "show", "cmd-1")
    assert f"by {ME}" in shown.stdout
    assert "as discussed" in shown.stdout


async def test_a_named_request_is_decided_and_no_other(tmp_path: Path) -> None:
    """Whoever looked at one request does not approve another by accident."""
    async with waiting(tmp_path) as (rig, _):
        done = await effectd(tmp_path, "approve", "cmd-1", "--request", "ap_0")
        assert done.exit_code == 1
        assert "(stale_approval)" in done.stderr
        assert (await rig.operation()).state is State.AWAITING_APPROVAL
