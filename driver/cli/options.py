"""Options that many commands have, each defined once.

Part of `driver.cli`; imports click and `driver.config.places`.
"""

from pathlib import Path
from typing import Final

import click

from driver.config.places import DEFAULT_PATH

CONFIG_VARIABLE: Final = "EFFECTD_CONFIG"
"""Names the configuration for every command that is not given one."""

config_option = click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    default=DEFAULT_PATH,
    show_default=True,
    envvar=CONFIG_VARIABLE,
    show_envvar=True,
    metavar="FILE",
    help="The configuration; state and sockets are found through it.",
)
"""`--config FILE`, which every command takes, as the parameter `config_file`."""

json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON, for machines.")
"""`--json`, which every read takes, as the parameter `as_json`."""
