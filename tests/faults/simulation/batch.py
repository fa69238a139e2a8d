"""Many worlds, in processes that do nothing else: warm, without threads, on a memory file system.

What is taken out of asyncio, anyio and aiosqlite for a world (`replace_threads`, `order_scopes`) is gone for
the whole process; so whoever wants worlds starts workers.
"""

import argparse
import asyncio
import gc
import logging
import math
import multiprocessing
import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, Final

import structlog

from store.journal import open_journal
from store.settings import JournalSettings
from tests.faults.simulation.controls import CONTROLS
from tests.faults.simulation.disk import Disk, Machine, replace_threads
from tests.faults.simulation.files import OWNER_ONLY
from tests.faults.simulation.life import BASE, counting
from tests.faults.simulation.loop import PROCESS, VirtualLoop, order_scopes
from tests.faults.simulation.outcome import Outcome, play
from tests.faults.simulation.themes import TWO_DAEMONS, Theme
from tests.faults.simulation.truth import ONCE, Say

MEMORY: Final = Path("/dev/shm")
RESERVE_BYTES: Final = 65_536
APT: Final = {
    "any retry": Theme(tools=("plain",), deeds=("lost, done", "late", "garbled, done")),
    "a retry is no resend": Theme(tools=(ONCE,), resends=True),
    "another history is no matter": TWO_DAEMONS,
    "4001 is a close like any other": TWO_DAEMONS,
}
"""What worlds are about in which a control is noticed that is hard to notice elsewhere."""
CONTROL_WORLDS_MAX: Final = 1_000
CONTROL_CHUNK: Final = 20
DIGEST: Final = "digest of world "
"""What a line begins with that says what two runs of a world share."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """What some worlds came to."""

    worlds: int = 0
    lives: int = 0
    steps: int = 0
    virtual_s: float = 0.0
    fired: Counter[str] = field(default_factory=Counter[str])
    reached: Counter[str] = field(default_factory=Counter[str])
    broken: list[str] = field(default_factory=list[str])
    traces: dict[int, str] = field(default_factory=dict[int, str])

    def add(self, outcome: Outcome) -> None:
        """Count one world."""
        self.worlds += 1
        self.lives += outcome.lives
        self.steps += outcome.steps
        self.virtual_s += outcome.virtual_s
        fired, reached = outcome.truth.counts()
        self.fired.update(fired)
        self.reached.update(reached)
        self.broken += [f"world {outcome.seed}: {text}" for text in outcome.truth.broken]
        self.traces[outcome.seed] = outcome.trace

    def merge(self, other: "Tally") -> None:
        """Count the worlds of another tally, too."""
        self.worlds += other.worlds
        self.lives += other.lives
        self.steps += other.steps
        self.virtual_s += other.virtual_s
        self.fired.update(other.fired)
        self.reached.update(other.reached)
        self.broken += other.broken
        self.traces |= other.traces


@contextmanager
def workers(count: int) -> Generator[ProcessPoolExecutor]:
    """Processes that can `play_many`."""
    # fresh ones: a process that runs tests watches its event loops, and its threads do not survive a fork
    context = multiprocessing.get_context("spawn")
    with (
        in_memory() as folder,
        ProcessPoolExecutor(count, mp_context=context, initializer=prepare, initargs=(folder,)) as pool,
    ):
        try:
            yield pool
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def in_memory() -> Generator[Path]:
    """A folder for worlds, on a memory file system where there is one."""
    where = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=where, prefix="effectd-worlds-") as folder:
        yield Path(folder)


def prepare(folder: Path) -> None:
    """Make this process one that plays worlds, below `folder`, and does nothing else any more."""
    # what dead processes have left behind complains when it is unwound
    sys.unraisablehook = _ignore
    warnings.simplefilter("ignore")
    os.umask(OWNER_ONLY)
    replace_threads()
    order_scopes()
    _let_nobody_mount()
    _let_no_real_time_in()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR), processors=[_overhear]
    )
    _PLACE.append(_furnished(folder / str(os.getpid())))
    gc.collect()
    gc.freeze()
    gc.disable()


def _let_no_real_time_in() -> None:
    """Let only bytes bound how much one commit erases: how long that takes here is no part of a world."""
    pace: Any = import_module("store.pace")
    pace.STEP_S = pace.COMMIT_S = math.inf


def _let_nobody_mount() -> None:
    """Look once which file system a folder is on: a world's is where the one before it was."""
    folder: Any = import_module("store.folder")
    folder.file_system_of = cache(folder.file_system_of)


_LOGGED: Final[list[str]] = []


def _overhear(_logger: Any, _method: str, event: Any) -> Any:  # noqa: ANN401 - structlog's own types
    """Nobody reads the log; what was caught and logged there as a surprise is a bug all the same."""
    # without a loop it is the world's end that is heard, and no daemon
    if asyncio._get_running_loop() and event.get("exc_info") and event["event"] != "provider_failed":
        _LOGGED.append(f"{event['event']}: {sys.exc_info()[1]!r}")
    raise structlog.DropEvent


def _ignore(_unraisable: object) -> None:
    """Nobody hears it."""


_PLACE: Final[list[Path]] = []
"""Of this process's worlds."""


def _furnished(base: Path) -> Path:
    """Make a folder for this process's worlds, with a new journal to begin from."""
    base.mkdir()
    token = base / "token"
    token.touch(0o600)
    token.write_text("secret\n", encoding="ascii")
    _make_template(base / "template")
    return base


def _make_template(folder: Path) -> None:
    (folder / "run").mkdir(parents=True)
    settings = JournalSettings(
        state_dir=folder / "state", runtime_dir=folder / "run", reserve_bytes=RESERVE_BYTES
    )
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    context = copy_context()
    context.run(PROCESS.set, Machine("maker", Disk(Random(0))))

    async def make() -> None:
        async with open_journal(settings, clock=lambda: BASE, new_id=counting()):
            pass

    async def process() -> None:
        await loop.create_task(make(), context=context)

    loop.run_until_complete(process())
    loop.abandon()
    asyncio.set_event_loop(None)


def play_many(
    seeds: Sequence[int],
    control: str | None = None,
    deep_every: int = 0,
    theme: Theme | None = None,
    say: Say | None = None,
) -> Tally:
    """Play the worlds of `seeds`, with or without a mechanism of the daemon. In a worker, without `say`."""
    tally, base = Tally(), _PLACE[-1]
    theme = theme if control is None else APT.get(control)
    weakness = None if control is None else CONTROLS[control]
    with nullcontext() if weakness is None else weakness.weaken():
        for seed in seeds:
            _LOGGED.clear()
            deep = bool(deep_every) and seed % deep_every == 0
            outcome = play(seed, base / "template", base / "world", deep=deep, theme=theme, say=say)
            outcome.truth.broken += [f"an exception was logged: {text}" for text in _LOGGED]
            tally.add(outcome)
            if weakness is not None and weakness.noticed(tally.broken):
                break
    gc.collect()
    return tally


def play_control(control: str, first: int) -> Tally:
    """Take a mechanism away, and play the worlds from `first` on until one of them notices. In a worker."""
    tally = Tally()
    while not CONTROLS[control].noticed(tally.broken) and tally.worlds < CONTROL_WORLDS_MAX:
        begin = first + tally.worlds
        tally.merge(play_many(range(begin, begin + CONTROL_CHUNK), control))
    return tally


def main(arguments: Sequence[str]) -> int:
    """Play the worlds that are named, and print what happened in each; return 1 where one of them broke."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.simulation", description="Play worlds alone, bit by bit as a lane does."
    )
    parser.add_argument("worlds", nargs="+", type=int, metavar="WORLD", help="as a lane's line names it")
    parser.add_argument("--brief", action="store_true", help="print the digest of each trace alone")
    asked = parser.parse_args(arguments)
    with in_memory() as folder:
        prepare(folder)
        tally = play_many(asked.worlds, deep_every=1, say=None if asked.brief else _print)
    for seed, trace in tally.traces.items():
        _print(f"{DIGEST}{seed} {trace}")
    for text in tally.broken:
        _print(f"BROKEN {text}")
    return 1 if tally.broken else 0


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
