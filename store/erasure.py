"""Erases content: a bounded step with each commit, from where the last one ended.

Part of `store`; imports its own modules. Runs in the owner's thread, within the open transaction.

Two things are erased. **Secrets**: what a contract withholds stands in one place only, the `data` of the
command as it was received, because it has to be sent to the provider. An operation that is settled sets `due`
on it, the seq of its receipt; when that is acknowledged, the row's body becomes NULL. And whole **commands**,
on demand (`run.erase`): their data, the bodies of all their events, and what the projections repeat of them.
Identities, outcomes, digests and the chain stay; of each event, what the projections are made of
(`cuts.stripped`) stands in `remains` from then on.

SQLite (`secure_delete`) writes zeros over what is erased. Old copies of its pages stand in the `-wal` until
that is emptied: see `store.writer`.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from store import chain
from store.cuts import stripped
from store.events import SupervisorVerdict
from store.head import Ledger
from store.projection import erasable
from store.records import TOOL_CALL, OperationId
from store.tables import RUN_END, OperationRow, find_operation
from store.wire import as_json, from_json

ERASED_MAX: Final = 64
"""Payloads, or commands, erased with one commit, some ten microseconds each, or some hundred."""
ERASED_BYTES_MAX: Final = 1_048_576
"""What is overwritten with one commit, unless one payload alone is larger."""
VERDICTS_MAX: Final = 256
"""A supervisor's verdicts of one run that are looked at when something of it was erased."""
KEPT_MAX: Final = 64
"""Operations that an answer names as kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Debt:
    """What is still to be erased: what waits for its acknowledgement, and whether some of it is due."""

    waiting: bool
    due: bool


NO_DEBT: Final = Debt(waiting=False, due=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """What one step erased."""

    anything: bool
    demanded: bool
    """Whether somebody has asked for it, and waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunErasure:
    """What a demand to erase a run comes to: operations that are erased with this commit or the next ones."""

    erased: int
    unsettled: int
    """Kept, because somebody may have to look at them."""
    unacknowledged: int
    """Kept, because the plane has not acknowledged all of their events."""
    kept: tuple[OperationId, ...]
    """The first of those that are kept, at most `KEPT_MAX`."""


def erase(ledger: Ledger) -> Erased:
    """Erase the oldest of what is due."""
    commands = _erase_commands(ledger)
    secrets = _erase_secrets(ledger)
    return Erased(anything=commands or secrets, demanded=commands)


def debt(ledger: Ledger) -> Debt:
    """Return what is still to be erased. Looks at one entry of an index or two."""
    if ledger.execute("next_erasure").fetchone() is not None:
        return Debt(waiting=True, due=True)
    row = None if ledger.head.key_check is None else ledger.execute("next_due").fetchone()
    return NO_DEBT if row is None else Debt(waiting=True, due=row[0] <= ledger.head.acked_seq)


# ------------------------------------------------------------ secrets


def _erase_secrets(ledger: Ledger) -> bool:
    if ledger.head.key_check is None:
        return False  # no contract has withheld anything yet
    erased = size = 0
    for seq, length in ledger.execute("due", (ledger.head.acked_seq, ERASED_MAX)).fetchall():
        size += length
        if erased and size > ERASED_BYTES_MAX:
            break
        ledger.execute("erase", (seq,))
        erased += 1
    return erased > 0


# ------------------------------------------------------------ commands


def demand(ledger: Ledger, run: int) -> RunErasure:
    """Have the settled and acknowledged commands of a run erased, by this commit and the next ones.

    That a run was ended, and how, is an outcome, and stays.
    """
    erased = unsettled = unacknowledged = 0
    kept: list[OperationId] = []
    acked = ledger.head.acked_seq
    for command, kind, operation_id, receipt_seq in ledger.execute("commands_to_erase", (run,)).fetchall():
        if kind != TOOL_CALL:
            if (
                kind != RUN_END
                and receipt_seq is not None
                and max(_with_copies(ledger, (receipt_seq,))) <= acked
            ):
                ledger.execute("demand_erasure", (command,))
            continue
        row = find_operation(ledger, operation_id)
        assert row is not None, "a call that was accepted has an operation"
        is_over = erasable(row.record)
        if is_over and _is_acknowledged(ledger, row, acked):
            ledger.execute("demand_erasure", (command,))
            erased += 1
            continue
        unsettled += not is_over
        unacknowledged += is_over
        kept.append(row.record.operation_id)
    return RunErasure(
        erased=erased, unsettled=unsettled, unacknowledged=unacknowledged, kept=tuple(kept[:KEPT_MAX])
    )


def _is_acknowledged(ledger: Ledger, row: OperationRow, acked: int) -> bool:
    """Whether the plane has all of the operation's events, and each of their commands its receipt."""
    events = ledger.execute("events_to_prune", (row.id,)).fetchall()
    commands = {command for _, _, command in events if command is not None}
    receipts = (ledger.execute("receipt_of", (command,)).fetchone()[0] for command in commands)
    return events[-1][0] <= acked and all(seq is not None and seq <= acked for seq in receipts)


def is_erased(ledger: Ledger, command: int) -> bool:
    """Whether the command's content was erased: then nothing that is content is kept of it any more."""
    row = ledger.execute("erasure", (command,)).fetchone()
    return row is not None and row[0] == 1


def _erase_commands(ledger: Ledger) -> bool:
    erased = size = 0
    runs: set[int] = set()
    for command, operation_id, accepted_seq, receipt_seq in ledger.execute(
        "erasures_due", (ERASED_MAX,)
    ).fetchall():
        row = None if operation_id is None else find_operation(ledger, operation_id)
        if row is not None and row.command == command:
            size += _erase_operation(ledger, row)
            runs.add(row.run)
        else:
            size += _erase_events(ledger, (accepted_seq, receipt_seq))
            ledger.execute("erasure_done", (command,))
        erased += 1
        if size > ERASED_BYTES_MAX:
            break
    for run in runs:
        _erase_verdicts(ledger, run)
    return erased > 0


def _erase_verdicts(ledger: Ledger, run: int) -> None:
    """Erase what a supervisor said of several operations at once, when all of them are erased or gone."""
    acked = ledger.head.acked_seq
    for (seq,) in ledger.execute("events_alone_of_run", (run, VERDICTS_MAX)).fetchall():
        kind, body = ledger.execute("event_to_erase", (seq,)).fetchone()
        if kind == SupervisorVerdict.KIND and seq <= acked and _all_erased(ledger, body):
            _erase_events(ledger, (seq,))


def _all_erased(ledger: Ledger, verdict: bytes) -> bool:
    rows = (find_operation(ledger, name) for name in json.loads(verdict)["data"]["operation_ids"])
    return all(row is None or is_erased(ledger, row.command) for row in rows)


def _erase_operation(ledger: Ledger, row: OperationRow) -> int:
    """Erase a call, and every other command whose events are its operation's. Returns how many bytes."""
    if not erasable(row.record):
        ledger.execute("delete_erasure", (row.command,))  # it was taken up again meanwhile
        return 0
    events = ledger.execute("events_to_prune", (row.id,)).fetchall()
    size = _erase_events(ledger, tuple(seq for seq, _, _ in events))
    for command in {row.command, *(command for _, _, command in events)}:
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
            ledger.execute("erase", (seq,))
            size += len(payload[0])
    return size


def _left(kind: str, body: bytes) -> bytes:
    """Return what is kept of an event's frame."""
    frame: dict[str, Any] = json.loads(body)
    try:
        frame["data"] = as_json(stripped(from_json(kind, frame["data"])))
    except ValueError:
        frame["data"] = {}  # damaged, as a rebuild will say: but what was to be erased goes all the same
    frame.pop("chain", None)
    return json.dumps(frame, separators=(",", ":"), allow_nan=False).encode("ascii")
