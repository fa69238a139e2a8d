"""`effectd check`: whether the configuration is valid, and the providers serve what it declares.

Part of `driver.cli`; imports `driver.config`, and with `--connect` the providers.
"""

from pathlib import Path

import anyio
import click

from driver import log
from driver.cli import report
from driver.cli.failures import EXIT_DONE, EXIT_REFUSED
from driver.cli.inspection import ProviderReport
from driver.cli.options import config_option, json_option
from driver.cli.output import show, write_json
from driver.cli.report import Checked
from driver.cli.surroundings import warnings
from driver.config.errors import ConfigError
from driver.config.load import load
from driver.config.models import Config


@click.command()
@click.option("--connect", is_flag=True, help="Start the providers, and ask which tools they serve.")
@config_option
@json_option
@click.pass_context
def check(ctx: click.Context, config_file: Path, *, connect: bool, as_json: bool) -> None:
    """Validate the configuration and the tool contracts.

    Nothing is started, unless --connect is given: then each provider is started, asked for its tools and
    ended again; no tool is called. Exits 0 where all is well, 1 where a contract cannot be kept, 2 where
    the configuration is wrong.
    """
    try:
        config = load(config_file)
    except ConfigError as error:
        if as_json:
            write_json(report.invalid_as_json(error))
        raise
    checked = Checked(
        path=config_file,
        config=config,
        warned=tuple(warnings(config)),
        providers=_ask(config) if connect else None,
    )
    if as_json:
        write_json(report.as_json(checked))
    else:
        show(report.lines(checked))
    ctx.exit(EXIT_DONE if checked.healthy else EXIT_REFUSED)


def _ask(config: Config) -> tuple[ProviderReport, ...]:
    log.configure("error", "auto")
    from driver.cli.asking import ask  # noqa: PLC0415 the MCP SDK costs a second, and only --connect needs it

    return anyio.run(ask, config)
