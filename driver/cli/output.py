"""What commands write to standard output: renderings for people, JSON for machines.

Part of `driver.cli`; imports click and rich. Colour is for terminals only, and NO_COLOR is honoured. Text
that somebody else wrote goes through `driver.cli.plain` before it gets here.
"""

import json
import sys
from collections.abc import Iterable
from typing import Final

import click
from pydantic import JsonValue
from rich.console import Console, RenderableType

PIPE_COLUMNS: Final = 10_000
"""Wider than any table: where nobody looks, no cell is wrapped or cut."""


def console() -> Console:
    """Return a console on standard output as it is now."""
    return Console(
        file=sys.stdout,
        width=None if sys.stdout.isatty() else PIPE_COLUMNS,
        highlight=False,
        markup=False,
        emoji=False,
    )


def show(renderings: Iterable[RenderableType]) -> None:
    """Write each rendering on lines of its own, as soon as it comes."""
    screen = console()
    for rendering in renderings:
        screen.print(rendering)


def write_lines(lines: Iterable[Text]) -> None:
    """Write lines for people, each made of `text`; a long one is left to the terminal to wrap."""
    out = console()
    for line in lines:
        out.print(line, soft_wrap=True)


def write_json(value: JsonValue) -> None:
    """Write one JSON document for machines, in ASCII."""
    click.echo(json.dumps(value, indent=2))
