"""What a lane is: an attack with a seed and a time box, and a report that says whether it was one.

A lane fails where a promise was broken, and also where one of the states that it is meant to reach was never
reached, or one of its faults never fired: a lane that proves nothing must not pass.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

BROKEN_MAX = 20
"""How many broken promises are printed."""

Run: TypeAlias = Callable[[int, float], "Report"]
"""Takes a seed, and how many seconds there are."""


@dataclass(slots=True, kw_only=True)
class Report:
    """What a lane did."""

    name: str
    seed: int
    tried: str
    """How many points, in words: the first line."""
    fired: Counter[str] = field(default_factory=Counter[str])
    """The faults that were really there, by kind."""
    reached: Counter[str] = field(default_factory=Counter[str])
    wanted: frozenset[str] = frozenset()
    """What `fired` and `reached` must hold between them."""
    broken: list[str] = field(default_factory=list[str])
    """Each promise that was broken, with what replays it."""
    notes: list[str] = field(default_factory=list[str])

    @property
    def missed(self) -> list[str]:
        """What was never reached."""
        return sorted(name for name in self.wanted if not self.fired[name] and not self.reached[name])

    @property
    def holds(self) -> bool:
        """Whether the lane passes."""
        return not self.broken and not self.missed

    def lines(self) -> list[str]:
        """The report."""
        found = [f"{self.name}: seed {self.seed}, {self.tried}", f"  faults: {_counted(self.fired)}"]
        found += [f"  reached: {_counted(self.reached)}", *(f"  {note}" for note in self.notes)]
        found += [f"  NEVER REACHED: {name}" for name in self.missed]
        found += [f"  BROKEN: {text}" for text in self.broken[:BROKEN_MAX]]
        if len(self.broken) > BROKEN_MAX:
            found.append(f"  … and {len(self.broken) - BROKEN_MAX} more")
        return found


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items())) or "none"
