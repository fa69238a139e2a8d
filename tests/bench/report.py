"""What a run prints."""

from collections.abc import Iterator

from rich.table import Table

from tests.bench.book import Book
from tests.bench.goals import GOALS


def goals_table(book: Book) -> Table:
    """Return each goal that was measured, with what became of it."""
    table = Table(title="goals: the median of what each round measured")
    for heading in ("what", "measured", "min..max", "spread", "must", "aim", ""):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for goal in GOALS:
        sample = goal.measured(book)
        if sample is None:
            continue
        sign, value = "≤" if goal.at_most else "≥", sample.median
        met = "aim" if goal.meets(value, goal.aim) else "must" if goal.meets(value, goal.must) else "MISSED"
        table.add_row(
            goal.title,
            f"{value:.3g}{goal.unit}",
            f"{min(sample.values):.3g}..{max(sample.values):.3g}",
            f"{sample.spread:.0%}",
            f"{sign} {goal.must:g}",
            f"{sign} {goal.aim:g}",
            met,
        )
    return table


def metrics_table(book: Book) -> Table:
    """Return every number that was measured."""
    table = Table(title="measured")
    for heading in ("metric", "median", "min", "max", "spread"):
        table.add_column(heading, justify="left" if heading == "metric" else "right")
    for metric in sorted(book.metrics):
        sample = book.sample(metric)
        table.add_row(
            metric, *_numbers(sample.median, min(sample.values), max(sample.values)), f"{sample.spread:.0%}"
        )
    return table


def _numbers(*values: float) -> Iterator[str]:
    for value in values:
        yield f"{value:,.0f}" if abs(value) >= 100 else f"{value:.4g}"
