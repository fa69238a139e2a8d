"""The switch that kills the daemon on purpose is off unless asked for, and names what it does not know."""

import signal
import subprocess
import sys

import pytest

from driver.faults import KILL_AT, UnknownBoundary, kill_point

SCRIPT = """
import os, sys
from driver import faults
strike = faults.boundary(faults.kill_point(os.environ))
for name in sys.argv[1:]:
    strike(name)
    print(name, flush=True)
"""


def run(environment: dict[str, str], *names: str) -> subprocess.CompletedProcess[str]:
    """Pass the boundaries `names` in a process of their own."""
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, *names], env=environment, capture_output=True, text=True, check=False
    )


def test_nothing_dies_unless_asked() -> None:
    """Without the variable every boundary is passed."""
    assert kill_point({}) is None
    assert run({}, "link.sent", "link.sent").returncode == 0


@pytest.mark.parametrize(("value", "lived"), [("link.sent", 1), ("link.sent:2", 2)])
def test_the_process_dies_at_the_asked_passing(value: str, lived: int) -> None:
    """It is SIGKILL: nothing is flushed, nothing is handled."""
    done = run({KILL_AT: value}, "intake.committed", "link.sent", "link.sent", "link.sent")
    assert done.returncode == -signal.SIGKILL
    assert len(done.stdout.splitlines()) == lived


@pytest.mark.parametrize(
    "value", ["", "nowhere", "link.sent:0", "link.sent:-1", "link.sent:x", f"link.sent:{'9' * 5_000}"]
)
def test_a_boundary_that_does_not_exist_is_refused(value: str) -> None:
    """A drill that would never fire must not look like one that found nothing."""
    with pytest.raises(UnknownBoundary, match="names no boundary"):
        kill_point({KILL_AT: value})
