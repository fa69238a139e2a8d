"""Counts what the journal records, from the moment that this process life began.

Part of `driver.metrics`; imports `store` only. Told of each commit in the event loop, so it must cost next to
nothing.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from store.events import (
    CommandAccepted,
    CommandFailed,
    CommandRefused,
    DriverFenced,
    OperationDiverged,
    OperationFailed,
    OperationNotExecuted,
    OperationProbed,
    OperationStarted,
    OperationSucceeded,
    OperationUnknown,
    SupervisorVerdict,
)
from store.records import OperationId, StoredEvent

ENDS: Final = frozenset(
    event.KIND for event in (OperationSucceeded, OperationFailed, OperationNotExecuted, OperationUnknown)
)
ELSEWHERE: Final = ""
"""The provider of an operation that an earlier life accepted, or that names none that is configured."""
OPEN_MAX: Final = 100_000
"""Operations whose provider is kept in mind: far more than may be open at once. Others count as elsewhere."""


class Tallies:
    """Counters by what happened; each only grows, and begins at zero with the process."""

    def __init__(self, providers: Collection[str]) -> None:
        self._configured = frozenset(providers)
        self.events: Counter[str] = Counter()
        """By kind."""
        self.ended: Counter[tuple[str, str]] = Counter()
        """Ends of operations, by provider and state."""
        self.attempts: Counter[str] = Counter()
        """By provider."""
        self.refused: Counter[str] = Counter()
        """Final refusals, by code."""
        self.failed: Counter[str] = Counter()
        """Commands that could not do what they were asked, by code."""
        self.probes: Counter[str] = Counter()
        """By verdict."""
        self.divergences = 0
        """Contradictions among proofs."""
        self.verdicts: Counter[str] = Counter()
        """Of the supervisor, by status."""
        self.fences: Counter[str] = Counter()
        """By reason."""
        self._by_member = {
            CommandRefused.KIND: (self.refused, "code"),
            CommandFailed.KIND: (self.failed, "code"),
            OperationProbed.KIND: (self.probes, "verdict"),
            SupervisorVerdict.KIND: (self.verdicts, "status"),
            DriverFenced.KIND: (self.fences, "reason"),
        }
        self._providers: dict[OperationId, str] = {}

    @property
    def duplicated(self) -> int:
        """Probes that found an effect more often than once."""
        return self.probes["duplicated"]

    def note(self, events: Sequence[StoredEvent]) -> None:
        """Count what one commit recorded. Never raises."""
        for event in events:
            self.events[event.kind] += 1
            if event.requeue_of is None:  # nothing happened a second time
                self._note(event)

    def _note(self, event: StoredEvent) -> None:
        match event.kind:
            case CommandAccepted.KIND:
                self._accepted(event)
            case OperationStarted.KIND:
                self.attempts[self._provider(event)] += 1
            case kind if kind in ENDS:
                self.ended[self._provider(event), kind.partition(".")[2]] += 1
                if event.terminal and event.operation_id is not None:
                    self._providers.pop(event.operation_id, None)
            case OperationDiverged.KIND:
                self.divergences += 1
            case _:
                counter, member = self._by_member.get(event.kind, (None, ""))
                if counter is not None:
                    counter[_text(event, member)] += 1

    def _accepted(self, event: StoredEvent) -> None:
        if event.operation_id is None or len(self._providers) >= OPEN_MAX:
            return
        provider = _text(event, "tool").partition("/")[0]
        if provider in self._configured:
            self._providers[event.operation_id] = provider

    def _provider(self, event: StoredEvent) -> str:
        return ELSEWHERE if event.operation_id is None else self._providers.get(event.operation_id, ELSEWHERE)


def _text(event: StoredEvent, name: str) -> str:
    return str(getattr(event.data, name, None) or "")
