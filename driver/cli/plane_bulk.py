"""Many commands at once: a file of them, a line of JSON each, given to the plane one after the other.

Part of `driver.cli`; imports click, strict JSON and its siblings.

    click.ClickException
     └── BadLine   2   a line is no command: nothing of the file was sent
"""

from collections.abc import Iterable, Sequence
from typing import Any

import click

from driver.cli.failures import EXIT_USAGE
from driver.cli.plane_client import PlaneClient, Reply
from driver.cli.progress import Report
from driver.cli.replies import VerifyProgress
from driver.core.strictjson import NotStrictJson, loads


class BadLine(click.ClickException):
    """A line of the file is no command that can be sent again."""

    exit_code = EXIT_USAGE

    def __init__(self, number: int, fault: str) -> None:
        self.number = number
        super().__init__(f"line {number}: {fault}; nothing was sent. See POST /v1/commands in docs/plane.md")


def commands_of(lines: Iterable[str]) -> list[Reply]:
    """Return the commands of a file, empty lines aside. Raises `BadLine` for the first that is none.

    Each must have a `command_id`, so that a file that was sent in part can be sent again whole.
    """
    return [_command(number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _command(number: int, line: str) -> Reply:
    try:
        found: dict[str, Any] = dict(loads(line))
    except NotStrictJson as error:
        raise BadLine(number, error.message) from None
    if not found.get("command_id"):
        raise BadLine(number, "it has no command_id, and could not be sent again")
    return found


def send_all(client: PlaneClient, commands: Sequence[Reply], report: Report, *, wait: bool) -> list[Reply]:
    """Give the plane each command, and return all that is known of each; with `wait`, once all are done.

    Raises what the client does: what was sent stays sent, and the same file can be sent again.
    """
    total = len(commands)
    views: list[Reply] = []
    for done, command in enumerate(commands, 1):
        views.append(client.submit(command))
        report(VerifyProgress(check="sent", done=done, total=total))
    if not wait:
        return views
    ended: list[Reply] = []
    for done, view in enumerate(views, 1):
        ended.append(client.receipt_of(view["command_id"]))
        report(VerifyProgress(check="receipts", done=done, total=total))
    return ended
