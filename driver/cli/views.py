"""What a person sees of the daemon's answers, as lines and as rows of tables.

Part of `driver.cli`; imports rich's values, the replies and the words. Nothing here prints; time arrives as
`now`. Every line and every cell is made by `line`, so that text from outside is harmless to a terminal.
"""

import json
from collections.abc import Container, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

from pydantic import JsonValue
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from driver.cli import words
from driver.cli.hints import hints_for
from driver.cli.listing import Listing
from driver.cli.plain import plain
from driver.cli.replies import DeadLetter, Event, Gateway, Operation, Page, Run, Status
from store.lifecycle import ENDED, Effect, State

VALUE_WIDTH: Final = 400
"""Characters of an argument, an answer or a receipt; `--json` has the whole."""
FACT_WIDTH: Final = 60
"""Characters of one fact on an event's line."""

_INDENT: Final = "  "
_LABEL_WIDTH: Final = 12

_EVENT_FACTS: Final = (
    "tool",
    "attempt",
    "effect",
    "reason",
    "phase",
    "code",
    "verdict",
    "actor",
    "supersedes",
)
"""Members of an event's `data` that fit on its line."""

_EVENT_STYLES: Final = {
    "operation.unknown": "bold yellow",
    "operation.diverged": "bold yellow",
    "driver.fenced": "bold yellow",
    "operation.failed": "red",
    "command.failed": "red",
    "command.refused": "red",
    "operation.succeeded": "green",
}

Part = str | tuple[str, str]
"""Text, and a style of rich (`green`, `bold red`, ...) where it says something by it."""


def line(*parts: Part) -> Text:
    """Return one line; each part is made harmless."""
    made = Text()
    for part in parts:
        shown, style = (part, "") if isinstance(part, str) else part
        made.append(plain(shown), style)
    return made


def labelled(label: str, *parts: Part) -> Table:
    """Return one line of a block: an indented label, and what it labels; what is wrapped stays beside it."""
    return _beside(_INDENT + label, _LABEL_WIDTH + len(_INDENT), line(*parts))


def dated(clock: str, text: str) -> Table:
    """Return one line of a history: an indented time, and what happened then, wrapped beside it."""
    return _beside(_INDENT + clock, len(_INDENT + clock + _INDENT), line(text))


def _beside(head: str, width: int, text: Text) -> Table:
    made = Table.grid()
    made.add_column(width=width, no_wrap=True)
    made.add_column(overflow="fold")
    made.add_row(line((head, "dim")), text)
    return made


def table(rows: Iterable[Sequence[Part]], headings: Sequence[str], right: Container[str] = ()) -> Listing:
    """Return rows under their headings; the columns named in `right` are numbers. No cell is ever cut."""
    return Listing(headings=headings, rows=[[line(part) for part in row] for row in rows], right=right)


def value_text(value: JsonValue, width_max: int = VALUE_WIDTH) -> str:
    """Return a JSON value on one line; what is beyond `width_max` characters is left out, and said so."""
    whole = json.dumps(value, ensure_ascii=False)
    if len(whole) <= width_max:
        return whole
    return f"{whole[:width_max]}… ({len(whole):,} characters; --json has them all)"


def status_lines(found: Status, now: datetime, flags: str = "") -> Iterator[RenderableType]:
    """Yield the daemon's state: what is wrong with it first. `flags` stand behind every suggested command."""
    style = "bold green" if found.state == "ready" else "bold red"
    yield line("effectd ", (found.driver_id, "bold"), " is ", (found.state, style))
    if found.fence is not None:
        fence = (
            f"{found.fence}: it dispatches nothing, and refuses commands; "
            f"the ways out: 'effectd unfence --help'"
        )
        yield labelled("fence", (fence, "bold red"))
    if found.fault_injection:
        yield labelled("FAULT DRILL", (", ".join(found.fault_injection), "bold red"))
    if not found.journal.has_room:
        yield labelled("NO ROOM", (words.NO_ROOM, "bold red"))
    yield labelled("unsettled", _unsettled(found, flags))
    if found.dead_letters:
        text = f"{found.dead_letters} events that the plane did not take: see 'effectd dead-letters{flags}'"
        yield labelled("refused", (text, "bold yellow"))
    for count, what in ((found.incidents.diverged, "diverged"), (found.incidents.duplicated, "duplicated")):
        if count:
            yield labelled("INCIDENTS", (f"{count} {what}: {_INCIDENTS[what]}", "bold red"))
    if waiting := found.counts.get(State.AWAITING_APPROVAL, 0):
        text = f"{waiting} wait for a person: see 'effectd ops --state {State.AWAITING_APPROVAL}{flags}'"
        yield labelled("approvals", (text, "bold yellow"))
    yield labelled("link", _link(found, now))
    if found.gateway is not None:
        yield labelled("gateway", _gateway(found.gateway))
    counts = ", ".join(f"{count} {name}" for name, count in found.counts.items() if count)
    yield labelled("operations", counts or "none")
    yield labelled("events", _events(found))
    yield labelled("journal", _journal(found, now))
    yield labelled("integrity", (found.integrity, "" if found.integrity == "ok" else "bold red"))
    yield labelled("journal_id", found.journal_id)
    yield labelled("boot_id", found.boot_id)


_INCIDENTS: Final = {
    "diverged": "proofs contradict each other; see operation.diverged in the log",
    "duplicated": "a probe found an effect more than once; see effect_duplicated in the log",
}


def unsettled_lines(page: Page[Operation], now: datetime, flags: str = "") -> Iterator[RenderableType]:
    """Yield each unsettled operation as a block: what may have happened, how sure that is, since when, why.

    `flags` stand behind every command that is suggested.
    """
    if not page.items:
        yield _nothing("Nothing is unsettled.", page)
        if not page.truncated:
            yield line(f"  What stays unknown by a verdict: effectd ops --effect unknown{flags}")
        return
    count = f"{'More than ' if page.truncated else ''}{len(page.items)}"
    yield line((f"{count} unsettled, newest first.", "bold yellow"))
    for operation in page.items:
        yield line()
        yield from operation_lines(operation, now)
        yield from hint_lines(operation, flags)


def operation_lines(operation: Operation, now: datetime) -> Iterator[RenderableType]:
    """Yield what is known of one operation."""
    yield line((operation.operation_id, "bold"), "  ", operation.tool)
    yield labelled("effect", (words.effect(operation), _effect_style(operation)))
    yield labelled("state", words.state(operation.state))
    if operation.reason is not None:
        yield labelled("why", words.reason(operation.reason))
    yield labelled("since", words.since(_newest(operation), now))
    yield labelled("run", f"{operation.run_id}, command {operation.command_id} from the {operation.origin}")
    if operation.attempt_count > 1:
        yield labelled("attempts", str(operation.attempt_count))
    if operation.receipt is not None:
        yield labelled("receipt", value_text(operation.receipt))
    for key, value in (operation.metadata or {}).items():
        yield labelled(key, value)


def hint_lines(operation: Operation, flags: str, *, within: str | None = None) -> Iterator[RenderableType]:
    """Yield what may be done next; a command stands on a line of its own, with `flags`, to be copied whole.

    `within` is the command that shows this, which nobody needs to be told of.
    """
    label = "next"
    for command, advice in hints_for(operation, within=within):
        yield labelled(label, advice if command is None else f"{advice}:")
        label = ""
        if command is not None:
            yield line(_INDENT + " " * _LABEL_WIDTH + _INDENT, (command + flags, "cyan"))


def no_operations_line(page: Page[Operation], *, filtered: bool) -> Text:
    """Return what stands in place of an empty table; `filtered`, not all operations were asked for."""
    return _nothing("No operations match." if filtered else "No operations yet.", page)


def _nothing(text: str, page: Page[Operation]) -> Text:
    """An empty page that is not the last one proves nothing."""
    if page.truncated:
        return line(("None on this page; the journal is not looked through yet.", "yellow"))
    return line((text, "green"))


def operation_table(page: Page[Operation], now: datetime) -> Listing:
    """Return a page of operations."""
    rows = (
        (
            operation.operation_id,
            operation.tool,
            operation.state,
            (_effect_cell(operation), _effect_style(operation)),
            operation.run_id,
            words.since(operation.accepted_at, now),
            operation.reason or "",
        )
        for operation in page.items
    )
    return table(rows, ("OPERATION", "TOOL", "STATE", "EFFECT", "RUN", "ACCEPTED", "REASON"))


def run_table(page: Page[Run], now: datetime) -> Listing:
    """Return a page of runs."""
    rows = (
        (
            run.run_id,
            str(run.operations),
            (str(run.unsettled), "bold yellow" if run.unsettled else ""),
            (run.outcome or "yes") if run.ended else "no",
            words.since(run.last_at, now),
        )
        for run in page.items
    )
    headings = ("RUN", "OPERATIONS", "UNSETTLED", "ENDED", "LAST EVENT")
    return table(rows, headings, right=("OPERATIONS", "UNSETTLED"))


def dead_letter_table(page: Page[DeadLetter], now: datetime) -> Listing:
    """Return a page of the events that the plane did not take."""
    rows = (
        (
            str(letter.seq),
            letter.kind,
            letter.code,
            letter.message,
            words.since(letter.at, now),
            "-" if letter.requeued_as is None else str(letter.requeued_as),
        )
        for letter in page.items
    )
    return table(rows, ("SEQ", "EVENT", "REFUSED AS", "MESSAGE", "WHEN", "REQUEUED AS"), right=("SEQ",))


def more_line(cursor: str) -> Text:
    """Return how to see the rest of a list."""
    return line((f"There are more: repeat the command with --cursor {cursor}", "yellow"))


def event_line(found: Event) -> Text:
    """Return one event on one line."""
    clock = f"{found.at:%Y-%m-%d %H:%M:%S}.{found.at.microsecond // 1000:03d}Z"
    parts: list[Part] = [
        (f"{found.seq:>8}  {clock}  ", "dim"),
        (f"{found.kind:<28}", _EVENT_STYLES.get(found.kind, "")),
    ]
    subject = found.operation_id or found.command_id
    parts += [f"  {subject}"] if subject is not None else []
    parts += [f"  run={found.run_id}"] if found.run_id is not None else []
    for name in _EVENT_FACTS:
        fact = found.data.get(name)
        if fact is not None:
            parts.append(f"  {name}={fact if isinstance(fact, str) else value_text(fact, FACT_WIDTH)}")
    if found.best_effort:
        parts.append(("  best-effort", "yellow"))
    return line(*parts)


def _unsettled(found: Status, flags: str) -> Part:
    if not found.unsettled:
        return ("none", "green")
    age = found.oldest_unsettled_age_s
    oldest = "" if age is None else f", the oldest for {words.duration(age)}"
    return (f"{found.unsettled}{oldest}: see 'effectd ops --unsettled{flags}'", "bold yellow")


def _link(found: Status, now: datetime) -> Part:
    link = found.link
    if link.url is None:
        return "none: stand-alone"
    since = "" if link.since is None else f" since {words.since(link.since, now)}"
    if link.connected:
        return f"connected{since}: {link.url}"
    return (f"NOT CONNECTED{since}: {words.trouble(link.url, link.last_error)}", "bold yellow")


def _gateway(gateway: Gateway) -> str:
    over_http = "" if gateway.listen is None else f", and http://{gateway.listen}/mcp"
    return f"on, {gateway.connections} connected{over_http}"


def _events(found: Status) -> str:
    if found.link.url is None:
        return str(found.last_seq)
    return f"{found.last_seq}, of which {found.last_seq - found.acked_seq} not acknowledged"


def _journal(found: Status, now: datetime) -> str:
    file = found.journal
    last = "never" if file.last_commit_at is None else words.since(file.last_commit_at, now)
    return f"{words.size(file.bytes)}, and {words.size(file.wal_bytes)} of wal; last commit {last}"


def _newest(operation: Operation) -> datetime:
    return operation.ended_at or operation.started_at or operation.accepted_at


def _effect_cell(operation: Operation) -> str:
    if operation.state not in ENDED:
        return "-"
    by = "" if operation.effect_by is None else f" ({operation.effect_by})"
    return f"{operation.effect}{by}{' best-effort' if operation.best_effort else ''}"


def _effect_style(operation: Operation) -> str:
    if operation.state not in ENDED:
        return ""
    if not operation.settled:
        return "bold yellow"
    if operation.effect is Effect.OCCURRED and not operation.best_effort:
        return "green"
    return "yellow" if operation.state is State.UNKNOWN or operation.best_effort else ""
