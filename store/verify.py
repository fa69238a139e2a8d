"""Does the journal hold what it says: schema, pages, chain, contents, receipts, counts, and every projection.

Part of `store`; imports its own modules. Each check is an object that looks at one bounded page of the
journal at a time. `verify_journal` asks a running journal, page by page between its commits, without holding
anybody up; `verify_file` looks at a journal that nobody has open, and can also rebuild every projection from
the events and compare (`deep`). Nothing is changed by either. What is wrong is returned, never raised.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

from store import chain, schema
from store.errors import DigestKeyMissing, DigestKeyWrong
from store.folder import entered
from store.head import Head, Ledger, read_head, row_digest
from store.identity import read_identity
from store.inspection import broken_link, inspect, looking
from store.journal import Journal
from store.keys import DigestKey, find_key
from store.lifecycle import ENDED, Judgement
from store.projection import listed
from store.rebuild import differences
from store.records import Chain
from store.settings import JournalSettings
from store.tables import Row, operation_row
from store.view import View

PAGE: Final = 256
"""Rows that one page of a check looks at: about 5 ms between two commits."""
FINDINGS_MAX: Final = 1_000
"""A journal with more than this is not described any better by a longer list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong."""

    check: str
    subject: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far one check has come, in its own units: rows, or events."""

    check: str
    done: int
    total: int | None


Report = Callable[[Progress], None]


class Check(Protocol):
    """One kind of look at the whole journal."""

    name: str
    findings: list[Finding]

    def page(self, view: View) -> Progress | None:
        """Look at the next page. None at the end."""
        ...


class _Paged:
    """A check over one table, in the order of its rowid."""

    name = ""
    statement = ""
    view: View
    """The journal as of the present page."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.done = 0
        self.after = 0

    def page(self, view: View) -> Progress | None:
        self.view = view
        rows = view.ledger.execute(self.statement, (self.after, PAGE)).fetchall()
        for row in rows:
            self.look(row)
            self.after = row[0]
        self.done += len(rows)
        if len(rows) < PAGE:
            self.end()
            return None
        return Progress(check=self.name, done=self.done, total=self.total())

    def look(self, row: Row) -> None:
        """Look at one row."""
        raise AssertionError(row)

    def end(self) -> None:
        """Look at the whole, after the last page."""

    def total(self) -> int | None:
        """How many rows there are, where that is known without counting."""
        return None

    def found(self, subject: object, problem: str) -> None:
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(Finding(check=self.name, subject=str(subject), problem=problem))


class _Schema:
    """The schema is exactly the one that this program's migrations make."""

    name = "schema"

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def page(self, view: View) -> Progress | None:
        if schema.describe(view.ledger.connection) != schema.EXPECTED:
            self.findings.append(
                Finding(
                    check=self.name, subject="schema", problem="it is not what this program's migrations make"
                )
            )
        return None


class _Pages:
    """SQLite's own look at its pages and indexes, one table at a time."""

    name = "integrity"

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self._tables: list[str] | None = None
        self._done = 0

    def page(self, view: View) -> Progress | None:
        connection = view.ledger.connection
        if self._tables is None:
            self._tables = [row[0] for row in connection.execute(_TABLES)]
        if self._done == len(self._tables):
            return None
        table = self._tables[self._done]
        self._done += 1
        for (answer,) in connection.execute(f"PRAGMA integrity_check('{table}')"):
            if answer != "ok":
                self.findings.append(Finding(check=self.name, subject=table, problem=answer))
        return Progress(check=self.name, done=self._done, total=len(self._tables))


_TABLES: Final = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"


class _Events(_Paged):
    """Every event is there, is what it was, and follows from the one before it.

    A terminal one is its command's receipt.
    """

    name = "chain"
    statement = "verify_events"

    def __init__(self) -> None:
        super().__init__()
        self._link: Chain | None = None

    def look(self, row: Row) -> None:
        seq, kind, at, run_id, command_id, operation_id, terminal, digest, value, body, receipt_seq = row
        if seq == 1:
            self._link = chain.origin(self.view.journal_id)
        if seq != self.after + 1:
            self.found(f"event {self.after + 1}", "it is missing")
            self._link = None
        if problem := broken_link(self._link, digest=digest, value=value, body=body):
            self.found(f"event {seq}", problem)
        self._link = value
        if terminal and receipt_seq != seq:
            self.found(
                f"event {seq}", f"its command {command_id} has the receipt {receipt_seq}, not this one"
            )
        if body is not None:
            row_says = (self.view.journal_id, seq, kind, at, run_id, command_id, operation_id, bool(terminal))
            self._compare(seq, body, row_says)

    def _compare(self, seq: int, body: bytes, row_says: Sequence[object]) -> None:
        try:
            frame: dict[str, Any] = json.loads(body)
        except ValueError:
            self.found(f"event {seq}", "its content is not JSON")
            return
        for name, said in zip(_ENVELOPE, row_says, strict=True):
            if frame.get(name) != said:
                self.found(f"event {seq}", f"its {name} is {frame.get(name)!r}, and its row says {said!r}")

    def end(self) -> None:
        if self.after != self.view.last_seq or (self._link is not None and self._link != self.view.chain):
            self.found("journal", f"its chain ends at event {self.after}, and should at {self.view.last_seq}")

    def total(self) -> int:
        return self.view.last_seq


_ENVELOPE: Final = ("journal_id", "seq", "kind", "at", "run_id", "command_id", "operation_id", "terminal")


class _Payloads(_Paged):
    """What is kept outside the chain has the digest that the chain names."""

    name = "payloads"
    statement = "verify_payloads"

    def look(self, row: Row) -> None:
        seq, digest, payload, body = row
        if payload is not None and not self._matches(payload, digest):
            self.found(f"payload {seq}", "its content does not match its digest")
        if body is not None:
            named = json.loads(body).get("data", {}).get("payload_digest")
            if named != digest:
                self.found(f"payload {seq}", "its event names another digest")

    def _matches(self, payload: bytes, digest: str) -> bool:
        """Whether the digest is the plain one, or, where something is withheld, the one under the key.

        Without the key (`verify_file` says that it is missing) nothing can be told about the latter.
        """
        if chain.digest(payload) == digest:
            return True
        key = self.view.ledger.key
        return self.view.has_keyed_digests if key is None else key.digest(payload) == digest


class _Commands(_Paged):
    """A command's receipt is an event of its own, and terminal."""

    name = "receipts"
    statement = "verify_commands"

    def look(self, row: Row) -> None:
        rowid, command_id, receipt_seq, receipt_kind, kind, terminal, command = row
        if receipt_seq is not None and (kind, terminal, command) != (receipt_kind, 1, rowid):
            self.found(f"command {command_id}", f"its receipt, event {receipt_seq}, is none")


class _Operations(_Paged):
    """An operation's row fits the lifecycle; one that ended has a receipt; the counts add up."""

    name = "operations"
    statement = "verify_operations"

    def __init__(self) -> None:
        super().__init__()
        self._counts: Counter[str] = Counter()
        self._as_of: int | None = None

    def page(self, view: View) -> Progress | None:
        if self._as_of is None:
            self._as_of = view.last_seq
        return super().page(view)

    def look(self, row: Row) -> None:
        try:
            found = operation_row(row)
        except ValueError as error:
            self.found(f"operation {row[5]}", str(error))
            return
        operation = found.record
        self._counts[operation.state] += 1
        if (operation.state in ENDED) != (operation.ended_at is not None):
            self.found(
                f"operation {operation.operation_id}", f"{operation.state}, and ended at {operation.ended_at}"
            )
        if operation.state in ENDED and found.receipt_seq is None:
            self.found(f"operation {operation.operation_id}", "it has ended, and its command has no receipt")
        if listed(operation) is not found.listed or (listed(operation) and operation.settled):
            judgement = Judgement(operation.effect, operation.effect_by)
            self.found(f"operation {operation.operation_id}", f"its listing does not follow from {judgement}")

    def end(self) -> None:
        # a journal that went on meanwhile has other counts by now
        if self.view.last_seq == self._as_of and self._counts != Counter(dict(self.view.counts())):
            self.found("counts", f"{dict(self.view.counts())} are kept, and {dict(self._counts)} are there")

    def total(self) -> int:
        return sum(self.view.counts().values())


class _Runs(_Paged):
    """A run's counts are those of its operations."""

    name = "runs"
    statement = "verify_runs"

    def look(self, row: Row) -> None:
        _, run_id, operations, unsettled, operations_found, unsettled_found = row
        if (operations, unsettled) != (operations_found, unsettled_found):
            self.found(
                f"run {run_id}",
                f"{operations} operations and {unsettled} unsettled are kept, "
                f"and {operations_found} and {unsettled_found} are there",
            )


class _Deliveries(_Paged):
    """A row that no event repeats matches its own digest."""

    name = "deliveries"
    statement = "verify_deliveries"

    def look(self, row: Row) -> None:
        if row_digest(*row[1:-1]) != row[-1]:
            self.found(f"delivery {row[0]}", "it does not match its digest")


class _DeadLetters(_Paged):
    """A row that no event repeats matches its own digest."""

    name = "dead letters"
    statement = "verify_dead_letters"

    def look(self, row: Row) -> None:
        if row_digest(*row[:-1]) != row[-1]:
            self.found(f"dead letter {row[0]}", "it does not match its digest")


def _bounded() -> tuple[Check, ...]:
    """The checks whose every page takes a bounded time."""
    return _Schema(), _Events(), _Payloads(), _Commands(), _Operations(), _Deliveries(), _DeadLetters()


def verify(view: View, progress: Report, *, deep: bool = False) -> tuple[Finding, ...]:
    """Return everything that is wrong with the journal that `view` sees. Takes as long as it takes.

    `deep` also rebuilds every projection from the events, in memory, and compares.
    """
    findings: list[Finding] = []
    for check in (_Pages(), *_bounded(), _Runs()):
        try:
            while (reached := check.page(view)) is not None:
                progress(reached)
        except sqlite3.DatabaseError as error:
            findings.append(
                Finding(check=check.name, subject="journal", problem=f"it cannot be read: {error}")
            )
        findings += check.findings
    if deep and not findings:
        findings += [
            Finding(check="projections", subject=table, problem=problem)
            for table, problem in differences(view)
        ]
    return tuple(findings)


async def verify_journal(journal: Journal, progress: Report) -> tuple[Finding, ...]:
    """Return everything that is wrong with a running journal, looked at in pages between its commits.

    Raises `JournalFailed` where SQLite itself reports corruption: then the daemon stops anyway.
    """
    findings: list[Finding] = []
    for check in _bounded():
        while (reached := await journal.read(check.page)) is not None:
            progress(reached)
        findings += check.findings
    return tuple(findings)


def verify_file(
    settings: JournalSettings, progress: Report, *, now: datetime, deep: bool = False
) -> tuple[Finding, ...]:
    """Return everything that is wrong with the journal of a state folder that no daemon uses. Blocks.

    Raises an `OpenRefused` for what is no journal of this folder, or is in use.
    """
    with entered(settings) as folder:
        identity = read_identity(folder.path)
        if identity is None or identity.journal is None:
            return ()
        path = identity.path(folder.path)
        head = inspect(path, identity, tail=False)
        key, lost = _key(folder.path, head)
        with looking(path) as connection:
            view = View(Ledger(connection, read_head(connection), key), now, room=False)
            return lost + verify(view, progress, deep=deep)


def _key(folder: Path, head: Head) -> tuple[DigestKey | None, tuple[Finding, ...]]:
    """Return the folder's key, or that it cannot be used: everything else can be looked at without it."""
    try:
        return find_key(folder, head.key_check), ()
    except (DigestKeyMissing, DigestKeyWrong) as error:
        return None, (Finding(check="key", subject=error.path.name, problem=error.problem),)
