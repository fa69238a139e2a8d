"""What a worker of `network`, `hostile` or `errors` has done, with the figures that must be 0 in it."""

from collections import Counter
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from tests.faults.journal_errors import Tally
from tests.faults.lane import CONTRADICTING_RECEIPTS, DUPLICATE_EFFECTS, HANGS, LOST_RECEIPTS, ORPHANS
from tests.system.audit import EXECUTIONS, key_of
from tests.system.plane import ScriptedPlane
from tests.system.sandbox import Sandbox

HANG_S: Final = 10.0


@dataclass(slots=True, kw_only=True)
class Balance(Tally):
    """A tally, and its figures."""

    figures: Counter[str] = field(default_factory=Counter[str])
    lacking: list[str] = field(default_factory=list[str])

    def took(self, began: float) -> None:
        """Note how long something took that began then."""
        took_s = monotonic() - began
        self.slowest_s = max(self.slowest_s, took_s)
        self.figures[HANGS] += took_s > HANG_S

    def count_in(self, made: Sandbox, plane: ScriptedPlane) -> None:
        """Count what is broken in a sandbox: what its servers have executed, and those that outlived it."""
        self.figures[ORPHANS] += made.orphans
        self.count(plane, made.executions())

    def count(self, plane: ScriptedPlane, executed: Counter[str]) -> None:
        """Count what is broken of the promises that have figures: what was doubled, is owed, or is untrue."""
        receipts = {name: plane.receipt(name) for name in plane.orders}
        untrue = sum(
            executed[key_of(plane.orders[name].command)] not in EXECUTIONS.get(receipt["kind"], (0, 1))
            for name, receipt in receipts.items()
            if receipt is not None
        )
        violations = len(plane.violations) + sum(len(each.violations) for each in plane.histories.values())
        self.figures[DUPLICATE_EFFECTS] += executed.total() - len(executed)
        self.figures[LOST_RECEIPTS] += list(receipts.values()).count(None)
        self.figures[CONTRADICTING_RECEIPTS] += untrue + violations
