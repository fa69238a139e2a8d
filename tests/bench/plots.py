"""The plots of the page: SVG, drawn from a run's own numbers, and the same bytes for the same numbers.

matplotlib is imported by name: only `make bench` installs it, and the code is checked without it.
"""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tests.bench.book import Book
from tests.bench.report import Verdict

RATES: Final[Sequence[tuple[str, str]]] = (
    ("disk.append", "raw fdatasync, append"),
    ("disk.overwrite", "raw fdatasync, overwrite"),
    ("floor.rate@256", "(b) plain SQLite, groups of 256"),
    ("journal.rate@256", "journal, 256 callers"),
    ("floor.rate@64", "(b) plain SQLite, groups of 64"),
    ("journal.rate@64", "journal, 64 callers"),
    ("bare.rate@64", "(c) bare driver, 64 in flight"),
    ("noop.rate@64", "effectd, no-op, 64 in flight"),
    ("loud.rate@64", "effectd, logs, events, metrics"),
    ("bare.rate@1", "(c) bare driver, one at a time"),
    ("noop.rate@1", "effectd, no-op, one at a time"),
    ("bare-mcp.rate@16", "bare MCP client, 16 in flight"),
    ("mcp.rate@16", "effectd, MCP, 16 in flight"),
    ("dbos-installed.rate@1", "(d) DBOS as installed, one at a time"),
    ("dbos-installed.rate@64", "(d) DBOS as installed, 64 threads"),
    ("dbos-durable.rate@1", "(d) DBOS, WAL and FULL, one at a time"),
    ("dbos-durable.rate@64", "(d) DBOS, WAL and FULL, 64 threads"),
    ("huey.rate@1", "(e) huey"),
    ("persist-queue.rate@1", "(e) persist-queue"),
)
SHARES: Final = (0.05, 0.1, 0.2, 0.5, 1, 2, 5)
"""Of what a goal must reach: where the axis is marked."""
OURS: Final = "#1f6f8b"
OTHERS: Final = "#8a8a8a"
MISSED: Final = "#c0504d"


def draw_rates(file: Path, book: Book) -> None:
    """Draw how often a second each does what it does, with the smallest and the largest round.

    Dots, for on a logarithmic scale the length of a bar says nothing.
    """
    rows = [(label, book.sample(metric), metric) for metric, label in RATES if book.has(metric)]
    figure, axes = _rows(len(rows))
    for place, (_, sample, metric) in enumerate(rows):
        ours = metric.startswith(("journal", "noop", "loud", "mcp"))
        color = OURS if ours else OTHERS
        axes.plot([min(sample.values), max(sample.values)], [place, place], color=color, linewidth=1.5)
        axes.plot([sample.median], [place], marker="o", color=color, markersize=8)
        axes.annotate(
            f"{sample.median:,.0f}",
            (sample.median, place),
            xytext=(0, 6),
            textcoords="offset points",
            ha="center",
            fontsize="x-small",
        )
    axes.set_yticks(range(len(rows)), [label for label, _, _ in rows])
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.set_minor_formatter("")
    axes.set_xlabel("a second: the median of all rounds, and their range")
    _save(figure, file)


def draw_goals(file: Path, verdicts: Sequence[Verdict]) -> None:
    """Draw how much of what it must each goal reaches: left of 1 is too little, right of it more."""
    rows = [verdict for verdict in verdicts if verdict.goal.must]
    figure, axes = _rows(len(rows))
    for place, verdict in enumerate(rows):
        reached = _reached(verdict, verdict.sample.median)
        ends = [_reached(verdict, value) for value in verdict.sample.values]
        axes.barh(place, reached - 1, left=1, height=0.6, color=OURS if reached >= 1 else MISSED)
        axes.plot([min(ends), max(ends)], [place, place], color="black", linewidth=0.8)
        axes.plot([_reached(verdict, verdict.goal.aim)], [place], marker="|", color="black", markersize=9)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [verdict.goal.title for verdict in rows])
    axes.set_xscale("log")
    axes.set_xticks(SHARES, [f"{share:g}" for share in SHARES])
    axes.xaxis.set_minor_formatter("")
    axes.set_xlabel("of what it must (1); line: all rounds, mark: the aim")
    _save(figure, file)


def _reached(verdict: Verdict, value: float) -> float:
    goal = verdict.goal
    value = max(value, goal.must * 1e-3)  # a logarithm has no zero
    return goal.must / value if goal.at_most else value / goal.must


def _rows(rows: int) -> tuple[Any, Any]:
    figure_class: Any = import_module("matplotlib.figure").Figure
    figure = figure_class(figsize=(10, 1 + 0.3 * rows), layout="constrained")
    axes = figure.subplots()
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color="#e6e6e6", linewidth=0.6)
    axes.set_axisbelow(True)
    return figure, axes


def _save(figure: Any, file: Path) -> None:  # noqa: ANN401 - matplotlib's own
    matplotlib: Any = import_module("matplotlib")
    with matplotlib.rc_context({"svg.hashsalt": file.name, "svg.fonttype": "none"}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
