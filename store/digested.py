"""Rows that no event repeats: each has a digest of its own, and some must fit the events around them.

Part of `store`; imports its own modules. Used by `store.checks`.
"""

from store.findings import Paged
from store.head import row_digest
from store.located import Row


class _Digested(Paged):
    """Each row matches its own digest, which is its last column, and covers all but the first."""

    subject = ""
    """What a row is about; the first column says which."""

    def look(self, row: Row) -> None:
        """Look at one row."""
        if row_digest(*row[1:-1]) != row[-1]:
            self.found(f"{self.subject} {row[0]}", "it does not match its digest")


class DeliveriesCheck(_Digested):
    """When commands arrived, and what they were answered."""

    name = "deliveries"
    statement = "verify_deliveries"
    subject = "delivery"


class TriagesCheck(_Digested):
    """How the triage of each run stands."""

    name = "triages"
    statement = "verify_triages"
    subject = "triage of run"


class ObservationsCheck(_Digested):
    """What was seen around attempts."""

    name = "observations"
    statement = "verify_observations"
    subject = "observation"


class GapsCheck(Paged):
    """Where events were pruned there are none, and the one behind them is there."""

    name = "gaps"
    statement = "verify_gaps"

    def look(self, row: Row) -> None:
        """Look at one row."""
        first, last, value, has_events, has_next, digest = row
        subject = f"events {first} to {last}"
        if row_digest(first, last, value) != digest:
            self.found(subject, "what is noted of their pruning does not match its digest")
        if has_events or not has_next:
            self.found(subject, "they are noted as pruned, and are not, or nothing stands behind them")


class PiecesCheck(Paged):
    """A piece belongs to one payload, or is what is left of one; none is missing before it."""

    name = "pieces"
    statement = "verify_pieces"

    def look(self, row: Row) -> None:
        """Look at one row; its content is looked at with its payload."""
        rowid, of, n, before, is_named, is_shred = row
        if bool(is_named) == bool(is_shred):
            self.found(f"piece {rowid}", f"it is one of {of}, which is neither kept nor over, or both")
        if n != before + 1:
            self.found(f"piece {rowid}", f"it is number {n} of {of}, and the one before it number {before}")


class ShredsCheck(Paged):
    """What is still to be removed is there."""

    name = "shreds"
    statement = "verify_shreds"

    def look(self, row: Row) -> None:
        """Look at one row."""
        of, is_left = row
        if not is_left:
            self.found(f"shreds of {of}", "nothing of it is left")


class WalksCheck(Paged):
    """A row that no event repeats matches its own digest; its command is still to be answered."""

    name = "walks"
    statement = "verify_walks"

    def look(self, row: Row) -> None:
        """Look at one row."""
        command, command_id, receipt_seq, *values, digest = row
        if row_digest(command_id, *values) != digest:
            self.found(f"walk of command {command}", "it does not match its digest")
        if receipt_seq is not None:
            self.found(f"walk of command {command}", "the command has its receipt")


class TombstonesCheck(Paged):
    """A row that no event repeats matches its own digest; what it stands for is gone."""

    name = "tombstones"
    statement = "verify_tombstones"

    def look(self, row: Row) -> None:
        """Look at one row."""
        rowid, *values, kept, has_gap, digest = row
        if row_digest(*values) != digest:
            self.found(f"tombstone {rowid}", "it does not match its digest")
        if kept is not None:
            self.found(f"tombstone {rowid}", f"its command {values[0]} was never pruned")
        if not has_gap:
            self.found(f"tombstone {rowid}", f"its receipt, event {values[3]}, was never pruned")


class TracesCheck(Paged):
    """A row that no event repeats matches its own digest."""

    name = "traces"
    statement = "verify_traces"

    def look(self, row: Row) -> None:
        """Look at one row."""
        *values, run_id, digest = row
        if row_digest(*values) != digest:
            self.found(f"trace of run {row[0]}", "it does not match its digest")
        if run_id != row[1]:
            self.found(f"trace of run {row[0]}", f"it is about {row[1]}, and the run is {run_id}")
