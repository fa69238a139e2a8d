"""The bare drivers do what they are compared for: each call is answered, and the floor logs both records."""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from tests.bench.plane import load_plane
from tests.bench.processes import alive_until, running

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("module", ["bare", "bare_mcp"])
async def test_a_bare_driver_answers_every_call(tmp_path: Path, module: str) -> None:
    """The plane waits for the receipt of each call that it gave."""
    argv = (sys.executable, "-m", f"tests.bench.references.{module}", str(tmp_path))
    async with load_plane() as plane, running(*argv, plane.url) as process:
        await alive_until(plane.connected, process)
        window, latencies = await plane.measure(8, 0.1)
    assert window.calls >= 8
    assert len(latencies.seconds) == window.calls
    if module == "bare":
        wanted = [("operation.started", window.calls), ("operation.succeeded", window.calls)]
        assert await anyio.to_thread.run_sync(kinds, tmp_path / "bare.db") == wanted


def kinds(file: Path) -> list[tuple[str, int]]:
    """How many records of each kind a log has."""
    with closing(sqlite3.connect(file)) as log:
        return log.execute("SELECT kind, count(*) FROM log GROUP BY kind ORDER BY kind").fetchall()
