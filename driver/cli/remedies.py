"""`effectd retry` and `compensate`: another attempt, and the way back from an effect.

Part of `driver.cli`.
"""

from pathlib import Path
from urllib.parse import quote

import click
from pydantic import JsonValue
from rich.text import Text

from driver.cli import doors, views
from driver.cli.client import LocalClient
from driver.cli.errands import give, receipt, wait_option
from driver.cli.ops import operation_of
from driver.cli.options import config_option, json_option
from driver.cli.output import show, write_json
from driver.cli.replies import CommandGiven, RunCommandGiven

_STYLES = {"occurred": "bold green", "none": "bold green", "unknown": "bold red"}


@click.command()
@click.argument("wanted", metavar="ID")
@wait_option
@config_option
@json_option
def retry(config_file: Path, wanted: str, *, as_json: bool, no_wait: bool) -> None:
    """Call an operation that has ended again, with the same key. ID is its own, or that of its command.

    Only where rule R allows it: nothing of it can still land, and an operator, a probe or an answer proves
    that it did not happen; or the provider deduplicates by the key, and still knows it. A refusal says which
    part fails. A supervisor's verdict allows nothing.
    """
    with doors.operator(config_file) as client:
        given = give(client, operation_of(client, wanted), "retry")
        result = None if no_wait else receipt(client, given)
    if as_json:
        _write(given, result)
    elif result is None:
        show([_asked(given.operation_id, given.command_id)])
    else:
        told = f": {given.operation_id}, attempt {result['attempt']}: effect {result['effect']}."
        show([views.line((str(result["outcome"]).capitalize(), _style(result)), told)])


@click.command()
@click.argument("wanted", metavar="ID", required=False)
@click.option("--run", "run_id", metavar="RUN", help="Every operation of a run, the newest first.")
@wait_option
@config_option
@json_option
def compensate(
    config_file: Path, wanted: str | None, *, run_id: str | None, as_json: bool, no_wait: bool
) -> None:
    """Take an effect back, with the call that its contract declares. ID is the operation's, or its command's.

    Each operation is compensated once; the compensation is an operation of its own. A run is compensated from
    its newest operation to its oldest, up to the first that is not certain: settle that, then ask again.
    """
    if (wanted is None) == (run_id is None):
        raise click.UsageError("give either ID or --run RUN")  # noqa: TRY003 - click's own
    with doors.operator(config_file) as client:
        if run_id is not None:
            _compensate_run(client, run_id, as_json=as_json, no_wait=no_wait)
            return
        given = give(client, operation_of(client, wanted or ""), "compensate")
        result = None if no_wait else receipt(client, given)
    if as_json:
        _write(given, result)
    elif result is None:
        show([_asked(given.operation_id, given.command_id)])
    elif result["compensation_operation_id"] is None:
        show([views.line(("Nothing to do", "bold green"), f": {given.operation_id} did not happen.")])
    else:
        told = (
            f": {result['compensation_operation_id']}, for {given.operation_id}: effect {result['effect']}."
        )
        show([views.line((str(result["state"]).capitalize(), _style(result)), told)])


def _compensate_run(client: LocalClient, run_id: str, *, as_json: bool, no_wait: bool) -> None:
    text = client.post(f"/v1/runs/{quote(run_id, safe='')}/compensate", {})
    given = client.parse(RunCommandGiven, text)
    result = None if no_wait else receipt(client, given)
    if as_json:
        _write(given, result)
    elif result is None:
        show([_asked(given.run_id, given.command_id)])
    else:
        show(list(_account(result)))


def _account(result: dict[str, JsonValue]) -> list[Text]:
    compensated, rest, stop = result["compensated"], result["not_compensable"], result["stopped_at"]
    assert isinstance(compensated, list), "the receipt of run.compensate has lists"
    assert isinstance(rest, list), "the receipt of run.compensate has lists"
    word = ("Stopped", "bold red") if isinstance(stop, dict) else ("Done", "bold green")
    lines = [views.line(word, f": {len(compensated)} taken back in {result['run_id']}.")]
    lines += [views.line(f"  no contract says how to take back {operation_id}") for operation_id in rest]
    if isinstance(stop, dict):
        lines.append(views.line(f"  at {stop['operation_id']}: {stop['message']} ({stop['code']})"))
    return lines


def _write(given: CommandGiven | RunCommandGiven, result: dict[str, JsonValue] | None) -> None:
    told: dict[str, JsonValue] = dict(given.model_dump())
    write_json(told | (result or {}))


def _asked(subject: str, command_id: str) -> Text:
    return views.line(("Asked", "bold green"), f": {subject} (recorded as {command_id}).")


def _style(result: dict[str, JsonValue]) -> str:
    return _STYLES.get(str(result["effect"]), "yellow")
