"""Lane `network`: what `run` does, and what it reports."""

import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from tests.faults.balance import Balance
from tests.faults.lane import DUPLICATE_EFFECTS, MEASURES, Report
from tests.faults.network import calls, countryside, cuts, partitions

NAME: Final = "network"
PARTITIONS_MIN: Final = len(partitions.ALWAYS)
PARTITION_EVERY_S: Final = 12.0
"""Of the box: so that an hour's run has its 50."""
PARTITIONS_MAX: Final = 50
UNWATCHED: Final = "nobody asks whether the link lives"
WANTED: Final = frozenset(
    {
        "every byte, without TLS", "every byte, with TLS", "every byte of an HTTP call",
        "rst towards the daemon", "rst towards the plane", "fin towards the daemon", "fin towards the plane",
        "HTTP: rst", "HTTP: fin", "HTTP: silence", "HTTP: silence about what had happened",
        "an event came again, in the same bytes", "a command was delivered again",
        "caught: no_dedupe", "caught: a lost connection is no call", f"caught: {UNWATCHED}",
        *partitions.ALWAYS, "packets dropped", "a plane stood still", "a daemon stood still",
        "a dead link was noticed", "an event that was recorded while nothing came through",
    }
)  # fmt: skip


def run(seed: int, seconds: float, target: int) -> Report:
    """Cut for so many seconds or so often, and at each byte at least; bring partitions about meanwhile."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    count = min(PARTITIONS_MAX, max(PARTITIONS_MIN, int(seconds / PARTITION_EVERY_S)))
    lacking = countryside.lacking()
    with (
        tempfile.TemporaryDirectory(prefix="effectd-faults-", dir=memory) as folder,
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as worker,
        # it leaves the machine's network, and must not be given other work; nor must those that are spoilt
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as away,
        ProcessPoolExecutor(2, mp_context=get_context("spawn"), max_tasks_per_child=1) as spoilt,
    ):
        doubled = spoilt.submit(cuts.control, Path(folder) / "control", seed)
        denied = spoilt.submit(calls.control)
        unwatched = spoilt.submit(partial(partitions.control, in_networks=not lacking))
        parted = away.submit(partial(partitions.work, seed, count, seconds, in_networks=not lacking))
        cut = worker.submit(cuts.work, Path(folder) / "cuts", seed, seconds, target)
        report = _report(seed, (cut.result(), parted.result()))
        _note_controls(report, doubled.result(), denied.result(), unwatched.result())
    if lacking:
        report.notes.append(f"partitions at a gate, not in network namespaces: {'; '.join(lacking)}")
    return report


def _note_controls(report: Report, doubled: Balance, denied: Balance, unwatched: Balance) -> None:
    """Note what was caught, and by what it must be caught: not by any failure."""
    report.reached["caught: no_dedupe"] += doubled.figures[DUPLICATE_EFFECTS]
    report.reached["caught: a lost connection is no call"] += sum(
        "not sent, and" in text for text in denied.broken
    )
    report.reached[f"caught: {UNWATCHED}"] += sum(partitions.UNNOTICED in text for text in unwatched.broken)
    report.notes.append(f"where {UNWATCHED}: {(unwatched.broken or ['NOTHING'])[0][:300]}")
    report.notes.append(f"without deduplication: {(doubled.broken or ['NOTHING'])[0][:300]}")
    report.notes.append(
        f"where a lost connection is taken for no call: {(denied.broken or ['NOTHING'])[0][:300]}"
    )


def _report(seed: int, balances: Sequence[Balance]) -> Report:
    report = Report(name=NAME, seed=seed, tried="")
    for balance in balances:
        report.fired += balance.fired
        report.reached += balance.reached
        report.broken += balance.broken
    report.wanted = WANTED
    report.figures = {name: sum(balance.figures[name] for balance in balances) for name in MEASURES}
    report.points = sum(balance.tried for balance in balances)
    report.tried = (
        f"{balances[0].tried:,} cuts of a connection, {balances[1].tried} partitions of real daemons; "
        f"the slowest took {max(balance.slowest_s for balance in balances):.1f} s to be whole again"
    )
    return report
