"""Tells the log what becomes of commands and operations: one line for each change of state, once durable.

Part of `driver.engine`; imports `store`. A listener of the journal, so that no path to a state can forget its
line. A line has ids, names and codes, and never what a call was about, nor what it came to.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

import structlog

from store.events import (
    ApprovalDecided,
    ApprovalRequested,
    AttemptEnded,
    CommandAccepted,
    CommandCompleted,
    CommandFailed,
    CommandRefused,
    LateResult,
    OperationCompensated,
    OperationFailed,
    OperationNotExecuted,
    OperationReconciled,
    OperationStarted,
    OperationSucceeded,
    OperationUnknown,
)
from store.records import JsonObject, StoredEvent

log = structlog.get_logger(__name__)

TOLD_AFTER_S: Final = 0.02
"""Longer than a lone call takes, with both of its commits: its lines stand in the way of neither."""
ANSWERED_S: Final = 0.001
"""So soon after a receipt its answer is on the way, and whoever has asked can hardly have asked again."""

Told = Mapping[str, tuple[str, tuple[str, ...]]]

TOLD: Final[Told] = {
    CommandRefused.KIND: ("command_refused", ("code",)),
    CommandCompleted.KIND: ("command_ended", ()),
    CommandFailed.KIND: ("command_ended", ("code",)),
    ApprovalRequested.KIND: ("approval_requested", ("approval_id", "tool", "expires_at")),
    ApprovalDecided.KIND: ("approval_decided", ("approval_id", "decision", "approver")),
    OperationStarted.KIND: ("operation_started", ("tool", "attempt", "deadline_at")),
    AttemptEnded.KIND: ("attempt_ended", ("attempt", "outcome", "reason", "phase")),
    OperationSucceeded.KIND: ("operation_ended", ("effect", "attempts", "duration_ms")),
    OperationFailed.KIND: ("operation_ended", ("effect", "attempts", "duration_ms", "error_means")),
    OperationNotExecuted.KIND: ("operation_ended", ("effect", "reason")),
    OperationUnknown.KIND: ("operation_ended", ("effect", "reason", "phase", "attempts")),
    LateResult.KIND: ("late_result", ("attempt", "effect")),
    OperationReconciled.KIND: ("operation_reconciled", ("effect", "basis", "actor")),
    OperationCompensated.KIND: ("operation_compensated", ("compensation_operation_id", "effect")),
}
"""By kind: the line, and which members of the event's data stand in it. An acceptance is told apart below.

What is not here changes no state, or is told with more where it comes from: probes, triages, fences.
"""


class Chronicle:
    """Logs what is committed a moment after, all of that moment together.

    By then providers are called and answers are on their way, of which each line would hold up every one.
    """

    def __init__(self) -> None:
        self._untold: list[StoredEvent] = []
        self._timer: asyncio.TimerHandle | None = None

    def hear(self, events: Sequence[StoredEvent]) -> None:
        """Log these newly committed events in a moment, or with `tell`. A listener of the journal."""
        if log.get_effective_level() > logging.INFO:
            return
        self._untold.extend(events)
        loop = asyncio.get_running_loop()
        at = loop.time() + (ANSWERED_S if any(event.terminal for event in events) else TOLD_AFTER_S)
        if self._timer is None or at < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_at(at, self.tell)

    def tell(self) -> None:
        """Log what was heard, now."""
        if self._timer is not None:
            self._timer.cancel()
        events, self._untold, self._timer = self._untold, [], None
        for event in events:
            _tell(event)


def _tell(event: StoredEvent) -> None:
    if event.requeue_of is not None:
        return
    if event.kind == CommandAccepted.KIND:
        _line(event, *_accepted(event))
    elif (told := TOLD.get(event.kind)) is not None:
        name, members = told
        _line(event, name, _members(event, members))


def _accepted(event: StoredEvent) -> tuple[str, JsonObject]:
    if event.operation_id is None:
        return "command_accepted", _members(event, ("kind",))
    return "operation_accepted", _members(event, ("tool", "write"))


def _line(event: StoredEvent, name: str, members: JsonObject) -> None:
    ids = {
        "seq": event.seq,
        "kind": event.kind,
        "run_id": event.run_id,
        "command_id": event.command_id,
        "operation_id": event.operation_id,
    }
    log.info(name, **{**{key: value for key, value in ids.items() if value is not None}, **members})


def _members(event: StoredEvent, members: tuple[str, ...]) -> JsonObject:
    data = event.data
    return {key: value for key in members if (value := getattr(data, key, None)) is not None}
