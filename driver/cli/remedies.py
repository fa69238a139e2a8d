"""`effectd retry` and `compensate`: another attempt, and the way back from an effect.

Part of `driver.cli`.
"""

from pathlib import Path

import click
from pydantic import JsonValue
from rich.text import Text

from driver.cli import completion, doors, views, words
from driver.cli.client import LocalClient
from driver.cli.errands import give, receipt, wait_option
from driver.cli.failures import EXIT_REFUSED
from driver.cli.ops import operation_of
from driver.cli.options import config_option, json_option
from driver.cli.output import show, write_json
from driver.cli.replies import CommandGiven, RunCommandGiven
from driver.cli.segments import segment
from store.lifecycle import Effect, State

_STYLES = {Effect.OCCURRED: "bold green", Effect.NONE: "bold yellow", Effect.UNKNOWN: "bold red"}


@click.command()
@click.argument("wanted", metavar="ID", shell_complete=completion.operations)
@wait_option
@config_option
@json_option
@click.pass_context
def retry(ctx: click.Context, config_file: Path, wanted: str, *, as_json: bool, no_wait: bool) -> None:
    """Call an operation that has ended again, with the same key. ID is its own, or that of its command.

    Only where rule R allows it: nothing of it can still land, and an operator, a probe or an answer proves
    that it did not happen; or the provider deduplicates by the key, and still knows it. A refusal says which
    part fails. A supervisor's verdict allows nothing. Exits 1 unless the attempt succeeded.
    """
    with doors.operator(config_file) as client:
        given = give(client, operation_of(client, wanted), "retry")
        result = None if no_wait else receipt(client, given, doors.flags(config_file))
    if as_json:
        _write(given, result)
    elif result is None:
        show([_asked(given.operation_id, given.command_id)])
    else:
        subject = f"{given.operation_id}, attempt {result['attempt']}"
        show(_ended(str(result["outcome"]), subject, given.operation_id, result, doors.flags(config_file)))
    if result is not None and result["outcome"] != State.SUCCEEDED:
        ctx.exit(EXIT_REFUSED)


@click.command()
@click.argument("wanted", metavar="ID", required=False, shell_complete=completion.operations)
@click.option(
    "--run",
    "run_id",
    metavar="RUN",
    shell_complete=completion.runs,
    help="Every operation of a run, the newest first.",
)
@wait_option
@config_option
@json_option
@click.pass_context
def compensate(
    ctx: click.Context,
    config_file: Path,
    wanted: str | None,
    *,
    run_id: str | None,
    as_json: bool,
    no_wait: bool,
) -> None:
    """Take an effect back, with the call that its contract declares. ID is the operation's, or its command's.

    Each operation is compensated once; the compensation is an operation of its own. A run is compensated from
    its newest operation to its oldest, up to the first that is not certain: settle that, then ask again.
    Exits 1 where something was not taken back.
    """
    if (wanted is None) == (run_id is None):
        raise click.UsageError("give either ID or --run RUN")  # noqa: TRY003 - click's own
    with doors.operator(config_file) as client:
        if run_id is not None:
            given: CommandGiven | RunCommandGiven = _give_run(client, run_id)
        else:
            given = give(client, operation_of(client, wanted or ""), "compensate")
        result = None if no_wait else receipt(client, given, doors.flags(config_file))
    if as_json:
        _write(given, result)
    elif result is None:
        subject = given.run_id if isinstance(given, RunCommandGiven) else given.operation_id
        show([_asked(subject, given.command_id)])
    elif isinstance(given, RunCommandGiven):
        show(_account(result))
    else:
        show(_undone(given.operation_id, result, doors.flags(config_file)))
    if result is not None and not _is_undone(result):
        ctx.exit(EXIT_REFUSED)


def _give_run(client: LocalClient, run_id: str) -> RunCommandGiven:
    return client.parse(RunCommandGiven, client.post(f"/v1/runs/{segment(run_id)}/compensate", {}))


def _is_undone(result: dict[str, JsonValue]) -> bool:
    """Whether all is taken back that was asked for, as far as anybody can: of an operation, or of a run."""
    if "complete" in result:
        return result["complete"] is True
    return result["compensation_operation_id"] is None or result["effect"] == Effect.OCCURRED


def _undone(operation_id: str, result: dict[str, JsonValue], flags: str) -> list[Text]:
    """Return what became of one operation's compensation."""
    compensation = result["compensation_operation_id"]
    if compensation is None:
        return [views.line(("Nothing to do", "bold green"), f": {operation_id} did not happen.")]
    if (result["state"], result["effect"]) == (State.SUCCEEDED, Effect.OCCURRED):
        return [views.line(("Taken back", "bold green"), f": {operation_id}, by {compensation}.")]
    return _ended(
        str(result["state"]), f"{compensation}, for {operation_id}", str(compensation), result, flags
    )


def _ended(
    outcome: str, subject: str, operation_id: str, result: dict[str, JsonValue], flags: str
) -> list[Text]:
    """Return how a call ended, why where it is not as it was meant, and where its story stands."""
    word = outcome.replace("_", " ").capitalize()
    lines = [views.line((word, _style(result)), f": {subject}: effect {result['effect']}.")]
    if result["reason"] is not None:
        lines.append(views.line(f"  {words.reason(str(result['reason']))}."))
    if outcome != State.SUCCEEDED:
        lines.append(views.line(f"  The whole story: 'effectd show {operation_id}{flags}'."))
    return lines


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
    return _STYLES[Effect(str(result["effect"]))]
