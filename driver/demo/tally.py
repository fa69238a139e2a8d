"""What the demo holds itself to: every count that it shows beside the count that it must be.

Part of `driver.demo`, pure: imports pydantic's word for JSON. The exit code is decided here and nowhere else.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

EXIT_TRUE: Final = 0
EXIT_WRONG: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """One number that was counted, and the one that the story promises."""

    what: str
    expected: int
    found: int

    @property
    def right(self) -> bool:
        """Whether it is what the story promises."""
        return self.found == self.expected


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One act in the final table. `commits` and `receipts` are counted; the rest is said."""

    act: str
    driver: str
    asked: int
    """How many commits were asked for."""
    commits: Count
    """Commits with the act's subject, counted in the repository."""
    receipts: Count
    """Receipts of the act's command, counted where they arrive."""
    known: str
    """What the driver says about the effect, in one word of its own."""

    @property
    def counts(self) -> tuple[Count, ...]:
        """The numbers of this row that must be right."""
        return (self.commits, self.receipts)

    @property
    def doubled(self) -> bool:
        """Whether more was done than was asked for."""
        return self.commits.found > self.asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an act ends with: its row of the table, and what else was counted on the way."""

    row: Row
    checks: Sequence[Count] = ()


def wrong(outcomes: Iterable[Outcome]) -> tuple[Count, ...]:
    """Return every count that is not what the story promises, in order."""
    return tuple(
        count for outcome in outcomes for count in (*outcome.row.counts, *outcome.checks) if not count.right
    )


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """Return 0 where every act was played and every count is right, else 1."""
    return EXIT_TRUE if outcomes and not wrong(outcomes) else EXIT_WRONG


def table(outcomes: Sequence[Outcome]) -> dict[str, JsonValue]:
    """Return the final table for machines: a row for each act, and whether everything is as promised."""
    return {
        "acts": [_as_json(outcome) for outcome in outcomes],
        "wrong": [count.what for count in wrong(outcomes)],
        "right": exit_code(outcomes) == EXIT_TRUE,
    }


def _as_json(outcome: Outcome) -> dict[str, JsonValue]:
    row = outcome.row
    counts: list[JsonValue] = [
        {"what": count.what, "expected": count.expected, "found": count.found}
        for count in (*row.counts, *outcome.checks)
    ]
    return {
        "act": row.act,
        "driver": row.driver,
        "asked": row.asked,
        "commits": row.commits.found,
        "receipts": row.receipts.found,
        "known": row.known,
        "counts": counts,
    }
