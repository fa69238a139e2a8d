"""What the shell offers after a Tab: ids of the daemon's own, asked of it at that moment.

Part of `driver.cli`; imports click, the doors and the replies. Completion is a help and never a hindrance:
whatever goes wrong, nothing is offered, and nothing is said.
"""

from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem

from driver.cli import doors
from driver.cli.replies import Operation, Page, Run
from driver.config.places import DEFAULT_PATH

ANSWER_S: Final = 2.0
"""Nobody waits longer for a Tab."""
OFFERED_MAX: Final = 100
"""The newest: whoever completes an id means one of today."""


def operations(ctx: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
    """Return the newest operations whose id, or whose command's, begins with what is typed."""
    try:
        with doors.inspect(_config(ctx), answer_s=ANSWER_S) as client:
            page = client.read(Page[Operation], "/v1/operations", {"limit": OFFERED_MAX})
    except Exception:  # noqa: BLE001 - no daemon, no configuration: nothing to offer
        return []
    return [
        CompletionItem(name, help=f"{item.tool} {item.state}")
        for item in page.items
        for name in (item.operation_id, item.command_id)
        if name.startswith(typed)
    ]


def runs(ctx: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
    """Return the newest runs whose id begins with what is typed."""
    try:
        with doors.inspect(_config(ctx), answer_s=ANSWER_S) as client:
            page = client.read(Page[Run], "/v1/runs", {"limit": OFFERED_MAX})
    except Exception:  # noqa: BLE001 - as above
        return []
    return [CompletionItem(item.run_id) for item in page.items if item.run_id.startswith(typed)]


def _config(ctx: click.Context) -> Path:
    """Return the configuration as it is typed so far; options behind the cursor are not known yet."""
    given = ctx.params.get("config_file")
    return given if isinstance(given, Path) else DEFAULT_PATH
