"""What a call, a start and an idle daemon cost: measured in this run, on the real executable."""

import re
import shutil
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import median
from time import monotonic, time
from typing import Final

import anyio
import pytest

from tests.system.crowd import OPERATIONS, Crowd
from tests.system.plane import ScriptedPlane, call, scripted_plane
from tests.system.sandbox import Life, Sandbox, sandbox
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture(scope="module", autouse=True)
def crowd() -> Iterator[Crowd]:
    """A journal with many operations: in the making, beside them, since the first of these tests began."""
    made = Crowd()
    yield made
    made.close()


CALLS_ALONE: Final = 50
CALLS_TOGETHER: Final = 640
ROUNDS: Final = 3
IN_FLIGHT: Final = 64
TOOL: Final = "verbose/speak"
FSYNCS_ALONE: Final = 2.0
FSYNCS_OWN_MAX: Final = 0.2
"""What a journal that waits for a while commits by itself, for each call. A third commit would be 1."""
FSYNCS_TOGETHER_MAX: Final = 0.2
CHECKPOINT_FSYNCS: Final = 3
"""A checkpoint fsyncs the `-wal` and the file, the next commit its new header."""
STARTS: Final = 3
READY_S_MAX: Final = 2.0
READY_EMPTY_S: Final = 1.0
"""What a start without a history takes where the limit was set: where it takes longer, so may all."""
STARTS_MAX: Final = 8
"""More starts, where none of the first was fast enough: what else the machine does can only add to it."""
IDLE_S: Final = 4.0
LOOKS: Final = 4
IDLE_CPU_MAX: Final = 0.005
IDLE_RSS_BYTES_MAX: Final = 100_000_000
STRACE: Final = ("strace", "-f", "--seccomp-bpf", "-ttt", "-e", "trace=fsync,fdatasync", "-o")
"""Stops the daemon at no other call (`--seccomp-bpf`), and its provider, which makes neither, never."""

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace counts the fsyncs")


def fsyncs(trace: Path) -> list[float]:
    """Return the moment of each fsync in a trace; a call that was interrupted there is not a second one."""
    stamps = re.findall(r"^\d+ +(\d+\.\d+) (?:fsync|fdatasync)\(", trace.read_text(), re.MULTILINE)
    return [float(stamp) for stamp in stamps]


async def traced(made: Sandbox, plane: ScriptedPlane, *wrapper: str) -> Life:
    """Start a life under strace, and let it make one call, so that its provider runs."""
    server = [sys.executable, "-I", "-S", str(Path(__file__).with_name("verbose_mcp.py")), "10"]
    made.configure(providers__verbose={"kind": "mcp", "argv": server})
    life = await made.execute(*STRACE, str(made.root / "trace"), *wrapper)
    await plane.give(call("warm-up", TOOL))
    await plane.answered()
    life.stand_for(int((made.state / "lock").read_text()))
    return life


async def calls_alone(plane: ScriptedPlane, count: int) -> float:
    """Make calls one after the other; return when the first began."""
    began = time()
    for number in range(count):
        await plane.give(call(f"alone-{number}", TOOL, n=number))
        await plane.receipt_of(f"alone-{number}")
    return began


async def calls_together(plane: ScriptedPlane, count: int) -> float:
    """Keep `IN_FLIGHT` calls open until `count` are done; return when the first began."""
    began = time()
    plane.validates = False
    given = answered = len(plane.history.receipts)
    target = given + count
    while answered < target:
        wanted = range(given, min(target, answered + IN_FLIGHT))
        for number in wanted:
            await plane.give(call(f"crowd-{number}", TOOL, run_id=f"run-{number % 8}", n=number))
        given = wanted.stop
        await plane.until(lambda: len(plane.history.receipts) > answered)  # noqa: B023 - awaited here
        answered = len(plane.history.receipts)
    return began


@needs_strace
async def test_a_call_alone_costs_two_fsyncs_and_a_crowd_shares_them(
    zygote: Zygote, measure: Callable[[str], None]
) -> None:
    """Acceptance with intent is one commit, the outcome the other; 64 calls in flight share theirs."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        life = await traced(made, plane)
        marks = [await calls_alone(plane, CALLS_ALONE)]
        marks += [await calls_together(plane, CALLS_TOGETHER) for _ in range(ROUNDS)]
        marks.append(time())
        assert await life.stop() == 0
        moments = fsyncs(made.root / "trace")
    alone, *rounds = (sum(start <= moment < end for moment in moments) for start, end in pairwise(marks))
    together = [count / CALLS_TOGETHER for count in rounds]
    measure(
        f"fsyncs for each call: {alone / CALLS_ALONE:.2f} alone ({alone} for {CALLS_ALONE}), "
        f"{median(together):.3f} with {IN_FLIGHT} in flight ({CALLS_TOGETHER} calls at a time: "
        f"{', '.join(f'{one:.3f}' for one in together)})"
    )
    allowed = (FSYNCS_ALONE + FSYNCS_OWN_MAX) * CALLS_ALONE + CHECKPOINT_FSYNCS
    assert FSYNCS_ALONE * CALLS_ALONE <= alone <= allowed
    assert median(together) < FSYNCS_TOGETHER_MAX


@needs_strace
async def test_without_the_fsync_the_count_shows_it(zygote: Zygote) -> None:
    """Control of the measure above: with SQLite told not to fsync, and nobody looking, none is counted."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        patched = (sys.executable, "-m", "tests.system.patches", "no_fsync_unnoticed")
        life = await traced(made, plane, *patched)
        began = await calls_alone(plane, 5)
        until = time()
        await life.kill()
        assert not [moment for moment in fsyncs(made.root / "trace") if began <= moment < until]


async def test_an_idle_daemon_needs_next_to_nothing(zygote: Zygote, measure: Callable[[str], None]) -> None:
    """Connected, with a provider running and nothing to do."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        life = await made.execute()
        await plane.give(call("cmd-1", n=1))
        await plane.answered()
        shares: list[float] = []
        while not shares or (min(shares) >= IDLE_CPU_MAX and len(shares) < LOOKS):
            before = cpu_s(life.pid)
            await anyio.sleep(IDLE_S)  # what is measured is this time
            shares.append((cpu_s(life.pid) - before) / IDLE_S)
        share, rss = min(shares), resident_bytes(life.pid)
        assert await life.stop() == 0
    measure(f"idle: {rss / 1e6:.0f} MB resident, {share:.2%} of one core over {IDLE_S:g} s")
    assert rss < IDLE_RSS_BYTES_MAX
    assert share < IDLE_CPU_MAX


def cpu_s(pid: int) -> float:
    """Return the processor time that all threads of a process have used."""
    stats = (path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(int(text.split()[0]) for text in stats) / 1e9


def queued_s(pid: int) -> float:
    """Return how long the main thread of a process has waited for a processor."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def resident_bytes(pid: int) -> int:
    """Return what of a process is in memory."""
    found = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


async def test_a_killed_daemon_with_a_long_history_is_ready_soon(
    zygote: Zygote, crowd: Crowd, measure: Callable[[str], None]
) -> None:
    """From SIGKILL to ready with a hundred thousand operations in the journal, imports and all."""
    crowd.wait()
    async with scripted_plane() as plane, sandbox(zygote, plane) as empty:
        bare_s = await ready_s(empty)
    slower = max(1.0, min(bare_s) / READY_EMPTY_S)
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        shutil.copytree(crowd.state, made.state)
        plane.acks = False
        took_s = await ready_s(made, READY_S_MAX * slower)
        assert (await made.status())["counts"]["not_executed"] == OPERATIONS
        await made.lives[-1].kill()
    measure(
        f"SIGKILL to ready: {min(took_s):.2f} s with {OPERATIONS:,} operations in the journal "
        f"(of {', '.join(f'{one:.2f}' for one in took_s)}), {min(bare_s):.2f} without"
    )
    assert min(took_s) < READY_S_MAX * slower


async def ready_s(made: Sandbox, enough_s: float = inf) -> list[float]:
    """Return how long it takes from SIGKILL to ready, some times, and more often until one is soon enough.

    The time in which it was ready to run, and others had the processors, does not count.
    """
    life = await made.execute()
    await life.ready()
    took_s: list[float] = []
    while len(took_s) < STARTS or (min(took_s) >= enough_s and len(took_s) < STARTS_MAX):
        began = monotonic()
        await life.kill()
        life = await made.execute()
        await life.ready()
        took_s.append(monotonic() - began - queued_s(life.pid))
    return took_s
