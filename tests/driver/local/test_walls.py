"""`/v1/supervisor/walls/{run}` and `/v1/runs/{run}/triage`, over the real sockets."""

import hashlib
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from click.testing import CliRunner, Result

from driver.cli.main import main
from tests.driver.cli.desk import write_config
from tests.driver.engine.rig import RUN, ScriptedProvider, call, engine
from tests.driver.local.stage import serve
from tests.driver.local.world import World, operation_id, served

pytestmark = pytest.mark.anyio


async def test_a_wall_shows_exactly_what_a_model_would_be_shown(tmp_path: Path) -> None:
    """Its text, its digest and its size belong together, and everybody who may read may see it."""
    async with served(tmp_path) as made:
        await made.lose("cmd-1")
        await made.succeed("cmd-2")
        answer = await made.get("/v1/supervisor/walls/run-1")
        assert answer.status_code == HTTPStatus.OK
        wall = answer.json()
        assert wall["digest"] == hashlib.sha256(wall["text"].encode()).hexdigest()
        assert wall["size"] == len(wall["text"].encode())
        assert (wall["run_id"], wall["unsettled"], wall["shown"], wall["left_out"]) == ("run-1", 1, 1, 0)
        assert [item["operation_id"] for item in wall["operations"]] == [operation_id("cmd-1")]
        assert [item["neighbour"] for item in wall["neighbours"]] == [operation_id("cmd-2")]
        for item in (*wall["operations"], *wall["neighbours"]):
            assert json.dumps(item, separators=(",", ":")) in wall["text"]
        assert (wall["model"], wall["prompt_version"]) == ("rules", "1")
        assert wall["system"]


async def test_a_run_without_anything_unsettled_has_an_empty_wall(tmp_path: Path) -> None:
    """And one that the journal does not know has none."""
    async with served(tmp_path) as made:
        await made.succeed("cmd-1")
        wall = (await made.get("/v1/supervisor/walls/run-1")).json()
        assert (wall["operations"], wall["shown"], wall["unsettled"]) == ([], 0, 0)
        unknown = await made.get("/v1/supervisor/walls/run-9")
        assert unknown.status_code == HTTPStatus.NOT_FOUND
        assert unknown.json()["code"] == "run_not_found"
        assert (await made.get("/v1/supervisor/walls/run-1", limit=3)).status_code == 422


@asynccontextmanager
async def triaging(folder: Path) -> AsyncGenerator[World]:
    """An engine whose local API is served, and a run with an operation whose outcome is lost."""
    provider = ScriptedProvider(fails=RuntimeError("gone"))
    async with engine(folder, provider) as rig, anyio.create_task_group() as tasks:
        made = World(journal=rig.journal, runtime_dir=folder / "run", desk=rig.local)
        made.runtime_dir.chmod(0o750)
        await tasks.start(serve, made)
        await rig.intake.deliver([call()])
        await rig.reaches("operation.unknown")
        yield made
        tasks.cancel_scope.cancel()


async def effectd(folder: Path, *arguments: str) -> Result:
    """Run the command line against the served sockets."""
    config = write_config(folder)
    return await to_thread.run_sync(lambda: CliRunner().invoke(main, [*arguments, "--config", str(config)]))


async def test_a_triage_is_a_command_with_an_id_of_its_own(tmp_path: Path) -> None:
    """202, recorded as any command, from the operator's socket only; and it executes nothing."""
    async with triaging(tmp_path) as made:
        async with made.client("operator.sock") as client:
            answer = await client.post(f"/v1/runs/{RUN}/triage")
            assert answer.status_code == HTTPStatus.ACCEPTED
            command = (await made.get(f"/v1/commands/{answer.json()['command_id']}")).json()
            assert (command["kind"], command["run_id"], command["receipt_kind"]) == (
                "run.triage",
                RUN,
                "command.completed",
            )
            assert (await client.post("/v1/runs/run-9/triage")).status_code == HTTPStatus.NOT_FOUND
            wrong = await client.post(f"/v1/runs/{RUN}/triage", json={"now": True})
            assert wrong.status_code == HTTPStatus.UNPROCESSABLE_ENTITY
        async with made.client() as client:
            assert (await client.post(f"/v1/runs/{RUN}/triage")).status_code == HTTPStatus.FORBIDDEN


async def test_the_command_line_shows_the_wall_and_wakes_the_supervisor(tmp_path: Path) -> None:
    """The text alone on standard output, to be piped; what is known about it on standard error."""
    async with triaging(tmp_path) as made:
        told = (await made.get(f"/v1/supervisor/walls/{RUN}")).json()
        shown = await effectd(tmp_path, "wall", RUN)
        assert (shown.exit_code, shown.stdout) == (0, told["text"] + "\n")
        assert told["digest"] in shown.stderr
        as_json = await effectd(tmp_path, "wall", RUN, "--json")
        assert json.loads(as_json.stdout) == told
        woken = await effectd(tmp_path, "triage", RUN)
        assert woken.exit_code == 0
        assert "Woken: the supervisor" in woken.stdout
        assert (await effectd(tmp_path, "wall", "run-9")).exit_code == 1
