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
from tests.faults.balance import Balance
from tests.faults.journal_errors import Tally
from tests.faults.lane import HANGS, MEASURES, Report, Time

NAME: Final = "errors"
SERIES: Final = 3
"""Of journals, each a process; a fourth one has daemons and full disks. A life waits more than it works."""
WANTED: Final = frozenset(
    {
        "EIO", "ENOSPC", "EMFILE", "ENOLCK", "once", "for ever", "a new generation",
        "exit code 0", "exit code 2", "exit code 70", "a second life under the same error",
        *daemon_errors.WANTED, full_disk.WANTED,
        "caught: verdict_from_memory",
    }
)  # fmt: skip
DAEMON, FULL = 0.08, 0.06
"""Which share of the errors falls on a daemon, and on a full disk; the rest on journals."""
DAEMON_TIME, FULL_TIME = 0.4, 0.1
"""The share of the time in which those are to be injected."""


def run(seed: int, seconds: float, target: int) -> Report:
    """Inject for so many seconds, or until so many errors were injected."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    end = monotonic() + seconds
    with (
        tempfile.TemporaryDirectory(prefix="effectd-faults-", dir=memory) as name,
        ProcessPoolExecutor(SERIES + 1, mp_context=get_context("spawn")) as workers,
    ):
        folder = Path(name)
        others = workers.submit(_others, folder, seed, end, target)
        each = round(target * (1 - DAEMON - FULL) / SERIES)
        journals = [
            workers.submit(journal_errors.work, folder / f"journal-{number}", seed + number, end, each)
            for number in range(SERIES)
        ]
        control, daemon, full, more = others.result()
        return _report(seed, daemon, full, (more, *(journal.result() for journal in journals)), control)


def _others(folder: Path, seed: int, end: float, target: int) -> tuple[Tally, Balance, Tally, Tally]:
    """Return what came of the control, of daemons, of full disks, and of journals in what time is left."""
    seconds = end - monotonic()
    control = journal_errors.control(folder / "control", seed)
    daemon = daemon_errors.work(seed, Time.of(seconds * DAEMON_TIME), round(target * DAEMON))
    full = full_disk.work(folder / "full", seed, Time.of(seconds * FULL_TIME), round(target * FULL))
    missing = round(target * (DAEMON + FULL)) - daemon.injected - full.injected
    more = journal_errors.work(folder / "more", seed + SERIES, end, missing)
    return control, daemon, full, more


def _report(seed: int, daemon: Balance, full: Tally, journals: Sequence[Tally], control: Tally) -> Report:
    report, tallies = Report(name=NAME, seed=seed, tried=""), (daemon, full, *journals)
    for tally in tallies:
        report.fired += tally.fired
        report.reached += tally.reached
        report.broken += tally.broken
    report.reached["caught: verdict_from_memory"] += journal_errors.noticed(control)
    report.wanted = WANTED
    report.points = sum(tally.injected for tally in tallies)
    report.figures = {name: daemon.figures[name] for name in MEASURES}
    report.figures[HANGS] += sum(tally.hung for tally in tallies)
    report.tried = (
        f"{report.points:,} errors injected at {sum(t.tried for t in tallies):,} points, in "
        f"{sum(t.lives for t in tallies):,} lives, {daemon.lives:,} of them of a daemon; {full.injected:,} "
        f"by a disk without room; the slowest took {max(t.slowest_s for t in tallies):.1f} s"
    )
    report.notes.append(f"without fail-stop: {(control.broken or ['NOTHING'])[-1][:300]}")
    return report
