"""`effectd mcp`: what an agent starts as its one MCP server.

Part of `driver.cli`; imports what `driver.config` has for those in a hurry, `driver.gateway.relay`, and no
more: an agent waits for this to start. So the configuration is not validated here. All that is wanted of it
is where the sockets are, and whether there is a gateway; the daemon has validated it, or does not run.
"""

import hashlib
import os
import re
import sys
import tomllib
from pathlib import Path
from shlex import quote
from typing import Final, cast
from uuid import uuid4

import anyio
import click

from driver.cli.options import config_option
from driver.config.errors import NO_FILE, ConfigUnreadable
from driver.config.places import DEFAULT_PATH, RUNTIME_DIR
from driver.config.sockets import GATEWAY_SOCKET
from driver.gateway.relay import Relay, RelaySettings
from driver.gateway.stdio import Input, Output
from driver.gateway.wire import run_prefix

RUN_VARIABLE: Final = "EFFECTD_RUN"

_RUN: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)


class RunName(click.ParamType[str]):
    """A run, as the journal names it."""

    name = "run"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name, or fail with what is allowed."""
        if _RUN.fullmatch(value) is None:
            self.fail(f"{value!r} is no run: 1 to 128 characters of A-Z a-z 0-9 . _ : -", param, ctx)
        return value


@click.command()
@config_option
@click.option(
    "--run",
    "run_id",
    type=RunName(),
    envvar=RUN_VARIABLE,
    show_envvar=True,
    metavar="RUN",
    help="The run that all calls belong to. Default: one of its own for each start, which continues what an "
    "earlier one from the same folder left open.",
)
@click.option(
    "--resumes",
    type=RunName(),
    multiple=True,
    metavar="RUN",
    help="An earlier run that this one continues; may be given several times.",
)
@click.option(
    "--socket",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The gateway's socket, for an agent that may not read the configuration.",
)
def mcp(config_file: Path, run_id: str | None, resumes: tuple[str, ...], socket: Path | None) -> None:
    """Serve the tools of all configured providers to an agent, over standard input and output.

    An agent starts it as an MCP server. It starts nothing else: it carries messages to the daemon's gateway
    ([gateway] in the configuration), and reconnects when the daemon restarts. A call that was under way then
    is answered with what became of it.

    A run groups an agent's calls: an equal call that may have happened is refused within one. Without --run
    each start has one of its own, and continues earlier ones from the same folder in which something is open.
    A run that is named is one agent's at a time; --resumes names runs whose work it goes on with.
    """
    path = socket or _socket(config_file)
    place = None if run_id else _place()
    own = run_id or f"{run_prefix(place or '')}{uuid4().hex}"
    settings = RelaySettings(socket=path, run_id=own, resumes=resumes, place=place, start=_start(config_file))
    anyio.run(_carry, settings)


async def _carry(settings: RelaySettings) -> None:
    # nothing else may write there: a client would take it for a message
    await Relay(settings, Input(sys.stdin.fileno()), Output(sys.stdout.fileno())).run()


def _start(config_file: Path) -> str:
    """Return what a person types to start the daemon, whatever the environment of that terminal says."""
    return (
        "effectd run"
        if config_file == DEFAULT_PATH
        else f"effectd run --config {quote(str(config_file.absolute()))}"
    )


def _place() -> str:
    """Return what names the folder, for this user."""
    try:
        folder = os.getcwd()  # noqa: PTH109 - as it is, be it gone or not
    except FileNotFoundError:
        folder = ""
    return hashlib.sha256(f"{os.getuid()}\0{folder}".encode(errors="surrogateescape")).hexdigest()[:12]


def _socket(config_file: Path) -> Path:
    """Return where the gateway is, as the configuration says. Raises `ConfigUnreadable`."""
    try:
        document = tomllib.loads(config_file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigUnreadable(config_file, NO_FILE) from None
    except (OSError, ValueError) as error:
        raise ConfigUnreadable(config_file, f"cannot be read: {error}; see 'effectd check'") from error
    if "gateway" not in document:
        raise ConfigUnreadable(config_file, "has no [gateway]: add that line to it, and restart the daemon")
    driver = document.get("driver")
    wanted = cast("dict[str, object]", driver).get("runtime_dir") if isinstance(driver, dict) else None
    runtime_dir = Path(wanted) if isinstance(wanted, str) else RUNTIME_DIR
    return config_file.absolute().parent / runtime_dir / GATEWAY_SOCKET
