"""How the plane's answers look on a terminal, and as JSON. Part of `driver.cli`."""

from collections.abc import Iterator, Sequence
from typing import Final

import click
from pydantic import JsonValue
from rich.console import RenderableType

from driver.cli import words
from driver.cli.output import show, write_json
from driver.cli.plane_client import Reply
from driver.cli.views import labelled, line, table, value_text

COMMAND_COLUMNS: Final = (
    *("command_id", "run_id", "kind", "driver_id", "state", "effect", "in_doubt", "created_at"),
)
RUN_COLUMNS: Final = ("run_id", "state", "commands", "open", "in_doubt")
DRIVER_COLUMNS: Final = ("driver_id", "connected", "state", "journal_id", "acked_seq", "seen_at")

_FACTS: Final = ("message", "code", "error", "result", "receipt")
"""Members of a receipt's `data` that somebody who waits for it wants to read."""


def show_command(view: Reply, *, as_json: bool) -> None:
    """Print one command: what is known of it, and what its receipt says; or all of it as JSON."""
    if as_json:
        write_json(view)
        return
    doubt = "; nobody knows yet whether its effect happened" if view["in_doubt"] else ""
    effect = f", effect {view['effect']}" if view["effect"] else ""
    show([line(f"{view['command_id']}: {view['state']}{effect}{doubt}"), *_facts(view)])


def _facts(view: Reply) -> Iterator[RenderableType]:
    """Yield what the receipt says, one line each; nothing before there is one."""
    if view["operation_id"] is not None:
        yield labelled("operation", str(view["operation_id"]))
    if view["receipt"] is None:
        return
    data: dict[str, JsonValue] = view["receipt"]["data"]
    if isinstance(reason := data.get("reason"), str):
        yield labelled("why", words.reason(reason))
    for name in _FACTS:
        if (value := data.get(name)) is not None:
            yield labelled(name, value if isinstance(value, str) else value_text(value))


def show_page(page: Reply, columns: Sequence[str], *, as_json: bool) -> None:
    """Print one page of a list, and where the next begins; or all of it as JSON."""
    if as_json:
        write_json(page)
        return
    if page["items"]:
        rows = [[_cell(item[column]) for column in columns] for item in page["items"]]
        show([table(rows, columns)])
    else:
        show([line("None yet.")])
    if page["truncated"]:
        click.echo(f"there is more: --cursor {page['next']}", err=True)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)
