"""What commands that show a page of a list have in common.

Part of `driver.cli`.
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import click
from rich.console import RenderableType

from driver.cli import doors
from driver.cli.client import Parameters
from driver.cli.output import show, write_json
from driver.cli.replies import Page
from driver.cli.views import more_line
from driver.local.queries import LIMIT_DEFAULT, LIMIT_MAX

T = TypeVar("T")

limit_option = click.option(
    "--limit",
    type=click.IntRange(1, LIMIT_MAX),
    default=LIMIT_DEFAULT,
    show_default=True,
    help="At most so many.",
)
"""`--limit N`, as the parameter `limit`."""

cursor_option = click.option(
    "--cursor", metavar="CURSOR", help="Go on where an earlier page ended (its `next`)."
)
"""`--cursor CURSOR`, as the parameter `cursor`; None for the first page."""


def write_more(cursor: str | None) -> None:
    """Say how to see the rest of a list, where there is a rest."""
    if cursor is not None:
        show([more_line(cursor)])


def show_page(
    config_file: Path,
    path: str,
    of: type[Page[T]],
    draw: Callable[[Page[T]], Iterable[RenderableType]],
    *,
    limit: int,
    cursor: str | None,
    as_json: bool,
) -> None:
    """Read a page of a list from the daemon, and show it: as JSON, or as `draw` has it.

    Raises what the client does.
    """
    parameters: Parameters = {"limit": limit} if cursor is None else {"limit": limit, "cursor": cursor}
    with doors.inspect(config_file) as client:
        text = client.get(path, parameters)
        if as_json:
            write_json(json.loads(text))
            return
        page = client.parse(of, text)
    show(draw(page))
    write_more(page.next)
