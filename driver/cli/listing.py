"""A list that fits where it is shown: a table where there is room, else a few lines for each entry.

Part of `driver.cli`; imports rich's values. No cell is ever cut. What the first column holds is what somebody
copies: where there is no room for the table it stands on a line of its own.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_BETWEEN: Final = "  "
_INDENT: Final = 2
_ANYTHING: Final = 10_000
"""Columns: wider than any table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Rows under their headings; the columns named in `right` are numbers."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Text]]
    right: Container[str] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table, or its rows as lines where the widest row does not fit."""
        table = self._table()
        wanted = Measurement.get(console, options.update(max_width=_ANYTHING), table).maximum
        if wanted <= options.max_width:
            yield table
            return
        for row in self.rows:
            yield row[0]
            yield Padding(Text(_BETWEEN).join(self._facts(row)), (0, 0, 0, _INDENT))

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for heading in self.headings:
            table.add_column(heading, justify="right" if heading in self.right else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        return table

    def _facts(self, row: Sequence[Text]) -> list[Text]:
        """Return what an entry's second line tells: every cell that says something, under its heading."""
        return [
            Text.assemble((f"{heading.lower()}=", "dim"), cell)
            for heading, cell in list(zip(self.headings, row, strict=True))[1:]
            if cell.plain not in ("", "-")
        ]
