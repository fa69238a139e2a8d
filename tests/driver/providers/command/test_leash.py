"""Nothing of a program on a leash outlives its look, or the daemon, however it tries to get away."""

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from driver.core.attempts import ToolCall
from driver.providers.command.provider import CommandProvider
from driver.providers.command.settings import CommandSettings
from store.records import JsonObject, OperationId
from tests.driver.providers.command.stage import (
    DEADLINE_S,
    EVIDENT,
    STOP,
    Gate,
    Stage,
    asleep,
    mark,
    settings,
    sh,
    staged,
)
from tests.driver.providers.command.test_readoption import gone, life
from tests.driver.providers.command.test_zygote import parent

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("patient")]

LOOK_S = "driver.providers.command.looking.LOOK_S"
UNBOUND = (
    "import sys; sys.path.insert(0, sys.argv[2]); "
    "from driver.providers.command.shim import kernel; kernel.reap_orphans = lambda: None; "
    "from driver.providers.command.shim.zygote import main; main(int(sys.argv[1]))"
)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that takes as long as the machine needs."""
    monkeypatch.setattr(LOOK_S, 60.0)


def tree(marked: str) -> str:
    """A script that starts a child, one in a session of its own, and an orphan that writes nowhere."""
    return (
        f"sleep {marked} & "
        f"setsid sleep {marked} & "
        f"(setsid sh -c 'setsid sleep {marked} > /dev/null 2>&1 & exit' &); "
    )


def evident(folder: Path) -> CommandSettings:
    """A provider with the tool `look`, whose reading command its arguments name."""
    return settings(folder, {"look": EVIDENT})


def looking(arguments: JsonObject) -> ToolCall:
    """A call of `look`."""
    return ToolCall(
        operation_id=OperationId("op_" + "0" * 32),
        attempt=1,
        tool="look",
        arguments=arguments,
        key=None,
        timeout_s=1,
    )


async def all_of(marked: str, count: int) -> list[int]:
    """Return the processes of a tree once all of them run."""
    with anyio.fail_after(30):
        while len(found := asleep(marked)) < count:
            await anyio.lowlevel.checkpoint()
    return found


async def cancelled(stage: Stage, marked: str, gate: Gate) -> None:
    """Have a look begin, and cancel it once all of its tree runs."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stage.provider.observe, looking(sh(f"{tree(marked)} {STOP}", *gate.paths)))
        await gate.reached()
        await all_of(marked, 3)
        tasks.cancel_scope.cancel()


async def test_what_a_look_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    """What it printed is seen; what it started is gone when it is."""
    marked = mark()
    async with staged(evident(tmp_path)) as stage:
        text = await stage.provider.observe(looking(sh(f"{tree(marked)} echo seen")))
        assert (text, asleep(marked)) == ("seen\n", [])


async def test_what_a_look_has_started_ends_at_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all that ignores SIGTERM, left its session, or was orphaned."""
    monkeypatch.setattr(LOOK_S, DEADLINE_S)
    marked = mark()
    async with staged(evident(tmp_path)) as stage:
        assert await stage.provider.observe(looking(sh(f"trap '' TERM; {tree(marked)} wait"))) is None
        assert asleep(marked) == []


async def test_what_a_look_has_started_ends_with_a_cancel(tmp_path: Path) -> None:
    """Whoever waits for it has control back when nothing of it is left."""
    marked, gate = mark(), Gate(tmp_path)
    async with staged(evident(tmp_path)) as stage:
        await cancelled(stage, marked, gate)
        assert asleep(marked) == []


async def test_without_the_reaper_some_of_it_would_get_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: an orphan in a session of its own is below nobody then."""
    monkeypatch.setattr("driver.providers.command.zygote._CODE", UNBOUND)
    marked, gate = mark(), Gate(tmp_path)
    async with staged(evident(tmp_path)) as stage:
        await cancelled(stage, marked, gate)
        left = asleep(marked)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left


async def test_a_look_ends_with_its_daemon(tmp_path: Path) -> None:
    """SIGKILL of the daemon in the middle of one: nobody is left to be told, and nothing is left."""
    marked, gate = mark(), Gate(tmp_path)
    async with life(
        tmp_path, sh(f"trap '' TERM; {tree(marked)} {STOP} wait", *gate.paths), look=True
    ) as first:
        await gate.reached()
        found = await all_of(marked, 3)
        await first.kill()
        for pid in found:
            await gone(pid)


async def test_polite_signals_end_no_leash(tmp_path: Path) -> None:
    """A service manager's SIGTERM to everything must not free what it holds."""
    marked, gate, seen = mark(), Gate(tmp_path), list[str | None]()
    script = f"echo $$ > {tmp_path}/pid; {tree(marked)} {STOP} echo on"
    async with staged(evident(tmp_path)) as stage:
        async with look_at(stage, sh(script, *gate.paths), seen):
            await gate.reached()
            await all_of(marked, 3)
            os.kill(await parent(await pid_in(tmp_path)), signal.SIGTERM)
            await gate.open()
        assert (seen, asleep(marked)) == (["on\n"], [])


async def test_a_killed_leash_is_a_killed_program(tmp_path: Path) -> None:
    """The kernel kills the program with it, and that is what its end looks like."""
    gate, seen = Gate(tmp_path), list[str | None]()
    async with (
        staged(evident(tmp_path)) as stage,
        look_at(stage, sh(f"echo $$ > {tmp_path}/pid; {STOP}", *gate.paths), seen),
    ):
        await gate.reached()
        program = await pid_in(tmp_path)
        os.kill(await parent(program), signal.SIGKILL)
        await gone(program)
    assert seen == ["\n[exit code -9]"]


@asynccontextmanager
async def look_at(stage: Stage, arguments: JsonObject, seen: list[str | None]) -> AsyncGenerator[None]:
    """Look beside the block, and put into `seen` what was."""

    async def look() -> None:
        seen.append(await stage.provider.observe(looking(arguments)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look)
        yield


async def pid_in(folder: Path) -> int:
    """Return what a program has written about itself."""
    return int(await anyio.Path(folder / "pid").read_text())


async def test_what_the_kernel_will_not_execute_saw_nothing(tmp_path: Path) -> None:
    """A file that may be executed, and is no program."""
    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"\x00\x01 no program")
    garbage.chmod(0o755)
    async with staged(evident(tmp_path)) as stage:
        assert await stage.provider.observe(looking({"argv": [str(garbage)]})) is None


async def test_a_look_without_a_zygote_saw_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the machine cannot start one."""
    provider = CommandProvider(evident(tmp_path))
    monkeypatch.setattr("driver.providers.command.zygote.sys.executable", "/nowhere/at-all")
    assert await provider.observe(looking(sh("true"))) is None
