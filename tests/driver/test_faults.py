"""The switch that kills the daemon on purpose is off unless asked for, and names what it does not know."""

import signal
import subprocess
import sys

import pytest

from driver.faults import FAULT_AFTER_EFFECT, KILL_AT, UnknownBoundary, UnknownTarget, drill, kill_point

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


@pytest.mark.parametrize("value", ["", "tool", "op_1", "/tool", "provider/", "Provider/tool"])
def test_a_target_that_cannot_be_is_refused(value: str) -> None:
    """What names neither an operation nor a tool would never strike."""
    with pytest.raises(UnknownTarget, match="names neither"):
        drill({FAULT_AFTER_EFFECT: value})


@pytest.mark.parametrize("value", [f"op_{'0' * 32}", "git/git_commit", "a/b/c"])
def test_what_is_asked_for_is_said(value: str) -> None:
    """Status and log name each fault that is switched on."""
    asked = drill({FAULT_AFTER_EFFECT: value, KILL_AT: "link.sent"})
    assert asked.words == ("kill_at=link.sent:1", f"fault_after_effect={value}")
    assert drill({}).words == ()
