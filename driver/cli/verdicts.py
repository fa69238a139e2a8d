"""`effectd reconcile` and `annotate`: what a person found out about an operation, or calls it.

Part of `driver.cli`.
"""

import json
from pathlib import Path

import click
from pydantic import JsonValue

from driver.cli import completion, doors, views, words
from driver.cli.ops import operation_of
from driver.cli.options import config_option, json_option
from driver.cli.output import show, write_json
from driver.cli.replies import CommandGiven, VerdictReply
from driver.cli.segments import segment
from store.lifecycle import Effect


@click.command()
@click.argument("wanted", metavar="ID", shell_complete=completion.operations)
@click.option(
    "--effect",
    type=click.Choice([effect.value for effect in Effect]),
    required=True,
    help="What you found: it did not happen, it happened, or nobody will ever know.",
)
@click.option("--note", metavar="TEXT", required=True, help="How you know; at most 2,000 bytes.")
@click.option("--evidence", metavar="REF", multiple=True, help="What shows it: a link, a ticket. Repeatable.")
@click.option("--override", is_flag=True, help="Stand against an operator's earlier verdict.")
@click.option("--label", metavar="NAME", help="Who says so, beside your uid; your user name unless given.")
@config_option
@json_option
def reconcile(
    config_file: Path,
    wanted: str,
    *,
    as_json: bool,
    effect: str,
    note: str,
    evidence: tuple[str, ...],
    override: bool,
    label: str | None,
) -> None:
    """Settle what happened. ID is an operation's own, or that of its command.

    Look in the provider first: the operation's id is the key that the call carried. Your verdict is recorded
    by uid, stands above probes and supervisors, and below the provider's own answer, however late that comes.
    It executes nothing.
    """
    with doors.operator(config_file) as client:
        operation_id = operation_of(client, wanted)
        body: dict[str, JsonValue] = {
            "effect": effect,
            "note": note,
            "evidence": [*evidence],
            "override": override,
            "label": label,
        }
        text = client.post(f"/v1/operations/{segment(operation_id)}/reconcile", body)
        if as_json:
            write_json(json.loads(text))
            return
        reply = client.parse(VerdictReply, text)
    shown = f"effectd show {reply.operation_id}{doors.flags(config_file)}"
    show(
        [
            views.line(("Settled", "bold green"), f": {reply.operation_id} {words.effect(reply)}."),
            views.line(f"  Your verdict is event {reply.seq}; see '{shown}'."),
        ]
    )


@click.command()
@click.argument("wanted", metavar="ID", shell_complete=completion.operations)
@click.option("--id", "reference", metavar="TEXT", help="The id that you know it by.")
@click.option("--title", metavar="TEXT", help="What it is called.")
@click.option("--url", metavar="URL", help="Where it is.")
@click.option("--normalized-title", metavar="TEXT", help="Its title, as you compare titles.")
@click.option("--scope-identity", metavar="TEXT", help="What it belongs to.")
@config_option
@json_option
def annotate(
    config_file: Path, wanted: str, *, as_json: bool, reference: str | None, **texts: str | None
) -> None:
    """Write down what an operation is to you. ID is its own, or that of its command.

    What was written down before is replaced. It is kept, and shown wherever the operation is; effectd
    compares nothing with it. The values may have 4,096 bytes in all.
    """
    given = {"id": reference, **texts}
    metadata = {name: value for name, value in given.items() if value is not None}
    if not metadata:
        message = "there is nothing to write down: give at least one of --id, --title, --url"
        raise click.UsageError(message)
    with doors.operator(config_file) as client:
        operation_id = operation_of(client, wanted)
        path = f"/v1/operations/{segment(operation_id)}/annotate"
        text = client.post(path, {"metadata": dict[str, JsonValue](metadata)})
        if as_json:
            write_json(json.loads(text))
            return
        reply = client.parse(CommandGiven, text)
    show([views.line(("Noted", "bold green"), f": {reply.operation_id} (recorded as {reply.command_id}).")])
