"""The journal as a whole, to whoever looks at it: its history, how far it has come, and why it may not act.

Part of `store`; imports its own modules. `store.view` adds the questions about what stands in it.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from store.head import Ledger
from store.records import Chain, Fence, History, JournalId


class Outline:
    """What a look at the journal says without being asked about anything in particular."""

    __slots__ = ("_has_room", "ledger", "now")

    def __init__(self, ledger: Ledger, now: datetime, *, has_room: Callable[[], bool]) -> None:
        self.ledger: Final = ledger
        """For `store`'s own modules."""
        self.now: Final = now
        """The time of this unit, aware, sampled by the journal's owner."""
        self._has_room: Final = has_room

    @property
    def room(self) -> bool:
        """Whether there is space, at this moment, for new work; what settles old work has a reserve."""
        return self._has_room()

    @property
    def journal_id(self) -> JournalId:
        """The history that this file holds."""
        return self.ledger.head.journal_id

    @property
    def base(self) -> int:
        """The seq before this history's first event: 0, unless the file held an earlier history.

        All seqs here count on through the histories of the file; the wire counts from this one's beginning.
        """
        return self.ledger.head.base

    def wire_seq(self, seq: int) -> int:
        """Return how the wire calls the event `seq` of this file, in its own history."""
        return seq - self.base if seq > self.base else seq - self.history_of(seq).base

    def history_of(self, seq: int) -> History:
        """Return the earlier history that the event `seq` belongs to. Raises LookupError for one of this."""
        for history in self.histories():
            if history.base < seq <= history.last:
                return history
        raise LookupError(f"event {seq} belongs to no earlier history of this file")  # noqa: TRY003 - a bug of ours

    def histories(self) -> tuple[History, ...]:
        """Return the histories that the file held before this one, the oldest first."""
        return tuple(
            History(journal_id=journal_id, base=base, last=last, chain=chain, acked=acked, ended_at=ended_at)
            for _, journal_id, base, last, chain, acked, ended_at, _ in self.ledger.execute("histories")
        )

    def mark(self, name: str) -> str | None:
        """Return the detail of a mark that stands; None where it does not."""
        row = self.ledger.execute("mark", (name,)).fetchone()
        return None if row is None else row[0]

    @property
    def last_seq(self) -> int:
        """The newest event's seq; 0 before the first."""
        return self.ledger.head.last_seq

    @property
    def chain(self) -> Chain:
        """The hash chain as of `last_seq`."""
        return self.ledger.head.chain

    def chain_at(self, seq: int) -> Chain | None:
        """Return the hash chain as of `seq` (`base`: before the first event); None where that was pruned.

        Of events that were pruned together, it is kept as of the last one.
        """
        if seq == self.base:
            return Chain(self.journal_id)
        row = self.ledger.execute("chain_at", (seq,)).fetchone()
        if row is not None:
            return Chain(row[0])
        gap = self.ledger.execute("gap_before", (seq,)).fetchone()
        return None if gap is None else Chain(gap[2])

    @property
    def acked_seq(self) -> int:
        """The watermark: up to here the plane has made everything durable."""
        return self.ledger.head.acked_seq

    @property
    def fence(self) -> Fence | None:
        """Why nothing may be dispatched or sent, or None."""
        return self.ledger.head.fence

    @property
    def has_keyed_digests(self) -> bool:
        """Whether a digest under the folder's key was ever recorded."""
        return self.ledger.head.key_check is not None

    @property
    def plane_frame_bytes_max(self) -> int:
        """The longest frame that the plane last said it takes; 65,536 before it has said anything."""
        return self.ledger.head.plane_frame_bytes_max
