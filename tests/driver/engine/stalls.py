"""How long commits wait beside pruning and erasing, and for what: windows of each, in turns, in one run.

`python -m tests.driver.engine.stalls OPERATIONS SECONDS` prints it for a journal of so many settled calls.
"""

import gc
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from math import inf
from pathlib import Path
from statistics import median
from typing import Final
from uuid import uuid4

import anyio
from anyio import to_thread

from driver.engine.erasures import PAUSE_S
from driver.engine.pruning import prune
from store.erasure import BEGIN, RunErasure
from store.journal import Journal, open_journal
from store.records import RunId
from store.retention import RetentionSettings
from store.transaction import Transaction
from tests.store import large
from tests.store.bulk import fill_up
from tests.store.drafts import accepted, recording, started, succeeded
from tests.store.stalls import Cost, Work, probed

CALLERS: Final = 2
WINDOW_S: Final = 1.0
REST_S: Final = 0.001
"""Between two commits of a caller."""
ALONE: Final = "alone"
LONGEST: Final = 5
_NEW: Final = 10_000_000
"""The first call that is recorded while it is measured."""

Beside = Callable[[Journal], Awaitable[None]]
"""Goes on until it is cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """What one caller waited for its commit."""

    beside: str
    began: float
    ended: float

    @property
    def wall(self) -> float:
        """How long that was."""
        return self.ended - self.began


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A whole run."""

    waits: tuple[Wait, ...]
    done: tuple[Work, ...]
    windows: tuple[tuple[str, float, float], ...]

    def during(self, beside: str) -> list[Work]:
        """What the journal's thread did in the windows of this kind."""
        spans = [(began, ended) for name, began, ended in self.windows if name == beside]
        return [work for work in self.done if any(low <= work.began < high for low, high in spans)]

    def lines(self) -> list[str]:
        """The figures, in milliseconds: median, 99th of a hundred, longest."""
        found = list[str]()
        for name in dict.fromkeys(window[0] for window in self.windows):
            found.append(f"{name}: {_spread([wait.wall for wait in self.waits if wait.beside == name])}")
            kinds: dict[str, list[Work]] = {}
            for work in self.during(name):
                kind = "checkpoints" if work.checkpoint else "removals" if work.removes else "commits"
                kinds.setdefault(kind, []).append(work)
            found += [f"  {kind}: {_costs(works)}" for kind, works in sorted(kinds.items())]
        dearest = sorted(self.done, key=lambda work: -work.total.cpu)[:LONGEST]
        found += [f"  took {_told(work.total)}{_garbage(work)}" for work in dearest]
        longest = sorted(self.waits, key=lambda wait: -wait.wall)[: LONGEST * CALLERS]
        return found + [f"  {self._why(wait)}" for wait in longest[::CALLERS]]

    def _why(self, wait: Wait) -> str:
        parts = [
            f"{name} of {work.frames} pages {_told(cost)}"
            for work in self.done
            if work.began < wait.ended and work.ended > wait.began
            for name, cost in work.parts.items()
            if cost.wall > wait.wall / 10
        ]
        return f"waited {wait.wall * 1e3:.1f} beside {wait.beside}: {'; '.join(parts) or 'no statement'}"


def _told(cost: Cost) -> str:
    return (
        f"{cost.wall * 1e3:.1f} (ours {cost.cpu * 1e3:.1f}, disk or lock {cost.elsewhere * 1e3:.1f}, "
        f"no processor {cost.starved * 1e3:.1f})"
    )


def _garbage(work: Work) -> str:
    cost = work.parts.get("garbage")
    return "" if cost is None else f", of which {cost.cpu * 1e3:.1f} went for garbage"


def _spread(values: list[float]) -> str:
    if not values:
        return "none"
    ordered = sorted(values)
    figures = (median(ordered), ordered[len(ordered) * 99 // 100], ordered[-1])
    return f"{' / '.join(f'{value * 1e3:.1f}' for value in figures)} of {len(values)}"


def _costs(works: list[Work]) -> str:
    frames = [work.frames for work in works]
    return (
        f"ours {_spread([work.total.cpu for work in works])}, "
        f"disk or lock {_spread([work.total.elsewhere for work in works])}, "
        f"pages {median(frames):.0f}, at most {max(frames)}"
    )


# ------------------------------------------------------------ what goes on beside the commits


async def pruned(journal: Journal) -> None:
    """Retention, as the daemon does it."""
    await prune(journal, RetentionSettings())


class Erased:
    """One run after the other is erased, as the daemon does it."""

    def __init__(self) -> None:
        self._runs = count(1)
        self._left: tuple[RunId, RunErasure] | None = None

    async def __call__(self, journal: Journal) -> None:
        """Erase until cancelled; the next call goes on."""
        while True:
            run, so_far = self._left or (RunId(f"run-{next(self._runs)}"), BEGIN)
            so_far, is_gone = await journal.transact(partial(_erase, run=run, so_far=so_far))
            self._left = None if is_gone else (run, so_far)
            await anyio.sleep(PAUSE_S)


def _erase(tx: Transaction, run: RunId, so_far: RunErasure) -> tuple[RunErasure, bool]:
    if so_far.after is not None:
        so_far = tx.erase_run(run, so_far)
    return so_far, so_far.after is None and tx.vanishes()


# ------------------------------------------------------------ the run


@contextmanager
def _as_in_the_daemon() -> Generator[None]:
    """Leave what the program is made of out of each look for garbage, as `driver.daemon` does."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class _Callers:
    """Record calls, one after the other each, and note what they wait."""

    def __init__(self, journal: Journal, waits: list[Wait]) -> None:
        self._journal = journal
        self._numbers = count(_NEW)
        self._waits = waits
        self.beside = ALONE

    async def call(self) -> None:
        """Go on until cancelled."""
        for n in self._numbers:
            for drafts in ((accepted(n, run="run-new"), started(n)), (succeeded(n, result="y" * 500),)):
                beside, began = self.beside, time.perf_counter()
                await self._journal.transact(recording(*drafts))
                self._waits.append(Wait(beside=beside, began=began, ended=time.perf_counter()))
                await anyio.sleep(REST_S)


async def filled(folder: Path, operations: int) -> None:
    """Make a journal of so many old calls."""
    async with large.opened(folder):
        pass
    await to_thread.run_sync(_fill, folder / "state" / "journal.db", operations)


def _fill(file: Path, operations: int) -> None:
    fill_up(file, operations)
    with file.open("rb") as filled_file:
        os.fsync(filled_file.fileno())  # else the first checkpoint would flush all of it


def lasts(seconds: float) -> Callable[[Measure], bool]:
    """Enough once so much time is over."""
    ends_at = time.perf_counter() + seconds
    return lambda _: time.perf_counter() >= ends_at


async def measured(
    folder: Path, others: dict[str, Beside], *, is_enough: Callable[[Measure], bool]
) -> Measure:
    """Let callers commit in a journal of old calls: beside each of the others, and alone, in turns."""
    waits, windows = list[Wait](), list[tuple[str, float, float]]()
    beside: dict[str, Beside] = {**others, ALONE: lambda _: anyio.sleep(inf)}
    later = timedelta(days=3_650)
    async with (
        open_journal(
            large.settings_in(folder), clock=lambda: datetime.now(UTC) + later, new_id=lambda: uuid4().hex
        ) as journal,
        probed(journal, folder / "state" / "journal.db") as probe,
        anyio.create_task_group() as tasks,
    ):
        callers = _Callers(journal, waits)
        for _ in range(CALLERS):
            tasks.start_soon(callers.call)
        measure = Measure(waits=(), done=(), windows=())
        while not is_enough(measure):
            for callers.beside, go_on in beside.items():
                began = time.perf_counter()
                with anyio.move_on_after(WINDOW_S):
                    await go_on(journal)
                windows.append((callers.beside, began, time.perf_counter()))
            measure = Measure(waits=tuple(waits), done=tuple(probe.done), windows=tuple(windows))
        tasks.cancel_scope.cancel()
        return measure
    raise AssertionError  # for the type checkers: nothing swallows what the block raises


async def _main(operations: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        await filled(folder, operations)
        others: dict[str, Beside] = {"pruning": pruned, "erasing": Erased()}
        with _as_in_the_daemon():
            measure = await measured(folder, others, is_enough=lasts(seconds))
    sys.stdout.write("\n".join([*measure.lines(), ""]))


if __name__ == "__main__":
    anyio.run(_main, int(sys.argv[1]), float(sys.argv[2]))
