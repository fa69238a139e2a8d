"""`effectd approve` and `deny`: a person's word about a call that waits for it.

Part of `driver.cli`.
"""

from pathlib import Path
from typing import Literal

import click

from driver.cli import completion, doors, views
from driver.cli.ops import operation_of
from driver.cli.options import config_option
from driver.cli.output import show
from driver.cli.replies import CommandGiven
from driver.cli.segments import segment

reason_option = click.option("--reason", metavar="TEXT", help="Why; it is kept with the decision.")
request_option = click.option(
    "--request", metavar="APPROVAL", help="The request that is decided; the newest one unless given."
)


@click.command()
@click.argument("wanted", metavar="ID", shell_complete=completion.operations)
@reason_option
@request_option
@config_option
def approve(config_file: Path, wanted: str, *, reason: str | None, request: str | None) -> None:
    """Let an operation run that waits for approval. ID is its own, or that of its command.

    Look at what it would do first: `effectd show ID` has the arguments. The approval is for exactly that, and
    is used once; who decided is recorded by uid.
    """
    _decide(config_file, wanted, "grant", reason=reason, request=request)


@click.command()
@click.argument("wanted", metavar="ID", shell_complete=completion.operations)
@reason_option
@request_option
@config_option
def deny(config_file: Path, wanted: str, *, reason: str | None, request: str | None) -> None:
    """End an operation that waits for approval: nothing is sent. ID is its own, or that of its command."""
    _decide(config_file, wanted, "deny", reason=reason, request=request)


def _decide(
    config_file: Path,
    wanted: str,
    decision: Literal["grant", "deny"],
    *,
    reason: str | None,
    request: str | None,
) -> None:
    with doors.operator(config_file) as client:
        operation_id = operation_of(client, wanted)
        body = {"decision": decision, "reason": reason, "approval_id": request}
        text = client.post(f"/v1/operations/{segment(operation_id)}/approve", body)
        reply = client.parse(CommandGiven, text)
    word = "Approved" if decision == "grant" else "Denied"
    show([views.line((word, "bold green"), f": {reply.operation_id} (recorded as {reply.command_id}).")])
