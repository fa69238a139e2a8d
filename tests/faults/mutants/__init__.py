"""The lane of seeded bugs: those that no other lane has as a control of its own, until each is noticed.

A bug has a process to itself, which is killed afterwards, and an attack that is tried until a promise breaks.
Then the same attacks are made on the product as it is. All bugs, with the lanes that notice them, are in
`tests.faults.fates`; try N of a run with the seed S is that of the seed `S * 1_000_000 + N`.
"""

import logging
import multiprocessing
import tempfile
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import Final

import structlog

from tests.faults.fates import CAUGHT
from tests.faults.lane import Report
from tests.faults.mutants import bugs
from tests.faults.mutants.attacks import Attack, cancellation, likeness, race, world
from tests.faults.simulation.batch import in_memory, prepare
from tests.faults.simulation.themes import Theme

NAME: Final = "mutants"
SEEDS_EACH: Final = 1_000_000
TRIES_MAX: Final = 600
LATEST_S: Final = 120.0
"""A bug that is not noticed by then is not noticed, however slow the machine is."""
SOUND_SHARE: Final = 0.25
"""Of the time: for the product as it is, whatever the bugs took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeded:
    """A bug, and the attack that must notice it."""

    bug: Callable[[], AbstractContextManager[None]]
    attack: Attack
    plays: bool = False
    """Whether it is a world: its process can do nothing else."""


SEEDED: Final = MappingProxyType(
    {
        "best-effort allowing a retry": Seeded(
            bug=bugs.best_effort_retry,
            attack=world(Theme(tools=("plain",), deeds=("lost, done", "silent, done"))),
            plays=True,
        ),
        "resend with a new timestamp": Seeded(bug=bugs.resent_anew, attack=world(None), plays=True),
        "approval reused": Seeded(
            bug=bugs.approval_reused,
            attack=world(Theme(tools=("asked",), deeds=("ok",), place="dispatch.prepared")),
            plays=True,
        ),
        "a shield removed": Seeded(bug=bugs.unshielded, attack=cancellation),
        "a lock by unlink": Seeded(bug=bugs.lock_by_unlink, attack=race),
        "digest without the tool": Seeded(bug=bugs.toolless_digest, attack=likeness),
    }
)


@dataclass(frozen=True, slots=True)
class Noticed:
    """What came of one attack after the other: how many there were, and what the last one broke."""

    tries: int
    broken: str | None


def run(seed: int, seconds: float, points: int) -> Report:
    """Let each bug be noticed, and attack the product as it is, `points` times or as often as fits."""
    ends = monotonic() + seconds
    wanted = frozenset(f"{CAUGHT}{name}" for name in SEEDED)
    report = Report(name=NAME, seed=seed, tried="", wanted=wanted)
    first = seed * SEEDS_EACH
    with in_memory() as folder:
        for name in SEEDED:
            found = _aside(folder, name, first, TRIES_MAX, LATEST_S, sound=False)
            if found.broken is None:
                report.broken.append(f"{name} was not noticed in {found.tries} tries")
                continue
            report.reached[f"{CAUGHT}{name}"] += 1
            report.notes.append(f"{name}: noticed in try {found.tries - 1}: {found.broken[:160]}")
        left_s = max(ends - monotonic(), seconds * SOUND_SHARE) / len(SEEDED)
        for name in SEEDED:
            found = _aside(folder, name, first, points // len(SEEDED), left_s, sound=True)
            report.points += found.tries
            if found.broken is not None:
                report.broken.append(f"attack for {name!r}, seed {first + found.tries - 1}: {found.broken}")
    report.tried = f"{len(SEEDED)} bugs, and {report.points:,} attacks on the product without them"
    return report


def _aside(folder: Path, name: str, first: int, tries: int, seconds: float, *, sound: bool) -> Noticed:
    """Attack in a process of its own, and kill it: a bug may have left anything behind in it."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_attack, args=(there, folder, name, first, tries, seconds, sound))
    process.start()
    there.close()
    try:
        if not here.poll(seconds + LATEST_S):
            return Noticed(0, "the attack hangs")
        found: Noticed = here.recv()
        return found
    except EOFError:
        return Noticed(0, None if not sound else "the attack died")
    finally:
        process.kill()
        process.join()
        here.close()


def _attack(
    to: Connection, folder: Path, name: str, first: int, tries: int, seconds: float, sound: bool
) -> None:
    seeded, ends = SEEDED[name], monotonic() + seconds
    if not sound:
        threading.excepthook = _ignore
    tempfile.tempdir = str(folder)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    if seeded.plays:
        prepare(folder)
    made, broken = 0, None
    while broken is None and made < tries and (made == 0 or monotonic() < ends):
        # a new block each time: a bug that remembers something remembers one try
        with nullcontext() if sound else seeded.bug():
            broken = seeded.attack(first + made)
        made += 1
    to.send(Noticed(made, broken))
    threading.Event().wait()  # until it is killed: what a bug has left open would not let it end


def _ignore(_what: threading.ExceptHookArgs) -> None:
    """A thread that a bug has left behind complains to nobody."""
