"""`effectd unfence`: let a fenced daemon act again.

Part of `driver.cli`.
"""

import json
from pathlib import Path

import click

from driver.cli import doors, views
from driver.cli.options import config_option, json_option
from driver.cli.output import show, write_json
from driver.cli.replies import UnfenceReply


@click.command()
@click.option(
    "--accept-rollback",
    is_flag=True,
    help="Begin another history of the journal: everything that is not settled becomes unknown.",
)
@config_option
@json_option
def unfence(config_file: Path, *, accept_rollback: bool, as_json: bool) -> None:
    """Lift the fence, once its reason is gone. `effectd status` names the reason.

    After `superseded`, make sure first that the other life of this driver is gone. Where the plane knows
    another history of this journal (`rolled_back`, `forked`, `conflict`), only --accept-rollback helps. After
    `restored_backup` another history begins in any case, as with --accept-rollback.
    """
    with doors.operator(config_file) as client:
        text = client.post("/v1/unfence", {"accept_rollback": accept_rollback})
        if as_json:
            write_json(json.loads(text))
            return
        reply = client.parse(UnfenceReply, text)
    show([views.line(("Unfenced", "bold green"), f": the fence was {reply.reason}.")])
    if reply.previous_journal_id is not None:
        flags = doors.flags(config_file)
        are = "1 operation is" if reply.unknown == 1 else f"{reply.unknown} operations are"
        show(
            [
                views.line(f"The history {reply.previous_journal_id} ended; {reply.journal_id} begins."),
                views.line(f"{are} unknown now: see 'effectd ops --unsettled{flags}'."),
            ]
        )
