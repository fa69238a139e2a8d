"""Runs the bench, and prints its tables."""

import sys
import tempfile
from pathlib import Path

import anyio
from rich.console import Console

from tests.bench.book import Book
from tests.bench.report import goals_table, metrics_table
from tests.bench.rounds import Plan, run_rounds


async def _run(folder: Path, plan: Plan, console: Console) -> Book:
    book = Book()
    await run_rounds(folder, plan, book, console.print)
    return book


def main() -> None:
    """Run the bench."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    plan = Plan(rounds=5, seconds=1.0, operations=2_560, peers=True)
    # in the working directory: a folder for temporary files is often in memory, where an fsync costs nothing
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path.cwd()) as name:
        book = anyio.run(_run, Path(name), plan, console)
    console.print(metrics_table(book), goals_table(book))


if __name__ == "__main__":
    main()
