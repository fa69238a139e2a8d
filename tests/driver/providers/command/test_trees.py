"""No process of a call is left once its outcome is reported, however it tries to get away.

Each test runs twice: with a cgroup, and as on a machine that lets the daemon make none.
"""

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from driver.core.attempts import Answered, Report, Silence, ToolCall
from tests.driver.providers.command.stage import (
    DEADLINE_S,
    STOP,
    Gate,
    Stage,
    answer,
    asleep,
    grouped,
    mark,
    settings,
    sh,
    staged,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def cgroups() -> None:
    """Skip where the machine lets us make no cgroup."""
    if not grouped():
        pytest.skip("this machine lets us make no cgroup")


@pytest.fixture(params=["cgroup", "subreaper"])
def group(request: pytest.FixtureRequest) -> bool:
    """Whether programs get a cgroup of their own."""
    if request.param == "cgroup":
        request.getfixturevalue("cgroups")
    return bool(request.param == "cgroup")


def tree(marked: str) -> str:
    """Return a script that starts a child, one in a session of its own, and an orphan that writes nowhere."""
    return (
        f"sleep {marked} & "
        f"setsid sleep {marked} & "
        f"(setsid sh -c 'setsid sleep {marked} > /dev/null 2>&1 & exit' &); "
    )


@asynccontextmanager
async def under_way(stage: Stage, call: ToolCall, gate: Gate) -> AsyncGenerator[list[Report]]:
    """Let a call run until its program stands at the gate, and see it to its end afterwards."""
    found: list[Report] = []

    async def dispatch() -> None:
        found.append(await stage.dispatch(call))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(dispatch)
        await gate.reached()
        yield found


async def test_a_deadline_ends_the_whole_tree(tmp_path: Path, group: bool) -> None:
    """At the deadline everything is ended: what ignores SIGTERM, what left the session, what was orphaned."""
    marked = mark()
    async with staged(settings(tmp_path), group=group) as stage:
        report = await stage.run(sh(f"trap '' TERM; {tree(marked)} wait"), timeout_s=DEADLINE_S)
        left = asleep(marked)
    assert isinstance(report, Silence)
    assert report.cause == "deadline"
    assert left == []


async def test_the_tree_was_there(tmp_path: Path, group: bool) -> None:
    """A negative control: before the deadline, all of that tree runs."""
    marked, gate = mark(), Gate(tmp_path)
    async with staged(settings(tmp_path), group=group) as stage:
        call = stage.call(sh(f"{tree(marked)} {STOP}", *gate.paths))
        async with under_way(stage, call, gate) as found:
            with anyio.fail_after(30):
                while len(asleep(marked)) < 3:
                    await anyio.lowlevel.checkpoint()
            await gate.open()
    assert answer(found[0])["exit_code"] == 0
    assert asleep(marked) == []


async def test_a_cancel_ends_the_whole_tree(tmp_path: Path, group: bool) -> None:
    """A cancelled caller gets control back when nothing of the program is left, within 5 s."""
    marked, gate = mark(), Gate(tmp_path)
    async with staged(settings(tmp_path), group=group) as stage:
        call = stage.call(sh(f"{tree(marked)} {STOP} wait", *gate.paths))
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stage.dispatch, call)
                await gate.reached()
                tasks.cancel_scope.cancel()
        left = asleep(marked)
    assert left == []


async def test_what_a_program_leaves_behind_is_ended(tmp_path: Path, group: bool) -> None:
    """A program that ends well and leaves a server behind has succeeded; the server ends, and is counted."""
    marked = mark()
    async with staged(settings(tmp_path), group=group) as stage:
        result = answer(await stage.run(sh(f"setsid sleep {marked} & echo started")))
        left = asleep(marked)
    assert result["exit_code"] == 0
    assert result["stdout"] == "started\n"
    assert result["processes_ended"] == 1
    assert left == []


async def test_what_is_left_behind_and_ignores_sigterm_is_ended(tmp_path: Path, group: bool) -> None:
    """What lingers is asked to end, and then is not asked any more."""
    marked = mark()
    async with staged(settings(tmp_path), group=group) as stage:
        result = answer(await stage.run(sh(f"trap '' TERM; setsid sleep {marked} & exit 0")))
        left = asleep(marked)
    assert result["exit_code"] == 0
    assert left == []


async def test_closing_the_provider_ends_what_runs(tmp_path: Path, group: bool) -> None:
    """`close` returns when every program has ended, and their callers know no outcome."""
    marked, gate = mark(), Gate(tmp_path)
    async with staged(settings(tmp_path), group=group) as stage:
        call = stage.call(sh(f"{tree(marked)} {STOP} wait", *gate.paths))
        async with under_way(stage, call, gate) as found:
            await stage.provider.close()
            left = asleep(marked)
    assert left == []
    assert isinstance(found[0], Silence)
    assert found[0].cause == "cancelled"


async def test_a_killed_shim_takes_its_program_with_it(tmp_path: Path, group: bool) -> None:
    """The kernel kills the program with its shim, and the daemon what the program had started.

    Without a cgroup, that is what is in the program's session or writes to its output.
    """
    marked, gate = mark(), Gate(tmp_path)
    script = f"trap '' TERM; sleep {marked} & (setsid sh -c 'setsid sleep {marked} & exit' &); {STOP} wait"
    async with staged(settings(tmp_path), group=group) as stage:
        call = stage.call(sh(script, *gate.paths))
        async with under_way(stage, call, gate) as found:
            os.kill((await stage.started(call)).pid, signal.SIGKILL)
        left = asleep(marked)
    assert isinstance(found[0], Silence)
    assert found[0].cause == "connection_lost"
    assert left == []


@pytest.mark.usefixtures("cgroups")
async def test_a_cgroup_holds_even_what_nothing_else_would_find(tmp_path: Path) -> None:
    """With a cgroup, a killed shim leaves nothing behind that has left the session and closed its outputs."""
    marked, gate = mark(), Gate(tmp_path)
    async with staged(settings(tmp_path)) as stage:
        call = stage.call(sh(f"{tree(marked)} {STOP} wait", *gate.paths))
        async with under_way(stage, call, gate):
            os.kill((await stage.started(call)).pid, signal.SIGKILL)
        left = asleep(marked)
    assert left == []


async def test_a_stopped_shim_is_overdue(
    tmp_path: Path, group: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shim that does nothing any more holds up no outcome: beyond its deadline it is killed."""
    monkeypatch.setattr("driver.providers.command.provider.OVERDUE_S", 0.2)
    monkeypatch.setattr("driver.providers.command.provider.STOP_S", 0.2)
    marked, gate = mark(), Gate(tmp_path)
    async with staged(settings(tmp_path), group=group) as stage:
        call = stage.call(sh(f"sleep {marked} & {STOP} wait", *gate.paths), timeout_s=DEADLINE_S)
        async with under_way(stage, call, gate) as found:
            os.kill((await stage.started(call)).pid, signal.SIGSTOP)
        left = asleep(marked)
    assert isinstance(found[0], Silence)
    assert found[0].cause == "deadline"
    assert left == []


async def test_polite_signals_do_not_end_a_shim(tmp_path: Path) -> None:
    """A service manager's SIGTERM to everything ends the daemon, and not what it must be told about."""
    gate = Gate(tmp_path)
    async with staged(settings(tmp_path)) as stage:
        call = stage.call(sh(f"{STOP} echo done", *gate.paths))
        async with under_way(stage, call, gate) as found:
            shim = (await stage.started(call)).pid
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
                os.kill(shim, number)
            await gate.open()
    assert answer(found[0])["stdout"] == "done\n"


async def test_many_at_once(tmp_path: Path, group: bool) -> None:
    """Programs that run side by side do not disturb each other."""
    found: list[Report] = []
    async with staged(settings(tmp_path), group=group) as stage:

        async def one(number: int) -> None:
            call = stage.call(sh(f"echo {number}"))
            found.append(await stage.provider.dispatch(call, lambda _phase: None))

        async with anyio.create_task_group() as tasks:
            for number in range(32):
                tasks.start_soon(one, number)
    answers = [report.result["stdout"] for report in found if isinstance(report, Answered)]
    assert sorted(answers, key=str) == sorted((f"{number}\n" for number in range(32)), key=str)


async def test_no_cgroup_is_left(tmp_path: Path) -> None:
    """A command's cgroup goes with it."""
    async with staged(settings(tmp_path)) as stage:
        call = stage.call(sh("true"))
        await stage.dispatch(call)
        parent = stage.provider._group
    assert parent is None or not list(parent.glob(f"effectd-{call.operation_id}-*"))
