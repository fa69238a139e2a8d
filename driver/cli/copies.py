"""`effectd backup` and `effectd export`: the journal, for elsewhere.

Part of `driver.cli`. Through the daemon where one runs, else from the file, under its lock.

    click.ClickException
     ├── NotCopied   1   the journal, or the place for its copy, is refused
     └── CutShort    1   the daemon ended before it was whole
"""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import click

from driver.cli import doors
from driver.cli.client import Unreachable
from driver.cli.failures import EXIT_REFUSED
from driver.cli.options import config_option, json_option
from driver.cli.output import show, write_json
from driver.cli.progress import Report, shown
from driver.cli.replies import BackupLine, BackupResult, Status, VerifyProgress
from driver.cli.views import line
from driver.config.load import load
from driver.config.models import Config
from driver.local import exports
from driver.local.exports import Format
from store.backup import back_up_at_rest
from store.errors import StoreError
from store.findings import Progress
from store.rest import at_rest

Write = Callable[[bytes], None]


class NotCopied(click.ClickException):
    """Nothing was made; the text says why, and what to do."""

    exit_code = EXIT_REFUSED


class CutShort(click.ClickException):
    """The stream ended without a result."""

    exit_code = EXIT_REFUSED

    def __init__(self) -> None:
        super().__init__("the daemon stopped before the backup was whole, and left nothing: try again")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@config_option
@json_option
def backup(config_file: Path, *, file: Path, as_json: bool) -> None:
    """Copy the journal into FILE, which must not exist yet: whole, verified, and on the disk.

    The daemon writes it where one runs, so its user must be able to; without a daemon this command does. In
    an empty state folder, as journal.db, it becomes a journal again, and fenced.
    """
    config = load(config_file)
    target = file.absolute()
    with shown("copying", quiet=as_json) as report:
        made = _live_backup(config_file, target, report) or _backup_at_rest(config, target, report)
    if not made.ok:
        raise NotCopied(made.message or "no backup was made")
    if as_json:
        write_json(made.model_dump(exclude={"type", "ok", "message"}))
    else:
        size = f"{made.bytes or 0:,} bytes, as of event {made.last_seq}"
        show([line(("Backed up", "bold green"), f" into {made.file}: {size}, verified.")])


def _live_backup(config_file: Path, target: Path, report: Report) -> BackupResult | None:
    """Ask the daemon; None where none runs."""
    with doors.operator(config_file) as client:
        try:
            for text in client.lines("POST", "/v1/backup", body={"file": str(target)}, patient=True):
                match client.parse(BackupLine, text).root:
                    case VerifyProgress() as reached:
                        report(reached)
                    case BackupResult() as made:
                        return made
        except Unreachable as error:
            if error.nobody:
                return None
            raise
    raise CutShort


def _backup_at_rest(config: Config, target: Path, report: Report) -> BackupResult:
    def note(reached: Progress) -> None:
        report(VerifyProgress(check=reached.check, done=reached.done, total=reached.total))

    try:
        made = back_up_at_rest(doors.journal(config), target, note, now=datetime.now(UTC))
    except StoreError as error:
        raise NotCopied(str(error)) from error
    return BackupResult(
        ok=True,
        file=made.file,
        bytes=made.bytes,
        journal_id=made.journal_id,
        last_seq=made.last_seq,
        made_at=made.made_at,
    )


@click.command()
@click.option(
    "--format",
    "form",
    type=click.Choice(get_args(Format)),
    default="ndjson",
    show_default=True,
    help="A line of JSON for each operation, or a table.",
)
@config_option
def export(config_file: Path, *, form: Format) -> None:
    """Write every operation to standard output, oldest first.

    Asks the daemon where one runs, and reads the file, under its lock, where none does.
    """
    config = load(config_file)
    # where it goes to the screen, nobody needs a bar above it
    with click.open_file("-", "wb") as out, shown("exporting", quiet=sys.stdout.isatty()) as report:

        def write(piece: bytes) -> None:
            out.write(piece)

        if not _live_export(config_file, form, write, report):
            _export_at_rest(config, form, write, report)


def _live_export(config_file: Path, form: Format, write: Write, report: Report) -> bool:
    with doors.inspect(config_file) as client:
        try:
            total = sum(client.read(Status, "/v1/status").counts.values())
        except Unreachable as error:
            if error.nobody:
                return False
            raise
        done = -len(exports.beginning(form).splitlines())
        for piece in client.pieces("/v1/export", {"format": form}):
            write(piece)
            done += piece.count(b"\n")
            report(VerifyProgress(check="operations", done=done, total=max(total, done)))
    return True


def _export_at_rest(config: Config, form: Format, write: Write, report: Report) -> None:
    try:
        with at_rest(doors.journal(config), now=datetime.now(UTC)) as view:
            write(exports.beginning(form))
            if view is None:
                return
            total, done = sum(view.counts().values()), 0
            after: int | None = 0
            while after is not None:
                page = view.operations_after(after, exports.PAGE)
                write(exports.lines(page.items, form))
                done, after = done + len(page.items), page.next
                report(VerifyProgress(check="operations", done=done, total=total))
    except StoreError as error:
        raise NotCopied(str(error)) from error
