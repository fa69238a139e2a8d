"""An operation that holds a slot, and what a step of it can come to.

Part of `driver.engine`; imports `driver.core` and its own siblings.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

import anyio

from driver.core.attempts import Phase
from driver.engine.assignments import Assignment
from driver.engine.queue import Waiting
from store.records import Digest


@dataclass(slots=True)
class Running:
    """An operation that holds a slot."""

    assignment: Assignment
    deadline_at: datetime | None = None
    """Set once the intent is committed."""
    phase: Phase = Phase.RESERVED
    cancelled: bool = False
    interrupted: bool = False
    """Whether its preparation was cut short: then there must be no intent."""
    definition: Digest | None = None
    """Of the tool as it was served when the attempt was prepared, where that is what a person approves."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    def reach(self, phase: Phase) -> None:
        """Note the phase that the call has got to."""
        self.phase = phase

    def cancel(self) -> None:
        """Stop preparing or calling; before the first byte the last look sees it too."""
        self.cancelled = True
        self.scope.cancel()


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
