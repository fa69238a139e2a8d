"""Runs the bench, and prints its tables."""

import sys
import tempfile
from pathlib import Path

import anyio
from rich.console import Console

from tests.bench.book import Book
from tests.bench.report import goals_table, metrics_table
from tests.bench.rounds import Plan, run_rounds
from tests.bench.subjects.traced import count_syncs, longest_stalls


async def _run(folder: Path, plan: Plan, console: Console) -> Book:
    book = Book()
    await run_rounds(folder, plan, book, console.print)
    for values in await count_syncs(folder / "syncs", plan.rounds, plan.seconds / 2):
        book.note(values)
    for values in await longest_stalls(folder / "slow", plan.rounds, 4 * plan.seconds):
        book.note(values)
    return book


def main() -> None:
    """Run the bench."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    plan = Plan(rounds=5, seconds=1.0, operations=2_560, peers="--no-peers" not in sys.argv)
    # in the working directory: a folder for temporary files is often in memory, where an fsync costs nothing
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path.cwd()) as name:
        book = anyio.run(_run, Path(name), plan, console)
    console.print(metrics_table(book), goals_table(book))


if __name__ == "__main__":
    main()
