"""Duty: take each event once, in order, and acknowledge only what is committed.

Part of `driver.plane`; imports `driver.core.frames`. An event that arrives is one of these:

* the next one (`seq` is the watermark + 1): it is stored, and the watermark moves;
* a repeat (`seq` at or below the watermark): the same bytes are success, other bytes a **conflict**; one that
  a gap had passed over is news, and is stored;
* ahead of the stream: something was lost, and the daemon must come back and start again from the watermark.

The chain ties each event to all before it. An event whose chain does not follow from ours belongs to another
history than the one we hold, just like other bytes under a known seq: the answer to both is a `conflict`
nack, which fences the daemon. An event that is malformed but holds its place is kept, refused (`invalid`),
and passed: it holds up nothing.
"""

import hashlib
import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from driver.core.frames import Ack, EventFrame, Gap, InvalidEvent, Nack, Retired

_CHAIN: Final = re.compile(r',\s*"chain"\s*:\s*"([0-9a-f]{32})"\s*\}\s*\Z')
_ENDINGS: Final = frozenset(
    {
        "operation.succeeded",
        "operation.failed",
        "operation.not_executed",
        "operation.unknown",
        "operation.late_result",
        "operation.reconciled",
    }
)
"""The kinds whose `effect` is what is now known of their operation."""


_RECEIPTS: Final = frozenset(
    {
        *_ENDINGS - {"operation.late_result", "operation.reconciled"},
        *("command.refused", "command.completed", "command.failed"),
    }
)
"""The kinds that can be a command's receipt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One frame of the stream, with the text that it came as."""

    frame: EventFrame | InvalidEvent | Gap
    text: str


@dataclass(slots=True, kw_only=True)
class Intake:
    """What became of a batch: the answers, in order, and whether the stream can go on."""

    replies: list[Ack | Nack] = field(default_factory=list[Ack | Nack])
    stopped: Literal["conflict", "out_of_order"] | None = None
    unfenced: bool = False


def take(connection: sqlite3.Connection, journal_id: str, batch: Sequence[Arrival], told: int) -> Intake:
    """Store `batch`, and return the answers. `told` is the last watermark that the daemon was told.

    For `Ledger.change`: the answers may be sent when that has returned, and not before.
    """
    stream = _Stream(connection, journal_id, told)
    for arrival in batch:
        if stream.intake.stopped is None:
            stream.take(arrival)
    return stream.finish()


def retire(connection: sqlite3.Connection, frame: Retired) -> None:
    """Keep what is left of a receipt whose events the daemon has pruned. A receipt that is known stands.

    Nothing unsettled is ever pruned, so nobody is left in doubt.
    """
    connection.execute(
        "UPDATE commands SET accepted=1, operation_id=?, journal_id=?, receipt_kind=?, receipt_seq=?,"
        " effect=? WHERE command_id=? AND receipt_kind IS NULL",
        (frame.operation_id, frame.journal_id, frame.kind, frame.seq, frame.effect, frame.command_id),
    )


class _Stream:
    """One batch of one journal's stream."""

    def __init__(self, connection: sqlite3.Connection, journal_id: str, told: int) -> None:
        self.intake = Intake()
        self._db = connection
        self._journal_id = journal_id
        self._told = told
        self._reached = told
        row = connection.execute(
            "SELECT seq, chain FROM journals WHERE journal_id=?", (journal_id,)
        ).fetchone()
        self._seq: int = row["seq"]
        self._chain: str = row["chain"]

    def take(self, arrival: Arrival) -> None:
        frame = arrival.frame
        self._reached = max(self._reached, frame.to if isinstance(frame, Gap) else frame.seq)
        match frame:
            case Gap() as gap:
                self._skip(gap)
            case event if event.seq <= self._seq:
                self._compare(event, arrival.text)
            case event if event.seq == self._seq + 1:
                self._store(event, arrival.text)
            case _:
                self.intake.stopped = "out_of_order"

    def finish(self) -> Intake:
        self._db.execute(
            "UPDATE journals SET seq=?, chain=? WHERE journal_id=?",
            (self._seq, self._chain, self._journal_id),
        )
        self._acknowledge()
        return self.intake

    def _acknowledge(self) -> None:
        """The watermark, as far as this connection has got: the one before it may have brought more."""
        mark = min(self._seq, self._reached)
        if mark > self._told:
            self._told = mark
            self.intake.replies.append(Ack(seq=mark))

    def _refuse(self, seq: int, code: Literal["invalid", "conflict"], message: str) -> None:
        """What came before is acknowledged first: an `ack` beyond `seq` would say that this one was taken."""
        self._acknowledge()
        if code == "conflict":
            self.intake.stopped = "conflict"
        self.intake.replies.append(Nack(seq=seq, code=code, message=message))

    def _skip(self, gap: Gap) -> None:
        if gap.from_ > self._seq + 1:
            self.intake.stopped = "out_of_order"
        elif gap.to > self._seq:
            self._seq, self._chain = gap.to, gap.chain

    def _compare(self, event: EventFrame | InvalidEvent, text: str) -> None:
        stored = self._db.execute(
            "SELECT refused, body FROM events WHERE journal_id=? AND seq=?", (self._journal_id, event.seq)
        ).fetchone()
        if stored is None:
            # a gap passed over it; its place in the chain cannot be checked, but it may be a receipt
            self._keep(event, text, _fault(event))
        elif stored["body"] != text:
            self._refuse(event.seq, "conflict", "other bytes were seen under this seq")
        elif stored["refused"]:
            self._refuse(event.seq, "invalid", "this event was refused before")

    def _store(self, event: EventFrame | InvalidEvent, text: str) -> None:
        chain = chain_after(self._chain, text)
        if chain not in (event.chain, None):
            self._refuse(event.seq, "conflict", "the chain does not follow from the events seen before")
            return
        self._keep(
            event, text, _fault(event) or ("chain: must be the last member" if chain is None else None)
        )
        self._seq, self._chain = event.seq, event.chain

    def _keep(self, event: EventFrame | InvalidEvent, text: str, fault: str | None) -> None:
        if fault:
            self._refuse(event.seq, "invalid", fault)
        elif isinstance(event, EventFrame):
            self._learn(event)
        self._db.execute(
            "INSERT INTO events (journal_id, seq, refused, body) VALUES (?, ?, ?, ?)",
            (self._journal_id, event.seq, fault is not None, text),
        )

    def _learn(self, event: EventFrame) -> None:
        """Bring `commands` up to what the event says. The first receipt of a command stands."""
        self.intake.unfenced |= event.kind == "driver.unfenced"
        if event.command_id is None:
            return
        if event.origin != "plane":
            self._db.execute(
                "INSERT OR IGNORE INTO commands (command_id, origin, driver_id, run_id, created_at, kind)"
                " VALUES (?, ?, (SELECT driver_id FROM journals WHERE journal_id=?), ?, ?, ?)",
                (
                    *(event.command_id, event.origin, event.journal_id),
                    *(event.run_id, event.at, _text(event, "kind")),
                ),
            )
        if event.kind == "command.accepted":
            self._db.execute(
                "UPDATE commands SET accepted=1, write=? WHERE command_id=?",
                (event.data.get("write") is not False, event.command_id),
            )
        is_receipt = event.terminal or _was_receipt(event)
        if event.kind == "operation.started" or (is_receipt and event.kind in _ENDINGS):
            # other events may name an operation that another command started: a verdict does
            self._db.execute(
                "UPDATE commands SET operation_id=? WHERE command_id=?",
                (event.operation_id, event.command_id),
            )
        if is_receipt:
            self._db.execute(
                "UPDATE commands SET receipt_kind=?, receipt_seq=?, journal_id=?"
                " WHERE command_id=? AND receipt_kind IS NULL",
                (event.kind, event.seq, event.journal_id, event.command_id),
            )
        if event.kind in _ENDINGS:
            # a journal that was rolled back may know less than the receipt that another one has brought, and
            # what is only reported again may be old: what is known by now stands
            self._db.execute(
                "UPDATE commands SET effect=?, unsettled=(write AND ?)"
                " WHERE operation_id=? AND (journal_id=? OR NOT ?) AND (effect IS NULL OR NOT ?)",
                (
                    *(_text(event, "effect"), _leaves_doubt(event), event.operation_id),
                    *(event.journal_id, is_receipt, _is_requeued(event)),
                ),
            )


def _fault(event: EventFrame | InvalidEvent) -> str | None:
    return event.message if isinstance(event, InvalidEvent) else None


def _text(event: EventFrame, member: str) -> str | None:
    value = event.data.get(member)
    return value if isinstance(value, str) else None


def _is_requeued(event: EventFrame) -> bool:
    return "requeue_of" in event.data


def _was_receipt(event: EventFrame) -> bool:
    """Whether it reports a receipt again: of that command the plane has none, or took one after all."""
    return _is_requeued(event) and event.kind in _RECEIPTS and "supersedes" not in event.data


def _leaves_doubt(event: EventFrame) -> bool:
    """Whether nobody knows, after this event, what its operation did. Any verdict settles that."""
    if event.kind == "operation.reconciled" or event.data.get("effect") != "unknown":
        return False
    return event.kind == "operation.unknown" or event.data.get("error_means") == "unsettled"


def chain_after(previous: str, text: str) -> str | None:
    """Return the chain after the event `text`, as docs/protocol.md (section 3) defines it.

    None where `chain` is not the last member, and the event therefore belongs to no chain.
    """
    found = _CHAIN.search(text)
    if found is None:
        return None
    digest = hashlib.sha256(text[: found.start()].encode() + b"}").hexdigest()
    return hashlib.sha256((previous + digest).encode()).hexdigest()[:32]
