"""Runs lanes: each in a process of its own with a hard limit of time, as many at once as there are cores for.

Those that need all cores run last, one after the other, and share the time that is left. A lane that hangs
has failed: it is named, and killed with all that it has started. Where one ended without a report, the end of
what it printed stands in its place.
"""

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from subprocess import STDOUT
from time import monotonic
from typing import Final

import anyio

from tests.faults.lane import Box, Lane, Report, failed

ROOT: Final = Path(__file__).parents[2]
COMMAND: Final = (sys.executable, "-m", "tests.faults")
CORES: Final = max(2, len(os.sched_getaffinity(0)))
LATEST: Final = 2.5
GRACE_S: Final = 90.0
"""A lane hangs after so often its time and this: what stands around its box takes long on a busy machine."""
PRINTED_MAX: Final = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A lane that is over."""

    lane: Lane
    box: Box
    report: Report
    printed: str
    """What it wrote itself."""


@dataclass(slots=True, kw_only=True)
class Battery:
    """Lanes that wait, run, and are over."""

    seed: int
    say: Callable[[Ran], None]
    """Called with each lane as it ends."""
    seconds: float | None = None
    """How long all of them may take: see `share`."""
    ended: list[Ran] = field(default_factory=list[Ran])
    cores: int = CORES
    """Those that no lane uses."""
    _changed: anyio.Event = field(default_factory=anyio.Event)

    async def run(self, work: Iterable[tuple[Lane, Box]]) -> None:
        """Run all: first what mostly waits, then pairs of those that need one core, the longest first.

        Of those that run alone the shortest is the first: what it leaves falls to the others.
        """
        ends = None if self.seconds is None else monotonic() + self.seconds
        waiting = sorted(work, key=_turn)
        async with anyio.create_task_group() as tasks:
            while waiting:
                fitting = next((item for item in waiting if item[0].cores <= self.cores), None)
                if fitting is None:
                    await self._changed.wait()
                    self._changed = anyio.Event()
                    continue
                lane, box = fitting
                if ends is not None and lane.cores > 1:
                    box = share(box, (other for _, other in waiting), ends - monotonic())
                waiting.remove(fitting)
                self.cores -= lane.cores
                tasks.start_soon(self._one, lane, box)

    async def _one(self, lane: Lane, box: Box) -> None:
        began = monotonic()
        with tempfile.TemporaryDirectory(prefix="effectd-faults-") as folder:
            report, printed = await _lived(lane, box, self.seed, Path(folder))
        report.seconds = monotonic() - began
        ran = Ran(lane=lane, box=box, report=report, printed=printed)
        self.ended.append(ran)
        self.say(ran)
        self.cores += lane.cores
        self._changed.set()


def _turn(item: tuple[Lane, Box]) -> tuple[int, float]:
    lane, box = item
    return lane.cores, -box.seconds if lane.cores == 1 else box.seconds


def share(box: Box, every: Iterable[Box], left_s: float) -> Box:
    """Return what a lane gets that runs alone; `every` one that waits, itself included, runs alone, too.

    They share what is left of the time as their boxes are: what one does not need falls to those behind it,
    and on a slow machine all have less.
    """
    share_s = max(left_s, 0.0) * box.seconds / sum(other.seconds for other in every)
    return replace(box, seconds=max(share_s, box.seconds / 2))


async def _lived(lane: Lane, box: Box, seed: int, folder: Path) -> tuple[Report, str]:
    report, output = folder / "report.json", folder / "output"
    words = ["--lane", lane.name, "--seed", str(seed), "--seconds", f"{box.seconds:g}"]
    words += ["--points", str(box.points), "--here", str(report)]
    limit_s = box.seconds * LATEST + GRACE_S
    with output.open("wb") as to:
        process = await anyio.open_process(
            [*COMMAND, *words],
            cwd=ROOT,
            stdin=None,
            stdout=to,
            stderr=STDOUT,
            start_new_session=True,
        )
        try:
            with anyio.move_on_after(limit_s):
                await process.wait()
        finally:
            hung = process.returncode is None
            _kill(process.pid)
            with anyio.CancelScope(shield=True):
                await process.wait()
    printed = output.read_text(errors="replace")
    if hung:
        return failed(lane.name, seed, f"it was killed after {limit_s:.0f} s: {_end(printed)}", limit_s), ""
    if not report.exists():
        why = f"it ended without a report, exit code {process.returncode}: {_end(printed)}"
        return failed(lane.name, seed, why, 0), ""
    return Report.from_json(json.loads(report.read_text())), printed


def _end(printed: str) -> str:
    return printed[-PRINTED_MAX:].strip() or "it printed nothing"


def _kill(pid: int) -> None:
    """Kill a lane's process group, and whatever left the group and is below it still."""
    for child in _below(pid, _children()):
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _children() -> Mapping[int, Sequence[int]]:
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                found.setdefault(parent, []).append(int(entry.name))
    return found


def _below(pid: int, children: Mapping[int, Sequence[int]]) -> list[int]:
    return [each for child in children.get(pid, ()) for each in (child, *_below(child, children))]
