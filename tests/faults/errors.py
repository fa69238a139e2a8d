"""Lane `errors`: a file call of the journal or of the daemon is answered with an error, once or for ever.

EIO, ENOSPC, EMFILE, ENOLCK, at the n-th call of each kind, below the state and the runtime folder. For each,
a process is forked from a warm one; `notifier` has the kernel ask us about its calls. Whatever it was:

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
from typing import Final

from tests.faults import daemon_errors, journal_errors
from tests.faults.journal_errors import Tally
from tests.faults.lane import Report

NAME: Final = "errors"
WORKERS: Final = 2
WANTED: Final = frozenset(
    {
        "EIO", "ENOSPC", "EMFILE", "ENOLCK", "once", "for ever", "a new generation",
        "exit code 0", "exit code 2", "exit code 70", "a second life under the same error",
        "daemon: exit code 70", "daemon: exit code 2", "daemon: effects", "caught: verdict_from_memory",
    }
)  # fmt: skip


def run(seed: int, seconds: float, target: int) -> Report:
    """Inject for so many seconds, or until so many errors were injected."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(prefix="effectd-faults-", dir=memory) as folder,
        ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as workers,
    ):
        control = workers.submit(journal_errors.control, Path(folder) / "control", seed)
        journal = workers.submit(journal_errors.work, Path(folder) / "journal", seed, seconds)
        daemon = workers.submit(daemon_errors.work, seed, seconds)
        return _report(seed, (journal.result(), daemon.result()), control.result())


def _report(seed: int, tallies: Sequence[Tally], control: Tally) -> Report:
    report = Report(name=NAME, seed=seed, tried="")
    for tally in tallies:
        report.fired += tally.fired
        report.reached += tally.reached
        report.broken += tally.broken
    report.reached["caught: verdict_from_memory"] += bool(control.broken)
    report.wanted = WANTED
    injected = report.fired["once"] + report.fired["for ever"]
    report.points = injected
    report.tried = (
        f"{sum(t.tried for t in tallies):,} points tried, {injected:,} errors injected, in "
        f"{sum(t.lives for t in tallies):,} lives, {tallies[1].lives:,} of them of a daemon; "
        f"the slowest took {max(t.slowest_s for t in tallies):.1f} s"
    )
    report.notes.append(f"without fail-stop: {(control.broken or ['NOTHING'])[0][:300]}")
    return report
