"""`effectd probe`: what is asked of the daemon about an operation, and takes it a while.

Part of `driver.cli`.

    click.ClickException
     ├── NotCarriedOut   1   the daemon tried, and could not
     ├── NotHeard        1   the daemon went away before it was done: it goes on after its restart
     └── FencedMeanwhile 1   the daemon was fenced before it was done: it waits until that is lifted
"""

import json
from pathlib import Path

import click
from pydantic import JsonValue

from driver.cli import completion, doors, views
from driver.cli.client import LocalClient
from driver.cli.failures import EXIT_REFUSED
from driver.cli.ops import operation_of
from driver.cli.options import config_option, json_option
from driver.cli.output import show, write_json
from driver.cli.plain import plain
from driver.cli.replies import CommandGiven, CommandReply, Event, RunCommandGiven, Story
from driver.cli.segments import segment
from store.events import ApprovalRequested, CommandFailed, DriverFenced
from store.records import COMPENSATION_PREFIX

wait_option = click.option(
    "--no-wait", is_flag=True, help="Give the command, and do not wait for what comes of it."
)


class NotCarriedOut(click.ClickException):
    """The command's receipt says that it could not do what was asked."""

    exit_code = EXIT_REFUSED

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(plain(f"{message} ({code})"))


class NotHeard(click.ClickException):
    """The stream of events ended before the receipt."""

    exit_code = EXIT_REFUSED

    def __init__(self, command_id: str) -> None:
        super().__init__(
            f"the daemon stopped before {command_id} was done: it goes on after its restart; "
            "see 'effectd tail --follow'"
        )


class FencedMeanwhile(click.ClickException):
    """The daemon was fenced, for `reason`, before the receipt: nothing is begun, for however long."""

    exit_code = EXIT_REFUSED

    def __init__(self, command_id: str, reason: str) -> None:
        self.command_id = command_id
        self.reason = reason
        super().__init__(
            plain(
                f"the daemon was fenced ({reason}) before {command_id} was done: what runs is recorded, and "
                "the rest waits until the fence is lifted; see 'effectd status' and 'effectd unfence --help'"
            )
        )


@click.command()
@click.argument("wanted", metavar="ID", shell_complete=completion.operations)
@wait_option
@config_option
@json_option
def probe(config_file: Path, wanted: str, *, as_json: bool, no_wait: bool) -> None:
    """Look in the provider whether an operation happened. ID is its own, or that of its command.

    Runs the read that the tool's contract declares ([providers.P.tools.T.probe]), and nothing else. What it
    finds is evidence, weaker than an operator's verdict; what it does not find may prove nothing.
    """
    with doors.operator(config_file) as client:
        operation_id = operation_of(client, wanted)
        given = give(client, operation_id, "probe")
        result = None if no_wait else receipt(client, given)
        if result is not None:
            result["detail"] = _detail(client, operation_id, result["verdict"])
    if as_json:
        write_json({"command_id": given.command_id, "operation_id": given.operation_id, **(result or {})})
    elif result is None:
        show(
            [views.line(("Asked", "bold green"), f": {given.operation_id} (recorded as {given.command_id}).")]
        )
    else:
        verdict, detail = str(result["verdict"]), str(result["detail"] or "the detail was erased")
        style = {"undetermined": "yellow", "duplicated": "bold red"}.get(verdict, "bold green")
        show([views.line((verdict.capitalize(), style), f": {given.operation_id}: {detail}.")])


def _detail(client: LocalClient, operation_id: str, verdict: JsonValue) -> str | None:
    """Return what the newest look with this verdict says for people: receipts do not hold it."""
    told = client.read(Story, f"/v1/operations/{segment(operation_id)}")
    return next((look.detail for look in reversed(told.probes) if look.verdict == verdict), None)


def give(client: LocalClient, operation_id: str, name: str) -> CommandGiven:
    """Give a command about an operation, and return it once it is accepted. Raises what the client does."""
    text = client.post(f"/v1/operations/{segment(operation_id)}/{name}", {})
    return client.parse(CommandGiven, text)


def receipt(
    client: LocalClient, given: CommandGiven | RunCommandGiven, flags: str = ""
) -> dict[str, JsonValue]:
    """Return the result of a command, once it is done, however long that takes.

    Where it waits for a person, standard error says for what; `flags` stand behind the command that decides.
    Raises `NotCarriedOut`, `NotHeard`, `FencedMeanwhile`, and what the client does.
    """
    command = client.read(CommandReply, f"/v1/commands/{segment(given.command_id)}")
    after = (command.accepted_seq or 1) - 1
    for text in client.lines("GET", "/v1/events", {"after": after, "follow": True}, patient=True):
        event = client.parse(Event, text)
        if event.kind == ApprovalRequested.KIND and concerns(event, given):
            click.echo(plain(f"It waits for a person: effectd approve {event.operation_id}{flags}"), err=True)
        if event.kind == DriverFenced.KIND:
            raise FencedMeanwhile(given.command_id, json.loads(text)["data"]["reason"])
        if event.command_id != given.command_id or not event.terminal:
            continue
        data = json.loads(text)["data"]
        if event.kind == CommandFailed.KIND:
            raise NotCarriedOut(data["code"], data["message"])
        result: dict[str, JsonValue] = data["result"] or {}
        return result
    raise NotHeard(given.command_id)


def concerns(event: Event, given: CommandGiven | RunCommandGiven) -> bool:
    """Return whether an event is about the operation that was named, or what takes it, or its run, back."""
    if isinstance(given, RunCommandGiven):
        return event.run_id == given.run_id and (event.command_id or "").startswith(COMPENSATION_PREFIX)
    return (
        event.operation_id == given.operation_id
        or event.command_id == COMPENSATION_PREFIX + given.operation_id
    )
