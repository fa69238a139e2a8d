"""What can be asked of the journal: one method for each question, each bounded.

Part of `store`; imports its own modules. A `View` lives in the owner's thread, for the length of one unit: it
is handed to the function that `Journal.read` or `Journal.transact` was given, and must not be kept. Nothing
here awaits; all SQL stands in `store/sql/`.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from store import pieces
from store.delegation import Delegation, delegation, idle_parent
from store.erasure import RunErasure, is_erased, walk_row
from store.lifecycle import State
from store.located import Row, command_row, operation_row, run_record
from store.outline import Outline
from store.paths import as_paths
from store.plans import plan
from store.records import (
    AttemptRecord,
    CommandId,
    CommandRecord,
    DeadLetter,
    DeliveryRecord,
    Digest,
    EvidenceRecord,
    ObservationRecord,
    OperationFilter,
    OperationId,
    OperationRecord,
    Origin,
    Page,
    RunId,
    RunRecord,
    StoredData,
    StoredEvent,
    Timestamp,
    Tombstone,
    TriageRecord,
    Twin,
)
from store.rows import attempt_row, event_row, evidence_row, tombstone_row
from store.tables import EVER, find_command, find_operation
from store.twins import twins
from store.wire import frame_of

T = TypeVar("T")

RESUMED_MAX: Final = 1_024
"""Runs that one run continues, through others, too: who asks for more is told that there are."""
ATTEMPTS_MAX: Final = 512
EVIDENCE_MAX: Final = 512
OPERATION_EVENTS_MAX: Final = 2_048
DELIVERIES_MAX: Final = 64
"""Deliveries kept for one command; the oldest go first."""
PAGE_MAX: Final = 1_024
"""Rows in one page, whatever was asked for."""
WINDOW: Final = 4_096
"""Operations that one page of a listing looks at, about 10 ms: where their filter matches few of them, the
page is short, and its `next` goes on."""

ANSWERS: Final = 512
"""Operations that one page of what was answered looks at: a few milliseconds."""

OBSERVATIONS_MAX: Final = 8
"""Observations of one operation that are handed out: those of its newest attempts."""

PARKED_MAX: Final = 10_000
"""Dead letters that are counted."""
ERASURES_COUNTED_MAX: Final = 10_000


class View(Outline):
    """A consistent look at the journal, between two commits or within one.

    Every method may raise sqlite3.Error, which ends the journal.
    """

    __slots__ = ()

    # ------------------------------------------------------------ commands

    def command(self, command_id: CommandId) -> CommandRecord | None:
        """Return the command, accepted or refused for good."""
        row = find_command(self.ledger, command_id)
        return None if row is None else row.record

    def tombstone(self, command_id: CommandId) -> Tombstone | None:
        """Return what is left of a command that was pruned; None where it was not, or that is over too."""
        row = self.ledger.ask("tombstone", command_id)
        return None if row is None else tombstone_row(row)

    def command_payload(self, command_id: CommandId) -> bytes | None:
        """Return the command's `data` as JSON; None where it is unknown, was never kept, or was erased."""
        command = self.command(command_id)
        if command is None or command.accepted_seq is None:
            return None
        return self._payload(command.accepted_seq)

    def command_data(self, command_id: CommandId) -> StoredData | None:
        """Return the command's `data` as it is kept; None where it is unknown, or was never kept."""
        command = self.command(command_id)
        if command is None or command.accepted_seq is None:
            return None
        row = self.ledger.execute("command_data", (command.accepted_seq,)).fetchone()
        if row is None:
            return None
        redact, *content = row
        body = pieces.whole(self.ledger, *content)
        return StoredData(body=body, redact=as_paths(redact))

    def open_commands(self, run_id: RunId | None, after_seq: int, limit: int) -> tuple[CommandRecord, ...]:
        """Return accepted commands without a receipt, by the seq of their acceptance.

        Of one run, or of all where `run_id` is None.
        """
        count = _bounded(limit)
        if run_id is None:
            rows = self.ledger.execute("open_commands", (after_seq, count))
        else:
            rows = self.ledger.execute("open_commands_of_run", (run_id, after_seq, count))
        return tuple(command_row(row).record for row in rows)

    def open_retries(self) -> Iterator[CommandRecord]:
        """Yield the open commands that ask for another attempt, by the seq of their acceptance."""
        for row in self.ledger.execute("open_retries").fetchall():
            yield command_row(row).record

    def deliveries(self, command_id: CommandId) -> tuple[DeliveryRecord, ...]:
        """Return the newest deliveries of the command (at most `DELIVERIES_MAX` are kept), oldest first."""
        rows = self.ledger.execute("deliveries", (command_id, DELIVERIES_MAX))
        return tuple(DeliveryRecord(command_id=command_id, at=at, answer=answer) for at, answer in rows)

    # ------------------------------------------------------------ operations

    def operation(self, operation_id: OperationId) -> OperationRecord | None:
        """Return the operation."""
        row = find_operation(self.ledger, operation_id)
        return None if row is None else row.record

    def attempts(self, operation_id: OperationId) -> tuple[AttemptRecord, ...]:
        """Return the operation's attempts in order."""
        rows = self.ledger.execute("attempts", (operation_id, ATTEMPTS_MAX))
        return tuple(attempt_row(operation_id, row) for row in rows)

    def evidence(self, operation_id: OperationId) -> tuple[EvidenceRecord, ...]:
        """Return what was learned about the operation, in the order in which it was."""
        rows = self.ledger.execute("evidence", (operation_id, EVIDENCE_MAX))
        return tuple(evidence_row(operation_id, row) for row in rows)

    def delegation(self, operation_id: OperationId) -> Delegation | None:
        """Return what the runs that serve the operation have done so far; None where there is none."""
        row = find_operation(self.ledger, operation_id)
        return None if row is None else delegation(self.ledger, row)

    def idle_parent(self, operation_id: OperationId) -> OperationId | None:
        """Return an operation that counts as not having happened as this one, which serves it, did nothing.

        None where there is none.
        """
        return idle_parent(self.ledger, operation_id)

    def operation_events(self, operation_id: OperationId) -> tuple[int, ...]:
        """Return the seqs of the operation's events, its command's own among them.

        One that only reports a dead letter again is none of them.
        """
        return tuple(
            row[0] for row in self.ledger.execute("events_of_operation", (operation_id, OPERATION_EVENTS_MAX))
        )

    def result(self, operation_id: OperationId) -> bytes | None:
        """Return the newest answer of the provider as JSON; None without one.

        It is whole even where its event was cut.
        """
        operation = self.operation(operation_id)
        if operation is None or operation.result_seq is None:
            return None
        return self._payload(operation.result_seq) or self._result_of_event(operation.result_seq)

    def twins(self, runs: Sequence[RunId], *args_digests: Digest) -> tuple[Twin, ...]:
        """Return the writes with these arguments in these runs, a bounded number, pruned ones included.

        The same arguments may have two digests: a plain one and one under the key. Those that guard come
        first, and those that were pruned last; each part is newest first.
        """
        return twins(self.ledger, runs, args_digests)

    def open_operations(self, after_seq: int, limit: int) -> tuple[OperationRecord, ...]:
        """Return the operations that have not ended, by the seq of their acceptance."""
        rows = self.ledger.execute("open_operations", (after_seq, _bounded(limit)))
        return tuple(map(_record, rows))

    def operations(self, wanted: OperationFilter, before: int | None, limit: int) -> Page[OperationRecord]:
        """Return a page of operations, newest first.

        A page looks at a bounded number of rows: where few match, it may be short, or empty, and still have a
        `next`.
        """
        path, parameters = plan(wanted, self.now)
        parameters["before"] = EVER if before is None else before
        floor = self.ledger.execute(f"floor_{path}", {**parameters, "window": WINDOW - 1}).fetchone()
        parameters["floor"] = 0 if floor is None else floor[0] - 1
        count = _bounded(limit)
        rows = self.ledger.execute(f"page_{path}", {**parameters, "limit": count + 1}).fetchall()
        page = _page(rows, count, _record)
        if page.next is None and floor is not None and floor[0] > 1:
            return replace(page, next=floor[0])
        return page

    def operations_after(self, after: int, limit: int) -> Page[OperationRecord]:
        """Return a page of all operations, oldest first. `after` is the `next` of the page before, or 0."""
        count = _bounded(limit)
        rows = self.ledger.execute("operations_after", (after, count + 1)).fetchall()
        return _page(rows, count, _record)

    def counts(self) -> Mapping[State, int]:
        """Return how many operations are in each state. Costs nothing."""
        return dict(self.ledger.head.counts)

    def unsettled(self) -> tuple[int, Timestamp | None]:
        """Return how many operations are listed as unsettled, and when the oldest of them ended."""
        count, oldest = self.ledger.execute("unsettled").fetchone()
        return count, oldest

    # ------------------------------------------------------------ runs

    def run(self, run_id: RunId) -> RunRecord | None:
        """Return the run; None where no event names it."""
        row = self.ledger.run(run_id)
        return None if row is None else row.record

    def runs(self, before: int | None, limit: int) -> Page[RunRecord]:
        """Return a page of runs, the one that began last first."""
        count = _bounded(limit)
        rows = self.ledger.execute("runs_before", (EVER if before is None else before, count + 1)).fetchall()
        return _page(rows, count, run_record)

    def resumed(self, run_id: RunId) -> tuple[RunId, ...]:
        """Return the runs that this one resumes, directly or through others.

        At most one more than `RESUMED_MAX`: then not all of them are there.
        """
        run = self.ledger.run(run_id)
        if run is None or not run.resumes:
            return ()
        return tuple(
            row[0] for row in self.ledger.execute("resumed", (run_id, RESUMED_MAX + 2)) if row[0] != run_id
        )[: RESUMED_MAX + 1]

    def continuing(self, run_id: RunId) -> tuple[RunId, ...]:
        """Return the runs that resume this one, directly or through others; bounded as `resumed` is."""
        rows = self.ledger.execute("continuing", (run_id, RESUMED_MAX + 2))
        return tuple(row[0] for row in rows if row[0] != run_id)[: RESUMED_MAX + 1]

    def continued(self, run_id: RunId, resumes: Sequence[RunId]) -> tuple[RunId, ...]:
        """Return a run, and all that it continues once it `resumes` these, too: through them as well.

        At most `RESUMED_MAX` beside the run itself, and one more where there are more.
        """
        found = dict.fromkeys((run_id, *resumes))
        covered: set[RunId] = set()
        for name in (run_id, *resumes):
            if name in covered:
                continue  # after its first call a run resumes these already
            earlier = self.resumed(name)
            covered.update(earlier)
            found |= dict.fromkeys(earlier)
            if len(found) > RESUMED_MAX + 1:
                break
        return tuple(found)[: RESUMED_MAX + 2]

    def runs_alike(self, prefix: str, after: RunId | None, limit: int) -> tuple[tuple[RunRecord, bool], ...]:
        """Return runs whose names begin with `prefix`, by name.

        And whether a write in each is over, or pruned, and guards nevertheless. What is not over is found by
        `open_operations`.
        """
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        named: dict[str, object] = {"after": after or prefix, "end": end, "limit": _bounded(limit)}
        rows = self.ledger.execute("runs_alike", named)
        return tuple((run_record(row[:-1]), bool(row[-1])) for row in rows)

    def answers_of_run(
        self, run_id: RunId, origin: Origin, after: int, *, word: str, but: str
    ) -> Page[CommandId]:
        """Return a page of a run's writes of `origin` that may have happened, and whose end nobody has heard.

        An end was heard where, of the command's deliveries noted as `word` or `but`, the newest says `word`.
        A write that was answered counts, unless the answer says that nothing was done; so does one that was
        not answered and is known to have happened. A page looks at `ANSWERS` operations, oldest first: it may
        be empty, and still have a `next`, which is the `after` of the page behind it.
        """
        wanted = {"run_id": run_id, "origin": origin, "after": after, "word": word, "but": but}
        rows = self.ledger.execute("answers_of_run", {**wanted, "limit": ANSWERS}).fetchall()
        items = tuple(CommandId(command_id) for _, command_id, without in rows if without)
        return Page(items=items, next=rows[-1][0] if len(rows) == ANSWERS else None)

    # ------------------------------------------------------------ erasure

    def walk(self, command_id: CommandId) -> RunErasure | None:
        """Return how far the erasure has come that a command asked for; None where it has not begun."""
        row = self.ledger.execute("walk", (command_id,)).fetchone()
        return None if row is None else walk_row(row)

    def erasures_left(self) -> int:
        """Return of how many commands the content is still to go that was demanded, up to a bound."""
        return int(self.ledger.execute("erasures_left", (ERASURES_COUNTED_MAX,)).fetchone()[0])

    # ------------------------------------------------------------ triage

    def unsettled_runs(self, after: int, limit: int) -> Page[RunRecord]:
        """Return a page of the runs that have unsettled operations, the one that began first first.

        `after` is the `next` of the page before, or 0.
        """
        count = _bounded(limit)
        rows = self.ledger.execute("unsettled_runs", (after, count + 1)).fetchall()
        return _page(rows, count, run_record)

    def unsettled_of_run(self, run_id: RunId, limit: int) -> tuple[OperationRecord, ...]:
        """Return the unsettled operations of a run, oldest first."""
        rows = self.ledger.execute("unsettled_of_run", (run_id, _bounded(limit)))
        return tuple(map(_record, rows))

    def settled_of_run(self, run_id: RunId, limit: int) -> tuple[OperationRecord, ...]:
        """Return the newest settled operations of a run, newest first; the newest `WINDOW` are looked at."""
        wanted: dict[str, object] = {"run_id": run_id, "window": WINDOW - 1, "limit": _bounded(limit)}
        rows = self.ledger.execute("settled_of_run", wanted)
        return tuple(map(_record, rows))

    def has_open_operations(self, run_id: RunId) -> bool:
        """Whether anything in the run has not ended: it runs, or waits for its turn or for an approval."""
        return self.ledger.execute("open_in_run", (run_id,)).fetchone() is not None

    def triage(self, run_id: RunId) -> TriageRecord | None:
        """Return how the triage of a run stands; None where no model was asked since its last verdict."""
        row = self.ledger.execute("triage", (run_id,)).fetchone()
        return None if row is None else TriageRecord(run_id=run_id, attempts=row[0], not_before=row[1])

    def observations(self, operation_id: OperationId) -> tuple[ObservationRecord, ...]:
        """Return what was seen around the newest attempts: the newest first, `before` before `after`."""
        rows = self.ledger.execute("observations", (operation_id, OBSERVATIONS_MAX))
        return tuple(
            ObservationRecord(operation_id=operation_id, attempt=attempt, side=side, at=at, text=text)
            for attempt, side, at, text in rows
        )

    # ------------------------------------------------------------ events

    def events(self, after_seq: int, limit: int, bytes_max: int) -> tuple[StoredEvent, ...]:
        """Return the events above `after_seq` in order.

        Up to `limit` of them and `bytes_max` of their bodies; at least one where there is one, so that a long
        event is never a wall.
        """
        return tuple(self._events(after_seq, _bounded(limit), bytes_max))

    def event(self, seq: int) -> StoredEvent | None:
        """Return one event; None where it does not exist or was pruned."""
        row = self.ledger.execute("event", (seq,)).fetchone()
        return None if row is None else event_row(row)

    def is_erased(self, operation_id: OperationId) -> bool:
        """Whether the operation's content was erased: what comes later leaves no content either."""
        row = find_operation(self.ledger, operation_id)
        return row is not None and is_erased(self.ledger, row.command)

    def remains(self, seq: int) -> bytes | None:
        """Return what is left of an event that was erased: its frame, without what had to go."""
        row = self.ledger.execute("remains", (seq,)).fetchone()
        return None if row is None else row[0]

    def last_event(self) -> StoredEvent | None:
        """Return the newest event."""
        return self.event(self.last_seq)

    def is_parked(self, seq: int) -> bool:
        """Whether the event is a dead letter, and so left out of the stream."""
        return self.ledger.execute("is_parked", (seq,)).fetchone() is not None

    def dead_letter(self, seq: int) -> DeadLetter | None:
        """Return the parked event `seq`; None where it was not parked, or is not there."""
        found = self.dead_letters(seq - 1, 1)
        return found[0] if found and found[0].seq == seq else None

    def parked(self) -> int:
        """Return how many events are parked, and were not requeued: `PARKED_MAX` stands for more."""
        return int(self.ledger.execute("count_dead_letters", (PARKED_MAX,)).fetchone()[0])

    def dead_letters(self, after_seq: int, limit: int) -> tuple[DeadLetter, ...]:
        """Return the dead letters above `after_seq` in order."""
        rows = self.ledger.execute("dead_letters", (after_seq, _bounded(limit)))
        return tuple(
            DeadLetter(seq=seq, kind=kind, code=code, message=message, at=at, requeued_as=requeued_as)
            for seq, kind, code, message, at, requeued_as in rows
        )

    # ------------------------------------------------------------ parts

    def _payload(self, seq: int) -> bytes | None:
        return pieces.payload(self.ledger, seq)

    def _result_of_event(self, seq: int) -> bytes | None:
        row = self.ledger.execute("body", (seq,)).fetchone()
        if row is None or row[0] is None:
            return None
        result = frame_of(row[0])["data"].get("result")
        return None if result is None else json.dumps(result, separators=(",", ":")).encode("ascii")

    def _events(self, after_seq: int, limit: int, bytes_max: int) -> Iterator[StoredEvent]:
        size = 0
        for row in self.ledger.execute("events_after", (after_seq, limit)):
            event = event_row(row)
            length = len(event.body or b"")
            if size and size + length > bytes_max:
                return
            size += length or 1
            yield event


def _bounded(limit: int) -> int:
    return max(1, min(limit, PAGE_MAX))


def _page(rows: Sequence[Row], count: int, item: Callable[[Row], T]) -> Page[T]:
    """Return the first `count` rows as a page, whose `next` is the place of its last where there are more."""
    return Page(items=tuple(map(item, rows[:count])), next=rows[count - 1][0] if len(rows) > count else None)


def _record(row: Row) -> OperationRecord:
    return operation_row(row).record
