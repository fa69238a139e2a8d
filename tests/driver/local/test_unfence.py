"""An operator lifts the fence on this machine: over the operator's socket, by uid."""

import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from click.testing import CliRunner, Result

from driver.cli.main import main
from driver.local.server import serve_local
from driver.local.settings import LocalSettings
from store.records import JsonObject
from tests.driver.cli.desk import write_config
from tests.driver.engine.rig import Rig, ScriptedProvider, call, engine
from tests.driver.local.world import World

pytestmark = pytest.mark.anyio

ME = f"operator:{os.geteuid()}"


@asynccontextmanager
async def served(folder: Path) -> AsyncGenerator[tuple[Rig, World]]:
    """An engine whose local API is served."""
    async with engine(folder, ScriptedProvider()) as rig, anyio.create_task_group() as tasks:
        world = World(
            journal=rig.journal, runtime_dir=folder / "run", desk=rig.local, fences=rig.engine.fences
        )
        world.runtime_dir.chmod(0o750)
        await tasks.start(serve, world)
        yield rig, world
        tasks.cancel_scope.cancel()


async def serve(world: World, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    """Serve until cancelled."""
    await serve_local(world, LocalSettings(runtime_dir=world.runtime_dir), task_status=task_status)


async def unfence(world: World, socket: str = "operator.sock", **body: object) -> tuple[int, JsonObject]:
    """Ask for the fence to be lifted."""
    async with world.client(socket) as client:
        response = await client.post("/v1/unfence", json=body)
    found: JsonObject = response.json()
    return response.status_code, found


async def run(*arguments: str) -> Result:
    """Run the command line."""
    return await to_thread.run_sync(lambda: CliRunner().invoke(main, [*arguments]))


async def test_what_is_not_fenced_cannot_be_unfenced(tmp_path: Path) -> None:
    """A stable word, and nothing happens."""
    async with served(tmp_path) as (_, world):
        status, problem = await unfence(world)
        assert (status, problem["code"]) == (409, "not_fenced")


async def test_a_takeover_is_lifted_by_uid(tmp_path: Path) -> None:
    """The event in the journal names the uid that the kernel names."""
    async with served(tmp_path) as (rig, world):
        await rig.desk.fence("superseded", "another life")
        status, found = await unfence(world)
        assert (status, found["reason"], found["previous_journal_id"]) == (200, "superseded", None)
        event = await rig.journal.read(lambda view: view.last_event())
        assert event is not None
        assert json.loads(event.body or b"")["data"] == {"reason": "superseded", "actor": ME}


async def test_a_rollback_must_be_accepted(tmp_path: Path) -> None:
    """The refusal says what helps; accepted, the answer names both histories and what became unknown."""
    async with served(tmp_path) as (rig, world):
        rig.posture.confirmed = False
        await rig.intake.deliver([call()])
        await rig.desk.fence("rolled_back", "d")
        old = await rig.journal.read(lambda view: view.journal_id)
        status, problem = await unfence(world, accept_rollback=False)
        assert (status, problem["code"]) == (409, "rollback_not_accepted")
        assert "--accept-rollback" in str(problem["detail"])
        status, found = await unfence(world, accept_rollback=True)
        new = await rig.journal.read(lambda view: view.journal_id)
        assert status == 200
        assert found == {
            "reason": "rolled_back",
            "journal_id": new,
            "previous_journal_id": old,
            "unknown": 1,
        }
        async with world.client() as client:
            shown = (await client.get("/v1/status")).json()
            listed = (await client.get("/v1/operations?unsettled=true&reason=rolled_back")).json()
            streamed = (await client.get("/v1/events?after=1")).text.splitlines()
        assert (shown["journal_id"], shown["last_seq"], shown["acked_seq"]) == (new, 3, 0)
        assert len(listed["items"]) == 1
        assert [json.loads(line)["seq"] for line in streamed] == [2, 3]
        async with world.client() as client:
            of_this = await client.get(f"/v1/events?after=1&journal_id={new}")
            of_old = await client.get(f"/v1/events?after=1&journal_id={old}&follow=true")
        assert of_this.text.splitlines() == streamed
        assert (of_old.status_code, of_old.json()["code"]) == (409, "history_changed")
        assert new in of_old.json()["detail"]
        assert "after=0" in of_old.json()["detail"]
        async with world.client() as client:
            path = f"/v1/operations/{listed['items'][0]['operation_id']}"
            story = (await client.get(path)).json()
            command = (await client.get("/v1/commands/cmd-1")).json()
        assert story["events"] == [2, 3]
        assert (story["command"]["accepted_seq"], story["command"]["receipt_seq"]) == (2, 3)
        assert (command["accepted_seq"], command["receipt_seq"]) == (2, 3)


async def test_only_the_operators_socket_unfences(tmp_path: Path) -> None:
    """Who may only look may not lift a fence; a body that is none is refused before anything is looked at."""
    async with served(tmp_path) as (rig, world):
        await rig.desk.fence("superseded", "another life")
        status, problem = await unfence(world, "inspect.sock")
        assert (status, problem["code"]) == (403, "read_only_socket")
        for body in ({"accept_rollback": "yes"}, {"accept": True}):
            status, problem = await unfence(world, "operator.sock", **body)
            assert (status, problem["code"]) == (422, "invalid_body")
        assert rig.posture.fence is not None


async def test_the_command_line_unfences(tmp_path: Path) -> None:
    """Refusals are exit code 1 with what to do next; `--json` is the answer as it came."""
    async with served(tmp_path) as (rig, _):
        config = str(await to_thread.run_sync(write_config, tmp_path))
        refused = await run("unfence", "--config", config)
        assert refused.exit_code == 1
        assert "not_fenced" in refused.output
        await rig.desk.fence("forked", "d")
        refused = await run("unfence", "--config", config)
        assert refused.exit_code == 1
        assert "effectd unfence --accept-rollback" in refused.output
        done = await run("unfence", "--accept-rollback", "--config", config)
        assert done.exit_code == 0
        assert "Unfenced: the fence was forked." in done.output
        await rig.desk.fence("superseded", "d")
        done = await run("unfence", "--json", "--config", config)
        assert json.loads(done.output)["reason"] == "superseded"
