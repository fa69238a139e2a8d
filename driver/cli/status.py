"""`effectd status`: how the daemon is, and what is wrong with it.

Part of `driver.cli`.
"""

import json
from datetime import UTC, datetime
from pathlib import Path

import click

from driver.cli import doors, views
from driver.cli.options import config_option, json_option
from driver.cli.output import show, write_json
from driver.cli.replies import Status


@click.command()
@config_option
@json_option
def status(config_file: Path, *, as_json: bool) -> None:
    """Show the daemon's state, its link, its journal, and how much is unsettled."""
    with doors.inspect(config_file) as client:
        text = client.get("/v1/status")
        if as_json:
            write_json(json.loads(text))
        else:
            found = client.parse(Status, text)
            show(views.status_lines(found, datetime.now(UTC), doors.flags(config_file)))
