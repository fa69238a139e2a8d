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
from rich.text import Text

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
    """Write each rendering on lines of its own, as it comes; the terminal wraps a long line of text."""
    screen = console()
    for rendering in renderings:
        screen.print(rendering, soft_wrap=isinstance(rendering, Text))


def write_json(value: JsonValue) -> None:
    """Write one JSON document for machines, in ASCII."""
    click.echo(json.dumps(value, indent=2))
