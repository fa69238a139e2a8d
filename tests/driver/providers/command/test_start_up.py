"""What a shim costs, side by side with the bare program, and in what order it makes things durable."""

import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import pytest

from driver.core.attempts import Phase
from driver.providers.command.zygote import Zygote
from tests.driver.providers.command.stage import answer, settings, staged
from tests.driver.providers.command.test_readoption import life

pytestmark = pytest.mark.anyio

RUNS = 40
START_MS_MAX = 25.0
"""From the dispatch until the program runs, beyond what its bare start takes."""
INTERPRETER_MS = 9.0
"""What a bare interpreter takes on an idle machine. Where it takes longer, so does a shim."""
ATTEMPTS = 4
"""What else the machine does can only add to the cost: the best of so many medians counts."""
CLOCK = ["date", "+%s%N"]
"""A program that says when it ran."""
INTERPRETER = [sys.executable, "-I", "-S", "-E", "-c", "pass"]


class Samples:
    """Durations in milliseconds."""

    def __init__(self) -> None:
        self.started: list[float] = []
        self.ended: list[float] = []

    def add(self, began_ns: int, said: str) -> None:
        """Take a run that is just over, and the clock that its program has told."""
        self.ended.append((time.time_ns() - began_ns) / 1e6)
        self.started.append((int(said) - began_ns) / 1e6)

    def __str__(self) -> str:
        return (
            f"until it runs {statistics.median(self.started):.1f}, whole {statistics.median(self.ended):.1f}"
        )


def run_bare(samples: Samples) -> None:
    """Start the clock as anybody would."""
    began = time.time_ns()
    samples.add(began, subprocess.run(CLOCK, capture_output=True, check=True, text=True).stdout)


def run_interpreter() -> float:
    """Return what a bare interpreter takes."""
    began = time.perf_counter()
    subprocess.run(INTERPRETER, check=True)
    return (time.perf_counter() - began) * 1000


def allowed_ms(interpreter_ms: float) -> float:
    """Return what a start may cost where a bare interpreter takes so long."""
    return START_MS_MAX * max(1.0, interpreter_ms / INTERPRETER_MS)


async def cost_ms(folder: Path, measure: Callable[[str], None]) -> tuple[float, float]:
    """Return how much later a program starts under a shim at the median, and how much later it may."""
    bare, kept = Samples(), Samples()
    interpreter: list[float] = []
    async with staged(settings(folder)) as stage:
        for _ in range(RUNS):
            await anyio.to_thread.run_sync(run_bare, bare)
            interpreter.append(await anyio.to_thread.run_sync(run_interpreter))
            began = time.time_ns()
            result = answer(await stage.run({"argv": list(CLOCK)}))
            kept.add(began, str(result["stdout"]))
    cost = statistics.median(kept.started) - statistics.median(bare.started)
    measure(
        f"a program under a shim, ms, median of {RUNS}: {kept}; bare {bare}; "
        f"start-up cost {cost:.1f}; a bare interpreter {statistics.median(interpreter):.1f}"
    )
    return cost, allowed_ms(statistics.median(interpreter))


async def test_the_start_up_cost_is_small(tmp_path: Path, measure: Callable[[str], None]) -> None:
    """A program starts at most 25 ms later under a shim than without one, at the median."""
    found: list[tuple[float, float]] = []
    while not any(cost < allowed for cost, allowed in found):
        assert len(found) < ATTEMPTS, found
        (attempt := tmp_path / str(len(found))).mkdir()
        found.append(await cost_ms(attempt, measure))


async def test_without_the_zygote_a_start_costs_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measure: Callable[[str], None]
) -> None:
    """Negative control: an interpreter and its imports for each shim are beyond what is allowed."""
    fork = Zygote.fork

    def cold(zygote: Zygote, order: bytes, descriptors: Sequence[int]) -> None:
        zygote.close()
        fork(zygote, order, descriptors)

    monkeypatch.setattr(Zygote, "fork", cold)
    cost, allowed = await cost_ms(tmp_path, measure)
    assert cost > allowed


async def test_the_record_is_durable_before_it_is_visible(tmp_path: Path) -> None:
    """The shim syncs the output and the record, then renames the record, then syncs its folder."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    trace = tmp_path / "trace"
    syscalls = "fsync,fdatasync,rename,renameat,renameat2,execve"
    wrapper = [strace, "-f", "-y", "-e", f"trace={syscalls}", "-e", "signal=none", "-o", str(trace)]
    async with life(tmp_path, {"argv": ["echo", "hello"]}, wrapper=wrapper) as first:
        await first.reached(Phase.ANSWERED)
        with anyio.fail_after(30):
            await first.process.wait()
    steps = re.findall(
        r"(execve\(\"[^\"]*echo\"|rename\w*\([^)]*\"started\"|fdatasync\([^)]*stdout|fsync\([^)]*ended\.new"
        r"|rename\w*\([^)]*\"ended\"|fsync\(\d+<[^>]*/1>)",
        trace.read_text(),
    )
    names = ['started"', 'echo"', "stdout", "ended.new", 'ended"', "/1>"]
    assert [next(name for name in names if step.endswith(name)) for step in steps] == names
