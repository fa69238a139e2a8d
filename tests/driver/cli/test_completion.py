"""What the shell offers after a Tab."""

import os
import subprocess
from pathlib import Path

import pytest
from anyio import to_thread

from tests.driver.cli.desk import EFFECTD, desk_in, write_config
from tests.driver.local.world import operation_id

pytestmark = pytest.mark.anyio


def complete(*words: str) -> list[str]:
    """Return what bash would offer for the last of these words."""
    environment = {
        **os.environ,
        "_EFFECTD_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["effectd", *words]),
        "COMP_CWORD": str(len(words)),
    }
    program = (*EFFECTD[:2], "from driver.cli.main import main; main(prog_name='effectd')")
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


async def test_ids_of_operations_and_runs_are_offered(tmp_path: Path) -> None:
    """Those that the daemon knows and that begin so; of a command its id, too."""
    async with desk_in(tmp_path) as desk:
        await desk.world.succeed("cmd-1", run="run-a")
        await desk.world.lose("cmd-2", run="run-b")
        given = ("--config", str(desk.config))
        ids = await to_thread.run_sync(complete, "show", *given, "op_")
        assert sorted(ids) == sorted(map(operation_id, ("cmd-1", "cmd-2")))
        assert await to_thread.run_sync(complete, "reconcile", *given, "cmd-2") == ["cmd-2"]
        assert await to_thread.run_sync(complete, "erase", *given, "run-a") == ["run-a"]
        assert await to_thread.run_sync(complete, "ops", *given, "--run", "run-b") == ["run-b"]


def test_without_a_daemon_nothing_is_offered_and_nothing_said(tmp_path: Path) -> None:
    """A Tab is never answered with an error."""
    assert complete("show", "--config", str(write_config(tmp_path)), "op_") == []
    assert complete("show", "--config", str(tmp_path / "none.toml"), "op_") == []


def test_commands_are_offered() -> None:
    """By their first letters."""
    assert complete("doc") == ["doctor"]
