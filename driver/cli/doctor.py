"""`effectd doctor`: is everything well? One exit code for cron, for CI, and for a container's health check.

Part of `driver.cli`; imports the client, the store and its siblings. The daemon is asked where one runs;
where none does, its file is looked at, under its lock.
"""

import math
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

import click
from pydantic import JsonValue
from rich.console import RenderableType

from driver.cli import doors, words
from driver.cli.client import LocalClient, Refused, Unreachable, Unreadable
from driver.cli.failures import EXIT_DONE
from driver.cli.options import config_option, json_option
from driver.cli.output import show, write_json
from driver.cli.progress import Report, shown
from driver.cli.replies import Status, VerifyProgress
from driver.cli.views import labelled, line
from driver.config.load import load
from driver.config.models import Config
from store.connection import SQLITE_VERSION
from store.errors import JournalBusy, NoJournal, StoreError
from store.findings import Progress
from store.lifecycle import State
from store.records import OperationFilter, Timestamp, moment
from store.rest import at_rest
from store.verify import verify_file
from store.view import View

EXIT_UNSETTLED: Final = 1
EXIT_BROKEN: Final = 2
FINDINGS_MAX: Final = 10
"""What is wrong with a journal that is told here: `effectd verify` tells all of it."""
UNDER_WAY_MAX: Final = 500
"""Operations that were under way when a daemon died that are looked at for their age."""
IN_USE: Final = "in_use"
"""The symptom of a journal that somebody has who does not answer."""
GATEWAY_S: Final = 5.0
"""How long a connection to the gateway may take."""


class Severity(StrEnum):
    """What a symptom means for the exit code: 2, 1, or nothing."""

    BROKEN = "broken"
    UNSETTLED = "unsettled"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """One thing to know: what it is, a stable word for it, and what to do."""

    severity: Severity
    code: str
    message: str
    next: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Everything that was found, by whom: `daemon` or `file`."""

    looked_by: str
    symptoms: tuple[Symptom, ...]
    sqlite_version: str | None
    """Of whoever looked; None where the daemon did not say."""

    @property
    def exit_code(self) -> int:
        """Return the worst of it."""
        severities = {symptom.severity for symptom in self.symptoms}
        if Severity.BROKEN in severities:
            return EXIT_BROKEN
        return EXIT_UNSETTLED if Severity.UNSETTLED in severities else EXIT_DONE


def _finite(_ctx: click.Context, _param: click.Parameter, seconds: float | None) -> float | None:
    """Refuse `nan`, than which nothing is older or younger, and `inf`."""
    if seconds is not None and not math.isfinite(seconds):
        message = f"{seconds} is no finite number of seconds"
        raise click.BadParameter(message)
    return seconds


@click.command()
@click.option(
    "--max-age",
    type=click.FloatRange(min=0),
    callback=_finite,
    metavar="SECONDS",
    help="Exit 1 only where something is unsettled for longer than that.",
)
@click.option("--running", is_flag=True, help="Exit 2 where no daemon runs: for health checks.")
@config_option
@json_option
@click.pass_context
def doctor(
    ctx: click.Context, config_file: Path, *, as_json: bool, max_age: float | None, running: bool
) -> None:
    """Say whether everything is well, and what to do where it is not. Changes nothing.

    Exits 0 where it is, 1 where something is unsettled, 2 where something is broken: the daemon is unhealthy,
    fenced or does not answer, or its journal is damaged or refused. Asks the daemon where one runs; where
    none does, looks at the whole journal in its file, which takes a while, under its lock.
    """
    config = load(config_file)
    with shown("looking", quiet=as_json) as report:
        found = _live(config, config_file, max_age) or _at_rest(config, max_age, report, running=running)
    if as_json:
        write_json(_as_json(found))
    else:
        show(_lines(found, doors.flags(config_file)))
    ctx.exit(found.exit_code)


# ------------------------------------------------------------ a daemon that runs


def _live(config: Config, config_file: Path, max_age: float | None) -> Diagnosis | None:
    """Ask the daemon; None where none runs."""
    version = None
    with doors.inspect(config_file) as client:
        try:
            health = tuple(_health(client))  # first: it commits, and so looks at the disk anew
            found = client.read(Status, "/v1/status")
            version = found.journal.sqlite_version
            symptoms = (*health, *_of_status(found, max_age), *_gateway(config, found))
        except Unreachable as error:
            if error.nobody:
                return None
            symptoms = (_broken("no_answer", error.format_message()),)
        except (Refused, Unreadable) as error:
            symptoms = (_broken("no_answer", error.format_message()),)
    return Diagnosis(looked_by="daemon", symptoms=symptoms, sqlite_version=version)


def _health(client: LocalClient) -> Iterator[Symptom]:
    try:
        client.get("/healthz")
    except Refused as error:
        yield _broken("unhealthy", error.problem.detail, "look at its log and its disk, then restart it")


def _of_status(found: Status, max_age: float | None) -> Iterator[Symptom]:
    if found.fence is not None:
        yield _fenced(found.fence)
    if not found.journal.has_room:
        yield _broken("no_room", words.NO_ROOM, "docs/operations.md, EffectdRefusesWork")
    if found.integrity != "ok":
        yield _broken("integrity", f"the journal's integrity is {found.integrity}", "effectd verify")
    if found.state in ("starting", "draining"):
        yield _note(found.state, f"the daemon is {found.state}: it takes no new calls now")
    yield from _unsettled(found.unsettled, found.oldest_unsettled_age_s, max_age)
    if found.incidents.diverged:
        times = _times(found.incidents.diverged)
        yield _note("diverged", f"{times} proofs of an effect contradicted each other", "effectd status")
    if found.incidents.duplicated:
        times = _times(found.incidents.duplicated)
        yield _note("duplicated", f"{times} a probe found an effect more than once", "effectd status")
    if found.link.url is not None and not found.link.connected:
        text = f"the plane is not connected: {words.trouble(found.link.url, found.link.last_error)}"
        yield _note("not_connected", text, "look at its log")
    yield from _dead_letters(found.dead_letters)
    if found.fault_injection:
        drills = ", ".join(found.fault_injection)
        yield _note("fault_injection", f"fault drills are switched on: {drills}", "restart it without them")


def _gateway(config: Config, found: Status) -> Iterator[Symptom]:
    """Look whether agents are let in, where the configuration says so."""
    if config.gateway is None:
        return
    if found.gateway is None:
        text = "the configuration has a [gateway], and the daemon was started without one"
        yield _broken("gateway_off", text, "restart the daemon")
        return
    path = config.gateway_socket
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.settimeout(GATEWAY_S)
        try:
            door.connect(str(path))
        except OSError as error:
            text = f"agents cannot connect to {path}: {error.strerror or error}"
            yield _broken(
                "gateway_unreachable", text, "look at its mode and its folder, then restart the daemon"
            )


# ------------------------------------------------------------ a file that nobody uses


def _at_rest(config: Config, max_age: float | None, report: Report, *, running: bool) -> Diagnosis:
    found = tuple(_of_file(config, max_age, report))
    nobody = () if any(symptom.code == IN_USE for symptom in found) else (_nobody(found, running=running),)
    return Diagnosis(looked_by="file", symptoms=(*nobody, *found), sqlite_version=SQLITE_VERSION)


def _nobody(found: Sequence[Symptom], *, running: bool) -> Symptom:
    """Say that none runs, and to start one where nothing was found that would keep it from starting."""
    make = _broken if running else _note
    broken = any(symptom.severity is Severity.BROKEN for symptom in found)
    return make(
        "not_running", "no daemon runs, so its files were looked at", None if broken else "effectd run"
    )


def _of_file(config: Config, max_age: float | None, report: Report) -> Iterator[Symptom]:
    if not config.driver.state_dir.is_dir():
        yield _note("no_journal", f"there is no journal yet: {config.driver.state_dir} is not there")
        return
    yield from _of_disk(config)

    def note(reached: Progress) -> None:
        report(VerifyProgress(check=reached.check, done=reached.done, total=reached.total))

    now, settings = datetime.now(UTC), doors.journal(config)
    try:
        findings = verify_file(settings, note, now=now)
        for finding in findings[:FINDINGS_MAX]:
            text = f"{finding.subject}: {finding.problem}"
            yield _broken("integrity", text, "copy the state folder away, check the disk; effectd verify")
        if len(findings) > FINDINGS_MAX:
            yield _broken("integrity", f"{len(findings) - FINDINGS_MAX} more", "effectd verify")
        with at_rest(settings, now=now) as view:
            if view is not None:
                yield from _of_view(view, max_age)
    except NoJournal:
        yield _note("no_journal", "there is no journal yet: the daemon has never run here")
    except JournalBusy as error:
        yield _in_use(config, error) if error.daemon else _broken("refused", str(error))
    except StoreError as error:
        yield _broken("refused", str(error))


def _of_disk(config: Config) -> Iterator[Symptom]:
    """Whether new calls would be taken, and whether the files can be looked at: both want room."""
    folder, reserve = config.driver.state_dir, config.journal.reserve_bytes
    try:
        disk = os.statvfs(folder)
    except OSError:
        return  # what refuses the folder is told by whoever enters it
    free = disk.f_bavail * disk.f_frsize
    if free < reserve:
        text = (
            f"the disk of {folder} has {words.size(free)} left, less than the {words.size(reserve)} of "
            "journal.reserve_bytes: new calls are refused on it, and on a full one no daemon starts"
        )
        yield _broken("no_room", text, "make room on that disk: docs/operations.md, EffectdDiskLow")


def _in_use(config: Config, busy: JournalBusy) -> Symptom:
    """A daemon that lives, where nothing listens: it is on its way in or out, or listens elsewhere."""
    text = f"{busy.path}: {busy.problem}, and none listens at {config.inspect_socket}"
    advice = (
        "if it does not start or stop just now: is its driver.runtime_dir another one, or was that folder "
        "removed? restart it then"
    )
    return _broken(IN_USE, text, advice)


def _of_view(view: View, max_age: float | None) -> Iterator[Symptom]:
    if view.fence is not None:
        yield _fenced(view.fence.reason)
    count, oldest = view.unsettled()
    yield from _unsettled(count, None if oldest is None else _age_s(view, oldest), max_age)
    yield from _under_way(view, max_age)
    yield from _dead_letters(view.parked())


def _under_way(view: View, max_age: float | None) -> Iterator[Symptom]:
    """What a daemon was doing when it died may have happened: its next start finds out, or lists it."""
    page = view.operations(OperationFilter(state=State.STARTED), None, UNDER_WAY_MAX)
    ages = [_age_s(view, item.started_at) for item in page.items if item.write and item.started_at]
    if ages and (max_age is None or max(ages) > max_age):
        were = "1 operation was" if len(ages) == 1 else f"{len(ages)} operations were"
        text = f"{were} under way when the daemon ended, and may have happened"
        advice = "start it: it says what became of them, or lists them as unsettled"
        yield Symptom(severity=Severity.UNSETTLED, code="under_way", message=text, next=advice)


def _age_s(view: View, at: Timestamp) -> float:
    return max(0.0, (view.now - moment(at)).total_seconds())


# ------------------------------------------------------------ what is said


def _broken(code: str, message: str, then: str | None = None) -> Symptom:
    return Symptom(severity=Severity.BROKEN, code=code, message=message, next=then)


def _note(code: str, message: str, then: str | None = None) -> Symptom:
    return Symptom(severity=Severity.NOTE, code=code, message=message, next=then)


def _fenced(reason: str) -> Symptom:
    text = f"the daemon is fenced ({reason}): it dispatches nothing, and refuses commands"
    return _broken("fenced", text, "effectd unfence --help")


def _unsettled(count: int, age_s: float | None, max_age: float | None) -> Iterator[Symptom]:
    if not count or (max_age is not None and age_s is not None and age_s <= max_age):
        return
    oldest = "" if age_s is None else f", the oldest for {words.duration(age_s)}"
    may = "1 operation may" if count == 1 else f"{count} operations may"
    text = f"{may} have happened, and nobody knows{oldest}"
    yield Symptom(severity=Severity.UNSETTLED, code="unsettled", message=text, next="effectd ops --unsettled")


def _dead_letters(count: int) -> Iterator[Symptom]:
    if count:
        wait = "1 event waits" if count == 1 else f"{count} events wait"
        text = f"{wait} to be requeued, which the plane refused"
        yield _note("dead_letters", text, "see 'effectd dead-letters', and mend what the plane refused")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _as_json(found: Diagnosis) -> dict[str, JsonValue]:
    return {
        "healthy": found.exit_code == EXIT_DONE,
        "exit_code": found.exit_code,
        "looked_by": found.looked_by,
        "symptoms": [asdict(symptom) for symptom in found.symptoms],
        "sqlite_version": found.sqlite_version,
    }


_HEADS: Final = {
    EXIT_DONE: ("Healthy", "bold green"),
    EXIT_UNSETTLED: ("Unsettled", "bold yellow"),
    EXIT_BROKEN: ("Broken", "bold red"),
}
_STYLES: Final = {Severity.BROKEN: "bold red", Severity.UNSETTLED: "bold yellow", Severity.NOTE: ""}
_COMMAND: Final = "effectd "


def _lines(found: Diagnosis, flags: str) -> Iterator[RenderableType]:
    where = "the daemon that runs was asked" if found.looked_by == "daemon" else "its file was looked at"
    yield line(_HEADS[found.exit_code], f" ({where}).")
    worst_first = [*Severity]
    for symptom in sorted(found.symptoms, key=lambda symptom: worst_first.index(symptom.severity)):
        yield labelled(symptom.severity, (symptom.message, _STYLES[symptom.severity]))
        if symptom.next is not None:
            is_command = symptom.next.startswith(_COMMAND)
            yield labelled("next", (symptom.next + flags, "cyan") if is_command else symptom.next)
    if found.sqlite_version is not None:
        yield labelled("sqlite", found.sqlite_version)
