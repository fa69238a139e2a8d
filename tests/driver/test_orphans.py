"""Orphans are buried, and nobody's exit status is taken away."""

import ast
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import anyio
import pytest
from anyio import to_thread

from driver.orphans import LOOKS_MIN, UNCLAIMED_S, Undertaker, bury, looked
from driver.providers.command.shim import kernel

ROOT: Final = Path(__file__).resolve().parents[2]
PATIENCE_S: Final = 60.0
IN_DAEMON: Final = ("driver", "supervisor")
OUTSIDE: Final = ("driver/cli", "driver/plane", "driver/demo", "driver/conformance")
"""Programs of their own."""


def _ended(pid: int) -> None:
    """Return once a child is dead, without burying it."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


@pytest.fixture
def dead_orphan() -> Iterator[int]:
    """A dead child that leads no session."""
    process = subprocess.Popen(["true"])
    _ended(process.pid)
    yield process.pid
    process.wait()


@pytest.fixture
def dead_leader() -> Iterator[int]:
    """A dead child that leads a session, and that nobody has waited for."""
    process = subprocess.Popen(["true"], start_new_session=True)
    _ended(process.pid)
    yield process.pid
    process.wait()


def test_a_dead_child_that_leads_no_session_is_buried_at_once() -> None:
    """Nobody here starts such a one: it was left to us."""
    process = subprocess.Popen(["true"])
    _ended(process.pid)
    assert Undertaker().look(0.0) >= 1
    with pytest.raises(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)
    process.wait()


def test_a_dead_child_of_our_own_is_left_to_whoever_waits_for_it(dead_leader: int) -> None:
    """However often it is seen in a short time, and however much time passes between two looks."""
    undertaker = Undertaker()
    for _ in range(10):
        undertaker.look(0.0)
    assert undertaker.waits
    other = Undertaker()
    other.look(0.0)
    other.look(10 * UNCLAIMED_S)
    assert os.waitpid(dead_leader, os.WNOHANG)[0] == dead_leader


def test_a_leader_that_nobody_waits_for_is_buried_in_the_end(dead_leader: int) -> None:
    """An orphan that called setsid is an orphan, too."""
    undertaker = Undertaker()
    for number in range(LOOKS_MIN):
        undertaker.look(number * UNCLAIMED_S)
    assert not undertaker.waits
    with pytest.raises(ChildProcessError):
        os.waitpid(dead_leader, os.WNOHANG)


def test_what_lives_is_left_alone() -> None:
    """A look is no end."""
    process = subprocess.Popen(["sleep", "60"])
    undertaker = Undertaker()
    undertaker.look(0.0)
    assert process.poll() is None
    process.kill()
    assert process.wait() == -signal.SIGKILL


def test_a_kernel_that_lists_no_children_is_looked_through(
    dead_leader: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without /proc/PID/task/TID/children the same is found, by one look at all processes."""
    (tmp_path / "1").mkdir()
    monkeypatch.setattr("driver.orphans._OURS", tmp_path)
    undertaker = Undertaker()
    undertaker.look(0.0)
    assert undertaker.waits


@pytest.mark.anyio
@pytest.mark.usefixtures("as_before")
async def test_exit_codes_of_our_own_children_are_not_taken() -> None:
    """Fifty programs, awaited as the daemon awaits them, while orphans die and are buried beside them."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bury)
        await anyio.wait_all_tasks_blocked()
        for number in range(50):
            code = "import os; os.fork() or os._exit(0); os._exit(%d)"
            process = await anyio.open_process(
                [sys.executable, "-I", "-S", "-c", code % number],
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            assert await process.wait() == number
            await process.aclose()
        tasks.cancel_scope.cancel()


@pytest.fixture
def as_before() -> Iterator[None]:
    """What other tests leave behind is not for this process to bury."""
    yield
    kernel._prctl(kernel._PR_SET_CHILD_SUBREAPER, 0)


GRANDPARENT: Final = """
import os, sys
if not os.fork():                       # the child: leaves a child of its own behind
    pid = os.fork()
    if not pid:
        os.read(0, 1)                   # until its grandparent is told to look
        os._exit(7)
    print(pid, flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.anyio
async def test_a_look_for_which_there_is_no_descriptor_is_put_off(dead_orphan: int) -> None:
    """The daemon goes on, and looks again by itself."""
    undertaker = Undertaker()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        assert await looked(undertaker)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    await looked(undertaker)
    assert not await to_thread.run_sync(kernel.stat_fields, dead_orphan)


@pytest.mark.anyio
@pytest.mark.usefixtures("as_before")
async def test_an_orphan_becomes_ours_and_is_buried() -> None:
    """What a tool's process leaves behind is adopted, and gone once it has ended."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bury)
        await anyio.wait_all_tasks_blocked()
        tool = await anyio.open_process(
            [sys.executable, "-I", "-S", "-c", GRANDPARENT], start_new_session=True
        )
        assert tool.stdout is not None
        assert tool.stdin is not None
        orphan = int(await tool.stdout.receive())
        assert await tool.wait() == 0
        assert int((await to_thread.run_sync(kernel.stat_fields, orphan))[1]) == os.getpid()
        await tool.stdin.send(b".")
        end = time.monotonic() + PATIENCE_S
        while await to_thread.run_sync(kernel.stat_fields, orphan):
            assert time.monotonic() < end
            await anyio.sleep(0.005)
        await tool.aclose()
        tasks.cancel_scope.cancel()


def _starts() -> Iterator[tuple[str, ast.Call]]:
    """Every place in the daemon that starts a process."""
    for folder in IN_DAEMON:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if name.startswith(OUTSIDE):
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
                    called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
                    if called in {
                        "open_process",
                        "Popen",
                        "run_process",
                        "create_subprocess_exec",
                        "posix_spawn",
                    }:
                        yield f"{name}:{node.lineno}", node


def test_every_child_of_the_daemon_leads_a_session() -> None:
    """It is how the dead are told apart: a start without it would lose its exit status."""
    starts = dict(_starts())
    assert len(starts) >= 3
    assert [
        place
        for place, node in starts.items()
        if not any(
            word.arg == "start_new_session"
            and isinstance(word.value, ast.Constant)
            and word.value.value is True
            for word in node.keywords
        )
    ] == []
