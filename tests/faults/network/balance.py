"""What a worker of `network` or `hostile` has done, with the figures that must be 0 in it."""

from collections import Counter
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from tests.faults.journal_errors import Tally
from tests.faults.lane import HANGS

HANG_S: Final = 10.0


@dataclass(slots=True, kw_only=True)
class Balance(Tally):
    """A tally, and its figures."""

    figures: Counter[str] = field(default_factory=Counter[str])

    def took(self, began: float) -> None:
        """Note how long something took that began then."""
        took_s = monotonic() - began
        self.slowest_s = max(self.slowest_s, took_s)
        self.figures[HANGS] += took_s > HANG_S
