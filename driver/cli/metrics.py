"""`effectd metrics`: what a Prometheus server would scrape.

Part of `driver.cli`.
"""

from pathlib import Path

import click

from driver.cli import doors
from driver.cli.options import config_option


@click.command()
@config_option
def metrics(config_file: Path) -> None:
    """Print the daemon's metrics as OpenMetrics text.

    The same text stands at /metrics of both sockets. Counters begin with the daemon's life.
    """
    with doors.inspect(config_file) as client:
        click.echo(client.get("/metrics"), nl=False)
