"""How the plane's answers look on a terminal, and as JSON. Part of `driver.cli`."""

import json
from collections.abc import Sequence
from typing import Final

import click
from rich.table import Table

from driver.cli.output import show, write_json
from driver.cli.plain import plain
from driver.cli.plane_client import Reply

COMMAND_COLUMNS: Final = (
    *("command_id", "run_id", "kind", "driver_id", "state", "effect", "in_doubt", "created_at"),
)
RUN_COLUMNS: Final = ("run_id", "state", "commands", "open", "in_doubt")
DRIVER_COLUMNS: Final = ("driver_id", "connected", "state", "journal_id", "acked_seq", "seen_at")


def show_command(view: Reply, *, as_json: bool) -> None:
    """Print one command: what is known of it in a line, and its receipt as it came; or all of it as JSON."""
    if as_json:
        write_json(view)
        return
    doubt = "; nobody knows yet whether its effect happened" if view["in_doubt"] else ""
    effect = f", effect {view['effect']}" if view["effect"] else ""
    click.echo(plain(f"{view['command_id']}: {view['state']}{effect}{doubt}"))
    if view["receipt"] is not None:
        click.echo(plain(json.dumps(view["receipt"], ensure_ascii=False)))


def show_page(page: Reply, columns: Sequence[str], *, as_json: bool) -> None:
    """Print one page of a list as a table, and where the next begins; or all of it as JSON."""
    if as_json:
        write_json(page)
        return
    table = Table(*columns, box=None)
    for item in page["items"]:
        table.add_row(*(plain(_cell(item[column])) for column in columns))
    show([table])
    if page["truncated"]:
        click.echo(f"there is more: --cursor {page['next']}", err=True)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)
