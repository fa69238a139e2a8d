"""`effectd plane`: the reference control plane, and what operators say to it.

Part of `driver.cli`; imports its siblings `plane_*`, the commands and strict JSON.

    click.ClickException
     ├── ServerOption        2   an option of the server before a subcommand
     ├── ToolOrKind          2   neither or both of a tool and another kind
     └── WrongText           2   an option that does not say what it has to
"""

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TextIO, TypeVar

import click
from click.core import ParameterSource

from driver.cli.failures import EXIT_REFUSED
from driver.cli.options import json_option
from driver.cli.plane_bulk import commands_of, send_all
from driver.cli.plane_client import PlaneClient, Reply
from driver.cli.plane_server import made_folder, minted, serve, state_folder
from driver.cli.plane_views import COMMAND_COLUMNS, DRIVER_COLUMNS, RUN_COLUMNS, show_command, show_page
from driver.cli.progress import shown
from driver.cli.segments import segment
from driver.core.commands import ToolCallData
from driver.core.strictjson import NotStrictJson, loads
from store.records import JsonObject

F = TypeVar("F", bound=Callable[..., None])

CALL: Final = ToolCallData.KIND
DEFAULT_ADDRESS: Final = "127.0.0.1:8930"
PORT_MAX: Final = 65_535

_GOOD_ENDS: Final = frozenset({"command.completed", "operation.succeeded"})


class WrongText(click.BadParameter):
    """An option's value that does not say what it has to; `example` would."""

    def __init__(self, fault: str, example: str) -> None:
        super().__init__(f"{fault}, such as {example}")


class ServerOption(click.UsageError):
    """An option of the server stands before a subcommand."""

    def __init__(self, option: str, command: str) -> None:
        super().__init__(f"--{option} is the server's: put the options of {command} behind it")


class ToolOrKind(click.UsageError):
    """`send` was not told what to send."""

    def __init__(self) -> None:
        super().__init__("name the TOOL to call, or another --kind with its --data, and not both")


def _address(_: click.Context, __: click.Parameter, text: str) -> tuple[str, int]:
    host, _colon, port = text.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port, re.ASCII) or int(port) > PORT_MAX:
        fault = f"{text!r} is not HOST:PORT"
        raise WrongText(fault, DEFAULT_ADDRESS)
    return host.removeprefix("[").removesuffix("]"), int(port)


def _json_object(_: click.Context, param: click.Parameter, text: str | None) -> JsonObject | None:
    if text is None:
        return None
    try:
        return loads(text)
    except NotStrictJson as error:
        example = f"--{param.name} {{}}"
        raise WrongText(error.message, example) from None


_file = click.Path(path_type=Path, dir_okay=False)
_url_option = click.option(
    "--url",
    default=f"http://{DEFAULT_ADDRESS}",
    show_default=True,
    envvar="EFFECTD_PLANE_URL",
    show_envvar=True,
    help="Where the plane answers.",
)
_token_option = click.option(
    "--operator-token-file",
    type=_file,
    envvar="EFFECTD_PLANE_OPERATOR_TOKEN_FILE",
    show_envvar=True,
    default=lambda: state_folder() / "operator.token",
    show_default="operator.token in the plane's state folder",
    help="Holds the token that the plane's HTTP API asks for.",
)
_run_option = click.option("--run", metavar="RUN", help="Of this run only.")
_limit_option = click.option("--limit", type=click.IntRange(1, 500), default=100, show_default=True)
_cursor_option = click.option("--cursor", type=int, help="Go on where an earlier page ended (its `next`).")


def plane_options(command: F) -> F:
    """Add what every subcommand takes: where the plane is, the token, and --json."""
    return _url_option(_token_option(json_option(command)))


def page_options(command: F) -> F:
    """Add what every list takes."""
    return _run_option(_limit_option(_cursor_option(command)))


@click.group(invoke_without_command=True)
@click.option("--listen", default=DEFAULT_ADDRESS, show_default=True, callback=_address, metavar="HOST:PORT")
@click.option("--db", type=_file, help="The plane's SQLite file.  [default: plane.db in its state folder]")
@click.option(
    "--token-file", type=_file, help="The drivers' token.  [default: driver.token beside the SQLite file]"
)
@click.option(
    "--operator-token-file",
    type=_file,
    help="The operators' token.  [default: operator.token beside the SQLite file]",
)
@click.pass_context
def plane(
    ctx: click.Context,
    listen: tuple[str, int],
    db: Path | None,
    token_file: Path | None,
    operator_token_file: Path | None,
) -> None:
    """The reference control plane: without a subcommand, serve until SIGTERM or SIGINT.

    Drivers connect to ws://HOST:PORT/driver with the drivers' token; operators, and the subcommands, use the
    HTTP API with theirs. Token files that are not named are made when they are missing. Port 0 takes any free
    port; the address is the first line on standard output.
    """
    if ctx.invoked_subcommand is not None:
        given = [name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
        if given:
            raise ServerOption(given[0].replace("_", "-"), ctx.invoked_subcommand)
        return
    db = db or made_folder() / "plane.db"
    serve(
        listen,
        db,
        token_file or minted(db.with_name("driver.token")),
        operator_token_file or minted(db.with_name("operator.token")),
    )


@plane.command(short_help="Give the plane a command: a call, or another kind.")
@click.argument("tool", required=False)
@click.option("--run", metavar="RUN", required=True, help="The run that it belongs to.")
@click.option("--args", callback=_json_object, metavar="JSON", help="The tool's arguments.  [default: {}]")
@click.option("--id", "command_id", metavar="ID", help="The command's id: the same id is the same command.")
@click.option("--kind", default=CALL, show_default=True, metavar="KIND", help="Another kind of command.")
@click.option(
    "--data", callback=_json_object, metavar="JSON", help="The data of another kind.  [default: {}]"
)
@click.option("--repeat", is_flag=True, help="The call is meant, although it looks like one before.")
@click.option("--resumes", multiple=True, metavar="RUN", help="A run that this run continues.")
@click.option("--parent", metavar="OPERATION", help="The operation that this call's run serves.")
@click.option("--driver", metavar="ID", help="The driver that is meant, where there are several.")
@click.option(
    "--expires-ms", type=click.IntRange(min=1), help="From its arrival until it must be dispatched."
)
@click.option("--wait", is_flag=True, help="Wait for its receipt; exit 1 unless that is a success.")
@plane_options
def send(url: str, operator_token_file: Path, *, as_json: bool, wait: bool, **given: Any) -> None:  # noqa: ANN401 - one for each option
    """Give the plane a command: a call of TOOL (provider/name), or another --kind.

    The plane keeps it, hands it to the driver as soon as that is there, and again until there is a receipt.
    Sending it again with the same --id executes nothing twice.
    """
    with PlaneClient(url, operator_token_file) as client:
        view = client.submit(_command(given))
        if wait:
            view = client.receipt_of(view["command_id"])
    show_command(view, as_json=as_json)
    if wait and view["receipt_kind"] not in _GOOD_ENDS:
        sys.exit(EXIT_REFUSED)


@plane.command("send-all", short_help="Give the plane all commands of a file.")
@click.argument("file", type=click.File(encoding="utf-8"))
@click.option("--wait", is_flag=True, help="Wait for all receipts; exit 1 unless each is a success.")
@plane_options
def send_many(url: str, operator_token_file: Path, *, as_json: bool, file: TextIO, wait: bool) -> None:
    """Give the plane all commands of FILE (`-`: standard input), a line of JSON each, as its API has them.

    Each needs a `command_id`: a file that was sent in part, or twice, executes nothing twice.
    """
    commands = commands_of(file)
    with PlaneClient(url, operator_token_file) as client, shown("sending", quiet=as_json) as report:
        views = send_all(client, commands, report, wait=wait)
    page = {"items": views, "next": None, "truncated": False}
    show_page(page, COMMAND_COLUMNS, as_json=as_json)
    if wait and any(view["receipt_kind"] not in _GOOD_ENDS for view in views):
        sys.exit(EXIT_REFUSED)


@plane.command(short_help="List commands, newest first, or show one.")
@click.argument("command_id", required=False)
@page_options
@plane_options
def commands(
    url: str,
    operator_token_file: Path,
    command_id: str | None,
    *,
    as_json: bool,
    **page: Any,  # noqa: ANN401 - one for each option
) -> None:
    """List commands, newest first; or show COMMAND_ID alone, with its receipt."""
    with PlaneClient(url, operator_token_file) as client:
        if command_id is None:
            show_page(client.get("/v1/commands", page), COMMAND_COLUMNS, as_json=as_json)
        else:
            show_command(client.get(f"/v1/commands/{segment(command_id)}"), as_json=as_json)


@plane.command()
@page_options
@plane_options
def receipts(url: str, operator_token_file: Path, *, as_json: bool, **page: Any) -> None:  # noqa: ANN401 - one for each option
    """List the commands that have their receipt, newest first."""
    with PlaneClient(url, operator_token_file) as client:
        show_page(client.get("/v1/receipts", page), COMMAND_COLUMNS, as_json=as_json)


@plane.command(short_help="List runs, newest first, with what is open and in doubt.")
@page_options
@plane_options
def runs(url: str, operator_token_file: Path, *, as_json: bool, **page: Any) -> None:  # noqa: ANN401 - one for each option
    """List runs, newest first: how many commands each has, how many are open, and how many in doubt."""
    with PlaneClient(url, operator_token_file) as client:
        show_page(client.get("/v1/runs", page), RUN_COLUMNS, as_json=as_json)


@plane.command()
@plane_options
def drivers(url: str, operator_token_file: Path, *, as_json: bool) -> None:
    """List every driver that ever said hello."""
    with PlaneClient(url, operator_token_file) as client:
        show_page(client.get("/v1/drivers"), DRIVER_COLUMNS, as_json=as_json)


def _command(given: Mapping[str, Any]) -> Reply:
    """The body of `POST /v1/commands` for the options of `send`."""
    if (given["kind"] == CALL) == (given["tool"] is None):
        raise ToolOrKind
    data: JsonObject = dict(given["data"] or {})
    if given["tool"] is not None:
        data |= {"tool": given["tool"], "arguments": given["args"] or {}}
        data |= {"repeat": True} if given["repeat"] else {}
        data |= {"resumes": list(given["resumes"])} if given["resumes"] else {}
        data |= {"parent_operation_id": given["parent"]} if given["parent"] else {}
    body: Reply = {
        "command_id": given["command_id"],
        "run_id": given["run"],
        "kind": given["kind"],
        "data": data,
        "driver_id": given["driver"],
        "expires_in_ms": given["expires_ms"],
    }
    return {name: value for name, value in body.items() if value is not None}
