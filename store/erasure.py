"""Erases content: a bounded step with each commit (`store.pace`), from where the last one ended.

Part of `store`; imports its own modules. Runs in the owner's thread, within the open transaction.

Two things are erased. **Secrets**: what a contract withholds stands in one place only, the `data` of the
command as it was received, because it has to be sent to the provider. An operation that is settled sets `due`
on it, the seq of its receipt; when that is acknowledged, the row's body becomes NULL. And whole **commands**,
on demand (`run.erase`): their data, the bodies of all their events, and what the projections repeat of them.
Identities, outcomes, digests and the chain stay; of each event, what the projections are made of
(`cuts.stripped`) stands in `remains` from then on. A run is walked page by page: each page says which of its
commands are to go, and what went before is never looked at again.

SQLite (`secure_delete`) writes zeros over what is erased. Old copies of its pages stand in the `-wal` until
that is emptied: see `store.writer`.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from store import chain, gaps, pieces
from store.cuts import stripped
from store.events import SupervisorVerdict
from store.head import Ledger, row_digest
from store.located import OperationRow, Row
from store.pace import STEP_BYTES, Budget
from store.projection import erasable
from store.records import TOOL_CALL, CommandId, OperationId
from store.tables import RUN_END, find_operation
from store.wire import as_json, frame_of, from_json

ERASED_MAX: Final = 64
"""Payloads, or commands, erased with one commit, some ten microseconds each, or some hundred."""
AT_ONCE: Final = 8
"""Commands that are erased with the commit in which that was demanded, however long it takes."""
WALKED: Final = 64
"""Commands of a run that one page looks at."""
VERDICTS_MAX: Final = 256
"""A supervisor's verdicts of one run that are looked at when something of it was erased."""
KEPT_MAX: Final = 64
"""Operations that an answer names as kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Debt:
    """What is still to be erased: what waits for its acknowledgement, and whether some of it is due."""

    waiting: bool
    due: bool
    demanded: bool
    """Whether somebody has asked for some of it, and waits; or it is left of what was."""


NO_DEBT: Final = Debt(waiting=False, due=False, demanded=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """What one step erased."""

    anything: bool
    secret: bool
    """Whether the `-wal` may hold copies of it that must not stay."""
    recorded: bool
    """Whether something of the events went, or of what the projections repeat of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunErasure:
    """How far the erasure of a run has come: operations that are erased with this commit or the next ones."""

    erased: int = 0
    unsettled: int = 0
    """Kept, because somebody may have to look at them."""
    unacknowledged: int = 0
    """Kept, because the plane has not acknowledged all of their events."""
    kept: tuple[OperationId, ...] = ()
    """The first of those that are kept, at most `KEPT_MAX`."""
    after: int | None = None
    """Where the next page begins; None: that was the last one."""


BEGIN: Final = RunErasure(after=0)
"""Nothing of the run was looked at yet."""


def erase(ledger: Ledger) -> Erased:
    """Erase the oldest of what is due, and some of what is left of it."""
    with ledger.pace.step() as budget:
        commands = _erase_commands(ledger, budget)
        secrets = _erase_secrets(ledger, budget)
        swept, secret = pieces.sweep(ledger, budget)
    if commands or secrets or swept:
        # what was withheld is young: it stands in a few pages, which the `-wal` holds anyway
        ledger.pace.used(scatters=commands or swept)
    return Erased(
        anything=commands or secrets or swept, secret=commands or secrets or secret, recorded=commands
    )


def debt(ledger: Ledger) -> Debt:
    """Return what is still to be erased. Looks at one entry of an index or two."""
    if ledger.shreds or ledger.ask("next_erasure") is not None:
        return Debt(waiting=True, due=True, demanded=True)
    row = None if ledger.head.key_check is None else ledger.execute("next_due").fetchone()
    if row is None:
        return NO_DEBT
    return Debt(waiting=True, due=row[0] <= ledger.head.acked_seq, demanded=False)


# ------------------------------------------------------------ secrets


def _erase_secrets(ledger: Ledger, budget: Budget) -> bool:
    if ledger.head.key_check is None:
        return False  # no contract has withheld anything yet
    erased = 0
    for seq, length in ledger.execute("due", (ledger.head.acked_seq, ERASED_MAX)).fetchall():
        if budget.full:
            break
        _erase_payload(ledger, seq)
        budget.take(length)
        erased += 1
    return erased > 0


def _erase_payload(ledger: Ledger, seq: int) -> None:
    pieces.let_go(ledger, seq, secret=True)
    ledger.execute("erase", (seq,))


# ------------------------------------------------------------ commands


def demand(ledger: Ledger, run: int, so_far: RunErasure) -> RunErasure:
    """Have settled and acknowledged commands of a run erased, by this commit and the next ones: a page of it.

    That a run was ended, and how, is an outcome, and stays.
    """
    ledger.pace.used(scatters=False)
    with ledger.pace.step() as budget:
        rows = ledger.execute("commands_to_erase", (run, so_far.after, WALKED)).fetchall()
        for command, kind, operation_id, receipt_seq, is_left in rows:
            if budget.walked > AT_ONCE and budget.spent:
                return so_far
            if is_left and kind == TOOL_CALL:
                so_far = _demand_call(ledger, command, operation_id, so_far)
            elif is_left and kind != RUN_END and _is_answered(ledger, receipt_seq):
                ledger.execute("demand_erasure", (command,))
            so_far = replace(so_far, after=command)
            budget.walked += 1
    return so_far if len(rows) == WALKED else replace(so_far, after=None)


def _is_answered(ledger: Ledger, receipt_seq: int | None) -> bool:
    """Whether the plane has the receipt of a command that is no call."""
    return receipt_seq is not None and max(_with_copies(ledger, (receipt_seq,))) <= ledger.head.acked_seq


def walk_row(row: Row) -> RunErasure:
    """Return how far the erasure of a run had come."""
    after, erased, unsettled, unacknowledged, kept = row
    return RunErasure(
        erased=erased,
        unsettled=unsettled,
        unacknowledged=unacknowledged,
        kept=tuple(json.loads(kept)),
        after=after if after >= 0 else None,
    )


def walk_values(command_id: CommandId, walk: RunErasure) -> tuple[object, ...]:
    """Return what `set_walk` takes. A walk that has come to its end has no command to go on after: -1."""
    after = -1 if walk.after is None else walk.after
    values = (after, walk.erased, walk.unsettled, walk.unacknowledged, json.dumps(walk.kept))
    return (*values, row_digest(command_id, *values), command_id)


def _demand_call(ledger: Ledger, command: int, operation_id: OperationId, so_far: RunErasure) -> RunErasure:
    row = find_operation(ledger, operation_id)
    assert row is not None, "a call that was accepted has an operation"
    is_over = erasable(row.record)
    if is_over and _is_acknowledged(ledger, row, ledger.head.acked_seq):
        ledger.execute("demand_erasure", (command,))
        return replace(so_far, erased=so_far.erased + 1)
    return replace(
        so_far,
        unsettled=so_far.unsettled + (not is_over),
        unacknowledged=so_far.unacknowledged + is_over,
        kept=(*so_far.kept, row.record.operation_id)[:KEPT_MAX],
    )


def goes_at_once(ledger: Ledger) -> bool:
    """Whether all that was demanded goes with the present commit, and is gone when that is durable."""
    due = ledger.execute("erasures_due", (AT_ONCE + 1,)).fetchall()
    if ledger.shreds or len(due) > AT_ONCE:
        return False
    size = ledger.pace.step().taken
    for _, operation_id, accepted_seq, receipt_seq in due:
        row = None if operation_id is None else find_operation(ledger, operation_id)
        if row is not None and gaps.replaced(ledger, row):
            return False
        seqs = (accepted_seq, receipt_seq) if row is None else _events_of(ledger, row)
        for seq in _with_copies(ledger, seqs):
            length, in_pieces = ledger.execute("weight", (seq,)).fetchone()
            size += length
            if in_pieces or size > STEP_BYTES:
                return False
    return True


def _events_of(ledger: Ledger, row: OperationRow) -> tuple[int, ...]:
    return tuple(event[0] for event in ledger.execute("events_to_prune", (row.id,)))


def _is_acknowledged(ledger: Ledger, row: OperationRow, acked: int) -> bool:
    """Whether the plane has all of the operation's events, and each of their commands its receipt."""
    events = ledger.execute("events_to_prune", (row.id,)).fetchall()
    commands = {event[2] for event in events if event[2] is not None}
    receipts = (ledger.execute("receipt_of", (command,)).fetchone()[0] for command in commands)
    return events[-1][0] <= acked and all(seq is not None and seq <= acked for seq in receipts)


def is_erased(ledger: Ledger, command: int) -> bool:
    """Whether the command's content was erased: then nothing that is content is kept of it any more."""
    if ledger.ask("any_erasure") is None:
        return False
    row = ledger.ask("erasure", command)
    return row is not None and row[0] == 1


def _erase_commands(ledger: Ledger, budget: Budget) -> bool:
    if ledger.ask("next_erasure") is None:
        return False
    erased = 0
    runs: set[int] = set()
    for command, operation_id, accepted_seq, receipt_seq in ledger.execute(
        "erasures_due", (ERASED_MAX,)
    ).fetchall():
        # `goes_at_once` has promised this much, whatever the share
        if budget.taken > STEP_BYTES or (erased >= AT_ONCE and budget.spent):
            break
        row = None if operation_id is None else find_operation(ledger, operation_id)
        if row is not None and row.command == command:
            length = _erase_operation(ledger, row)
            runs.add(row.run)
        else:
            length = _erase_events(ledger, (accepted_seq, receipt_seq))
            ledger.execute("erasure_done", (command,))
        budget.take(length)
        erased += 1
    for run in runs:
        _erase_verdicts(ledger, run)
    ledger.vanishing |= erased > 0
    return erased > 0


def _erase_verdicts(ledger: Ledger, run: int) -> None:
    """Erase what a supervisor said of several operations at once, when all of them are erased or gone."""
    acked = ledger.head.acked_seq
    for (seq,) in ledger.execute("events_alone_of_run", (run, VERDICTS_MAX)).fetchall():
        kind, body = ledger.execute("event_to_erase", (seq,)).fetchone()
        if kind == SupervisorVerdict.KIND and seq <= acked and _all_erased(ledger, body):
            _erase_events(ledger, (seq,))


def _all_erased(ledger: Ledger, verdict: bytes) -> bool:
    rows = (find_operation(ledger, name) for name in frame_of(verdict)["data"]["operation_ids"])
    return all(row is None or is_erased(ledger, row.command) for row in rows)


def _erase_operation(ledger: Ledger, row: OperationRow) -> int:
    """Erase a call, and every other command whose events are its operation's. Returns how many bytes."""
    if not erasable(row.record):
        ledger.execute("delete_erasure", (row.command,))  # it was taken up again meanwhile
        return 0
    if stale := gaps.replaced(ledger, row):
        size = gaps.weight(ledger, stale)
        gaps.trace(ledger, row.run)
        gaps.remove(ledger, stale)
        return size  # the rest with the commits that follow
    events = ledger.execute("events_to_prune", (row.id,)).fetchall()
    size = _erase_events(ledger, tuple(event[0] for event in events))
    for command in {row.command, *(event[2] for event in events)}:
        ledger.execute("erasure_done", (command,))
    ledger.execute("erase_operation", (row.id,))
    ledger.execute("delete_observations", (row.id,))
    return size


def _with_copies(ledger: Ledger, seqs: Iterable[int]) -> Iterator[int]:
    """Yield events, and what reports them again: each as often as it was requeued."""
    for seq in seqs:
        found: int | None = seq
        while found is not None:
            yield found
            row = ledger.execute("dead_letter", (found,)).fetchone()
            found = None if row is None else row[-1]


def _erase_events(ledger: Ledger, seqs: tuple[int, ...]) -> int:
    size = 0
    for seq in _with_copies(ledger, seqs):
        kind, body = ledger.execute("event_to_erase", (seq,)).fetchone()
        if body is not None:
            left = _left(kind, body)
            ledger.execute("insert_remains", (seq, left, chain.digest(left)))
            ledger.execute("erase_event", (seq,))
            size += len(body)
        payload = ledger.execute("payload", (seq,)).fetchone()
        if payload is not None and payload[0] is not None:
            _erase_payload(ledger, seq)
            size += len(payload[0])
    return size


def _left(kind: str, body: bytes) -> bytes:
    """Return what is kept of an event's frame."""
    frame = frame_of(body)
    try:
        frame["data"] = as_json(stripped(from_json(kind, frame["data"])))
    except ValueError:
        frame["data"] = {}  # damaged, as a rebuild will say: but what was to be erased goes all the same
    frame.pop("chain", None)
    return json.dumps(frame, separators=(",", ":"), allow_nan=False).encode("ascii")
