"""How the story looks: drawn on a terminal, and plain in a pipe."""

import io

import pytest
from rich.console import Console

from driver.demo.narrator import Narrator, counted

PRINTED = "  why         " + "because of a long story " * 10


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_terminal_gets_no_line_that_is_wider_than_itself(width: int) -> None:
    """What a program printed is wrapped below its label, or cut."""
    told = io.StringIO()
    narrator = Narrator(Console(file=told, width=width, force_terminal=True, color_system=None))
    narrator.command("effectd ops", PRINTED)
    narrator.command("effectd tail", PRINTED, cropped=True)
    narrator.command('effectd reconcile op_1 --effect occurred --note "a branch is there"', "")
    lines = told.getvalue().splitlines()
    assert max(len(line) for line in lines) <= width
    assert all(line.startswith(" " * 19) for line in lines[2:4]) or width == 200


def test_a_pipe_gets_each_line_whole() -> None:
    """Where nobody looks, nothing is wrapped, cut or coloured."""
    told = io.StringIO()
    Narrator(Console(file=told, width=40)).command("effectd tail", PRINTED, cropped=True)
    assert told.getvalue().splitlines() == ["     $ effectd tail", "     " + PRINTED.rstrip()]


def test_a_stream_without_unicode_gets_ascii() -> None:
    """A terminal of another age breaks nothing."""
    told = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    narrator = Narrator(Console(file=told, width=80))
    narrator.act(1, "title")
    narrator.step("step")
    narrator.quote("driver", "said")
    told.flush()


def test_numbers_agree_with_their_nouns() -> None:
    """One commit, two commits, no commits."""
    assert [counted(number, "commit") for number in (0, 1, 2)] == ["0 commits", "1 commit", "2 commits"]
