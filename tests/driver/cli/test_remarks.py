"""Sentences for a person: no word is cut where a line ends."""

import io

import pytest
from rich.console import Console, RenderableType

from driver.cli.remarks import paragraph, remark

TEXT = "a shell puts them there from variables, and other programs of the same user can see them"


def shown(made: RenderableType, width: int) -> list[str]:
    """Return the lines on a terminal, or a pipe, of this width."""
    told = io.StringIO()
    Console(file=told, width=width, highlight=False).print(made)
    return [line.rstrip() for line in told.getvalue().splitlines()]


@pytest.mark.parametrize("width", [30, 40, 80])
def test_a_terminal_wraps_between_words(width: int) -> None:
    """And what goes on stands beside its beginning, not below the word that it stands behind."""
    for made, indent in ((paragraph(TEXT), 0), (remark("note", "yellow", TEXT), 9)):
        lines = shown(made, width)
        assert max(map(len, lines)) <= width
        assert " ".join(line[indent:] for line in lines) == TEXT
        assert all(not line[:indent].strip() for line in lines[1:])


def test_a_pipe_gets_one_line_that_a_terminal_is_safe_from() -> None:
    """What somebody else wrote moves no cursor."""
    assert shown(remark("error", "red", f"{TEXT}\x1b[2J"), 10_000) == [f"error    {TEXT}\\x1b[2J"]
