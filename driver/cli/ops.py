"""`effectd ops`, `show` and `runs`: what was called, and what may have happened.

Part of `driver.cli`.

    click.ClickException
     └── NoOperation   1   `show` was given a command that is no tool call, or was refused
"""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import click
from rich.console import RenderableType

from driver.cli import completion, doors, views
from driver.cli.client import LocalClient, Refused
from driver.cli.failures import EXIT_REFUSED
from driver.cli.options import config_option, json_option
from driver.cli.output import show as write
from driver.cli.output import write_json
from driver.cli.paging import cursor_option, limit_option, show_page, write_more
from driver.cli.plain import plain
from driver.cli.replies import CommandReply, Operation, Page, Run, Story
from driver.cli.segments import segment
from driver.cli.story import story_lines
from driver.cli.watch import watch
from driver.local.errors import Code
from driver.local.queries import REASONS
from store.lifecycle import Effect, State

_OPERATION_ID: Final = re.compile(r"op_[0-9a-f]{32}")
_OPERATION_ID_PREFIX: Final = "op_"


class NoOperation(click.ClickException):
    """The command exists, and is no tool call, or was refused."""

    exit_code = EXIT_REFUSED

    def __init__(self, command_id: str, command: CommandReply) -> None:
        self.command = command
        before = (command.receipt_seq or command.accepted_seq or 1) - 1
        text = (
            f"the command {command_id} was refused, and nothing was called: see why"
            if command.kind is None
            else f"the command {command_id} is a {command.kind}, which has no operation: "
            "see what became of it"
        )
        super().__init__(plain(f"{text} with 'effectd tail --after {before}'"))


@click.command()
@click.option("--unsettled", is_flag=True, help="Those that may have happened, and nobody knows.")
@click.option("--run", "run", metavar="RUN", shell_complete=completion.runs, help="Those of one run.")
@click.option(
    "--state",
    type=click.Choice([state.value for state in State]),
    metavar="STATE",
    help=f"Those in this state: {', '.join(State)}.",
)
@click.option(
    "--effect", type=click.Choice([effect.value for effect in Effect]), help="Those with this effect."
)
@click.option("--tool", metavar="PROVIDER/TOOL", help="Calls of one tool.")
@click.option(
    "--reason", type=click.Choice(REASONS), metavar="REASON", help="Those that ended for this reason."
)
@click.option("--watch", "watching", is_flag=True, help="Stay, and show what changes, until Ctrl-C.")
@limit_option
@cursor_option
@config_option
@json_option
def ops(
    config_file: Path,
    *,
    as_json: bool,
    unsettled: bool,
    watching: bool,
    limit: int,
    **filters: str | None,
) -> None:
    """List operations, newest first.

    `effectd ops --unsettled` is the one to type when something went wrong: it lists what may have happened,
    how sure that is, since when, why, and what to do next. With --watch a terminal shows the list as it is,
    and a pipe gets a line for each change, across restarts of the daemon.
    """
    parameters: dict[str, str | int | bool] = {"limit": limit, "unsettled": unsettled}
    parameters |= {name: value for name, value in filters.items() if value is not None}
    narrowed = len(parameters) > len(("limit", "unsettled"))
    draw = partial(_listed, unsettled=unsettled, filtered=narrowed, flags=doors.flags(config_file))
    with doors.inspect(config_file) as client:
        if watching:
            watch(client, parameters, draw, as_json=as_json)
            return
        text = client.get("/v1/operations", parameters)
        if as_json:
            write_json(json.loads(text))
            return
        page = client.parse(Page[Operation], text)
    write(draw(page))
    write_more(page.next)


def _listed(
    page: Page[Operation], *, unsettled: bool, filtered: bool, flags: str
) -> Iterator[RenderableType]:
    """Yield a page of operations as a person sees it now."""
    now = datetime.now(UTC)
    if unsettled:
        yield from views.unsettled_lines(page, now, flags)
    elif page.items:
        yield views.operation_table(page, now)
    else:
        yield views.no_operations_line(page, filtered=filtered)


@click.command()
@click.argument("wanted", metavar="ID", shell_complete=completion.operations)
@config_option
@json_option
def show(config_file: Path, wanted: str, *, as_json: bool) -> None:
    """Tell the whole story of one operation. ID is its own, or that of its command."""
    with doors.inspect(config_file) as client:
        operation_id = operation_of(client, wanted)
        text = client.get(f"/v1/operations/{segment(operation_id)}")
        if as_json:
            write_json(json.loads(text))
            return
        told = client.parse(Story, text)
    write(story_lines(told, datetime.now(UTC), doors.flags(config_file)))


def operation_of(client: LocalClient, wanted: str) -> str:
    """Return the id of an operation that was named by it, or by the id of its command.

    Raises `NoOperation`, and what the client raises.
    """
    if _OPERATION_ID.fullmatch(wanted):
        return wanted
    try:
        command = client.read(CommandReply, f"/v1/commands/{segment(wanted)}")
    except Refused as error:
        if error.problem.code == Code.COMMAND_NOT_FOUND and wanted.startswith(_OPERATION_ID_PREFIX):
            return wanted  # cut off, or mistyped: it is said of an operation that there is none
        raise
    if command.operation_id is None:
        raise NoOperation(wanted, command)
    return command.operation_id


@click.command()
@limit_option
@cursor_option
@config_option
@json_option
def runs(config_file: Path, *, as_json: bool, limit: int, cursor: str | None) -> None:
    """List runs, newest first, with how many of their operations are unsettled."""
    show_page(config_file, "/v1/runs", Page[Run], _runs, limit=limit, cursor=cursor, as_json=as_json)


def _runs(page: Page[Run]) -> Iterator[RenderableType]:
    yield views.run_table(page, datetime.now(UTC)) if page.items else views.line("No runs yet.")
