"""What commands that show a page of a list have in common.

Part of `driver.cli`.
"""

import click

from driver.cli.output import show
from driver.cli.views import more_line
from driver.local.queries import LIMIT_DEFAULT, LIMIT_MAX

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
