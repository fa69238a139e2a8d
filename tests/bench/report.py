"""What a run prints. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table

from tests.bench.book import Book, Sample
from tests.bench.goals import GOALS, Goal


@dataclass(frozen=True, slots=True)
class Verdict:
    """A goal, and what a run measured of it."""

    goal: Goal
    sample: Sample

    @property
    def passes_gate(self) -> bool:
        """Whether the short form lets it pass."""
        return self.goal.passes_gate(self.sample.median)

    def cells(self) -> tuple[str, ...]:
        """Return a row: what, measured, min..max, spread, must, aim, reached."""
        goal, sample = self.goal, self.sample
        return (
            goal.title,
            f"{number(sample.median)}{goal.unit}",
            f"{number(min(sample.values))} .. {number(max(sample.values))}",
            f"{sample.spread:.0%}",
            f"{goal.sign} {number(goal.must)}",
            f"{goal.sign} {number(goal.aim)}",
            goal.word(sample.median),
        )


HEADINGS = ("what", "measured", "min .. max", "spread", "must", "aim", "reached")


def verdicts(book: Book) -> Sequence[Verdict]:
    """Return those goals that the run measured."""
    found = ((goal, goal.measured(book)) for goal in GOALS)
    return [Verdict(goal, sample) for goal, sample in found if sample is not None]


def goals_table(found: Sequence[Verdict]) -> Table:
    """Return each goal, with what became of it."""
    table = _table("goals: the median of what each round measured", HEADINGS)
    for verdict in found:
        table.add_row(*verdict.cells())
    return table


def gate_lines(found: Sequence[Verdict]) -> Iterator[str]:
    """Say which gates are missed, and which goals are missed though their gates, for the noise, are not."""
    gated = [verdict for verdict in found if verdict.goal.gate_limit is not None]
    missed = [verdict for verdict in gated if not verdict.passes_gate]
    yield f"gates: {len(gated) - len(missed)} held, {len(missed)} missed"
    for verdict in missed:
        yield f"  gate missed: {_held_to(verdict, verdict.goal.gate_limit or 0.0)}"
    for verdict in gated:
        goal = verdict.goal
        if verdict.passes_gate and not goal.meets(verdict.sample.median, goal.must):
            yield f"  goal missed, gate held: {_held_to(verdict, goal.must)}"


def _held_to(verdict: Verdict, limit: float) -> str:
    goal = verdict.goal
    return f"{goal.title}: {number(verdict.sample.median)} of {goal.sign} {number(limit)}{goal.unit}"


METRIC_HEADINGS = ("metric", "median", "min", "max", "spread")


def metric_rows(book: Book) -> Iterator[tuple[str, ...]]:
    """Yield a row for each metric."""
    for metric in sorted(book.metrics):
        sample = book.sample(metric)
        numbers = (sample.median, min(sample.values), max(sample.values))
        yield (metric, *map(number, numbers), f"{sample.spread:.0%}")


def metrics_table(book: Book) -> Table:
    """Return every number that was measured."""
    table = _table("measured", METRIC_HEADINGS)
    for row in metric_rows(book):
        table.add_row(*row)
    return table


def _table(title: str, headings: Sequence[str]) -> Table:
    table = Table(title=title)
    for heading in headings:
        table.add_column(heading, justify="left" if heading == headings[0] else "right")
    return table


def number(value: float) -> str:
    """Write a number with three digits, or all that stand before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def noise(book: Book) -> float:
    """Return the run's noise: the middle one of the spreads of all rates."""
    return Sample([book.sample(metric).spread for metric in book.metrics if ".rate" in metric]).median
