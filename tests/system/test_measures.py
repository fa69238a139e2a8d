"""What a call, a start and an idle daemon cost: measured in this run, on the real executable."""

import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time
from typing import Final

import anyio
import pytest

from tests.system.crowd import OPERATIONS, Crowd
from tests.system.plane import ScriptedPlane, call, scripted_plane
from tests.system.sandbox import Life, Sandbox, sandbox
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CALLS_ALONE: Final = 50
CALLS_TOGETHER: Final = 640
IN_FLIGHT: Final = 64
FSYNCS_ALONE: Final = 2.0
FSYNCS_TOGETHER_MAX: Final = 0.2
CHECKPOINT_FSYNCS: Final = 3
"""A checkpoint fsyncs the `-wal` and the file, the next commit the new header of the `-wal`. About fifty calls
alone make one."""
READY_S_MAX: Final = 2.0
IDLE_S: Final = 4.0
IDLE_CPU_MAX: Final = 0.005
IDLE_RSS_BYTES_MAX: Final = 100_000_000
STRACE: Final = ("strace", "-f", "-b", "execve", "--seccomp-bpf", "-ttt", "-e", "trace=fsync,fdatasync", "-o")
"""Lets go of the provider (`-b execve`), and stops the daemon at no other call (`--seccomp-bpf`)."""

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace counts the fsyncs")


@dataclass(slots=True)
class Meter:
    """Counts the fsyncs of a life under strace."""

    trace: Path
    since: float = 0.0

    def start(self) -> None:
        """Count from now on."""
        self.since = time()

    def count(self) -> int:
        """Return how many were made since, for a traced process that has ended."""
        stamps = re.findall(r"^\d+ (\d+\.\d+) (?:fsync|fdatasync)\(", self.trace.read_text(), re.MULTILINE)
        return sum(float(stamp) >= self.since for stamp in stamps)


async def traced(made: Sandbox, plane: ScriptedPlane, *wrapper: str) -> tuple[Life, Meter]:
    """Start a life under strace, and let it make one call, so that its provider runs."""
    trace = made.root / "trace"
    life = await made.execute(*STRACE, str(trace), *wrapper)
    await plane.give(call("warm-up", n=-1))
    await plane.answered()
    life.stand_for(int((made.state / "lock").read_text()))
    return life, Meter(trace)


async def calls_alone(plane: ScriptedPlane, count: int) -> None:
    """Make calls one after the other."""
    for number in range(count):
        await plane.give(call(f"alone-{number}", n=number))
        await plane.receipt_of(f"alone-{number}")


async def calls_together(plane: ScriptedPlane, count: int) -> None:
    """Keep `IN_FLIGHT` calls open until `count` are done."""
    plane.validates = False
    given = answered = len(plane.history.receipts)
    target = given + count
    while answered < target:
        wanted = range(given, min(target, answered + IN_FLIGHT))
        await plane.give(
            *(call(f"together-{number}", run_id=f"run-{number % 8}", n=number) for number in wanted)
        )
        given = wanted.stop
        await plane.until(lambda: len(plane.history.receipts) > answered)  # noqa: B023 - awaited here
        answered = len(plane.history.receipts)


@needs_strace
async def test_a_call_alone_costs_two_fsyncs_and_a_crowd_shares_them(
    zygote: Zygote, measures: list[str]
) -> None:
    """Acceptance with intent is one commit, the outcome the other; 64 calls in flight share theirs."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        life, meter = await traced(made, plane)
        meter.start()
        await calls_alone(plane, CALLS_ALONE)
        middle = time()
        began = monotonic()
        await calls_together(plane, CALLS_TOGETHER)
        took_s = monotonic() - began
        assert await life.stop() == 0
        total = meter.count()
        meter.since = middle
        together = meter.count()
        alone = total - together
    measures.append(
        f"fsyncs: {alone / CALLS_ALONE:.2f} for a call alone ({alone} for {CALLS_ALONE}), "
        f"{together / CALLS_TOGETHER:.3f} with {IN_FLIGHT} in flight ({together} for {CALLS_TOGETHER}, "
        f"{CALLS_TOGETHER / took_s:.0f} calls/s under strace)"
    )
    assert FSYNCS_ALONE * CALLS_ALONE <= alone <= FSYNCS_ALONE * CALLS_ALONE + CHECKPOINT_FSYNCS
    assert together / CALLS_TOGETHER < FSYNCS_TOGETHER_MAX


@needs_strace
async def test_without_the_fsync_the_count_shows_it(zygote: Zygote) -> None:
    """Control of the measure above: with SQLite told not to fsync, and nobody looking, none is counted."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        patched = (sys.executable, "-m", "tests.system.patches", "no_fsync_unnoticed")
        life, meter = await traced(made, plane, *patched)
        meter.start()
        await calls_alone(plane, 5)
        await life.kill()
        assert meter.count() == 0


async def test_a_killed_daemon_with_a_long_history_is_ready_soon(
    zygote: Zygote, crowd: Crowd, measures: list[str]
) -> None:
    """From SIGKILL to ready with a hundred thousand operations in the journal, imports and all."""
    crowd.wait()
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        shutil.copytree(crowd.state, made.state)
        plane.acks = False
        life = await made.execute()
        await life.ready()
        began = monotonic()
        await life.kill()
        life = await made.execute()
        await life.ready()
        took_s = monotonic() - began
        status = await made.status()
        assert status["counts"]["not_executed"] == OPERATIONS
        await life.kill()
    measures.append(f"SIGKILL to ready: {took_s:.2f} s with {OPERATIONS:,} operations in the journal")
    assert took_s < READY_S_MAX


async def test_an_idle_daemon_needs_next_to_nothing(zygote: Zygote, measures: list[str]) -> None:
    """Connected, with a provider running and nothing to do."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        life = await made.execute()
        await plane.give(call("cmd-1", n=1))
        await plane.answered()
        before = cpu_s(life.pid)
        await anyio.sleep(IDLE_S)  # what is measured is this time
        share = (cpu_s(life.pid) - before) / IDLE_S
        rss = resident_bytes(life.pid)
        assert await life.stop() == 0
    measures.append(f"idle: {rss / 1e6:.0f} MB resident, {share:.2%} of one core over {IDLE_S:g} s")
    assert rss < IDLE_RSS_BYTES_MAX
    assert share < IDLE_CPU_MAX


def cpu_s(pid: int) -> float:
    """Return the processor time that all threads of a process have used."""
    stats = (path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(int(text.split()[0]) for text in stats) / 1e9


def resident_bytes(pid: int) -> int:
    """Return what of a process is in memory."""
    found = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024
