"""Whether each attempt had its intent, and was allowed: I1, I2 and I8 as queries.

Part of `store`; imports its own modules. Used by `store.checks`.

Of rule R a query can state what it rests on: what was known of the earlier attempts when another one began,
and that both contracts declared idempotency with one key. How much time was left could only be said then.
"""

from collections.abc import Sequence
from itertools import pairwise

from store.events import OperationStarted
from store.findings import Paged
from store.lifecycle import Effect, Evidence, Source, judge
from store.located import Row
from store.tables import known_of


class IntentsCheck(Paged):
    """Attempts count from 1, each is an event, and a second one of a write follows from what was known."""

    name = "attempts"
    statement = "verify_intents"

    def look(self, row: Row) -> None:
        """Look at the attempts of one operation."""
        rowid, operation_id, write, accepted_seq, started_seq, count = row
        subject = f"operation {operation_id}"
        attempts = self.view.ledger.execute("attempts_to_verify", (rowid,)).fetchall()
        if [attempt[0] for attempt in attempts] != list(range(1, count + 1)):
            self.found(subject, f"it has {count} attempts, and not all of them are there")
        if started_seq != (attempts[-1][1] if attempts else None):
            self.found(subject, f"it was last started with event {started_seq}, and its last attempt was not")
        for number, seq, _, _, _, kind, of in attempts:
            if (kind, of) != (OperationStarted.KIND, rowid):
                self.found(subject, f"attempt {number} has no intent: event {seq} is none")
        for earlier, later in pairwise(attempts):
            if later[1] <= earlier[1]:
                self.found(subject, f"attempt {later[0]} began before the one before it")
            # what an earlier history of the file knew may be gone
            if write and later[1] > accepted_seq:
                self._look_at_another(subject, rowid, attempts[0], later)

    def _look_at_another(self, subject: str, rowid: int, first: Row, later: Row) -> None:
        number, seq, key, carrier, idempotent, *_ = later
        if key != first[2]:
            self.found(subject, f"attempt {number} carries another key than the first one")
        if idempotent and first[4] and carrier == first[3]:
            return
        judgement = judge(self._known(rowid, seq), number - 1)
        if judgement.effect is not Effect.NONE or judgement.by is Source.SUPERVISOR:
            self.found(
                subject, f"attempt {number} began while nothing proved that those before it did nothing"
            )

    def _known(self, rowid: int, before: int) -> Sequence[Evidence]:
        return [word for _, word in known_of(self.view.ledger, rowid, before)]
