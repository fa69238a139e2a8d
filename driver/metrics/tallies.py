"""Counts what the journal records, from the moment that this process life began.

Part of `driver.metrics`; imports `store` only. Told of each commit in the event loop, so it must cost next to
nothing.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from store.events import (
    ApprovalRequested,
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
from store.lifecycle import State
from store.records import OperationId, OperationRecord, StoredEvent

ENDS: Final = frozenset(
    event.KIND for event in (OperationSucceeded, OperationFailed, OperationNotExecuted, OperationUnknown)
)
_STATES: Final = {
    CommandAccepted.KIND: State.ACCEPTED,
    ApprovalRequested.KIND: State.AWAITING_APPROVAL,
    OperationStarted.KIND: State.STARTED,
}
"""What leaves an operation open, and in which state."""
STATUSES: Final = ("answered", "repaired", "fallback")
"""How a supervisor's verdict came about."""
ELSEWHERE: Final = ""
"""The provider of an operation that names none that is configured."""
OPEN_MAX: Final = 100_000
"""Open operations that are kept in mind: far more than may be open at once. Others count as elsewhere."""


class Tallies:
    """Counters by what happened; each only grows, and begins at zero with the process.

    What an alert looks for is there from the beginning, as a zero: of a series that begins with a five
    Prometheus sees no increase.
    """

    def __init__(self, providers: Collection[str]) -> None:
        self._configured = frozenset(providers)
        self.events: Counter[str] = Counter()
        """By kind."""
        self.ended: Counter[tuple[str, str]] = Counter(
            {(provider, _outcome(kind)): 0 for provider in self._configured for kind in ENDS}
        )
        """Ends of operations, by provider and state."""
        self.attempts: Counter[str] = Counter(dict.fromkeys(self._configured, 0))
        """By provider."""
        self.refused: Counter[str] = Counter()
        """Final refusals, by code."""
        self.failed: Counter[str] = Counter()
        """Commands that could not do what they were asked, by code."""
        self.probes: Counter[str] = Counter()
        """By verdict."""
        self.divergences = 0
        """Contradictions among proofs."""
        self.verdicts: Counter[str] = Counter(dict.fromkeys(STATUSES, 0))
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
        self._open: dict[OperationId, tuple[str, State]] = {}
        """The provider and the state of each open operation."""

    @property
    def duplicated(self) -> int:
        """Probes that found an effect more often than once."""
        return self.probes["duplicated"]

    @property
    def open(self) -> Counter[tuple[str, str]]:
        """How many operations are open now, by provider and state."""
        return Counter((provider, state.value) for provider, state in self._open.values())

    def recall(self, operations: Sequence[OperationRecord]) -> None:
        """Take note of operations that an earlier life left open."""
        for record in operations:
            self._keep(record.operation_id, self._named(record.tool), record.state)

    def note(self, events: Sequence[StoredEvent]) -> None:
        """Count what one commit recorded. Never raises."""
        for event in events:
            self.events[event.kind] += 1
            if event.requeue_of is None:  # nothing happened a second time
                self._note(event)

    def _note(self, event: StoredEvent) -> None:
        provider = self._follow(event)
        match event.kind:
            case OperationStarted.KIND:
                self.attempts[provider] += 1
            case kind if kind in ENDS:
                self.ended[provider, _outcome(kind)] += 1
            case OperationDiverged.KIND:
                self.divergences += 1
            case _:
                counter, member = self._by_member.get(event.kind, (None, ""))
                if counter is not None:
                    counter[_text(event, member)] += 1

    def _follow(self, event: StoredEvent) -> str:
        """Take note of the state that an event leaves its operation in; return whose operation it is."""
        operation_id = event.operation_id
        if operation_id is None:
            return ELSEWHERE
        known = self._open.get(operation_id)
        tool = _text(event, "tool")
        provider = self._named(tool) if known is None else known[0]
        state = _STATES.get(event.kind)
        if event.kind in ENDS:
            self._open.pop(operation_id, None)
        elif state is not None and (tool or known is not None):
            self._keep(operation_id, provider, state)
        return provider

    def _keep(self, operation_id: OperationId, provider: str, state: State) -> None:
        if operation_id in self._open or len(self._open) < OPEN_MAX:
            self._open[operation_id] = provider, state

    def _named(self, tool: str) -> str:
        provider = tool.partition("/")[0]
        return provider if provider in self._configured else ELSEWHERE


def _outcome(kind: str) -> str:
    return kind.partition(".")[2]


def _text(event: StoredEvent, name: str) -> str:
    return str(getattr(event.data, name, None) or "")
