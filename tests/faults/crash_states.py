"""Lane `crash states`: every legal state of the disk after a power loss, from recordings of the real thing.

Recorded are lives of a journal that use all it has, and of a daemon with its plane and a provider (by strace;
see `scenarios`). From the recording, offline, disks are built as a power loss at any step may leave them, by
the model of `platter`: nothing, everything, a prefix or any subset of what was not flushed, with writes torn
into sectors, and with what a failed fsync made the kernel forget. Each is opened as the next start would.

A state is a disk together with what had been told when the power went; disks that are equal are opened once.
The model itself is checked, too: with everything kept, it must come to the very files that were there. And
mechanisms are taken away, one by one, each of which the lane must notice.
"""

import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from time import monotonic
from typing import Final

from tests.faults.lane import Report
from tests.faults.look import Looker
from tests.faults.platter import WHOLE, Image, Platter, Undecided
from tests.faults.recording import Step
from tests.faults.scenarios import (
    CONTROLS,
    SCENARIOS,
    NotRecorded,
    Recording,
    recorded,
    recorded_daemon,
)

NAME: Final = "crash states"
DAEMON: Final = "a daemon and its plane"
WORKERS: Final = 2
MODES: Final = ("nothing", "everything", "a prefix", "a subset", "a torn write", "torn writes")
CONTROL_S: Final = 90.0
"""How long a control may take: it ends once it has noticed something, which is after some seconds."""
CONTROL_ROUND_S: Final = 8.0
LATEST: Final = 2.0
RECORDINGS_S: Final = 120.0
"""When the lane ends at the latest: after twice its time, and what recordings take on a busy machine."""
BROKEN_MAX: Final = 40
AFTER_A_FAILURE: Final = 250
_DENSE: Final = frozenset({"sync", "rename", "link", "unlink", "open", "truncate", "said"})


@dataclass(slots=True)
class Tally:
    """What was explored of one recording."""

    name: str
    states: int = 0
    disks: int = 0
    journals: int = 0
    backups: int = 0
    points: int = 0
    modes: Counter[str] = field(default_factory=Counter[str])
    fired: Counter[str] = field(default_factory=Counter[str])
    broken: list[str] = field(default_factory=list[str])
    failed: list[str] = field(default_factory=list[str])
    """Why there is no recording: a life ended as it must not."""


def run(seed: int, seconds: float, target: int) -> Report:
    """Explore for so many seconds, or until so many states were looked at."""
    until = monotonic() + seconds * LATEST + RECORDINGS_S
    with tempfile.TemporaryDirectory(prefix="effectd-faults-", dir=_memory()) as folder:
        jobs = _jobs(Path(folder), seed, seconds)
        with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as workers:
            found = list(workers.map(_work, jobs, [until] * len(jobs)))
    return _report(seed, jobs, found)


def _memory() -> str | None:
    """A folder in memory, where there is one: what is looked at there is the content, not the disk."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One scenario for one worker."""

    name: str
    folder: Path
    seed: int
    seconds: float
    control: str | None = None


def _jobs(folder: Path, seed: int, seconds: float) -> list[Job]:
    names = [DAEMON, *(scenario.name for scenario in SCENARIOS)]
    each = seconds * WORKERS / len(names)
    jobs = [
        Job(name=name, folder=folder / f"{number}", seed=seed + 1_000 * number, seconds=each)
        for number, name in enumerate(names)
    ]
    controls = [
        Job(
            name=CONTROLS[name].name,
            folder=folder / name,
            seed=seed,
            seconds=CONTROL_S,
            control=name,
        )
        for name in CONTROLS
    ]
    return [*controls, *jobs]


def _work(job: Job, until: float) -> Tally:
    tally, chance = Tally(job.name), random.Random(job.seed)
    if job.control is None:
        _attack(job, chance, tally, lambda: min(until, monotonic() + job.seconds))
        return tally
    until = monotonic() + job.seconds
    while monotonic() < until and not tally.broken:  # its fault must fall where it matters: drawn anew
        tally.failed.clear()
        _attack(job, chance, tally, lambda: min(until, monotonic() + CONTROL_ROUND_S))
    return tally


def _attack(job: Job, chance: random.Random, tally: Tally, until: Callable[[], float]) -> None:
    """Record, and explore for the time that there is then."""
    try:
        recording = _recorded(job, chance)
        looker = Looker(job.folder)
        explore(recording, looker, chance, tally, until(), stop_at=1 if job.control else BROKEN_MAX)
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


def explore(
    recording: Recording, looker: Looker, chance: random.Random, tally: Tally, until: float, *, stop_at: int
) -> None:
    """Look at disks of a recording, round after round, until the time is over or enough is broken."""
    dense = _near(recording.steps)
    known = _known(recording, looker)
    _check_model(recording, tally)
    points: set[int] = set()
    seen: set[tuple[bytes, int]] = set()
    tally.fired["failed fsyncs"] += recording.failed_syncs
    tally.fired["lives killed"] += recording.killed
    while monotonic() < until and len(tally.broken) < stop_at:
        platter = Platter(recording.base)
        for index, step in enumerate(recording.steps):
            platter.apply(index, step)
            if step.kind == "said" or chance.random() > (0.5 if index in dense else 0.06):
                continue
            points.add(index)
            promises = recording.told.as_of(index)
            for mode, image in _images(platter, chance):
                tally.modes[mode] += 1
                if (state := (image.digest, promises.seq)) in seen:
                    continue
                seen.add(state)
                answer = looker.look(image)
                wrong = promises.broken(answer, known)
                if wrong and len(tally.broken) < stop_at:
                    place = f"{recording.name}, step {index} of {len(recording.steps)}, {mode}"
                    tally.broken.append(f"{place}: {'; '.join(wrong)[:600]} {recording.notes}")
            if monotonic() > until or len(tally.broken) >= stop_at:
                break
    tally.points, tally.states = len(points), len(seen)
    tally.disks, tally.journals, tally.backups = (
        len(looker.answers),
        len(looker.recovered),
        len(looker.backups),
    )


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
        tally.broken.append(f"{recording.name}: the model has other content in {sorted(names)}")


def _near(steps: Sequence[Step]) -> frozenset[int]:
    """The steps next to one that is no write, and those after a failed fsync: there orders matter most."""
    marked = [index for index, step in enumerate(steps) if step.kind in _DENSE]
    failed = [index for index, step in enumerate(steps) if step.failed]
    after = (near for index in failed for near in range(index, index + AFTER_A_FAILURE))
    return frozenset(near for index in marked for near in (index - 1, index, index + 1)) | frozenset(after)


def _images(platter: Platter, chance: random.Random) -> Iterator[tuple[str, Image]]:
    undecided = platter.undecided()
    if not undecided:
        yield "everything", platter.build({})
        return
    for mode in ("nothing", chance.choice(MODES[1:3]), *MODES[3:]):
        yield mode, platter.build(_ordered(_CHOICES[mode](undecided, chance), undecided))


def _everything(undecided: Sequence[Undecided], _: random.Random) -> dict[int, int]:
    return {item.index: WHOLE for item in undecided}


def _prefix(undecided: Sequence[Undecided], chance: random.Random) -> dict[int, int]:
    return _everything(undecided[: chance.randint(0, len(undecided))], chance)


def _subset(undecided: Sequence[Undecided], chance: random.Random) -> dict[int, int]:
    share = chance.choice((0.1, 0.5, 0.9))
    return {item.index: WHOLE for item in undecided if chance.random() < share}


def _torn_write(undecided: Sequence[Undecided], chance: random.Random) -> dict[int, int]:
    kept = _prefix(undecided, chance)
    last = undecided[len(kept) - 1] if kept else undecided[0]
    if last.sectors:
        kept[last.index] = (
            chance.getrandbits(last.sectors)
            if chance.random() < 0.5
            else (1 << chance.randint(0, last.sectors)) - 1
        )
    return kept


def _torn_writes(undecided: Sequence[Undecided], chance: random.Random) -> dict[int, int]:
    share = chance.choice((0.1, 0.5, 0.9))
    return {
        item.index: chance.getrandbits(item.sectors) if item.sectors else WHOLE
        for item in undecided
        if chance.random() < share
    }


_CHOICES: Final[dict[str, Callable[[Sequence[Undecided], random.Random], dict[int, int]]]] = {
    "nothing": lambda _, __: {},
    "everything": _everything,
    "a prefix": _prefix,
    "a subset": _subset,
    "a torn write": _torn_write,
    "torn writes": _torn_writes,
}


def _ordered(kept: dict[int, int], undecided: Sequence[Undecided]) -> dict[int, int]:
    """Drop the names that come, in their folder, behind one that is not there."""
    missing: set[str] = set()
    for item in undecided:
        if item.folder is not None:
            if item.index not in kept:
                missing.add(item.folder)
            elif item.folder in missing:
                del kept[item.index]
    return kept


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
            f"{tally.journals:,} journals"
        )
    report.points = sum(tally.states for tally in real)
    report.tried = (
        f"{report.points:,} states ({sum(t.modes.total() for t in real):,} built) at "
        f"{sum(t.points for t in real):,} points of {len(real)} recordings; "
        f"{sum(t.disks for t in real):,} different "
        f"disks opened, {sum(t.journals for t in real):,} different journals and "
        f"{sum(t.backups for t in real)} "
        f"backups lived on with and verified deeply"
    )
    return report
