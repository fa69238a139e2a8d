"""Lane `errors`: a file call of the journal or of the daemon is answered with an error, once or for ever.

EIO, ENOSPC, EMFILE, ENOLCK, at the n-th call of each kind, below the state and the runtime folder. For each,
a process is forked from a warm one; `notifier` has the kernel ask us about its calls. And the disk is really
full, wherever that happens (`full_disk`). Whatever it was:

* the process ends within its time, with an exit code that the documentation names: 0 where the call did not
  matter, 70 and 71 for the journal, 2 for a start that was refused; never with a traceback;
* after an error of a write or an fsync of the journal it does not go on;
* the next start, without the error, has everything that anybody was told (I5), whole, and goes on;
* of a daemon, all that it accepted is answered in the end, no effect was without its intent or came twice,
  and no receipt lies (I1 to I4).
"""

import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from time import monotonic
from typing import Final

from tests.faults import daemon_errors, full_disk, journal_errors
from tests.faults.journal_errors import Tally
from tests.faults.lane import HANGS, Report

NAME: Final = "errors"
WORKERS: Final = 2
WANTED: Final = frozenset(
    {
        "EIO", "ENOSPC", "EMFILE", "ENOLCK", "once", "for ever", "a new generation",
        "exit code 0", "exit code 2", "exit code 70", "a second life under the same error",
        "daemon: exit code 70", "daemon: exit code 2", "daemon: effects", "full: exit code 70",
        "caught: verdict_from_memory",
    }
)  # fmt: skip
DAEMON, FULL, JOURNAL = 0.08, 0.06, 0.43
"""Which share of the errors falls on a daemon, on a full disk, and on each of two series of journals."""
DAEMON_UNTIL, FULL_UNTIL = 0.4, 0.5
"""When those have to end, as a share of the time."""


def run(seed: int, seconds: float, target: int) -> Report:
    """Inject for so many seconds, or until so many errors were injected."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(prefix="effectd-faults-", dir=memory) as folder,
        ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as workers,
    ):
        first = workers.submit(_first, Path(folder), seed, seconds, target)
        second = workers.submit(_second, Path(folder), seed, seconds, target)
        control, journal = first.result()
        return _report(seed, (*second.result(), journal), control)


def _first(folder: Path, seed: int, seconds: float, target: int) -> tuple[Tally, Tally]:
    end = monotonic() + seconds
    control = journal_errors.control(folder / "control", seed)
    return control, journal_errors.work(folder / "journal-1", seed, end, round(target * JOURNAL))


def _second(folder: Path, seed: int, seconds: float, target: int) -> tuple[Tally, Tally, Tally]:
    now = monotonic()
    daemon = daemon_errors.work(seed, now + seconds * DAEMON_UNTIL, round(target * DAEMON))
    full = full_disk.work(folder / "full", seed, now + seconds * FULL_UNTIL, round(target * FULL))
    left = target - round(target * JOURNAL) - daemon.injected - full.injected
    return daemon, full, journal_errors.work(folder / "journal-2", seed + 1, now + seconds, left)


def _report(seed: int, tallies: Sequence[Tally], control: Tally) -> Report:
    report = Report(name=NAME, seed=seed, tried="")
    for tally in tallies:
        report.fired += tally.fired
        report.reached += tally.reached
        report.broken += tally.broken
    report.reached["caught: verdict_from_memory"] += bool(control.broken)
    report.wanted = WANTED
    report.points = sum(tally.injected for tally in tallies)
    report.figures[HANGS] = sum(tally.hung for tally in tallies)
    daemon, full, *_ = tallies
    report.tried = (
        f"{report.points:,} errors injected at {sum(t.tried for t in tallies):,} points, in "
        f"{sum(t.lives for t in tallies):,} lives, {daemon.lives:,} of them of a daemon; {full.injected:,} "
        f"by a disk without room; the slowest took {max(t.slowest_s for t in tallies):.1f} s"
    )
    report.notes.append(f"without fail-stop: {(control.broken or ['NOTHING'])[0][:300]}")
    return report
