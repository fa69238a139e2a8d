"""A person asks the daemon to look: over the operator's socket, answered at once, done when it is done."""

import json
from pathlib import Path

import anyio
import pytest

from driver.core.attempts import Phase
from driver.core.contracts import Contract
from store.lifecycle import Source
from store.records import JsonObject
from tests.driver.engine.rig import call
from tests.driver.engine.test_probing import FAILED, found, unsettled, world
from tests.driver.local.stage import effectd, serving
from tests.driver.local.world import World

pytestmark = pytest.mark.anyio


async def post(served: World, operation_id: str, socket: str = "operator.sock") -> tuple[int, JsonObject]:
    """Ask for a look."""
    async with served.client(socket) as client:
        response = await client.post(f"/v1/operations/{operation_id}/probe")
    answer: JsonObject = response.json()
    return response.status_code, answer


async def test_a_look_is_accepted_and_found_in_the_story(tmp_path: Path) -> None:
    """202 with the command's id; what it found stands with the operation, and in the command's receipt."""
    async with serving(tmp_path, world(FAILED, found("a"))) as (rig, served):
        operation_id = await unsettled(rig)
        async with served.client("inspect.sock") as client:
            before = (await client.get(f"/v1/operations/{operation_id}")).json()
        status, answer = await post(served, operation_id)
        await rig.until(lambda record: record.effect_by is Source.PROBE)
        await rig.quiet()
        async with served.client("inspect.sock") as client:
            told = (await client.get(f"/v1/operations/{operation_id}")).json()
            command = (await client.get(f"/v1/commands/{answer['command_id']}")).json()
    assert status == 202
    assert answer == {"command_id": answer["command_id"], "operation_id": operation_id}
    assert "probe" in before["allowed"]
    assert [look["verdict"] for look in told["probes"]] == ["undetermined", "occurred"]
    assert {"seq", "at", "verdict", "matches", "detail"} <= set(told["probes"][1])
    assert told["verdicts"][0]["actor"] == "probe:tools/find"
    assert (told["effect"], told["effect_by"], told["settled"]) == ("occurred", "probe", True)
    assert (command["kind"], command["receipt_kind"]) == ("operation.probe", "command.completed")


async def test_what_cannot_be_looked_at_is_a_conflict(tmp_path: Path) -> None:
    """With the reason as a stable code; an operation that is not known is not found."""
    async with serving(tmp_path, world(), Contract(declared=True)) as (rig, served):
        await rig.intake.deliver([call()])
        operation = await rig.settled()
        status, problem = await post(served, operation.operation_id)
        missing, nobody = await post(served, "op_" + "0" * 32)
        forbidden, _ = await post(served, operation.operation_id, "inspect.sock")
    assert (status, problem["code"]) == (409, "no_probe_declared")
    assert (missing, nobody["code"]) == (404, "operation_not_found")
    assert forbidden == 403


async def test_a_person_waits_for_what_was_found(tmp_path: Path) -> None:
    """`effectd probe` ends with the verdict; with --no-wait it ends when that was asked for."""
    async with serving(tmp_path, world(FAILED, found("a"), found("a", "b"))) as (rig, _):
        operation_id = await unsettled(rig)
        done = await effectd(tmp_path, "probe", operation_id)
        assert done.exit_code == 0, done.stderr
        assert "Occurred" in done.stdout
        twice = await effectd(tmp_path, "probe", "cmd-1", "--json")
        asked = await effectd(tmp_path, "probe", operation_id, "--no-wait", "--json")
        await rig.reaches("operation.probed", 4)
    told = json.loads(twice.stdout)
    assert (told["verdict"], told["matches"], told["operation_id"]) == ("duplicated", 2, operation_id)
    assert told["detail"].startswith("2 matches")
    assert set(json.loads(asked.stdout)) == {"command_id", "operation_id"}


async def test_nobody_waits_for_a_daemon_that_is_fenced(tmp_path: Path) -> None:
    """The look may come to its end, or may never begin: exit code 1, with the reason and the way out."""
    provider = world(FAILED, found("a"))
    async with serving(tmp_path, provider) as (rig, _), anyio.create_task_group() as tasks:
        operation_id = await unsettled(rig)
        provider.held_at, provider.arrived = Phase.WRITTEN, anyio.Event()

        async def fence() -> None:
            await provider.arrived.wait()
            await rig.desk.fence("superseded", "by another life")

        tasks.start_soon(fence)
        done = await effectd(tmp_path, "probe", operation_id)
        assert done.exit_code == 1
        assert "fenced (superseded)" in done.stderr
        assert "effectd unfence" in done.stderr
        provider.gate.set()


async def test_a_refusal_is_an_exit_code(tmp_path: Path) -> None:
    """1, with the reason on standard error."""
    async with serving(tmp_path, world(), Contract(declared=True)) as (rig, _):
        await rig.intake.deliver([call()])
        operation = await rig.settled()
        done = await effectd(tmp_path, "probe", operation.operation_id)
    assert done.exit_code == 1
    assert "no_probe_declared" in done.stderr
