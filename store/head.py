"""How far the journal has come: its one row, held in memory while it is open.

Part of `store`; imports its records, lifecycle, located rows, pace and statements. The row is read at open,
kept by the owner's thread, and written once by each commit that writes; so the counts and the chain cost no
query, and every commit rewrites the page that says whose file this is.
"""

import hashlib
import json
import sqlite3
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from store import chain
from store.keys import DigestKey
from store.lifecycle import State
from store.located import CommandRow, OperationRow, Row, RunRow, command_row, operation_row
from store.pace import Pace
from store.records import Chain, Digest, Fence, JournalId, Timestamp
from store.statements import STATEMENTS

FRAME_BYTES_BEFORE_WELCOME: Final = 65_536
"""What an event is cut to before the plane has ever said what it takes (docs/protocol.md, section 1)."""


class Reached(NamedTuple):
    """How far a journal has come: of `Head`, what others than the owner's thread want to know."""

    base: int
    last_seq: int
    acked_seq: int


@dataclass(slots=True, kw_only=True)
class Head:
    """The journal as a whole, as of the newest event.

    The owner's ledger moves `last_seq`, `chain` and the counts of its own in place, once for each event.
    """

    file_id: str
    journal_id: JournalId
    created_at: Timestamp
    base: int
    """The seq before the first event of this history: 0, unless the file held an earlier one."""
    last_seq: int
    chain: Chain
    acked_seq: int
    plane_frame_bytes_max: int
    fence: Fence | None
    key_check: str | None
    """Which key the keyed digests in here were made with; None while there are none."""
    counts: dict[State, int]
    """How many operations are in each state. Every state is present."""

    @property
    def reached(self) -> "Reached":
        """How far the journal has come by now."""
        return Reached(self.base, self.last_seq, self.acked_seq)


def new_head(*, file_id: str, journal_id: JournalId, created_at: Timestamp) -> Head:
    """Return the head of a journal without events."""
    return Head(
        file_id=file_id,
        journal_id=journal_id,
        created_at=created_at,
        base=0,
        last_seq=0,
        chain=chain.origin(journal_id),
        acked_seq=0,
        plane_frame_bytes_max=FRAME_BYTES_BEFORE_WELCOME,
        fence=None,
        key_check=None,
        counts=dict.fromkeys(State, 0),
    )


def row_digest(*values: str | int | None) -> str:
    """Return the digest of a row that no event repeats.

    SQLite's integrity_check does not see a flipped bit in a value.
    """
    # a damaged row may hold a value of any type
    return hashlib.sha256(_encode(values).encode("ascii")).hexdigest()[:32]


_encode: Final = json.JSONEncoder(default=repr).encode
"""`json.dumps` would make an encoder each time."""


def _row(head: Head) -> tuple[str | int | None, ...]:
    fence = head.fence
    return (
        head.file_id,
        head.journal_id,
        head.created_at,
        head.last_seq,
        head.chain,
        head.acked_seq,
        head.plane_frame_bytes_max,
        None if fence is None else fence.reason,
        None if fence is None else fence.detail,
        None if fence is None else fence.at,
        head.key_check,
        json.dumps(dict(head.counts)),
    )


def write_head(connection: sqlite3.Connection, head: Head) -> None:
    """Make `head` the journal's row, within the open transaction."""
    row = _row(head)
    connection.execute(STATEMENTS["write_head"], (*row, row_digest(*row)))


class HeadDamaged(Exception):
    """The journal's row is missing, or is not what was written. Mapped by whoever opens the file."""

    def __init__(self, *, problem: str) -> None:
        super().__init__(f"the row that says which journal this is {problem}")


def read_head(connection: sqlite3.Connection) -> Head:
    """Return the journal's row. Raises `HeadDamaged`."""
    row = connection.execute(STATEMENTS["read_head"]).fetchone()
    if row is None:
        raise HeadDamaged(problem="is missing")
    *values, digest = row
    if row_digest(*values) != digest:
        raise HeadDamaged(problem="does not match its digest")
    (
        file_id,
        journal_id,
        created_at,
        last_seq,
        chain_value,
        acked_seq,
        frame_bytes,
        reason,
        detail,
        at,
        key_check,
        counts,
    ) = values
    return Head(
        file_id=file_id,
        journal_id=JournalId(journal_id),
        created_at=Timestamp(created_at),
        base=_base(connection),
        last_seq=last_seq,
        chain=Chain(chain_value),
        acked_seq=acked_seq,
        plane_frame_bytes_max=frame_bytes,
        fence=None if reason is None else Fence(reason=reason, detail=detail, at=Timestamp(at)),
        key_check=key_check,
        counts={State(state): count for state, count in json.loads(counts).items()},
    )


def _base(connection: sqlite3.Connection) -> int:
    """Return where the present history begins: behind the newest of those that ended."""
    if connection.execute(STATEMENTS["has_histories"]).fetchone() is None:
        return 0  # a file of an earlier version, before its migration
    rows = connection.execute(STATEMENTS["histories"]).fetchall()
    for _, *values, digest in rows:
        if row_digest(*values) != digest:
            raise HeadDamaged(problem="belongs to a history that does not match its digest")
    return int(rows[-1][3]) if rows else 0


Parameters = tuple[object, ...] | dict[str, object]
"""What a statement is run with."""


@dataclass(slots=True)
class Ledger:
    """The open journal as its owner's thread sees it: connection, head as of now, and the folder's key."""

    connection: sqlite3.Connection
    head: Head
    key: DigestKey | None = None
    """None only where nothing is recorded."""
    rewritten: int = 0
    """How often something that was recorded was erased: what was read of it before does not hold any more."""

    progress: int = 0
    """Counts the steps of units that may take long: such a unit is no journal that hangs."""

    shreds: bool = True
    """Whether there may be pieces of what is over (`store.pieces`)."""

    vanishing: bool = False
    """Whether somebody waits until what he had erased is in no file any more."""

    pace: Pace = field(default_factory=Pace)
    """How much is pruned or erased with one commit."""

    def execute(self, name: str, parameters: Parameters = ()) -> sqlite3.Cursor:
        """Run the statement `name` of `store/sql/`, after whatever waits to be written."""
        return self.connection.execute(STATEMENTS[name], parameters)

    def look(self, name: str, parameters: Parameters = ()) -> sqlite3.Cursor:
        """Run a query that nothing which waits to be written can be the answer to."""
        return self.connection.execute(STATEMENTS[name], parameters)

    def ask(self, name: str, *parameters: object) -> Row | None:
        """Return the first row that such a query has; it may be remembered until something else is written.

        For tables of which nothing ever waits to be written.
        """
        row: Row | None = self.look(name, parameters).fetchone()
        return row

    def command(self, command_id: str) -> CommandRow | None:
        """Return a command; None where there is none."""
        row = self.look("command", (command_id,)).fetchone()
        return None if row is None else command_row(row)

    def operation(self, operation_id: str) -> OperationRow | None:
        """Return an operation; None where there is none."""
        row = self.look("operation", (operation_id,)).fetchone()
        return None if row is None else operation_row(row)

    def run(self, run_id: str) -> RunRow | None:
        """Return a run; None where no event names it."""
        row = self.look("run", (run_id,)).fetchone()
        return None if row is None else RunRow(*row)

    def has_ended(self, run_id: str) -> bool:
        """Whether a run was ended."""
        found = self.run(run_id)
        return found is not None and bool(found.ended)

    def has_alike(self, run: int, args_digest: Digest) -> bool:
        """Whether a run has, or had, a write with these arguments."""
        found = self.look("has_alike", {"run": run, "args_digest": args_digest}).fetchone()
        return bool(found[0])
