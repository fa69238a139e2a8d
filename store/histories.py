"""Which history of the file its events belong to, and whether what is kept of the histories is whole.

Part of `store`; imports its own modules. Used by `store.checks`.
"""

from bisect import bisect_left

from store.findings import Finder, Progress
from store.head import row_digest
from store.records import History, JournalId
from store.view import View


class Histories:
    """Which history of the file each of its events belongs to, as of one page."""

    def __init__(self, view: View) -> None:
        ended = view.histories()
        self._ended = {item.last: item for item in ended}
        self._bases = [item.base for item in ended] + [view.base]
        self._journal_ids = [item.journal_id for item in ended] + [view.journal_id]

    def ended_before(self, seq: int) -> History | None:
        """Return the history whose last event is the one before `seq`."""
        return self._ended.get(seq - 1)

    def begins_with(self, seq: int) -> bool:
        """Whether the event is the first of its history."""
        return seq - 1 in self._bases

    def base_of(self, seq: int) -> int:
        """Return the seq before the first event of this one's history."""
        return self._bases[max(bisect_left(self._bases, seq) - 1, 0)]

    def journal_id(self, seq: int) -> JournalId:
        """Return the name of the event's history."""
        return self._journal_ids[max(bisect_left(self._bases, seq) - 1, 0)]

    def on_wire(self, seq: int) -> tuple[JournalId, int]:
        """Return the name of the event's history, and how the wire calls the event."""
        place = max(bisect_left(self._bases, seq) - 1, 0)
        return self._journal_ids[place], seq - self._bases[place]

    def is_later(self, seq: int | None, than: int) -> bool:
        """Whether an event belongs to a later history: what was recorded in an earlier one may be, again."""
        return seq is not None and self.base_of(seq) > self.base_of(than)


class HistoriesCheck(Finder):
    """What stands beside the fence, and which histories ended, matches its own digest."""

    name = "histories"

    def page(self, view: View) -> Progress | None:
        """Look at all of it: there is little."""
        for _, *values, digest in view.ledger.execute("histories"):
            if row_digest(*values) != digest:
                self.found(f"history {values[0]}", "it does not match its digest")
        for *values, digest in view.ledger.execute("marks"):
            if row_digest(*values) != digest:
                self.found(f"mark {values[0]}", "it does not match its digest")
        bases = [(item.base, item.last) for item in view.histories()]
        ends = [0, *(last for _, last in bases)]
        if [base for base, _ in bases] != ends[:-1]:
            self.found("histories", "one does not begin where the one before it ended")
        return None
