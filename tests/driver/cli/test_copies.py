"""`effectd backup` and `effectd export`: through the daemon, and on the file."""

import csv
import io
import json
from pathlib import Path

import pytest
from anyio import to_thread

from tests.driver.cli.desk import desk_in, run, write_config
from tests.driver.local.world import opened

pytestmark = pytest.mark.anyio


async def test_a_backup_through_the_daemon(tmp_path: Path) -> None:
    """It says where, how large and up to where; a second one of that name is refused."""
    target = tmp_path / "backup.db"
    async with desk_in(tmp_path) as desk:
        await desk.world.lose("cmd-1")
        done = await desk.effectd("backup", str(target))
        assert done.exit_code == 0, done.output
        assert (
            f"Backed up into {target}: {target.stat().st_size:,} bytes, as of event 3, verified."
            in done.stdout
        )
        again = await desk.effectd("backup", str(target))
        assert again.exit_code == 1
        assert "never overwritten" in again.stderr
        other = await desk.effectd("backup", "--json", str(tmp_path / "other.db"))
        assert json.loads(other.stdout)["last_seq"] == 3


async def test_a_backup_of_a_journal_at_rest(tmp_path: Path) -> None:
    """Without a daemon the command copies by itself, under the lock."""
    target = tmp_path / "backup.db"
    async with opened(tmp_path) as world:
        await world.lose("cmd-1")
        busy = await to_thread.run_sync(run, write_config(tmp_path), "backup", str(target))
        assert busy.exit_code == 1
        assert "uses this journal" in busy.stderr
    done = await to_thread.run_sync(run, write_config(tmp_path), "backup", str(target))
    assert done.exit_code == 0, done.output
    assert target.read_bytes().startswith(b"SQLite format 3")
    nowhere = await to_thread.run_sync(run, write_config(tmp_path), "backup", str(tmp_path / "no" / "b.db"))
    assert nowhere.exit_code == 1
    assert "Choose a folder" in nowhere.stderr


@pytest.mark.parametrize("form", ["ndjson", "csv"])
async def test_an_export_is_the_same_live_and_at_rest(tmp_path: Path, form: str) -> None:
    """Every operation once, oldest first."""
    async with desk_in(tmp_path) as desk:
        for n in range(3):
            await desk.world.lose(f"cmd-{n}")
        live = await desk.effectd("export", "--format", form)
    assert live.exit_code == 0, live.output
    rest = await to_thread.run_sync(run, write_config(tmp_path), "export", "--format", form)
    assert rest.stdout == live.stdout
    if form == "csv":
        rows = list(csv.DictReader(io.StringIO(live.stdout)))
    else:
        rows = [json.loads(line) for line in live.stdout.splitlines()]
    assert [row["command_id"] for row in rows] == ["cmd-0", "cmd-1", "cmd-2"]
    assert {row["state"] for row in rows} == {"unknown"}


def test_a_folder_without_a_journal_has_nothing_to_copy(tmp_path: Path) -> None:
    """No backup, and an empty export."""
    config = write_config(tmp_path)
    done = run(config, "backup", str(tmp_path / "backup.db"))
    assert done.exit_code == 1
    assert "no journal yet" in done.stderr
    assert run(config, "export").stdout == ""
