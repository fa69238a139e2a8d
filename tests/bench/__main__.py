"""Runs the bench: `python -m tests.bench [--short]`.

The whole form measures everything, and writes docs/performance.md. The short form, for continuous
integration, measures less of it for less long, and ends with 1 where a gate is missed.
"""

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio
import click
from rich.console import Console

from tests.bench.book import Book
from tests.bench.history import present_commit
from tests.bench.machine import Conditions, conditions
from tests.bench.page import write_page
from tests.bench.plans import SHORT, WHOLE, Plan
from tests.bench.report import gate_lines, goals_table, metrics_table, noise, verdicts
from tests.bench.rounds import run_rounds
from tests.bench.subjects.backlog import drain
from tests.bench.subjects.daemon import can_trace
from tests.bench.subjects.long_journal import compare_lengths
from tests.bench.subjects.memory import memory_over
from tests.bench.subjects.sizes import measure_sizes
from tests.bench.subjects.traced import count_syncs, longest_stalls

ROOT: Final = Path(__file__).resolve().parents[2]


async def run(folder: Path, plan: Plan, console: Console) -> Book:
    """Measure everything that is planned."""
    book, began = Book(), time.perf_counter()

    def tell(text: str) -> None:
        console.print(f"{time.perf_counter() - began:6.0f} s  {text}")

    await run_rounds(folder, plan, book, tell)
    if can_trace():
        book.note(await count_syncs(folder / "syncs", plan.rounds, plan.seconds))
        tell("syncs counted")
        for values in await longest_stalls(folder / "slow", plan.stall_rounds, plan.stall_s):
            book.note(values)
        tell("stalls watched")
    book.note(await memory_over(folder / "memory", plan.memory_calls, plan.memory_s))
    book.note(await measure_sizes(folder / "sizes", folder / "memory"))
    tell("memory and sizes looked at")
    for values in await drain(folder / "backlog", plan.backlog_events, plan.rounds):
        book.note(values)
    tell("backlog drained")
    lengths = (plan.few, plan.many)
    for values in await compare_lengths(folder / "lengths", lengths, plan.rounds, plan.operations):
        book.note(values)
    tell("journals of two lengths compared")
    return book


@click.command(help=__doc__)
@click.option("--short", is_flag=True, help="For continuous integration: gates, and no page.")
@click.option("--memory-s", type=float, help="After so long the calls end that memory is watched over.")
def main(*, short: bool, memory_s: float | None) -> None:
    """Run the bench."""
    plan = SHORT if short else WHOLE
    plan = plan if memory_s is None else replace(plan, memory_s=memory_s)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 150)
    before, state = conditions(), present_commit(ROOT)  # others may commit meanwhile
    # in the working directory: a folder for temporary files is often in memory, where an fsync costs nothing
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=ROOT) as name:
        book = anyio.run(run, Path(name), plan, console)
    found = verdicts(book)
    console.print(metrics_table(book), goals_table(found))
    around = before.until(conditions())
    console.print(_noise(book, around))
    if not short:
        write_page(ROOT / "docs", book, found, around, state)
        return
    console.print(*gate_lines(found), sep="\n")
    sys.exit(0 if all(verdict.passes_gate for verdict in found) else 1)


def _noise(book: Book, around: Conditions) -> str:
    return f"noise: rates moved by {noise(book):.0%} from round to round; {around.words()}"


if __name__ == "__main__":
    main()
