"""`effectd erase`: the content of a run, out of the journal for good.

Part of `driver.cli`.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
from rich.text import Text

from driver.cli import completion, doors, views
from driver.cli.client import LocalClient, Unreachable
from driver.cli.errands import FencedMeanwhile, NotHeard, receipt, wait_option
from driver.cli.failures import EXIT_REFUSED
from driver.cli.options import config_option, json_option
from driver.cli.output import show, write_json
from driver.cli.progress import Report, shown
from driver.cli.replies import CommandReply, ErasedReply, Kept, Run, Status, VerifyProgress
from driver.cli.segments import segment

LOOK_S: Final = 0.25
"""Between two looks at how far it is: a person sees it move."""
_SHOWN_MAX: Final = 10
"""Operations that a person is told were kept; `--json` has more."""


@click.command()
@click.argument("run_id", metavar="RUN", shell_complete=completion.runs)
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask whether you are sure.")
@wait_option
@config_option
@json_option
@click.pass_context
def erase(
    ctx: click.Context, config_file: Path, run_id: str, *, is_sure: bool, no_wait: bool, as_json: bool
) -> None:
    """Erase the content of a run from the journal, for good: arguments, results, receipts, references, notes.

    What is not settled is kept, and so is what the plane has not acknowledged; identities, outcomes, times
    and the chain stay of everything. An erased call cannot be executed again, and rarely compensated. Backups
    and exports that were made before are not touched. A large run takes a while: the erasure goes on when
    nobody waits for it, and after a restart. Exits 1 where something was kept, and where the daemon is fenced
    meanwhile: it goes on when that is lifted.
    """
    path = f"/v1/runs/{segment(run_id)}"
    with doors.operator(config_file) as client:
        run = client.read(Run, path)
        if not is_sure:
            _make_sure(run)
        done = client.parse(ErasedReply, client.post(f"{path}/erase", {}))
        if done.kept is None and not no_wait:
            with shown("erasing", quiet=as_json) as report:
                _wait_for(client, done, run.operations, report)
            told = receipt(client, done)
            done = ErasedReply.model_validate({**told, "command_id": done.command_id})
    if as_json:
        write_json(done.model_dump(mode="json"))
    else:
        show(_lines(done, doors.flags(config_file)))
    if done.kept is not None and _anything(done.kept):
        ctx.exit(EXIT_REFUSED)


def _make_sure(run: Run) -> None:
    """Ask the person at the terminal. Raises `click.Abort`, and where nobody is there `click.UsageError`."""
    if not sys.stdin.isatty():
        message = "nobody is there to be asked: say --yes if you are sure"
        raise click.UsageError(message)
    kept = f", {run.unsettled} of them unsettled: these stay" if run.unsettled else ""
    question = f"Erase the content of {run.run_id} for good? It has {_count(run.operations)}{kept}"
    click.confirm(question, abort=True, err=True)


def _wait_for(client: LocalClient, given: ErasedReply, total: int, report: Report) -> None:
    """Return once the command has its receipt. Raises `NotHeard`, `FencedMeanwhile`, and the client's."""
    path = f"/v1/commands/{segment(given.command_id)}"
    while True:
        try:
            command = client.read(CommandReply, path)
            if command.receipt_seq is not None:
                return
            fence = client.read(Status, "/v1/status").fence
        except Unreachable as error:
            raise NotHeard(given.command_id) from error
        if fence is not None:
            raise FencedMeanwhile(given.command_id, fence)
        report(VerifyProgress(check="erasing", done=_done(command, total), total=total))
        time.sleep(LOOK_S)


def _done(command: CommandReply, total: int) -> int:
    """Return for how many operations nothing is left to do."""
    found = command.erasing
    if found is None:
        return 0
    looked_at = found.erased + found.unsettled + found.unacknowledged
    return min(total, max(0, looked_at - found.left))


def _lines(done: ErasedReply, flags: str) -> Iterator[Text]:
    if done.erased is None or done.kept is None:
        yield views.line(("Asked", "bold green"), f": {done.run_id} (recorded as {done.command_id}).")
        return
    yield views.line(("Erased", "bold green"), f": {_count(done.erased)} of {done.run_id}.")
    if _anything(done.kept):
        yield from _kept_lines(done.kept, flags)


def _kept_lines(kept: Kept, flags: str) -> Iterator[Text]:
    yield views.line(
        ("Kept", "bold yellow"),
        f": {kept.unsettled} unsettled, {kept.unacknowledged} that the plane has not acknowledged yet.",
    )
    for operation_id in kept.operation_ids[:_SHOWN_MAX]:
        yield views.line(f"  {operation_id}")
    if kept.truncated or len(kept.operation_ids) > _SHOWN_MAX:
        yield views.line("  and more")
    if kept.unsettled:
        yield views.line(f"  Settle them with 'effectd reconcile ID{flags}', and erase the run again.")
    else:
        yield views.line(f"  Erase the run again when the plane has everything: see 'effectd status{flags}'.")


def _anything(kept: Kept) -> bool:
    return kept.unsettled + kept.unacknowledged > 0


def _count(operations: int) -> str:
    return "1 operation" if operations == 1 else f"{operations:,} operations"
