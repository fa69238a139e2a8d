"""What `effectd verify` finds, and how a check looks at a table: in bounded pages, whatever is in its rows.

Part of `store`; imports its own modules. A row that makes no sense becomes a finding, and the look goes on
behind it. Only SQLite's own errors leave a page.

What a finding says may be shown to anybody: it names identities, digests and times, never contents.
"""

import math
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from store.connection import lossless_text
from store.head import Ledger
from store.located import Row
from store.view import View

PAGE: Final = 256
"""Rows that one page of a check looks at: about 5 ms between two commits."""
FINDINGS_MAX: Final = 1_000
"""A journal with more than this is not described any better by a longer list."""
PROBLEM_CHARS_MAX: Final = 1_000
"""A value that is damaged may be of any length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong."""

    check: str
    subject: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far one check has come, in its own units: rows, or events."""

    check: str
    done: int
    total: int | None


Report: TypeAlias = Callable[[Progress], None]
"""Told of the progress, as often as there is any."""


class Check(Protocol):
    """One kind of look at the whole journal."""

    name: str
    findings: list[Finding]

    def page(self, view: View) -> Progress | None:
        """Look at the next page. None at the end."""
        ...


def unreadable(error: Exception) -> str:
    """Return what a finding says of a value that something choked on: never the value itself."""
    return printable(f"it cannot be read: {type(error).__name__}: {error}")


class Finder:
    """Whatever finds something."""

    name = ""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def found(self, subject: object, problem: str) -> None:
        """Add a finding, while there is room."""
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(
                Finding(check=self.name, subject=printable(subject), problem=printable(problem))
            )


def printable(value: object) -> str:
    """Return what a finding shows: not too long, and with bytes that are no text escaped."""
    return str(value)[:PROBLEM_CHARS_MAX].encode("utf-8", "backslashreplace").decode()


def rows_of(
    ledger: Ledger, statement: str, parameters: tuple[object, ...]
) -> tuple[tuple[str, ...], list[Row]]:
    """Return the columns and the rows of a statement, whatever bytes its texts are."""
    connection = ledger.connection
    usual = connection.text_factory
    try:
        # some ten times as fast as `lossless_text`, which is a call for each text
        connection.text_factory = str
        try:
            return _fetched(ledger.execute(statement, parameters))
        except sqlite3.OperationalError:  # a text that is none, or an error that comes again
            connection.text_factory = lossless_text
            return _fetched(ledger.execute(statement, parameters))
    finally:
        connection.text_factory = usual


def _fetched(cursor: sqlite3.Cursor) -> tuple[tuple[str, ...], list[Row]]:
    return tuple(item[0] for item in cursor.description), cursor.fetchall()


class Paged(Finder):
    """A check over one table, in the order of its rowid."""

    statement = ""
    view: View
    """The journal as of the present page."""

    def __init__(self) -> None:
        super().__init__()
        self.done = 0
        self.after = 0
        self._cursor: float = -math.inf  # a damaged rowid may be below 0

    def page(self, view: View) -> Progress | None:
        """Look at the next page. None at the end."""
        self.view = view
        _, rows = rows_of(view.ledger, self.statement, (self._cursor, PAGE))
        for row in rows:
            try:
                self.look(row)
            except Exception as error:  # noqa: BLE001 - whatever a damaged row leads to is a finding
                self.found(f"row {row[0]}", unreadable(error))
            self.after = self._cursor = row[0]
        self.done += len(rows)
        if len(rows) < PAGE:
            self.end()
            return None
        return Progress(check=self.name, done=self.done, total=self.total())

    def look(self, row: Row) -> None:
        """Look at one row."""
        raise AssertionError(row)

    def end(self) -> None:
        """Look at the whole, after the last page."""

    def total(self) -> int | None:
        """How many rows there are, where that is known without counting."""
        return None

    def compare(self, subject: str, kept: Mapping[str, object], wanted: Mapping[str, object]) -> None:
        """Find each member that is not what an event says."""
        for name, value in wanted.items():
            if kept[name] != value:
                self.found(subject, f"its {name} is {kept[name]!r}, and its event says {value!r}")
