"""Sentences for a person: a terminal wraps them between words, and a pipe gets each on one line.

Part of `driver.cli`; imports rich's values.
"""

from typing import Final

from rich.table import Table
from rich.text import Text

from driver.cli.plain import plain

BY_HAND: Final = "To see why a server does not answer, start it by hand: what it prints is not shown here."
_WORD_WIDTH: Final = 9


def paragraph(text: str) -> Table:
    """Return some sentences."""
    made = Table.grid()
    made.add_column(overflow="fold")
    made.add_row(Text(plain(text)))
    return made


def remark(word: str, style: str, text: str) -> Table:
    """Return a remark behind a word that says what kind it is; what is wrapped stays beside it."""
    made = Table.grid()
    made.add_column(width=_WORD_WIDTH, no_wrap=True)
    made.add_column(overflow="fold")
    made.add_row(Text(word, style=style), Text(plain(text)))
    return made
