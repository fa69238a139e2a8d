"""`effectd ops --watch`: a list that stays as it is now, for as long as somebody looks.

Part of `driver.cli`; imports rich and its siblings. On a terminal the list is drawn anew; elsewhere each
operation that has changed is a line (with `--json` the API's own object). A daemon that restarts is waited
for.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import Final, TypeAlias

import click
from rich.console import Group, RenderableType
from rich.live import Live

from driver.cli import views, words
from driver.cli.client import LocalClient, Parameters, Stopping, Unreachable
from driver.cli.output import console, show
from driver.cli.replies import Operation, Page

INTERVAL_S: Final = 1.0
"""Between two looks: ages move without events, so a list is not read only when something happens."""

Draw: TypeAlias = Callable[[Page[Operation]], Iterable[RenderableType]]
Known: TypeAlias = Mapping[str, Operation]


def watch(client: LocalClient, parameters: Parameters, draw: Draw, *, as_json: bool) -> None:
    """Show the list until Ctrl-C, its clean end. Raises what the client does at the first look."""
    screen = console()
    live = Live(console=screen, auto_refresh=False, vertical_overflow="crop")
    drawn = screen.is_terminal and not as_json
    holding: AbstractContextManager[object] = live if drawn else nullcontext()
    known: Known = {}
    try:
        with holding:
            for text in _looks(client, parameters):
                page = client.parse(Page[Operation], text)
                if drawn:
                    live.update(Group(*draw(page)), refresh=True)
                else:
                    known = _tell(known, page, json.loads(text)["items"] if as_json else None)
    except KeyboardInterrupt:
        return


def _looks(client: LocalClient, parameters: Parameters) -> Iterator[bytes]:
    """Yield the list again and again; once it was there, whatever the daemon does meanwhile."""
    yield client.get("/v1/operations", parameters)
    away = False
    while True:
        time.sleep(INTERVAL_S)
        try:
            text = client.get("/v1/operations", parameters)
        except (Unreachable, Stopping) as error:
            if not away:
                click.echo(f"The daemon went away; waiting for it. {error.format_message()}", err=True)
            away = True
            continue
        if away:
            click.echo("The daemon is back.", err=True)
        away = False
        yield text


def _tell(before: Known, page: Page[Operation], raw: Iterable[Mapping[str, object]] | None) -> Known:
    """Write a line for each operation that is new or has changed, oldest first; return what is known now."""
    now = {item.operation_id: item for item in page.items}
    changed = [item.operation_id for item in page.items if before.get(item.operation_id) != item][::-1]
    if raw is not None:
        objects = {item["operation_id"]: item for item in raw}
        for operation_id in changed:
            click.echo(json.dumps(objects[operation_id]))
        return now
    show(_line(now[operation_id]) for operation_id in changed)
    if not page.truncated:  # else it may only have been pushed off the page's end
        gone = before.keys() - now.keys()
        clock = words.moment(datetime.now(UTC))
        show(views.line(f"{clock}  {operation_id}  no longer listed") for operation_id in sorted(gone))
    return now


def _line(item: Operation) -> RenderableType:
    effect = "" if item.ended_at is None else f"  effect {item.effect}"
    why = "" if item.reason is None else f"  {item.reason}"
    clock = words.moment(item.ended_at or item.started_at or item.accepted_at)
    return views.line(f"{clock}  {item.operation_id}  {item.tool}  {item.state}{effect}{why}")
