"""Backup and export of the live journal, over its sockets."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from driver.local.exports import COLUMNS, PAGE, lines
from driver.local.shapes import operation as shown
from store.backup import RESTORED
from store.journal import open_journal
from store.settings import JournalSettings
from tests.driver.engine.rig import Rig, ScriptedProvider, call, engine
from tests.driver.local.stage import serving
from tests.driver.local.world import World
from tests.store.conftest import Clock, Ids

pytestmark = pytest.mark.anyio


async def backup(served: World, file: object) -> tuple[int, list[dict[str, Any]]]:
    """Ask for a backup; the status, and every line or the problem."""
    async with served.client("operator.sock") as client:
        response = await client.post("/v1/backup", json={"file": file})
    return response.status_code, [json.loads(line) for line in response.text.splitlines()]


async def calls(rig: Rig, count: int) -> None:
    """So many calls, settled."""
    for n in range(count):
        await rig.intake.deliver([call(f"cmd-{n}", arguments={"n": n})])
        await rig.settled(f"cmd-{n}")


async def test_a_backup_is_made_while_the_daemon_runs(tmp_path: Path) -> None:
    """Progress, then a result; the file is a journal that will come up fenced."""
    target = tmp_path / "backup.db"
    async with serving(tmp_path, ScriptedProvider()) as (rig, served):
        await calls(rig, 3)
        status, told = await backup(served, str(target))
        assert status == 200
        assert {line["type"] for line in told[:-1]} == {"progress"}
        result = told[-1]
        assert (result["type"], result["ok"], result["file"]) == ("result", True, str(target))
        assert result["last_seq"] == await rig.journal.read(lambda view: view.last_seq)
        await calls(rig, 5)
        status, told = await backup(served, str(target))
        assert (status, told[0]["code"]) == (409, "file_exists")
    folder = tmp_path / "other"
    folder.mkdir(mode=0o700)
    target.rename(folder / "journal.db")
    settings = JournalSettings(state_dir=folder, runtime_dir=tmp_path / "run2")
    async with open_journal(settings, clock=Clock(), new_id=Ids()) as journal:
        fence = await journal.read(lambda view: view.fence)
        assert fence is not None
        assert fence.reason == RESTORED


async def test_where_a_backup_cannot_be_it_is_refused_at_once(tmp_path: Path) -> None:
    """A relative path, a folder that is not there, and the socket for reads."""
    async with serving(tmp_path, ScriptedProvider()) as (_, served):
        for file in ("backup.db", "", 7, "/a\0b"):
            assert (await backup(served, file))[0] == 422
        status, told = await backup(served, str(tmp_path / "none" / "backup.db"))
        assert (status, told[0]["code"]) == (409, "file_unwritable")
        async with served.client("inspect.sock") as client:
            assert (await client.post("/v1/backup", json={"file": "/x"})).status_code == 403


async def test_a_backup_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    """The stream ends with a result that is no success, and nothing is left."""
    folder = tmp_path / ("x" * 20)
    folder.mkdir()
    async with serving(tmp_path, ScriptedProvider()) as (_, served):
        status, told = await backup(served, str(folder / ("y" * 250)))
        assert status == 200
        assert (told[-1]["type"], told[-1]["ok"]) == ("result", False)
        assert "could not be made" in told[-1]["message"]
    assert await to_thread.run_sync(lambda: list(folder.iterdir())) == []


async def test_a_caller_that_goes_leaves_nothing_behind(tmp_path: Path) -> None:
    """The copy is given up with its caller, and checkpoints go on."""
    folder = tmp_path / "backups"
    folder.mkdir()
    async with serving(tmp_path, ScriptedProvider()) as (rig, served):
        await calls(rig, 2)
        async with served.client("operator.sock") as client:
            with anyio.move_on_after(0.05):
                await client.post("/v1/backup", json={"file": str(folder / "b.db")})
        with anyio.fail_after(60):
            async with rig.journal.held():
                pass
        left = await to_thread.run_sync(lambda: [item.name for item in folder.iterdir()])
        assert left in ([], ["b.db"])


async def test_the_export_has_every_operation_once_oldest_first(tmp_path: Path) -> None:
    """As lines of JSON, with the members that lists show; pages do not show."""
    count = PAGE + 3
    async with serving(tmp_path, ScriptedProvider()) as (rig, served):
        await rig.intake.deliver([call(f"cmd-{n}", arguments={"n": n}) for n in range(90)])
        for first in range(90, count, 90):
            batch = range(first, min(first + 90, count))
            await rig.quiet()
            await rig.intake.deliver([call(f"cmd-{n}", arguments={"n": n}) for n in batch])
        await rig.quiet()
        async with served.client() as client:
            response = await client.get("/v1/export")
        assert response.headers["content-type"] == "application/x-ndjson"
        found = [json.loads(line) for line in response.text.splitlines()]
        assert [item["command_id"] for item in found] == [f"cmd-{n}" for n in range(count)]
        assert all(tuple(item) == COLUMNS for item in found)
        assert found[0] == shown(await rig.operation("cmd-0"))


async def test_the_export_is_a_table_too(tmp_path: Path) -> None:
    """With a header, JSON where a value is no text, and nothing that a spreadsheet would execute."""
    async with serving(tmp_path, ScriptedProvider()) as (rig, served):
        await calls(rig, 1)
        async with served.client() as client:
            response = await client.get("/v1/export", params={"format": "csv"})
            assert (await client.get("/v1/export", params={"format": "xml"})).status_code == 422
        assert response.headers["content-type"].startswith("text/csv")
        (row,) = csv.DictReader(io.StringIO(response.text))
        assert tuple(row) == COLUMNS
        assert (row["state"], row["effect"], row["settled"], row["receipt"]) == (
            "succeeded",
            "occurred",
            "true",
            "",
        )


async def test_no_cell_is_a_formula(tmp_path: Path) -> None:
    """Whoever names a tool does not reach into a spreadsheet; text of any kind stays one cell."""
    async with engine(tmp_path, ScriptedProvider()) as rig:
        await rig.intake.deliver([call(tool='=cmd/x,"y"')])
        record = await rig.operation()
    (row,) = csv.reader(io.StringIO(lines([record], "csv").decode()))
    assert row[COLUMNS.index("tool")] == '\'=cmd/x,"y"'
