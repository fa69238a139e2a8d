"""What is to be looked at, and when: the order in which the operations of one provider come up.

Part of `driver.engine`, pure: imports `store.records` only.
"""

import heapq
from datetime import datetime

from store.records import OperationId


class Agenda:
    """Mutable. Each operation stands in it once; putting it again moves it."""

    def __init__(self) -> None:
        self._due: dict[OperationId, datetime] = {}
        self._order: list[tuple[datetime, OperationId]] = []
        """With entries that were moved or taken off: they are passed over when they come up."""

    def __len__(self) -> int:
        return len(self._due)

    def put(self, operation_id: OperationId, due: datetime) -> None:
        """Let the operation come up at `due`."""
        if self._due.get(operation_id) != due:
            self._due[operation_id] = due
            heapq.heappush(self._order, (due, operation_id))

    def remove(self, operation_id: OperationId) -> None:
        """Let the operation not come up; one that does not stand here is no error."""
        self._due.pop(operation_id, None)

    def next_due(self) -> datetime | None:
        """Return when the next operation comes up; None where there is none."""
        while self._order and self._due.get(self._order[0][1]) != self._order[0][0]:
            heapq.heappop(self._order)
        return self._order[0][0] if self._order else None

    def take(self, now: datetime) -> OperationId | None:
        """Take off the operation that is due for the longest time; None where none is."""
        due = self.next_due()
        if due is None or due > now:
            return None
        _, operation_id = heapq.heappop(self._order)
        del self._due[operation_id]
        return operation_id
