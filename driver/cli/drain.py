"""`effectd drain`: stop the daemon without cutting off what runs.

Part of `driver.cli`.
"""

from pathlib import Path

import click

from driver.cli import doors
from driver.cli.options import config_option
from driver.cli.output import show
from driver.cli.views import line


@click.command()
@config_option
def drain(config_file: Path) -> None:
    """Stop the daemon in an orderly way, as SIGTERM does.

    New work is refused at once; what runs may finish within driver.drain_s, and what waits is kept for the
    next start. Returns when the drain has begun; the process ends by itself, with exit code 0.
    """
    with doors.operator(config_file) as client:
        client.post("/v1/drain", {})
    show([line(("Draining", "bold green"), ": it takes no new work, and stops when what runs has ended.")])
