"""The daemon as process 1 of a container, or as a plain child: it buries orphans, and drains when told to."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio
import pytest
from anyio import to_thread

from driver.providers.command.shim import kernel
from tests.servers import counter_mcp
from tests.system.plane import PATIENCE_S, call, scripted_plane
from tests.system.sandbox import Life, Sandbox, sandbox
from tests.system.zygote import Zygote

pytestmark = pytest.mark.anyio

NAMESPACE: Final = (
    "unshare",
    *(() if os.geteuid() == 0 else ("--user", "--map-root-user")),
    *("--pid", "--fork", "--mount-proc", "--kill-child"),
)
UNBURIED: Final = (sys.executable, "-m", "tests.system.patches", "no_burials")
AWAY: Final = "</dev/null >/dev/null 2>&1 &"
SOON_S: Final = 0.2
LONG_S: Final = 120.0


def _has_namespaces() -> bool:
    done = subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False)
    return done.returncode == 0


needs_namespaces = pytest.mark.skipif(
    "CI" not in os.environ and not _has_namespaces(), reason="this user may not make a PID namespace"
)


def littering(made: Sandbox, lasting_s: float = SOON_S, **driver: object) -> None:
    """Configure a server that leaves processes behind, and programs that end as they are told.

    It leaves two, for so long: one of its own session, one of another.
    """
    litter = f'(sleep {lasting_s:g} {AWAY}); (setsid sleep {lasting_s:g} {AWAY}); exec "$@"'
    server = [sys.executable, "-I", "-S", str(Path(counter_mcp.__file__)), str(made.ledger)]
    made.configure(
        driver=driver,
        providers__counter={"argv": ["sh", "-c", litter, "sh", *server]},
        providers__shell={"kind": "command"},
        providers__shell__tools__end={"argv": ["sh", "-c", 'exit "$1"', "sh", "=arguments.code"]},
    )


async def contained(made: Sandbox, *main: str) -> Life:
    """Start a life as process 1 of a PID namespace of its own."""
    life = await made.execute(*NAMESPACE, *main)
    await life.ready()
    (pid,) = await to_thread.run_sync(_children, life.pid)
    life.stand_for(pid)
    return life


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def sleepers(pid: int) -> dict[int, str]:
    """What was left behind and is a child of the daemon, with its state: `Z` if it is dead and not buried."""
    found: dict[int, str] = {}
    for process in Path("/proc").glob("[0-9]*"):
        fields = kernel.stat_fields(int(process.name))
        if fields and int(fields[1]) == pid:
            with contextlib.suppress(OSError):
                if (process / "comm").read_text().strip() == "sleep":
                    found[int(process.name)] = fields[0]
    return found


async def until(pid: int, reached: Callable[[list[str]], bool]) -> list[int]:
    """Return the sleepers once their states are as `reached` wants them: the kernel has no event for that."""
    with anyio.fail_after(PATIENCE_S):
        while not reached([*(found := await to_thread.run_sync(sleepers, pid)).values()]):  # noqa: ASYNC110
            await anyio.sleep(0.01)
    return [*found]


@needs_namespaces
async def test_process_1_buries_what_tools_leave_behind_and_takes_no_exit_code(zygote: Zygote) -> None:
    """What a server left is adopted, and gone when it ends; programs keep the codes that they ended with."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        littering(made)
        life = await contained(made)
        await plane.give(call("cmd-1", "counter/count", n=1))
        assert (await plane.receipt_of("cmd-1"))["kind"] == "operation.succeeded"
        for code in range(10):
            await plane.give(call(f"end-{code}", "shell/end", code=str(code)))
        for code in range(10):
            receipt = await plane.receipt_of(f"end-{code}")
            assert receipt["data"]["result"]["exit_code"] == code
        # the one with a session of its own might be a child that somebody waits for: it stays for a while
        await until(life.pid, lambda found: found in ([], ["Z"]))
        assert await life.stop() == 0


async def test_a_plain_child_buries_them_too(zygote: Zygote) -> None:
    """Whoever started the daemon may be no better at it: what its tools leave behind stays its own."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        littering(made, LONG_S)
        life = made.start()
        await plane.give(call("cmd-1", "counter/count", n=1))
        await plane.receipt_of("cmd-1")
        for pid in await until(life.pid, lambda found: len(found) == 2):
            os.kill(pid, signal.SIGKILL)
        await until(life.pid, lambda found: found in ([], ["Z"]))
        assert await life.stop() == 0


@needs_namespaces
async def test_without_burials_they_stay(zygote: Zygote) -> None:
    """Negative control: both lie there, dead, for as long as the daemon runs."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        littering(made)
        life = await contained(made, *UNBURIED)
        await plane.give(call("cmd-1", "counter/count", n=1))
        await plane.receipt_of("cmd-1")
        await until(life.pid, lambda found: found == ["Z", "Z"])
        assert await life.stop() == 0


@needs_namespaces
async def test_process_1_drains_when_it_is_told_to_stop(zygote: Zygote) -> None:
    """SIGTERM from the container's runtime: what runs may finish, and its receipt is in the journal."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        littering(made, drain_s=60)
        life = await contained(made)
        gate = made.root / "gate"
        await plane.give(call("cmd-1", "counter/slow", until=str(gate)))
        await plane.until(lambda: "operation.started" in plane.kinds("cmd-1"))
        life.send(signal.SIGTERM)
        await life.logged('"stopping"')
        gate.touch()
        assert (await plane.receipt_of("cmd-1"))["kind"] == "operation.succeeded"
        assert await life.exit_code() == 0
