"""What a killed daemon leaves running is found, and ended."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import anyio
import pytest

from driver.demo.leftovers import gone, processes_in

STUBBORN = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here', flush=True); signal.pause()"
)
Process: TypeAlias = "subprocess.Popen[bytes]"


@pytest.fixture
def players(tmp_path: Path) -> Iterator[tuple[Process, Process, Process]]:
    """One process that works in the folder, one that names it, and one that has nothing to do with it."""
    started = (_start(cwd=tmp_path), _start(str(tmp_path / "x")), _start())
    yield started
    for process in started:
        process.kill()
        process.communicate()


def _start(*arguments: str, cwd: Path | None = None) -> Process:
    process = subprocess.Popen(
        [sys.executable, "-c", STUBBORN, *arguments],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"here\n"
    return process


def test_what_will_not_end_by_itself_is_ended(
    tmp_path: Path, players: tuple[Process, Process, Process]
) -> None:
    """Whoever works in the folder, or names it, is gone when the demo is; nobody else is touched."""
    working, naming, other = players
    assert set(processes_in(tmp_path)) == {working.pid, naming.pid}
    anyio.run(gone, tmp_path, 0.05)
    assert (working.wait(timeout=30), naming.wait(timeout=30)) == (-9, -9)
    assert other.poll() is None
