"""Lane `crash states`: every legal state of the disk after a power loss, from recordings of the real thing.

Recorded are lives of a journal that use all it has, and of a daemon with its plane and a provider (by strace;
see `scenarios`). From the recording, offline, disks are built as a power loss at any step may leave them, by
the model of `platter`: nothing, everything, a prefix or any subset of what was not flushed, with writes torn
into sectors, and with what a failed fsync made the kernel forget.

A state is a disk together with what had been told when the power went. They are opened as the next start
would: disks that are equal once; of those that a start reads as the same, one and a share of the others are
opened, and must be the same (`look`, `view`). A disk that breaks a promise is kept, and opened again by
`python -m tests.faults.specimen FOLDER`. The model itself is checked, too: with everything kept, it must come
to the very files that were there. And mechanisms are taken away, one by one, each of which the lane must
notice.

The states of a recording are drawn from the seed. The recordings are of real processes: of a seed they have
the same steps as far as one thread makes them, and not the same order of what several do.
"""

import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from time import monotonic
from typing import Final

from tests.faults.lane import Report
from tests.faults.look import Looker
from tests.faults.mixtures import MODES, mixtures
from tests.faults.platter import WHOLE, Image, Platter
from tests.faults.promises import Promises
from tests.faults.recording import Step
from tests.faults.scenarios import (
    CONTROLS,
    SCENARIOS,
    NotRecorded,
    Recording,
    recorded,
    recorded_daemon,
)
from tests.faults.specimen import keep

NAME: Final = "crash states"
DAEMON: Final = "a daemon and its plane"
WORKERS: Final = 2
CONTROL_STATES: Final = 600
"""What is looked at of a control's recording, before its fault is drawn anew."""
CONTROL_MORE_S: Final = 30.0
"""How much longer than the lane a control may take."""
BROKEN_MAX: Final = 20
AFTER_A_FAILURE: Final = 250
VISITED: Final = 0.06
VISITED_NEAR: Final = 0.5
"""How often a step is looked at in a round, in general and where orders matter most."""
EXPLORED_S_MIN: Final = 2.0
"""Of each recording, however long it has taken to make them."""
_DENSE: Final = frozenset({"sync", "rename", "link", "unlink", "open", "truncate", "said"})


@dataclass(slots=True)
class Tally:
    """What was explored of one recording."""

    name: str
    states: int = 0
    built: int = 0
    disks: int = 0
    opened: int = 0
    journals: int = 0
    backups: int = 0
    points: int = 0
    modes: Counter[str] = field(default_factory=Counter[str])
    fired: Counter[str] = field(default_factory=Counter[str])
    broken: list[str] = field(default_factory=list[str])
    failed: list[str] = field(default_factory=list[str])
    """What breaks no promise and must not be: a life that ended wrongly, a model that is not the disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One scenario for one worker."""

    name: str
    folder: Path
    seed: int
    left: int
    """How many jobs there are from this one on: they share the time that is left."""
    points: int
    control: str | None = None

    def until(self, end: float) -> float:
        """When it is over, of a lane that ends at `end`; on a slow machine it has a moment behind that."""
        now = monotonic()
        return max(now + EXPLORED_S_MIN, min(end, now + (end - now) * WORKERS / self.left))


def run(seed: int, seconds: float, target: int) -> Report:
    """Explore for so many seconds, or until so many states were looked at."""
    end = monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="effectd-faults-", dir=_memory()) as folder:
        jobs = _jobs(Path(folder), seed, target)
        with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as workers:
            found = list(workers.map(_work, jobs, [end] * len(jobs)))
    return _report(seed, jobs, found)


def _memory() -> str | None:
    """A folder in memory, where there is one: what is looked at there is the content, not the disk."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _jobs(folder: Path, seed: int, target: int) -> list[Job]:
    names = [DAEMON, *(scenario.name for scenario in SCENARIOS)]
    count = len(CONTROLS) + len(names)
    controls = [
        Job(
            name=CONTROLS[name].name,
            folder=folder / name,
            seed=seed,
            left=count - number,
            points=CONTROL_STATES,
            control=name,
        )
        for number, name in enumerate(CONTROLS)
    ]
    real = [
        Job(
            name=name,
            folder=folder / f"{number}",
            seed=seed + 1_000 * number,
            left=len(names) - number,
            points=-(-target // len(names)),
        )
        for number, name in enumerate(names)
    ]
    return [*controls, *real]


def _work(job: Job, end: float) -> Tally:
    tally, chance = Tally(job.name), random.Random(job.seed)
    if job.control is None:
        _attack(job, chance, tally, lambda: job.until(end))
        return tally
    end += CONTROL_MORE_S
    while not tally.broken and monotonic() < end:  # its fault must fall where it matters: drawn anew
        tally.failed.clear()
        _attack(job, chance, tally, lambda: end)
    return tally


def _attack(job: Job, chance: random.Random, tally: Tally, until: Callable[[], float]) -> None:
    """Record, and explore for the time that there is then."""
    try:
        recording = _recorded(job, chance)
        explore(job, recording, chance, tally, until())
    except NotRecorded as error:
        tally.failed.append(str(error))
    finally:
        shutil.rmtree(job.folder, ignore_errors=True)


def _recorded(job: Job, chance: random.Random) -> Recording:
    def draw(most: int) -> int:
        return chance.randint(1, most)

    if job.name == DAEMON:
        recording = recorded_daemon(job.folder)
        job.folder.mkdir(mode=0o700)
        return recording
    known = {**CONTROLS, **{scenario.name: scenario for scenario in SCENARIOS}}
    return recorded(known[job.control or job.name], job.folder, chance.randrange(1 << 30), draw)


def explore(job: Job, recording: Recording, chance: random.Random, tally: Tally, until: float) -> None:
    """Look at disks of a recording, in rounds, until time or count are reached or enough is broken."""
    _check_model(recording, tally)
    explorer = _Explorer(job, recording, chance, tally, Looker(job.folder), until)
    explorer.known = _known(recording, explorer.looker)
    while not explorer.is_over():
        explorer.round()
    looker = explorer.looker
    tally.points += len(explorer.points)
    tally.states, tally.disks = len(explorer.seen), len(looker.answers)
    tally.opened, tally.journals, tally.backups = looker.opened, len(looker.recovered), len(looker.backups)
    tally.fired["failed fsyncs"] += recording.failed_syncs
    tally.fired["lives killed"] += recording.killed
    if looker.different:
        tally.failed.append(f"{recording.name}: {looker.different} starts differ though they read the same")


@dataclass(slots=True)
class _Explorer:
    """One recording, while it is explored."""

    job: Job
    recording: Recording
    chance: random.Random
    tally: Tally
    looker: Looker
    until: float
    known: frozenset[str] = frozenset()
    points: set[int] = field(default_factory=set[int])
    seen: set[tuple[bytes, int]] = field(default_factory=set[tuple[bytes, int]])

    def is_over(self) -> bool:
        """Whether enough was seen, or something broke that is enough."""
        enough = 1 if self.job.control else BROKEN_MAX
        over = len(self.seen) >= self.job.points or len(self.tally.broken) >= enough
        return over or monotonic() > self.until

    def round(self) -> None:
        """Let everything happen once, and look at some of its moments."""
        steps, dense = self.recording.steps, _near(self.recording.steps)
        where = _after_failures(steps) if self.job.control else frozenset[int]()
        platter = Platter(self.recording.base)
        for index, step in enumerate(steps):
            platter.apply(index, step)
            share = VISITED_NEAR if index in dense else VISITED
            if step.kind == "said" or (where and index not in where) or self.chance.random() > share:
                continue
            self._visit(index, platter)
            if self.is_over():
                return

    def _visit(self, index: int, platter: Platter) -> None:
        told = self.recording.told.as_of(index)
        again = index in self.points
        self.points.add(index)
        for mode, kept in mixtures(platter.undecided(), self.chance, again=again):
            self.tally.built += 1
            image = platter.build(kept)
            if (state := (image.digest, told.seq)) in self.seen:
                continue
            self.seen.add(state)
            self.tally.modes[mode] += 1
            if wrong := told.broken(self.looker.look(image), self.known):
                self._tell(f"step {index}, {mode}", wrong, image, told)

    def _tell(self, place: str, wrong: Sequence[str], image: Image, told: Promises) -> None:
        text = f"{self.recording.name}, {place}: {'; '.join(wrong)[:600]} {self.recording.notes}"
        if self.job.control is None:
            text += f"; again: python -m tests.faults.specimen {keep(image, told, self.known)}"
        self.tally.broken.append(text)


def _known(recording: Recording, looker: Looker) -> frozenset[str]:
    """What a deep look finds wrong before anything happens: old versions wrote what newer ones would not."""
    found = looker.look(Platter(recording.base).build({})).found
    return frozenset() if found is None else frozenset(found.wrong)


def _check_model(recording: Recording, tally: Tally) -> None:
    """With everything kept, the model must have the files that were really there."""
    platter = Platter(recording.base)
    for index, step in enumerate(recording.steps):
        platter.apply(index, step)
    image = platter.build({item.index: WHOLE for item in platter.undecided()})
    found = {path: bytes(data) for path, data in image.files.items()}
    if found != recording.final:
        names = {
            path
            for path in found.keys() | recording.final.keys()
            if found.get(path) != recording.final.get(path)
        }
        tally.failed.append(f"{recording.name}: the model has other content in {sorted(names)}")


def _near(steps: Sequence[Step]) -> frozenset[int]:
    """The steps next to one that is no write, and those after a failed fsync: there orders matter most."""
    marked = [index for index, step in enumerate(steps) if step.kind in _DENSE]
    near = frozenset(near for index in marked for near in (index - 1, index, index + 1))
    return near | _after_failures(steps)


def _after_failures(steps: Sequence[Step]) -> frozenset[int]:
    failed = (index for index, step in enumerate(steps) if step.failed)
    return frozenset(near for index in failed for near in range(index, index + AFTER_A_FAILURE))


def _report(seed: int, jobs: Sequence[Job], found: Sequence[Tally]) -> Report:
    report = Report(name=NAME, seed=seed, tried="")
    report.wanted = frozenset(
        {"failed fsyncs", "lives killed", *MODES, *(f"caught: {name}" for name in CONTROLS)}
    )
    real = [tally for job, tally in zip(jobs, found, strict=True) if job.control is None]
    for job, tally in zip(jobs, found, strict=True):
        if job.control is not None:
            report.reached[f"caught: {job.control}"] += bool(tally.broken)
            report.notes.append(
                f"without {job.name}: {tally.states:,} states, "
                f"{(tally.broken or tally.failed or ['NOTHING'])[0][:200]}"
            )
    for tally in real:
        report.fired += tally.fired
        report.reached += tally.modes
        report.broken += tally.broken + tally.failed
        if not tally.states:
            report.broken.append(f"{tally.name}: nothing of it was explored")
        report.notes.append(
            f"{tally.name}: {tally.states:,} states at {tally.points:,} points, {tally.disks:,} disks, "
            f"{tally.opened:,} opened, {tally.journals:,} journals"
        )
    report.points = sum(tally.states for tally in real)
    report.tried = (
        f"{report.points:,} states ({sum(t.built for t in real):,} built) at "
        f"{sum(t.points for t in real):,} points of {len(real)} recordings; of "
        f"{sum(t.disks for t in real):,} different disks {sum(t.opened for t in real):,} opened, the others "
        f"read as one of these; {sum(t.journals for t in real):,} different journals and "
        f"{sum(t.backups for t in real)} backups lived on with and verified deeply"
    )
    return report
