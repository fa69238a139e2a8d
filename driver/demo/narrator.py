"""Tells the story: headings, steps, what programs printed, and the final table.

Part of `driver.demo`; imports rich and the tally. On a terminal it is drawn, in a pipe it is plain text.
"""

import re
import textwrap
from collections.abc import Sequence
from typing import Final

from rich import box
from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from driver.demo.repository import Commit
from driver.demo.tally import Count, Outcome, Row, wrong

_QUOTE_STYLE: Final = "bright_black"
_INDENT: Final = 5
_HIGHLIGHTS: Final = {
    "cyan": ["operation.started"],
    "green": ["operation.succeeded"],
    "bold yellow": ["operation.unknown", "MAY HAVE HAPPENED", "in_doubt"],
}


class Narrator:
    """Writes to one console. `quiet` consoles make it silent, which is how `--json` runs it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        drawn = "utf" in console.encoding
        self._step, self._bar = ("▸", "│") if drawn else ("-", "|")

    def title(self, text: str, detail: str) -> None:
        """Begin the story."""
        self._line(Text(text, style="bold"))
        self._beside(Text(), Text(detail, style="dim"))

    def act(self, number: int, title: str) -> None:
        """Begin an act."""
        self._console.print()
        if self._console.is_terminal:
            self._console.print(
                Rule(Text(f" {number}  {title} ", style="bold cyan"), align="left", style="cyan")
            )
        else:
            self._line(Text(f"== {number}  {title}"))

    def step(self, text: str) -> None:
        """Say what happens now."""
        self._beside(Text(f" {self._step} ", style="cyan"), Text(text))

    def point(self, text: str) -> None:
        """Say what that means: the line to remember."""
        self._beside(Text(f" {self._step} ", style="bold yellow"), Text(text, style="bold"))

    def quote(self, source: str, text: str) -> None:
        """Show what a program or the journal says, as it says it."""
        for line in text.rstrip().splitlines():
            head = f"{' ' * _INDENT}{source} {self._bar} "
            self._beside(Text(head, style=_QUOTE_STYLE), Text(line.rstrip(), style=_QUOTE_STYLE))

    def command(self, command: str, output: str, *, cropped: bool = False) -> None:
        """Show a command that a person could type now, and what it printed; `cropped`, a long line is cut."""
        self._beside(Text(" " * _INDENT + "$ ", style="bold"), Text(command, style="bold"))
        for line in output.rstrip().splitlines():
            self._printed(line.rstrip(), cropped=cropped)

    def _printed(self, line: str, *, cropped: bool) -> None:
        """Show a line of a program's. A terminal gets no line that is wider than itself."""
        width = self._console.width - _INDENT if self._console.is_terminal else len(line) + 1
        for part in _cut(line, width) if cropped else _wrapped(line, width):
            text = Text(" " * _INDENT + part, style=_QUOTE_STYLE)
            for style, words in _HIGHLIGHTS.items():
                text.highlight_words(words, style)
            self._line(text)

    def history(self, commits: Sequence[Commit]) -> None:
        """Show the repository's history, the witness."""
        self._console.print()
        self._line(Text("What really happened: git log --format='%h %s'", style="bold"))
        for commit in commits:
            self._line(Text(f"     {commit.short} {commit.subject}"))

    def table(self, outcomes: Sequence[Outcome]) -> None:
        """Show what was counted, beside what was asked for."""
        table = Table(
            box=box.ROUNDED if self._console.is_terminal else box.ASCII,
            title="Effects, counted in the repository",
            title_justify="left",
            title_style="bold",
        )
        for heading in ("act", "driver"):
            table.add_column(heading, overflow="fold")
        for heading in ("asked", "commits", "receipts"):
            table.add_column(heading, justify="right")
        table.add_column("the driver says")
        for outcome in outcomes:
            table.add_row(*_cells(outcome.row))
        self._console.print()
        self._console.print(table)

    def verdict(self, outcomes: Sequence[Outcome]) -> None:
        """Say whether the counts are those that the story promises."""
        found = wrong(outcomes)
        for count in found:
            self._line(Text(f"WRONG: {_said(count)}", style="bold red"))
        if not found:
            counts = sum(len(outcome.row.counts) + len(outcome.checks) for outcome in outcomes)
            self._line(Text(f"All {counts} counts are as promised.", style="bold green"))

    def onward(self, *ways: tuple[str, str]) -> None:
        """Say where to go from here: each with what it is."""
        self._console.print()
        width = max(len(way) for way, _ in ways)
        for number, (way, what) in enumerate(ways):
            head = "      " if number else "Next: "
            self._beside(Text(f"{head}{way:<{width}}  ", style="bold"), Text(what))

    def _beside(self, head: Text, text: Text) -> None:
        """Show a text behind its head; what a terminal has no room for goes on beside it."""
        if not self._console.is_terminal:
            self._line(Text.assemble(head, text))
            return
        made = Table.grid()
        made.add_column(width=head.cell_len, no_wrap=True)
        made.add_column(overflow="fold")
        made.add_row(head, text)
        self._console.print(made)

    def _line(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)


def _cut(line: str, width: int) -> list[str]:
    return [line if len(line) <= width else f"{line[: width - 1]}…"]


def _wrapped(line: str, width: int) -> list[str]:
    """Wrap a line of labelled text, so that the label stands alone in its column."""
    label = re.match(r" *(\S+ {2,})?", line)
    hanging = " " * (label.end() if label else 0)
    return textwrap.wrap(
        line, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    ) or [""]


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 commit`, `2 commits`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _cells(row: Row) -> tuple[Text, ...]:
    style = "bold red" if row.doubled else "bold green"
    return (
        Text(row.act),
        Text(row.driver),
        Text(str(row.asked)),
        Text(str(row.commits.found), style=style),
        Text(str(row.receipts.found)),
        Text(row.known),
    )


def _said(count: Count) -> str:
    return f"{count.what}: {count.found}, and must be {count.expected}"
