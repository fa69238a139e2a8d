"""Whether every projection is what the events make of it: the deep part of `effectd verify`.

Part of `store`; imports its own modules. Used by `store.verify`.

It goes in pages, so that a running journal can be looked at between its commits: first the events are
projected once more (`store.rebuild`), up to the newest; then the rows are compared, and before each page of
rows whatever was recorded meanwhile is projected too. Both sides of a page are as of the same event.
"""

import math
import sqlite3
from collections.abc import Iterator
from typing import Final

from store.findings import Finder, Progress, rows_of, unreadable
from store.head import Ledger
from store.located import Row
from store.rebuild import PROJECTIONS, Rebuilt, Unprojectable
from store.view import View

EVENTS: Final = 128
"""Events that one page projects, about 10 ms between two commits."""
EVENTS_AT_REST: Final = 512
"""Likewise, where nobody waits for a commit: more rows are written at a time."""
ROWS: Final = 1_024
"""Rows that one page compares."""
RESTARTS_MAX: Final = 3
"""Times that it begins anew, where events that were projected already are erased meanwhile."""
_KEYS: Final = {"runs": 1, "commands": 1, "operations": 1, "run_links": 2, "attempts": 2, "evidence": 3}
"""How many of a table's first columns are its key."""
_CONTENTS: Final = frozenset({"receipt", "metadata", "outcome"})
"""Columns whose values a finding does not show."""


class Comparison(Finder):
    """Every row is what the events make of it, and none is missing. `close` it."""

    name = "projections"

    def __init__(self, *, at_rest: bool = False) -> None:
        super().__init__()
        self._events = EVENTS_AT_REST if at_rest else EVENTS
        self._rebuilt: Rebuilt | None = None
        self._rewritten = 0
        self._restarts = 0
        self._tables = list(PROJECTIONS)
        self._cursor: tuple[float, ...] = ()
        self._compared = 0

    @property
    def rebuilt(self) -> Rebuilt | None:
        """The projections as the events make them; None before the first page."""
        return self._rebuilt

    def close(self) -> None:
        """Let go of the temporary database."""
        if self._rebuilt is not None:
            self._rebuilt.close()

    def page(self, view: View) -> Progress | None:
        """Project or compare some more. None at the end. Raises `ScratchFailed`."""
        if self._rebuilt is None or view.ledger.rewritten != self._rewritten:
            if self._restarts > RESTARTS_MAX:
                self.found(
                    "journal", "it was erased from all the while, and could not be compared: try again"
                )
                return None
            self._begin(view)
        assert self._rebuilt is not None
        try:
            return self._page(view, self._rebuilt)
        except Unprojectable as problem:
            self.found("events", str(problem))
        except sqlite3.Error:
            raise  # the journal's own
        except (TypeError, ValueError) as error:  # a row that cannot even be compared is no less wrong
            self.found(self._tables[0], unreadable(error))
        return None

    def _begin(self, view: View) -> None:
        self.close()
        self.findings.clear()
        self._restarts += 1
        self._rewritten = view.ledger.rewritten
        self._tables, self._cursor, self._compared = list(PROJECTIONS), (), 0
        self._rebuilt = Rebuilt(view)

    def _page(self, view: View, rebuilt: Rebuilt) -> Progress | None:
        if rebuilt.follow(view, self._events) == self._events:
            return Progress(check=self.name, done=rebuilt.after, total=view.last_seq)
        if self._tables:
            self._compare(self._tables[0], view.ledger, rebuilt.ledger)
            return Progress(check="comparison", done=self._compared, total=None)
        kept, made = dict(view.counts()), dict(rebuilt.ledger.head.counts)
        if kept != made:
            self.found("journal", f"counts {kept} are kept, and the events make {made}")
        return None

    def _compare(self, table: str, kept: Ledger, made: Ledger) -> None:
        """Compare the next page of a table; go on to the next one behind its last."""
        width = _KEYS[table]
        after = self._cursor or (-math.inf,) * width
        columns, mine = rows_of(kept, f"all_{table}", (*after, ROWS))
        _, theirs = rows_of(made, f"all_{table}", (*after, ROWS))
        # what stands behind the end of a full page may be on the other side's next one
        ends = [rows[-1][:width] for rows in (mine, theirs) if len(rows) == ROWS]
        end = min(ends, default=None)
        if mine == theirs:
            self._compared += len(mine)
            mine = theirs = []
        for key, (mine_, theirs_) in _pairs(mine, theirs, width):
            if end is not None and key > end:
                break
            self._compared += 1
            if mine_ != theirs_:
                self._differ(f"{table} {key if width > 1 else key[0]}", columns, mine_, theirs_)
        if end is None:
            self._tables.pop(0)
        self._cursor = () if end is None else end

    def _differ(self, subject: str, columns: tuple[str, ...], mine: Row | None, theirs: Row | None) -> None:
        if mine is None or theirs is None:
            self.found(
                subject, "no event makes it" if theirs is None else "the events make it, and it is missing"
            )
            return
        for column, kept, made in zip(columns, mine, theirs, strict=True):
            if kept != made and column in _CONTENTS:
                self.found(subject, f"its {column} is not what the events make of it")
            elif kept != made:
                self.found(subject, f"its {column} is {kept!r}, and the events make {made!r}")


def everything(table: str) -> tuple[float, ...]:
    """Return the parameters with which `all_TABLE` yields every row."""
    return (-math.inf,) * _KEYS[table] + (-1,)


def _pairs(
    mine: list[Row], theirs: list[Row], width: int
) -> Iterator[tuple[tuple[int, ...], tuple[Row | None, Row | None]]]:
    """Yield each key in order, with the rows that have it."""
    here = {row[:width]: row for row in mine}
    there = {row[:width]: row for row in theirs}
    for key in sorted(here.keys() | there.keys()):
        yield key, (here.get(key), there.get(key))
