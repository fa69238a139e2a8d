"""What the lane `crash states` records: lives of a journal, and of a daemon, with all that they use."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

import anyio

from tests.faults import journal_life
from tests.faults.promises import Promises, Told, lines
from tests.faults.recording import Step, record, steps, strace
from tests.system.plane import call, scripted_plane
from tests.system.sandbox import sandbox
from tests.system.zygote import ROOT, Zygote

WATCHED: Final = ("state", "backups")
FAIL: Final = "fsync,fdatasync:error=EIO:when={}"
FAIL_COMMIT: Final = "fdatasync:error=EIO:when={}"
CALLS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One process."""

    name: str = "plain"
    inject: str | None = None
    """What happens at the n-th call, drawn between 1 and this many; strace's words, with a place for n."""
    most: int = 60
    codes: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Lives one after the other, on one state folder, without a reboot in between."""

    name: str
    lives: tuple[Life, ...]
    before: tuple[str, ...] = ()
    """Lives that are not recorded: what they left is on the disk."""
    prepare: Callable[[Path], None] | None = None
    """What is done to the folder after them."""
    weakness: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What can be explored."""

    name: str
    base: Mapping[str, bytes]
    steps: list[Step]
    told: Told
    final: Mapping[str, bytes]
    """What the files really were at the end: the model must come to the same."""
    failed_syncs: int
    killed: int
    """Lives that ended by SIGKILL."""
    notes: tuple[str, ...] = field(default=())


PLAIN: Final = Life()
KILLED: Final = Life(name="killed", codes=(-9, 137, 0))
FAILED: Final = Life(inject=FAIL, codes=(0, 2, 70, 71))


def _old(version: int) -> Callable[[Path], None]:
    return lambda root: journal_life.age(root, version)


SCENARIOS: Final = (
    Scenario(name="a new journal", lives=(PLAIN, PLAIN)),
    Scenario(name="killed and opened again", lives=(KILLED, KILLED, PLAIN)),
    Scenario(name="another history, and a backup", lives=(Life(name="histories"), PLAIN)),
    Scenario(
        name="a restored backup", before=("backup",), prepare=journal_life.restore, lives=(PLAIN, PLAIN)
    ),
    Scenario(
        name="projections made again",
        before=("plain",),
        prepare=journal_life.damage,
        lives=(Life(name="mend"), PLAIN),
    ),
    Scenario(name="failed fsync 1", lives=(FAILED, PLAIN, PLAIN)),
    Scenario(name="failed fsync 2", before=("plain",), lives=(FAILED, FAILED, PLAIN)),
    Scenario(name="failed fsync 3", before=("plain",), lives=(FAILED, PLAIN)),
    *(Scenario(name=f"a journal of schema {n}", prepare=_old(n), lives=(PLAIN,)) for n in (1, 4, 6)),
)
CONTROLS: Final[Mapping[str, Scenario]] = MappingProxyType(
    {
        "no_fsync": Scenario(name="no fsync", lives=(PLAIN,), weakness="no_fsync"),
        "lazy_fsync": Scenario(name="synchronous=NORMAL", lives=(PLAIN,), weakness="lazy_fsync"),
        "no_file_fsync": Scenario(name="no fsync of small files", lives=(PLAIN,), weakness="no_file_fsync"),
        "no_new_generation": Scenario(
            name="no new generation",
            before=("plain",),
            lives=(Life(inject=FAIL_COMMIT, codes=(70,), most=40), PLAIN),
            weakness="no_new_generation",
        ),
    }
)


class NotRecorded(Exception):
    """A life ended otherwise than it may."""


def recorded(scenario: Scenario, folder: Path, seed: int, draw: Callable[[int], int]) -> Recording:
    """Let the scenario happen in `folder`, and return what can be explored. Raises `NotRecorded`."""
    root = folder / "root"
    for path in (folder, root, root / "backups"):
        path.mkdir(mode=0o700)
    first = Promises()
    for number, name in enumerate(scenario.before):
        done = subprocess.run(
            _command(root, name, seed + number, None), cwd=ROOT, capture_output=True, text=True, check=True
        )
        first = lines(done.stdout.splitlines(), first)
    if scenario.prepare is not None:
        scenario.prepare(root)
    base = contents(root)
    # what was erased before may stand in a backup; what was told after it is not in it
    is_older = scenario.prepare is journal_life.restore
    first = Promises(seq=0 if is_older else first.seq, chain=first.chain)
    logs: list[Path] = []
    notes: list[str] = []
    killed = 0
    for number, life in enumerate(scenario.lives):
        logs.append(folder / f"log-{number}")
        inject = None if life.inject is None else life.inject.format(draw(life.most))
        command = _command(root, life.name, seed + 100 + number, scenario.weakness)
        done = record(command, logs[-1], env={}, cwd=ROOT, inject=inject)
        if done.returncode not in life.codes:
            raise NotRecorded(
                f"{scenario.name}, life {number}, {inject}: {done.returncode} {done.stderr[-2000:]}"
            )
        killed += done.returncode in KILLED.codes[:2]
        notes.append(f"{life.name} {inject or ''}: {done.returncode}")
    return _recording(scenario.name, root, logs, base, first, tuple(notes), killed)


def _recording(
    name: str,
    root: Path,
    logs: list[Path],
    base: Mapping[str, bytes],
    first: Promises,
    notes: tuple[str, ...],
    killed: int,
) -> Recording:
    found = steps(logs, root, WATCHED)
    return Recording(
        name=name,
        base=base,
        steps=found,
        told=Told(found, first),
        final=contents(root),
        failed_syncs=sum(step.kind == "sync" and step.failed for step in found),
        notes=notes,
        killed=killed,
    )


def _command(root: Path, name: str, seed: int, weakness: str | None) -> list[str]:
    words = [sys.executable, "-m", "tests.faults.journal_life", str(root), name, str(seed)]
    return words if weakness is None else [*words, weakness]


def contents(root: Path) -> dict[str, bytes]:
    """Return the files in the watched folders."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for name in WATCHED
        for path in (root / name).glob("*")
        if path.is_file()
    }


def recorded_daemon(folder: Path) -> Recording:
    """Let a real daemon serve a plane and call a provider, be killed, and do so again; return all of it."""
    folder.mkdir(mode=0o700)
    return anyio.run(_daemon, folder)


async def _daemon(folder: Path) -> Recording:
    zygote = Zygote()
    try:
        async with scripted_plane() as plane, sandbox(zygote, plane) as made:
            logs = [folder / "log-0", folder / "log-1"]
            for number, log in enumerate(logs):
                life = await made.execute(*strace(log))
                async with anyio.create_task_group() as tasks:
                    for n in range(CALLS):
                        command = call(
                            f"cmd-{number}-{n}", ("counter/count", "counter/fail")[n % 7 == 6], n=n
                        )
                        tasks.start_soon(plane.give, command)
                await plane.answered()
                life.stand_for(int((made.state / "lock").read_text()))
                if number:
                    assert await life.stop() == 0, life.text
                else:
                    await life.kill()
            return _recording("a daemon and its plane", made.root, logs, {}, Promises(), (), 1)
    finally:
        zygote.close()
        shutil.rmtree(folder, ignore_errors=True)
