"""Measures of a journal of very many operations: how long a listing, and a deep look, take in it."""

import resource
import shutil
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final
from uuid import uuid4

from anyio import to_thread

from store.findings import Finding, Progress
from store.journal import Journal, open_journal
from store.records import OperationFilter
from store.settings import JournalSettings
from store.verify import verify_file
from store.view import View
from tests.store.bulk import EVENTS, fill_up
from tests.store.drafts import accepted, recording, started, unknown

UNSETTLED: Final = 50
"""Operations that a listing of the unsettled finds."""
ROUNDS: Final = 100


def settings_in(folder: Path) -> JournalSettings:
    """Where a measured journal lives."""
    return JournalSettings(state_dir=folder / "state", runtime_dir=folder / "run", max_bytes=10**11)


@asynccontextmanager
async def opened(folder: Path) -> AsyncGenerator[Journal]:
    """Open it, on the clock of the wall."""
    settings = settings_in(folder)
    async with open_journal(settings, clock=lambda: datetime.now(UTC), new_id=lambda: uuid4().hex) as journal:
        yield journal


async def make(folder: Path, operations: int) -> None:
    """Make a journal of so many settled operations, and `UNSETTLED` others."""
    async with opened(folder):
        pass
    await to_thread.run_sync(fill_up, folder / "state" / "journal.db", operations)
    async with opened(folder) as journal:
        for n in range(operations + 1, operations + 1 + UNSETTLED):
            await journal.transact(recording(accepted(n, run="run-late"), started(n), unknown(n)))


def remove(folder: Path) -> None:
    """Give the room back."""
    shutil.rmtree(folder, ignore_errors=True)


async def listing_s(journal: Journal) -> float:
    """How long a page of the unsettled, with their count, keeps the journal's thread busy; the median."""

    def listed(view: View) -> float:
        began = time.thread_time()
        page = view.operations(OperationFilter(unsettled=True), None, 100)
        count, _ = view.unsettled()
        taken = time.thread_time() - began
        assert len(page.items) == count == UNSETTLED
        return taken

    return median([await journal.read(listed) for _ in range(ROUNDS)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A deep look: how long it took, and what it said meanwhile."""

    events: int
    seconds: float
    cpu_s: float
    """Of all processes that took part."""
    findings: tuple[Finding, ...]
    steps: tuple[Progress, ...]

    @property
    def millions(self) -> float:
        """How many million events there were."""
        return self.events / 1_000_000


def _cpu_s() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def verify_deeply(
    folder: Path, operations: int, tell: Callable[[Progress], None] = lambda _: None
) -> Verified:
    """Look at a journal at rest, deeply."""
    steps: list[Progress] = []

    def note(step: Progress) -> None:
        steps.append(step)
        tell(step)

    began, cpu_began = time.perf_counter(), _cpu_s()
    findings = verify_file(settings_in(folder), note, now=datetime.now(UTC), deep=True)
    return Verified(
        events=(operations + UNSETTLED) * EVENTS,
        seconds=time.perf_counter() - began,
        cpu_s=_cpu_s() - cpu_began,
        findings=findings,
        steps=tuple(steps),
    )
