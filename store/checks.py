"""The checks of `effectd verify`: one object for each kind of look at the whole journal.

Part of `store`; imports its own modules. Nothing here changes the journal.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from operator import attrgetter
from typing import Any, Final

from store import chain, pieces, schema
from store.digested import (
    DeliveriesCheck,
    GapsCheck,
    ObservationsCheck,
    PiecesCheck,
    ShredsCheck,
    TombstonesCheck,
    TracesCheck,
    TriagesCheck,
    WalksCheck,
)
from store.events import CommandAccepted
from store.findings import Check, Finder, Paged, Progress
from store.head import row_digest
from store.histories import HistoriesCheck
from store.intents import IntentsCheck
from store.lifecycle import ENDED, Effect, Judgement, Source, Standing, State, guards, is_erasable, is_listed
from store.located import Row, operation_row
from store.paths import as_paths
from store.projection import standing_of
from store.proofs import ProofsCheck
from store.recorded import EventsCheck
from store.records import IDENTICAL_DEFAULT
from store.view import View
from store.wire import frame_of


class _Schema(Finder):
    """The schema is exactly the one that this program's migrations make."""

    name = "schema"

    def page(self, view: View) -> Progress | None:
        connection = view.ledger.connection
        if (
            schema.describe(connection) != schema.EXPECTED
            or schema.names(connection) != schema.expected_names()
        ):
            self.found("schema", "it is not what this program's migrations make")
        return None


class _Pages(Finder):
    """SQLite's own look at its pages, indexes and references, one table at a time."""

    name = "integrity"

    def __init__(self) -> None:
        super().__init__()
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
        with closing(connection.execute(f"PRAGMA integrity_check('{table}')")) as answers:
            for (answer,) in answers:
                if answer != "ok":
                    self.found(table, answer)
        with closing(connection.execute(f"PRAGMA foreign_key_check('{table}')")) as dangling:
            for _, rowid, parent, _ in dangling:
                self.found(table, f"row {rowid} belongs to a row of {parent} that is not there")
        return Progress(check=self.name, done=self._done, total=len(self._tables))


_TABLES: Final = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"


class _Payloads(Paged):
    """What is kept outside the chain has the digest that the chain names, or was erased when it was due."""

    name = "payloads"
    statement = "verify_payloads"

    def look(self, row: Row) -> None:
        seq, digest, redact, due, payload, in_pieces, kind, body, erased, receipt_seq, *standing = row
        subject = f"payload {seq}"
        if in_pieces is not None and not pieces.has_any(self.view.ledger, in_pieces):
            self.found(subject, f"it names pieces of {in_pieces}, and there are none")
        payload = pieces.whole(self.view.ledger, payload, in_pieces)
        if body is None:
            self.found(subject, "it belongs to no event")
        elif frame_of(body)["data"].get("payload_digest") != digest:
            self.found(subject, "its event names another digest")
        if payload is not None:
            self._look_at_content(subject, payload, digest, redact, kind)
        elif erased != 1 and (redact is None or receipt_seq is None):
            self.found(subject, "its content is gone, and it was never due to be erased")
        if redact is not None and not _are_paths(redact):
            self.found(subject, "it does not say what is withheld of it")
        waits = redact is not None and payload is not None and _is_erasable(standing)
        if due != (wanted := receipt_seq if waits else None):
            self.found(subject, f"it is to be erased after event {due}, and should be after event {wanted}")

    def _look_at_content(
        self, subject: str, payload: bytes, digest: str, redact: str | None, kind: str
    ) -> None:
        """Look whether the digest is the plain one, or, where something is withheld, the one under the key.

        Without the key (`verify_file` says that it is missing) nothing can be told about the latter.
        """
        if chain.digest(payload) == digest:
            return
        key = self.view.ledger.key
        if not self.view.has_keyed_digests or (key is not None and key.digest(payload) != digest):
            self.found(subject, "its content does not match its digest")
        elif redact is None and kind == CommandAccepted.KIND:
            self.found(subject, "its digest is one of secrets, and it does not say what is withheld of it")


def _are_paths(redact: str) -> bool:
    try:
        return bool(as_paths(redact))
    except ValueError:
        return False


def _is_erasable(of_operation: Sequence[Any]) -> bool:
    write, state, effect, effect_by, error_means = of_operation
    if state is None:
        return False
    by = None if effect_by is None else Source(effect_by)
    return is_erasable(
        Standing(
            write=bool(write),
            state=State(state),
            judgement=Judgement(Effect(effect), by),
            error_means=error_means,
        )
    )


class _Commands(Paged):
    """A command is what its first event says; its receipt is an event of its own, and terminal."""

    name = "receipts"
    statement = "verify_commands"

    def look(self, row: Row) -> None:
        rowid, *columns, kind, terminal, command, seq, body = row
        kept: dict[str, Any] = dict(zip(_COMMAND, columns, strict=True))
        subject = f"command {kept['command_id']}"
        receipt_seq = kept["receipt_seq"]
        if receipt_seq is not None and (kind, terminal, command) != (kept["receipt_kind"], 1, rowid):
            self.found(subject, f"its receipt, event {receipt_seq}, is none")
        if body is None:
            self.found(subject, "there is no event that it was taken, or refused, with")
        else:
            self.compare(subject, kept, _command(frame_of(body), seq))


_COMMAND: Final = (
    "command_id", "run_id", "kind", "origin", "content_digest", "operation_id", "accepted_seq", "accepted_at",
    "receipt_seq", "receipt_kind", "expires_at",
)  # fmt: skip


def _command(frame: Mapping[str, Any], seq: int) -> dict[str, object]:
    """Return what the first event of a command, `seq`, makes of it; its receipt is looked at elsewhere."""
    data, accepted = frame["data"], frame["kind"] == CommandAccepted.KIND
    return {
        **{name: frame[name] for name in ("command_id", "run_id", "origin", "operation_id")},
        "kind": data["kind"] if accepted else "",
        "content_digest": data["content_digest"],
        "accepted_seq": seq if accepted else None,
        "accepted_at": frame["at"],
        "expires_at": data.get("expires_at"),
    }


class _Operations(Paged):
    """An operation is what its acceptance says, and fits the lifecycle; one that ended has a receipt.

    The counts add up.
    """

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
        *columns, kind, body = row
        found = operation_row(tuple(columns))
        operation = found.record
        subject = f"operation {operation.operation_id}"
        self._counts[operation.state] += 1
        if (operation.state in ENDED) != (operation.ended_at is not None):
            self.found(subject, f"{operation.state}, and ended at {operation.ended_at}")
        if operation.state in ENDED and found.receipt_seq is None:
            self.found(subject, "it has ended, and its command has no receipt")
        standing = standing_of(operation)
        if is_listed(standing) is not found.listed or guards(standing) is not operation.guards:
            self.found(subject, f"its listing does not follow from {standing.judgement}")
        if body is None or kind != CommandAccepted.KIND:
            self.found(subject, "there is no event that it was accepted with")
        else:
            kept: dict[str, object] = dict(zip(_ACCEPTANCE, _acceptance(operation), strict=True))
            self.compare(subject, kept, _operation(frame_of(body)))

    def end(self) -> None:
        # a journal that went on meanwhile has other counts by now
        if self.view.last_seq == self._as_of and self._counts != Counter(dict(self.view.counts())):
            self.found("counts", f"{dict(self.view.counts())} are kept, and {dict(self._counts)} are there")

    def total(self) -> int:
        return sum(self.view.counts().values())


_ACCEPTANCE: Final = (
    "operation_id", "command_id", "run_id", "origin", "tool", "args_digest", "write", "identical", "repeat",
    "accepted_at", "expires_at", "parent_operation_id",
)  # fmt: skip
_acceptance: Final = attrgetter(*_ACCEPTANCE)


def _operation(frame: Mapping[str, Any]) -> dict[str, object]:
    """Return what its acceptance makes of an operation."""
    data = frame["data"]
    return {
        **{name: frame[name] for name in ("operation_id", "command_id", "run_id", "origin")},
        **{name: data.get(name) for name in ("tool", "args_digest", "expires_at", "parent_operation_id")},
        "write": data.get("write") is not False,
        "identical": data.get("identical") or IDENTICAL_DEFAULT,
        "repeat": data.get("repeat") is True,
        "accepted_at": frame["at"],
    }


class _Runs(Paged):
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


class _DeadLetters(Paged):
    """A row that no event repeats matches its own digest; what it was requeued as says so."""

    name = "dead letters"
    statement = "verify_dead_letters"

    def look(self, row: Row) -> None:
        *values, digest, body, left = row
        seq, *_, requeued_as = values
        if row_digest(*values) != digest:
            self.found(f"dead letter {seq}", "it does not match its digest")
        again = body or left
        if requeued_as is not None and (
            again is None or frame_of(again)["data"].get("requeue_of") != self.view.wire_seq(seq)
        ):
            self.found(f"dead letter {seq}", f"it was requeued as event {requeued_as}, which does not say so")


class _Erasures(Paged):
    """Where a command was erased its acceptance is, and where it is still to be erased it is not."""

    name = "erasures"
    statement = "verify_erasures"

    def look(self, row: Row) -> None:
        command, done, is_gone = row
        if done != is_gone:
            self.found(f"erasure of command {command}", "it was done, or not, and its events say otherwise")


class _Remains(Paged):
    """Only of what was erased anything is left; its content is looked at with its event."""

    name = "remains"
    statement = "verify_remains"

    def look(self, row: Row) -> None:
        seq, _, event, is_gone = row
        if event is None or not is_gone:
            self.found(f"what is left of event {seq}", "the event was never erased")


def bounded() -> tuple[Check, ...]:
    """Return fresh checks whose every page takes a bounded time."""
    return (
        _Schema(),
        EventsCheck(),
        _Payloads(),
        _Commands(),
        _Operations(),
        ProofsCheck(),
        IntentsCheck(),
        DeliveriesCheck(),
        _DeadLetters(),
        HistoriesCheck(),
        TriagesCheck(),
        ObservationsCheck(),
        GapsCheck(),
        TombstonesCheck(),
        TracesCheck(),
        _Erasures(),
        _Remains(),
        PiecesCheck(),
        ShredsCheck(),
        WalksCheck(),
    )


def all_checks() -> tuple[Check, ...]:
    """Return all checks, fresh, for a journal that nobody waits for."""
    return _Pages(), *bounded(), _Runs()
