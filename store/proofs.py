"""Whether each operation's effect follows from its evidence, and each contradiction was said (I7).

Part of `store`; imports its own modules. Used by `store.checks`.
"""

from store.events import OperationDiverged
from store.findings import Paged
from store.lifecycle import contradictions, judge
from store.located import Row
from store.records import OperationId
from store.tables import known_of


class ProofsCheck(Paged):
    """An effect is what the evidence says, and nothing else."""

    name = "effects"
    statement = "verify_effects"

    def look(self, row: Row) -> None:
        """Judge one operation again."""
        rowid, operation_id, effect, by, attempts = row
        known = [word for _, word in known_of(self.view.ledger, rowid)]
        subject = f"operation {operation_id}"
        judgement = judge(known, attempts)
        if (judgement.effect, judgement.by) != (effect, by):
            self.found(subject, f"{effect} by {by} is kept, and its evidence says {judgement}")
        if any(contradictions(known[:place], word) for place, word in enumerate(known)):
            self._look_for_alarm(subject, operation_id)

    def _look_for_alarm(self, subject: str, operation_id: OperationId) -> None:
        events = (self.view.event(seq) for seq in self.view.operation_events(operation_id))
        if not any(event is not None and event.kind == OperationDiverged.KIND for event in events):
            self.found(subject, "its evidence contradicts itself, and no event says so")
