"""`effectd verify`: does the journal hold what it says? Through the daemon where one runs, else on the file.

Part of `driver.cli`.

    click.ClickException
     ├── NotVerified   1   the journal cannot be looked at as it stands
     ├── NeedsRest     1   what was asked for needs a journal that nobody uses
     └── CutShort      1   the daemon ended before it had looked at everything
"""

from collections.abc import Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click

from driver.cli import doors
from driver.cli.client import LocalClient, Unreachable
from driver.cli.failures import EXIT_REFUSED
from driver.cli.options import config_option, json_option
from driver.cli.output import show, write_json
from driver.cli.progress import Report, shown
from driver.cli.replies import VerifyFinding, VerifyLine, VerifyProgress, VerifyResult
from driver.cli.views import line, table
from driver.config.load import load
from driver.config.models import Config
from store.errors import StoreError
from store.verify import Progress as FileProgress
from store.verify import verify_file


class NotVerified(click.ClickException):
    """The journal is refused before anything in it can be looked at; `cause` says why, and what to do."""

    exit_code = EXIT_REFUSED

    def __init__(self, cause: StoreError) -> None:
        self.cause = cause
        super().__init__(str(cause))


class NeedsRest(click.ClickException):
    """`--deep` rebuilds everything from the events, which takes as long as it takes."""

    exit_code = EXIT_REFUSED

    def __init__(self) -> None:
        super().__init__(
            "--deep would hold up the daemon that runs: stop it first, or verify without --deep meanwhile"
        )


class CutShort(click.ClickException):
    """The stream ended without a result."""

    exit_code = EXIT_REFUSED

    def __init__(self) -> None:
        super().__init__("the daemon stopped before everything was looked at: nothing is known; try again")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All that is wrong, and who looked: `daemon` or `file`."""

    looked_by: str
    findings: tuple[VerifyFinding, ...]


@click.command()
@click.option("--deep", is_flag=True, help="Also rebuild everything from the events, and compare.")
@config_option
@json_option
@click.pass_context
def verify(ctx: click.Context, config_file: Path, *, as_json: bool, deep: bool) -> None:
    """Check the journal: schema, hash chain, contents, receipts, counts. Changes nothing.

    Asks the daemon where one runs, and looks at the file, under its lock, where none does. Exits 0 where
    all is well, 1 where something is wrong.
    """
    config = load(config_file)
    with shown("verifying", quiet=as_json) as report:
        verdict = _live(config_file, report, deep=deep) or _at_rest(config, report, deep=deep)
    if as_json:
        write_json(
            {
                "ok": not verdict.findings,
                "looked_by": verdict.looked_by,
                "findings": [finding.model_dump(exclude={"type"}) for finding in verdict.findings],
            }
        )
    else:
        _write(verdict)
    ctx.exit(EXIT_REFUSED if verdict.findings else 0)


def _live(config_file: Path, report: Report, *, deep: bool) -> Verdict | None:
    """Ask the daemon; None where none runs."""
    with doors.operator(config_file) as client:
        try:
            client.knock()
        except Unreachable as error:
            if error.nobody:
                return None
            raise
        if deep:
            raise NeedsRest
        return Verdict(looked_by="daemon", findings=tuple(_findings(client, report)))


def _findings(client: LocalClient, report: Report) -> Generator[VerifyFinding]:
    whole = False
    for text in client.lines("POST", "/v1/verify"):
        match client.parse(VerifyLine, text).root:
            case VerifyProgress() as reached:
                report(reached)
            case VerifyFinding() as finding:
                yield finding
            case VerifyResult():
                whole = True
    if not whole:
        raise CutShort


def _at_rest(config: Config, report: Report, *, deep: bool) -> Verdict:
    """Look at the file, under the lock of its folder."""
    settings = doors.journal(config)

    def note(reached: FileProgress) -> None:
        report(VerifyProgress(check=reached.check, done=reached.done, total=reached.total))

    try:
        found = verify_file(settings, note, now=datetime.now(UTC), deep=deep)
    except StoreError as error:
        raise NotVerified(error) from error
    findings = [VerifyFinding(check=item.check, subject=item.subject, problem=item.problem) for item in found]
    return Verdict(looked_by="file", findings=tuple(findings))


def _write(verdict: Verdict) -> None:
    where = "by the daemon that runs" if verdict.looked_by == "daemon" else "in its file: no daemon runs"
    if not verdict.findings:
        show([line(("The journal is sound", "bold green"), f" (looked at {where}).")])
        return
    rows = [(finding.check, finding.subject, finding.problem) for finding in verdict.findings]
    show(
        [
            line((f"{len(rows)} things are wrong with the journal", "bold red"), f" (looked at {where}):"),
            table(rows, ("CHECK", "WHERE", "PROBLEM")),
            line("Copy the whole state folder away before anything else, and check the disk."),
        ]
    )
