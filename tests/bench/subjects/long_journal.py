"""A journal of very many settled operations beside one of few: nothing may take longer in it."""

import re
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from anyio import to_thread

from store.statements import STATEMENTS
from tests.bench.subjects.journal import operations_a_second
from tests.driver.engine.rig import ScriptedProvider, engine
from tests.store import large
from tests.store.bulk import CALLS_OF_A_RUN
from tests.store.test_plans import OFFLINE, SCANS, plan

CALLERS: Final = 64


async def _make_pair(folder: Path, few: int, many: int) -> Mapping[str, Path]:
    """Make both journals."""
    made = {"few": folder / "few", "many": folder / "many"}
    for path, operations in zip(made.values(), (few, many), strict=True):
        await large.make(path, operations // CALLS_OF_A_RUN * CALLS_OF_A_RUN)
    return made


async def _compare(pair: Mapping[str, Path], first: int, operations: int) -> Mapping[str, float]:
    """Return what a start, a listing, and new operations cost in each; `first` is a number of a new one."""
    found: dict[str, float] = {}
    for name, folder in pair.items():
        began, cpu_began = time.perf_counter(), time.process_time()
        async with engine(folder, ScriptedProvider()):
            found[f"start.{name}"] = time.perf_counter() - began
            found[f"start-cpu.{name}"] = time.process_time() - cpu_began
    for name, folder in pair.items():
        async with large.opened(folder) as journal:
            found[f"listing.{name}"] = await large.listing_s(journal)
            rate = await operations_a_second(journal, operations, CALLERS, first)
            found[f"journal-of-{name}.rate@{CALLERS}"] = rate
    return found


async def _bad_plans(folder: Path) -> Mapping[str, float]:
    """Return how many statements scan a table or sort in this journal, by their plans."""
    return {"plans.bad": await to_thread.run_sync(_count_bad, folder / "state" / "journal.db")}


def _count_bad(file: Path) -> int:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        return sum(_is_bad(connection, name) for name in set(STATEMENTS) - OFFLINE)


def _is_bad(connection: sqlite3.Connection, name: str) -> bool:
    steps = {step for step in plan(connection, STATEMENTS[name]) if re.match("SCAN|.*B-TREE", step)}
    return bool(steps - {"SCAN CONSTANT ROW"} - SCANS.get(name, set()))


async def compare_lengths(
    folder: Path, lengths: tuple[int, int], rounds: int, operations: int
) -> list[Mapping[str, float]]:
    """Make both, compare them in rounds, and look at the plans."""
    few, many = lengths
    pair = await _make_pair(folder, few, many)
    found = [await _compare(pair, many + operations * (n + 1), operations) for n in range(rounds + 1)]
    return [*found[1:], await _bad_plans(pair["many"])]
