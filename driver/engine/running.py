"""An operation that holds a slot, and what a step of it can come to.

Part of `driver.engine`; imports `driver.core` and its own siblings.
"""

import math
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

import anyio

from driver.core.attempts import Phase, Report, ToolCall
from driver.core.conclusion import Attempted, Outcome
from driver.core.contracts import ToolName
from driver.engine.assignments import Assignment
from driver.engine.queue import Waiting
from store.records import Digest


@dataclass(slots=True)
class Running:
    """An operation that holds a slot."""

    assignment: Assignment
    place: Waiting | None = None
    """Where it waited for its slot; None where it did not have to."""
    deadline_at: datetime | None = None
    """Set once the intent is committed."""
    started_seq: int = 0
    """Of the intent, as the wire counts; set with it."""
    holding: bool = False
    """Whether the plane's acknowledgement of the intent is waited for."""
    phase: Phase = Phase.RESERVED
    cancelled: bool = False
    recalled: bool = False
    """Whether its call was ended for a last look of its own, before anything left."""
    interrupted: bool = False
    """Whether its preparation was cut short: then there must be no intent."""
    definition: Digest | None = None
    """Of the tool as it was served when the attempt was prepared, where that is what a person approves."""
    scope: anyio.CancelScope | None = None
    """What its preparation, or its call, runs in."""
    cancelled_at: float = math.inf
    """By the event loop's clock."""
    heard: Report | None = None
    """What the provider still said after the call was cancelled."""

    @property
    def is_further(self) -> bool:
        """Whether there may be evidence that speaks against it: of attempts before it, or of none here."""
        return self.assignment.attempt > 1 or self.assignment.revived_by is not None

    def reach(self, phase: Phase) -> None:
        """Note the phase that the call has got to."""
        self.phase = phase

    def call(self, timeout_s: float, traceparent: str | None) -> ToolCall:
        """Return what its provider is asked to do, within that time."""
        assignment = self.assignment
        contract = assignment.contract
        return ToolCall(
            operation_id=assignment.operation_id,
            attempt=assignment.attempt,
            tool=ToolName.parse(assignment.tool).tool,
            arguments=assignment.arguments,
            key=assignment.operation_id,
            timeout_s=timeout_s,
            traceparent=traceparent,
            definition=self.definition,
            alone=assignment.attempt > 1 and contract.write and not contract.idempotent,
        )

    def ended(self, word: Outcome) -> Attempted:
        """Return its attempt, ended with this word."""
        return Attempted(attempt=self.assignment.attempt, phase=self.phase, outcome=word)

    def cancel(self) -> None:
        """Stop preparing or calling; before the first byte the last look sees it too."""
        if not self.cancelled:
            self.cancelled_at = anyio.current_time()
        self.cancelled = True
        self.withdraw()

    def withdraw(self) -> None:
        """End what it waits for."""
        if self.scope is not None:
            self.scope.cancel()

    def recall(self) -> None:
        """End its call, where nothing of it has left: whether it may be sent is to be asked anew."""
        if self.deadline_at is not None and not self.phase.may_have_left:
            self.recalled = True
            self.withdraw()

    def hears(self, attempt: int) -> bool:
        """Whether an answer to this attempt is still waited for, though it was cancelled."""
        return self.cancelled and self.phase.may_have_left and attempt == self.assignment.attempt


@dataclass(frozen=True, slots=True)
class Started:
    """The intent is durable."""


@dataclass(frozen=True, slots=True)
class Over:
    """The operation has ended. `why` no other attempt follows, for the log."""

    why: str | None = None


@dataclass(frozen=True, slots=True)
class Later:
    """No attempt runs, and another one may come."""

    place: Waiting


Step: TypeAlias = Started | Over | Later
