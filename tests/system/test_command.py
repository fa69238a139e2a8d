"""Programs behind the real daemon: killed daemons, killed shims, cancels, drains, and nothing left behind."""

import os
import signal
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from driver.faults import OF_A_CALL
from driver.providers.command.spool import Place, Spool
from store.records import OperationId
from tests.driver.providers.command.stage import groups, left_since
from tests.driver.providers.command.test_readoption import gone
from tests.system.audit import key_of, must_hold
from tests.system.campaign import Campaign, Figures, Workload
from tests.system.history import Json
from tests.system.plane import PATIENCE_S, ScriptedPlane, call, scripted_plane
from tests.system.sandbox import Sandbox, sandbox
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.lane]

COUNT: Final = """printf '{"key": "%s", "pid": %d}\\n' "$2" $$ >> "$1";"""
"""One effect, as a line of the ledger: `$1` is the ledger, `$2` the key."""
AT_THE_GATE: Final = "shell/stop"


def shell(made: Sandbox, **driver: object) -> None:
    """Configure programs that count, and one that stops at a gate."""
    ledger = str(made.ledger)

    def program(script: str, *words: str) -> list[str]:
        return ["sh", "-c", COUNT + script, "sh", ledger, "=key", *words]

    tools: Mapping[str, Mapping[str, Any]] = {
        "count": {"argv": program(" echo done")},
        # a folder has to be looked at, so these calls are prepared
        "placed": {"argv": program(" pwd"), "cwd": "."},
        "slow": {"argv": program(" sleep 0.05")},
        "fail": {"argv": program(" echo why >&2; exit 3")},
        "stop": {"argv": program(' read line < "$3"; echo "$line"', "=arguments.gate")},
    }
    made.configure(
        driver=driver,
        providers__shell={"kind": "command"},
        **{f"providers__shell__tools__{name}": tool for name, tool in tools.items()},
    )


@asynccontextmanager
async def machine(zygote: Zygote, **driver: object) -> AsyncGenerator[tuple[ScriptedPlane, Sandbox]]:
    """Make a sandbox with those programs; at the end every promise holds, and nothing of them is left."""
    before = await anyio.to_thread.run_sync(groups)
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        shell(made, **driver)
        yield plane, made
        await must_hold(made)
        plane.check()
        assert await anyio.to_thread.run_sync(left_behind, made) == []
        assert await anyio.to_thread.run_sync(left_since, before) == set()


def left_behind(made: Sandbox) -> list[str]:
    """Return the processes and records that commands have left, once the last daemon has ended."""
    found = [str(path) for path in (made.state / "spool").glob("*")]
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            held = [str(link.readlink()) for link in (*(process / "fd").iterdir(), process / "cwd")]
            found += [f"process {process.name}: {path}" for path in held if path.startswith(str(made.state))]
    return found


async def stopped(plane: ScriptedPlane, made: Sandbox) -> Path:
    """Give a command that stops at a gate, and return the gate once it stands there."""
    gate = made.root / "gate"
    os.mkfifo(gate)
    await plane.give(call("cmd-1", AT_THE_GATE, gate=str(gate)))
    await made.effects_reach(1)
    return gate


async def open_gate(gate: Path) -> None:
    """Let the program go on."""
    with anyio.fail_after(PATIENCE_S):
        await anyio.to_thread.run_sync(gate.write_text, "done\n", abandon_on_cancel=True)


def place(plane: ScriptedPlane, made: Sandbox) -> Place:
    """Return where the records of the command's attempt are."""
    operation_id = OperationId(key_of(plane.orders["cmd-1"].command))
    return Spool(made.state / "spool").place(operation_id, 1)


async def shim_gone(of: Place) -> None:
    """Return once a shim has ended, and its record is there."""
    control = of.open_control()
    if control is not None:
        with anyio.fail_after(PATIENCE_S):
            await anyio.wait_readable(control)
        os.close(control)


def reason(receipt: Json) -> tuple[str, str]:
    """Return what a receipt says, and why."""
    return receipt["kind"], receipt["data"]["reason"]


def readopted(made: Sandbox) -> list[str]:
    """Return what the newest life found of the attempts of earlier ones."""
    return [line["found"] for line in made.lives[-1].lines("attempt_readopted")]


@pytest.mark.kill
async def test_a_command_outlives_a_killed_daemon(zygote: Zygote) -> None:
    """The next life readopts it: it ran once, succeeds with its output, and has one receipt."""
    async with machine(zygote) as (plane, made):
        life = made.start()
        gate = await stopped(plane, made)
        await life.kill()
        life = made.start()
        await life.ready()
        await plane.deliver("cmd-1")
        await open_gate(gate)
        receipt = await plane.receipt_of("cmd-1")
        assert (receipt["kind"], receipt["data"]["attempts"]) == ("operation.succeeded", 1)
        assert receipt["data"]["result"]["stdout"] == "done\n"
        assert receipt["data"]["source"] == "shim"
        assert await life.stop() == 0
        assert readopted(made) == ["running"]
        assert len(made.effects()) == 1


@pytest.mark.kill
async def test_a_command_that_ended_without_a_daemon_tells_how(zygote: Zygote) -> None:
    """Its shim has written down how, and the next life reads it."""
    async with machine(zygote) as (plane, made):
        life = made.start()
        gate = await stopped(plane, made)
        await life.kill()
        await open_gate(gate)
        await shim_gone(place(plane, made))
        life = made.start()
        receipt = await plane.receipt_of("cmd-1")
        assert receipt["kind"] == "operation.succeeded"
        assert receipt["data"]["result"]["stdout"] == "done\n"
        assert await life.stop() == 0
        assert readopted(made) == ["ended"]


@pytest.mark.kill
async def test_a_daemon_that_readopts_nothing_is_found_out(zygote: Zygote) -> None:
    """Control: with readoption taken away, the same kill leaves an outcome unknown that a record has."""
    async with machine(zygote) as (plane, made):
        life = made.start()
        gate = await stopped(plane, made)
        await life.kill()
        await open_gate(gate)
        await shim_gone(place(plane, made))
        life = made.start(patch="no_readoption")
        receipt = await plane.receipt_of("cmd-1")
        assert reason(receipt) == ("operation.unknown", "crash_window")
        assert await life.stop() == 0
        assert readopted(made) == []


@pytest.mark.kill
async def test_a_command_whose_shim_was_killed_too_is_unknown(zygote: Zygote) -> None:
    """Nobody is left who could know: `unknown/crash_window`, and the program is not left running."""
    async with machine(zygote) as (plane, made):
        life = made.start()
        await stopped(plane, made)
        await life.kill()
        started = await anyio.to_thread.run_sync(place(plane, made).started)
        assert started is not None
        os.kill(started.pid, signal.SIGKILL)
        await gone(started.pid)
        life = made.start()
        receipt = await plane.receipt_of("cmd-1")
        assert reason(receipt) == ("operation.unknown", "crash_window")
        assert await life.stop() == 0
        assert readopted(made) == ["lost"]


@pytest.mark.kill
async def test_a_readopted_command_can_be_cancelled(zygote: Zygote) -> None:
    """`command.cancel` reaches it in its second life, and its outcome stays honest."""
    async with machine(zygote) as (plane, made):
        life = made.start()
        await stopped(plane, made)
        await life.kill()
        life = made.start()
        await life.ready()
        cancel = {"command_id": "cancel-1", "run_id": "run-1", "kind": "command.cancel"}
        await plane.give({"type": "command", **cancel, "data": {"target_command_id": "cmd-1"}})
        assert reason(await plane.receipt_of("cmd-1")) == ("operation.unknown", "cancelled_after_dispatch")
        assert (await plane.receipt_of("cancel-1"))["kind"] == "command.completed"
        assert await life.stop() == 0


async def test_a_stop_cancels_what_the_drain_does_not_see_ending(zygote: Zygote) -> None:
    """A daemon that is told to stop leaves no command to its next life."""
    async with machine(zygote, drain_s=0.2) as (plane, made):
        life = made.start()
        await stopped(plane, made)
        assert await life.stop() == 0
        assert await anyio.to_thread.run_sync(left_behind, made) == []
        made.start()
        assert reason(await plane.receipt_of("cmd-1")) == ("operation.unknown", "cancelled_after_dispatch")
        assert await made.lives[-1].stop() == 0


async def test_an_exit_code_is_a_failure_with_its_last_line(zygote: Zygote) -> None:
    """The receipt has the code, the explanation, and both outputs."""
    async with machine(zygote) as (plane, made):
        life = made.start()
        await plane.give(call("cmd-1", "shell/fail"))
        data = (await plane.receipt_of("cmd-1"))["data"]
        assert data["error"] == {"code": "exit_3", "message": "why"}
        assert (data["effect"], data["result"]["exit_code"]) == ("unknown", 3)
        assert await life.stop() == 0


FAST: Final = Workload(name="two commands", tools=("shell/placed", "shell/count"), at_once=2)
SLOW: Final = Workload(name="slow commands", tools=("shell/slow", "shell/placed"), at_once=4)
FAIL: Final = Workload(name="commands that fail", tools=("shell/fail", "shell/placed"), at_once=2)
RECOVERIES: Final = ("recovery.before", "recovery.page", "recovery.after")


@pytest.mark.kill
@pytest.mark.parametrize("boundary", OF_A_CALL)
async def test_a_kill_with_commands_at(boundary: str, zygote: Zygote, figures: Figures) -> None:
    """A daemon that dies here, and again in its recovery, runs no command twice, and leaves none behind."""
    once = boundary.startswith("recovery.") or boundary == "link.welcomed"
    recoveries = cycle(RECOVERIES)
    async with machine(zygote) as (plane, made):
        battle = Campaign(made, plane, figures)
        for passing, workload in ((1, FAST), (2, SLOW), (3, SLOW), (2, FAIL)):
            await battle.strike(f"{boundary}:{1 if once else passing}", workload)
            await battle.strike(next(recoveries), workload)
        await battle.finish()
