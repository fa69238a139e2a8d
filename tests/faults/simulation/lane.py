"""The lane: thousands of worlds from one seed, some of them again, and each control until it is noticed.

World N of a run with the seed S is the world `S * 1_000_000 + N`. To play one alone, with its trace:
`python -m tests.faults.simulation WORLD`.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count
from typing import Final

from tests.faults.lane import CONTRADICTING_RECEIPTS, DUPLICATE_EFFECTS, HANGS, LOST_RECEIPTS, Report, Time
from tests.faults.simulation.batch import DIGEST, Tally, play_control, play_many, workers
from tests.faults.simulation.controls import CONTROLS
from tests.faults.simulation.plane import BOTH_LIVE
from tests.faults.simulation.rivals import ENDED, KEPT, REFUSED
from tests.faults.simulation.truth import JUDGED
from tests.faults.simulation.world import AFTER_STOP

NAME: Final = "simulation"
SEEDS_EACH: Final = 1_000_000
"""Between the worlds of one seed and those of the next."""
CHUNK: Final = 20
AGAIN: Final = CHUNK
"""Worlds that are played again, here and in a process whose hashes are other ones."""
DEEP_EVERY: Final = 25
"""Each so-manieth world's journal is verified as `effectd verify --deep` does."""
FIGURES: Final = {
    DUPLICATE_EFFECTS: (" I2: ",),
    LOST_RECEIPTS: (" I4: ", " I5: "),
    CONTRADICTING_RECEIPTS: (" I3: ",),
    HANGS: (" hang: ",),
}
"""Which broken promises are which of the figures that all lanes share."""
STATES: Final = frozenset(
    {
        "unknown",
        "redelivery",
        "second crash",
        "crash while starting",
        "recovery",
        "late answer",
        "another attempt",
        "contradiction",
        "dead letter",
        "fence",
        "history begun anew",
        "unknown, journal_lost",
        "unknown, rolled_back",
        "approval asked for again",
        "refused, lookalike_unsettled",
        "verdict of probe",
        "verdict of operator",
        "supervisor overruled",
        "compensated",
        "verdict of what it was delegated to",
        "pruned",
        "retired",
        "deduplicated by the tool",
        "partition",
        "cut",
        "plane forgot",
        "ack put off",
        "nack, busy",
        "clock set",
        "machine restarted",
        "slow disk",
        "stop",
        "a command twice",
        "a second answer, the opposite",
        BOTH_LIVE,
        "fence, superseded",
        "fence, forked",
        "fence, rolled_back",
        REFUSED,
        KEPT,
        ENDED,
        AFTER_STOP,
        "claim",
    }
)
WANTED: Final = STATES | {f"caught: {name}" for name in CONTROLS}


def run(seed: int, seconds: float, points: int) -> Report:
    """Play `points` worlds, or as many as fit. Each broken promise names its world."""
    time = Time.of(seconds)
    processes = os.cpu_count() or 1
    first = seed * SEEDS_EACH
    again = range(first, first + min(AGAIN, points))
    with workers(processes) as pool:
        report = Report(name=NAME, seed=seed, tried="", wanted=WANTED, figures=dict.fromkeys(FIGURES, 0))
        controls = {name: pool.submit(play_control, name, first) for name in CONTROLS}
        # beside all others, so that no core waits for them in the end
        replays = {
            "in this process": pool.submit(_backwards, again),
            "in a process with other hashes": pool.submit(_elsewhere, again),
        }
        tally = _play(pool, seed, points, time)
        report.fired, report.reached = tally.fired, tally.reached
        for name, noticed in controls.items():
            _control(name, noticed.result(), report)
        for where, replay in replays.items():
            _compare({number: tally.traces[number] for number in again}, replay.result(), where, report)
    report.notes.append(f"{len(again)} worlds played again, twice: bit-identical")
    report.tried = (
        f"{tally.worlds:,} worlds with {tally.lives:,} lives, {tally.steps:,} steps, "
        f"{tally.virtual_s / 3600:,.0f} h of simulated time, "
        f"{tally.reached[JUDGED]:,} judged by their records"
    )
    report.points = tally.worlds
    for measure, marks in FIGURES.items():
        report.figures[measure] = sum(any(mark in text for mark in marks) for text in tally.broken)
    report.broken += tally.broken
    if tally.worlds < points:
        report.notes.append(f"the time was over before {points:,} worlds")
    return report


def _play(pool: ProcessPoolExecutor, seed: int, target: int, time: Time) -> Tally:
    """Play worlds until there are enough, or the time is over; those that are played again in any case."""
    tally = Tally()
    chunks = _chunks(seed, target)
    under_way: set[Future[Tally]] = set()
    more = True
    while more or under_way:
        while more and len(under_way) < 4:
            chunk = next(chunks, None)
            is_missing = any(not tally.fired[state] and not tally.reached[state] for state in STATES)
            is_first = not (tally.worlds or under_way)
            more = chunk is not None and (is_first or time.is_left(is_missing=is_missing))
            if more and chunk is not None:
                under_way.add(pool.submit(play_many, chunk, None, DEEP_EVERY))
        done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
        for future in done:
            tally.merge(future.result())
    return tally


def _chunks(seed: int, target: int) -> Iterator[range]:
    first = seed * SEEDS_EACH
    for number in count():
        begin = number * CHUNK
        if begin >= target:
            return
        yield range(first + begin, first + min(begin + CHUNK, target))


def _control(name: str, tally: Tally, report: Report) -> None:
    """Say when the lane noticed that a mechanism was taken away."""
    if noticed := CONTROLS[name].noticed(tally.broken):
        report.reached[f"caught: {name}"] += 1
        report.notes.append(f"control: {name}, noticed in world {tally.worlds}: {noticed[0][:140]}")
    else:
        report.broken.append(f"control: {name} was not noticed in {tally.worlds} worlds")


def _compare(traces: Mapping[int, str], again: Mapping[int, str], where: str, report: Report) -> None:
    """The same world twice is the same world."""
    report.broken += [
        f"world {number} is another one when it is played again {where}"
        for number, trace in traces.items()
        if again.get(number) != trace
    ]


def _backwards(again: Sequence[int]) -> dict[int, str]:
    """Play worlds again, the last one first. In a worker."""
    return play_many(again[::-1]).traces


def _elsewhere(again: Sequence[int]) -> dict[int, str]:
    """Play them in a process whose hashes are other ones. In a worker, which waits for it."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.simulation", "--brief", *map(str, again)],
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,  # what is broken is told of the worlds themselves
    )
    said = (line.removeprefix(DIGEST).split() for line in done.stdout.splitlines() if line.startswith(DIGEST))
    return {int(number): trace for number, trace in said}
