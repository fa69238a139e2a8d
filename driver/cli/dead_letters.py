"""`effectd dead-letters` and `requeue`: what the plane did not take, and to report it again.

Part of `driver.cli`.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import RenderableType

from driver.cli import doors, views
from driver.cli.options import config_option, json_option
from driver.cli.output import show, write_json
from driver.cli.paging import cursor_option, limit_option, show_page
from driver.cli.replies import DeadLetter, Page, RequeuedReply


@click.command("dead-letters")
@limit_option
@cursor_option
@config_option
@json_option
def dead_letters(config_file: Path, *, as_json: bool, limit: int, cursor: str | None) -> None:
    """List the events that the plane did not take, oldest first: they are kept, and the stream goes on.

    Mend what refused them (the plane, or max_frame_bytes), then report them again with 'effectd requeue SEQ'.
    """
    show_page(
        config_file,
        "/v1/dead-letters",
        Page[DeadLetter],
        _parked,
        limit=limit,
        cursor=cursor,
        as_json=as_json,
    )


def _parked(page: Page[DeadLetter]) -> Iterator[RenderableType]:
    if page.items:
        yield views.dead_letter_table(page, datetime.now(UTC))
    else:
        yield views.line(("None", "green"), ": there is no event that a plane did not take.")


@click.command()
@click.argument("seq", metavar="SEQ", type=click.IntRange(min=1))
@config_option
@json_option
def requeue(config_file: Path, seq: int, *, as_json: bool) -> None:
    """Report an event again that the plane did not take. SEQ is its number in 'effectd dead-letters'.

    It goes out as a new event with the same content, once: asked again, the answer is the same.
    """
    with doors.operator(config_file) as client:
        text = client.post(f"/v1/dead-letters/{seq}/requeue", {})
        if as_json:
            write_json(json.loads(text))
            return
        reply = client.parse(RequeuedReply, text)
    show([views.line(("Requeued", "bold green"), f": event {reply.seq}, as event {reply.requeued_as}.")])
