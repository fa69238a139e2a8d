"""`effectd verify`: does the journal hold what it says? Through the daemon where one runs, else on the file.

Part of `driver.cli`.

    click.ClickException
     ├── NotVerified   1   the journal cannot be looked at as it stands
     ├── NeedsRest     1   a rebuild needs a journal that nobody uses
     └── CutShort      1   the daemon ended before it had looked at everything, or says why it could not
"""

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click
from pydantic import JsonValue

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
from store.findings import Finding
from store.findings import Report as FileReport
from store.mending import rebuild_file
from store.verify import verify_file


class NotVerified(click.ClickException):
    """The journal is refused before anything in it can be looked at; `cause` says why, and what to do."""

    exit_code = EXIT_REFUSED

    def __init__(self, cause: StoreError) -> None:
        self.cause = cause
        super().__init__(str(cause))


class NeedsRest(click.ClickException):
    """`--rebuild` puts another file in the journal's place."""

    exit_code = EXIT_REFUSED

    def __init__(self) -> None:
        super().__init__(
            "--rebuild puts another file in the journal's place, and a daemon uses it: stop that first. "
            "Without --rebuild, --deep says what is wrong while it runs"
        )


class CutShort(click.ClickException):
    """The stream ended without a result."""

    exit_code = EXIT_REFUSED

    def __init__(self, message: str | None = None) -> None:
        super().__init__(
            message or "the daemon stopped before everything was looked at: nothing is known; try again"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All that is wrong, and who looked: `daemon` or `file`.

    `mended` is what was wrong before a rebuild, and `journal` the file that is the journal from then on.
    """

    looked_by: str
    findings: tuple[VerifyFinding, ...]
    mended: tuple[VerifyFinding, ...] = ()
    journal: str | None = None


@click.command()
@click.option("--deep", is_flag=True, help="Also project all events again, beside the journal, and compare.")
@click.option(
    "--rebuild",
    is_flag=True,
    help="Look deeply and, where something is wrong, make the projections again from the events.",
)
@config_option
@json_option
@click.pass_context
def verify(ctx: click.Context, config_file: Path, *, as_json: bool, deep: bool, rebuild: bool) -> None:
    """Check the journal: schema, hash chain, contents, receipts, invariants, counts. Changes nothing.

    Asks the daemon where one runs, and looks at the file, under its lock, where none does. With --rebuild,
    for which no daemon may run, a new file with projections made from the events takes the journal's place;
    the old one stays beside it until the next start. Exits 0 where all is well, or is again, and 1 where
    something is wrong.
    """
    config = load(config_file)
    with shown("verifying", quiet=as_json) as report:
        verdict = _live(config_file, report, deep=deep, rebuild=rebuild)
        if verdict is None and rebuild:
            verdict = _rebuilt(config, report)
        elif verdict is None:
            verdict = _at_rest(config, report, deep=deep)
    if as_json:
        write_json(
            {
                "ok": not verdict.findings,
                "looked_by": verdict.looked_by,
                "findings": _plain(verdict.findings),
                **({"rebuilt": verdict.journal, "mended": _plain(verdict.mended)} if rebuild else {}),
            }
        )
    else:
        _write(verdict)
    ctx.exit(EXIT_REFUSED if verdict.findings else 0)


def _plain(findings: tuple[VerifyFinding, ...]) -> list[JsonValue]:
    return [finding.model_dump(exclude={"type"}) for finding in findings]


def _live(config_file: Path, report: Report, *, deep: bool, rebuild: bool) -> Verdict | None:
    """Ask the daemon; None where none runs."""
    with doors.operator(config_file) as client:
        try:
            client.knock()
        except Unreachable as error:
            if error.nobody:
                return None
            raise
        if rebuild:
            raise NeedsRest
        return Verdict(looked_by="daemon", findings=tuple(_findings(client, report, deep=deep)))


def _findings(client: LocalClient, report: Report, *, deep: bool) -> Generator[VerifyFinding]:
    whole = False
    for text in client.lines("POST", "/v1/verify", body={"deep": deep}):
        match client.parse(VerifyLine, text).root:
            case VerifyProgress() as reached:
                report(reached)
            case VerifyFinding() as finding:
                yield finding
            case VerifyResult(message=None):
                whole = True
            case VerifyResult(message=message):
                raise CutShort(message)
    if not whole:
        raise CutShort


def _at_rest(config: Config, report: Report, *, deep: bool) -> Verdict:
    """Look at the file, under the lock of its folder."""
    try:
        found = verify_file(doors.journal(config), _noting(report), now=datetime.now(UTC), deep=deep)
    except StoreError as error:
        raise NotVerified(error) from error
    return Verdict(looked_by="file", findings=_as_replies(found))


def _rebuilt(config: Config, report: Report) -> Verdict:
    """Look at the file, and put one with new projections in its place where something is wrong."""
    try:
        made = rebuild_file(doors.journal(config), _noting(report), now=datetime.now(UTC))
    except StoreError as error:
        raise NotVerified(error) from error
    return Verdict(
        looked_by="file",
        findings=_as_replies(made.left),
        mended=_as_replies(finding for finding in made.found if finding not in made.left),
        journal=made.journal,
    )


def _noting(report: Report) -> FileReport:
    return lambda reached: report(VerifyProgress(check=reached.check, done=reached.done, total=reached.total))


def _as_replies(found: Iterable[Finding]) -> tuple[VerifyFinding, ...]:
    return tuple(
        VerifyFinding(check=item.check, subject=item.subject, problem=item.problem) for item in found
    )


def _write(verdict: Verdict) -> None:
    where = "by the daemon that runs" if verdict.looked_by == "daemon" else "in its file: no daemon runs"
    if verdict.journal is not None:
        show(
            [
                line((f"What was wrong ({len(verdict.mended)}), and is mended:", "bold yellow")),
                table(_rows(verdict.mended), _COLUMNS),
                line(
                    f"The projections were made again from the events; {verdict.journal} is the journal now."
                ),
            ]
        )
    if not verdict.findings:
        show([line(("The journal is sound", "bold green"), f" (looked at {where}).")])
        return
    count = len(verdict.findings)
    are = "1 thing is" if count == 1 else f"{count} things are"
    show(
        [
            line((f"{are} wrong with the journal", "bold red"), f" (looked at {where}):"),
            table(_rows(verdict.findings), _COLUMNS),
            line("Copy the whole state folder away before anything else, and check the disk."),
        ]
    )


_COLUMNS = ("CHECK", "WHERE", "PROBLEM")


def _rows(findings: tuple[VerifyFinding, ...]) -> list[tuple[str, str, str]]:
    return [(finding.check, finding.subject, finding.problem) for finding in findings]
