"""What every part of the engine stands on, for one process life.

Part of `driver.engine`; imports `driver.providers.protocol`, `store` and its own siblings.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from driver.core.attempts import Report
from driver.engine.machine import Machine
from driver.engine.posture import Limits, Posture
from driver.engine.terms import Terms
from driver.engine.traces import UNTRACED, Traces
from driver.faults import Boundary
from driver.providers.protocol import Provider
from store.journal import Journal
from store.records import OperationId


def nobody_hears(operation_id: OperationId, report: Report) -> None:
    """Where nobody waits for answers as they came."""
    del operation_id, report


def random_digits() -> str:
    """Return 32 hex digits that nobody can foresee."""
    return uuid4().hex


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The journal, the outside, and the rules that hold."""

    journal: Journal
    providers: Mapping[str, Provider]
    terms: Terms
    posture: Posture
    limits: Limits
    scope: str
    """What operation ids are made within (`control.scope`)."""
    clock: Callable[[], datetime]
    machine: Machine
    boundary: Boundary
    new_id: Callable[[], str] = random_digits
    """Returns 32 hex digits, other ones each time; called from any thread."""
    traces: Traces = UNTRACED
    answered: Callable[[OperationId, Report], None] = nobody_hears
    """Told what was seen of a call's end, as it came, before its outcome is recorded; nothing may go out by
    that."""
    lose: str | None = None
    """The operation, or the tool, whose answers a drill loses (`driver.engine.loss`)."""
