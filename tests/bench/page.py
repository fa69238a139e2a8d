"""docs/performance.md: the page that the whole bench writes, with its tables, its plots and its history."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.bench.book import Book
from tests.bench.history import Entry, regressions, remember, table
from tests.bench.machine import Conditions, description, versions
from tests.bench.plots import draw_goals, draw_rates
from tests.bench.report import HEADINGS, METRIC_HEADINGS, Verdict, metric_rows, noise

INTRODUCTION: Final = """\
# Performance

Written by `make bench`, never by hand. Every number here is from one run, and every goal is a ratio of
things that took turns in it, round by round: absolute figures mean nothing on machines that others use,
too. What a goal is computed of stands in `tests/bench/goals.py`; what earlier commits reached, on
[performance/regressions.md](performance/regressions.md).

"""
REFERENCES: Final = """\
## What is compared

* **Raw fdatasync** (a): one thread appends 4 KiB and calls fdatasync, over and over; and the same as
  overwrites. Goals count by appends, the slower of the two where a file system keeps books.
* **The journal's floor** (b): a group commit of the same rows over plain `sqlite3` in one thread. The rows
  are read out of a real journal, so they are all of them: the same tables, indexes and pragmas, one commit
  for the intents of a group and one for its outcomes, each table by one `executemany`. It computes nothing,
  and nobody waits for it.
* **The bare driver** (c): WebSocket in, a grouped commit of one row, nothing done, another one, WebSocket
  out. No contracts, chain, views or logs; the same libraries.
* **DBOS Transact** (d): a workflow of one step that does nothing, over SQLite; as installed, and with each
  connection in WAL with `synchronous=FULL`; one after the other, and in 64 threads.
* **huey and persist-queue** (e): a task in, out, done and recorded as done, over SQLite in WAL with
  `synchronous=FULL`.
* **A bare MCP client**: WebSocket in, the SDK's `call_tool` to the same stdio server, WebSocket out; no
  journal.
* **An echo**: one message of a command's size to a WebSocket server and back. Its client's processor time
  is the unit of CPU.

A *durable operation* has both of its commits on the disk: acceptance with intent, and outcome. CPU is that
of all threads of the daemon, without its plane and providers. fsyncs are those of all its threads,
checkpoints included, counted by strace in a daemon of its own, over all rounds together. The longest stall
is that of a task in the daemon's event loop that wants to run every 5 ms, without the time in which the
daemon's threads waited for a processor. The plane is in the bench's process, and shares the processors with
all.
"""


def write_page(
    docs: Path, book: Book, verdicts: Sequence[Verdict], around: Conditions, state: tuple[str, bool]
) -> None:
    """Write the page, its plots, and the page of earlier commits; `state` is the commit that was measured."""
    folder = docs / "performance"
    folder.mkdir(exist_ok=True)
    draw_goals(folder / "goals.svg", verdicts)
    draw_rates(folder / "rates.svg", book)
    machine = description(docs.parent)
    commit, changed = state
    entry = Entry(
        commit=commit,
        changed=changed,
        machine=machine,
        noise=round(noise(book), 3),
        goals={verdict.goal.title: float(f"{verdict.sample.median:.4g}") for verdict in verdicts},
    )
    (folder / "regressions.md").write_text(regressions(remember(folder / "history.jsonl", entry)))
    (docs / "performance.md").write_text(text_of(book, verdicts, around, entry))


def _over(book: Book) -> str:
    if not book.has("memory.calls"):
        return ""
    return f"\nMemory was watched over {book.sample('memory.calls').median:,.0f} calls."


def text_of(book: Book, verdicts: Sequence[Verdict], around: Conditions, entry: Entry) -> str:
    """Return the page."""
    libraries = ", ".join(f"{name} {version}" for name, version in versions().items())
    state = f"`{entry.commit}`" + (", with changes that were not committed" if entry.changed else "")
    rounds = max(len(values) for values in book.metrics.values())
    return (
        f"{INTRODUCTION}"
        f"Commit {state}. {entry.machine}; {libraries}.\n\n"
        f"**How noisy it was**: from round to round ({rounds} of them) rates moved by {entry.noise:.0%}\n"
        f"of their median, half of them by less; {around.words()}.\n"
        "A difference of that size says nothing.\n\n"
        f"## Goals\n\n{table(HEADINGS, [verdict.cells() for verdict in verdicts])}\n"
        "Spread: the median distance from the median. Reached: what the median is good for."
        f"{_over(book)}\n\n"
        "![how much of what it must each goal reaches](performance/goals.svg)\n\n"
        f"{REFERENCES}\n"
        "![how often a second each does what it does](performance/rates.svg)\n\n"
        f"## Everything that was measured\n\n{table(METRIC_HEADINGS, list(metric_rows(book)))}\n"
        "`rate`: a second. `cpu`, `start`, `listing`: seconds. `p50`, `p99`, `stall_ms`: milliseconds.\n"
        "`syncs`: for each call. `@N`: with N in flight, or N callers. `memory`, `bytes`: bytes;\n"
        "`backlog.memory`: of the first round's.\n"
    )
