"""`effectd run`: the daemon, in the foreground.

Part of `driver.cli`; imports `driver.config`, `driver.daemon`, and the errors that forbid a start.
"""

from pathlib import Path

import click

from driver.cli import slim  # noqa: F401 # pyright: ignore[reportUnusedImport] - before everything else

# isort: split

from driver import daemon
from driver.cli.failures import Misconfigured
from driver.cli.options import config_option
from driver.config.load import load
from driver.faults import FaultError
from driver.gateway.errors import GatewayError
from driver.local.errors import SocketError
from store.errors import OpenRefused


@click.command()
@config_option
@click.pass_context
def run(ctx: click.Context, config_file: Path) -> None:
    """Run the daemon until SIGTERM or SIGINT, or SIGHUP, which it gets when its terminal closes.

    It tells systemd when it is ready (Type=notify), and writes its log to standard error. Exits 0 when it was
    stopped, 2 where the configuration or the journal forbid a start, 70 when the journal failed, 71 when
    there is no room to copy a journal whose fsync failed.
    """
    config = load(config_file)
    try:
        code = daemon.main(config)
    except (OpenRefused, SocketError, GatewayError, FaultError) as error:
        raise Misconfigured(error) from error
    ctx.exit(code)
