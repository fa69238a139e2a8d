"""The model lane: Hypothesis state machines over the journal, its evidence, the supervisor and the link.

Each machine holds the product against a model that was written from the documents: `journal` a real journal
with retention, erasure, stops and kills, and what a supervisor records in it; `delegation` what is said of
operations by their child runs, and what must not be tried again because of that; `evidence` what words of
every rank prove, in any order; `link` the session of the link against an honest plane and against one that
lies.

Slices of a few dozen examples take turns until there are enough, or the time is over. Slice N of machine M in
a run with the seed S is played alone, and reduced, by `python -m tests.faults.model M S N`.
"""

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Final

from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis import seed as seeded
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.faults.lane import Report, Time
from tests.faults.model.bench import prompt_connections
from tests.faults.model.controls import CONTROLS
from tests.faults.model.counting import ENDED, SEEN
from tests.faults.model.delegation import DelegationModel
from tests.faults.model.evidence import EvidenceModel
from tests.faults.model.journal import JournalModel
from tests.faults.model.link import HonestPlane, LyingPlane

NAME: Final = "model"
MACHINES: Final[MappingProxyType[str, type[RuleBasedStateMachine]]] = MappingProxyType(
    {
        "journal": JournalModel,
        "delegation": DelegationModel,
        "evidence": EvidenceModel,
        "honest plane": HonestPlane,
        "lying plane": LyingPlane,
    }
)
_OFTEN: Final = ("journal", "evidence", "honest plane", "lying plane")
SLICES: Final = (*_OFTEN, "delegation", "lying plane", *_OFTEN, "evidence", "lying plane")
"""Whose turn it is, over and over: what has a journal takes as long as four of the others."""
SLICE: Final = 25
STEPS: Final = 25
CONTROL_SLICES_MAX: Final = 40
MEMORY: Final = Path("/dev/shm")
STATES: Final = frozenset(
    {
        "pruned",
        "erased",
        "killed",
        "stopped",
        "verified whole",
        "contradiction",
        "another attempt",
        "late answer",
        "unknown, listed",
        "look-alike guarded",
        "verdict of supervisor",
        "supervisor overruled",
        "old wall left alone",
        "guards though judged",
        "overruled",
        "delegation: none",
        "delegation: occurred",
        "delegation: a later run",
        "delegation: another attempt of a child",
        "delegation: parent judged",
        "delegation: tried again on a none",
        "delegation: waits on a none",
        "delegation: begun behind an approval",
        "delegation: probed",
        "delegation: pruned",
        "honest: Park",
        "honest: PauseStream",
        "lying: fence",
        "lying: parked",
        "lying: event sent",
        "lying: false welcome",
        "lying: future acknowledged",
    }
)
WANTED: Final = STATES | {f"caught: {name}" for name in CONTROLS}


def run(seed: int, seconds: float, points: int) -> Report:
    """Play `points` examples, or as many as the time allows."""
    time = Time.of(seconds)
    report = Report(name=NAME, seed=seed, tried="", wanted=WANTED)
    with _in_memory(), prompt_connections():
        for name in CONTROLS:
            _control(name, seed, report)
        SEEN.clear()
        ENDED.clear()
        for number in count():
            is_over = number >= len(SLICES) and not time.is_left(
                is_missing=any(not SEEN[state] for state in STATES)
            )
            if is_over or ENDED.total() >= points:
                break
            machine = SLICES[number % len(SLICES)]
            if (why := _broken(machine, seed, number)) is not None:
                report.broken.append(why)
    report.points = ENDED.total()
    played = ", ".join(f"{examples:,} {name}" for name, examples in sorted(ENDED.items()))
    report.tried = f"{report.points:,} examples of up to {STEPS} steps: {played}"
    report.reached += +SEEN
    return report


def play(machine: str, seed: int, number: int, *, reduced: bool = False) -> None:
    """Play one slice, and raise what breaks; `reduced` takes its time to find the shortest way to it."""
    phases = (Phase.generate, Phase.shrink) if reduced else (Phase.generate,)
    once = settings(
        max_examples=SLICE,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        phases=phases,
        report_multiple_bugs=False,
        verbosity=Verbosity.normal if reduced else Verbosity.quiet,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.filter_too_much,
            HealthCheck.data_too_large,
            HealthCheck.large_base_example,
        ],
    )
    # of its own each time: the seed stays with a class
    fresh = type(MACHINES[machine].__name__, (MACHINES[machine],), {})
    run_state_machine_as_test(seeded(f"{seed}:{machine}:{number}")(fresh), settings=once)


def _broken(machine: str, seed: int, number: int) -> str | None:
    """Play a slice, and return what broke, with what replays it."""
    try:
        play(machine, seed, number)
    except Exception as error:  # noqa: BLE001 - whatever it is, a promise was broken
        words = " ".join(str(error).split())[:300] or "an assertion"
        replay = f'python -m tests.faults.model "{machine}" {seed} {number}'
        return f"{machine}: {type(error).__name__}: {words} ({replay})"
    return None


def _control(name: str, seed: int, report: Report) -> None:
    """Take a mechanism away, and play until its machine notices: what else breaks shows nothing."""
    control = CONTROLS[name]
    with control.weaken():
        for number in range(CONTROL_SLICES_MAX):
            if control.word in (_broken(control.machine, seed, number) or ""):
                report.reached[f"caught: {name}"] += 1
                report.notes.append(f"control: {name}, noticed in slice {number} of {control.machine}")
                return
    slices = f"{CONTROL_SLICES_MAX} slices of {control.machine}"
    report.broken.append(f"control: {name} was not noticed in {slices}")


@contextmanager
def _in_memory() -> Generator[None]:
    """Let folders be made on a memory file system, where there is one."""
    original = tempfile.tempdir
    folder = tempfile.mkdtemp(prefix="effectd-models-", dir=MEMORY if MEMORY.is_dir() else None)
    tempfile.tempdir = folder
    try:
        yield
    finally:
        tempfile.tempdir = original
        shutil.rmtree(folder, ignore_errors=True)
