"""`effectd wall` and `triage`: what a triage model is shown of a run, and to wake the supervisor for it.

Part of `driver.cli`.
"""

import json
from pathlib import Path

import click

from driver.cli import completion, doors, views
from driver.cli.options import config_option, json_option
from driver.cli.output import show, write_json
from driver.cli.replies import RunCommandGiven, WallReply
from driver.cli.segments import segment


@click.command()
@click.argument("run_id", metavar="RUN", shell_complete=completion.runs)
@config_option
@json_option
def wall(config_file: Path, run_id: str, *, as_json: bool) -> None:
    """Show exactly what a triage model would be shown of a run: what is unsettled in it, and what is beside.

    With --json also the instructions that stand above it.
    """
    with doors.inspect(config_file) as client:
        text = client.get(f"/v1/supervisor/walls/{segment(run_id)}")
        if as_json:
            write_json(json.loads(text))
            return
        reply = client.parse(WallReply, text)
    # in ASCII, with every control character escaped: it is safe on any terminal
    click.echo(reply.text)
    left_out = f", {reply.left_out} more on the next" if reply.left_out else ""
    waiting = f", {reply.waiting_for_probes} waiting for probes" if reply.waiting_for_probes else ""
    click.echo(
        f"{reply.shown} of {reply.unsettled} unsettled operations{left_out}{waiting}; "
        f"{reply.size} bytes for {reply.model}, digest {reply.digest}",
        err=True,
    )


@click.command()
@click.argument("run_id", metavar="RUN", shell_complete=completion.runs)
@config_option
@json_option
def triage(config_file: Path, run_id: str, *, as_json: bool) -> None:
    """Wake the supervisor for a run, whenever it would have looked by itself.

    Its verdict is best effort: it closes entries of the list of what is unsettled, and lets nothing run
    again. A run in which something still runs, waits, or has only just ended is left alone until then.
    """
    with doors.operator(config_file) as client:
        text = client.post(f"/v1/runs/{segment(run_id)}/triage", {})
        if as_json:
            write_json(json.loads(text))
            return
        reply = client.parse(RunCommandGiven, text)
    shown = f"effectd ops --run {reply.run_id}{doors.flags(config_file)}"
    show(
        [
            views.line(
                ("Woken", "bold green"), f": the supervisor, for {reply.run_id} ({reply.command_id})."
            ),
            views.line(f"  See what it says: '{shown}'."),
        ]
    )
