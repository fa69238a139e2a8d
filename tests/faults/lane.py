"""What a lane is: an attack with a seed and a time box, and a report that says whether it was one.

A lane fails where a promise was broken, and also where one of the states that it is meant to reach was never
reached, or one of its faults never fired: a lane that proves nothing must not pass.
"""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, TypeAlias

BROKEN_MAX = 20
"""How many broken promises are printed."""

DUPLICATE_EFFECTS: Final = "duplicate effects"
LOST_RECEIPTS: Final = "lost receipts"
CONTRADICTING_RECEIPTS: Final = "contradicting receipts"
HANGS: Final = "hangs over 10 s"
ORPHANS: Final = "orphans"
MEASURES: Final = (DUPLICATE_EFFECTS, LOST_RECEIPTS, CONTRADICTING_RECEIPTS, HANGS, ORPHANS)
"""The figures that all lanes share; each states those that it measures, even where they are 0."""

Run: TypeAlias = Callable[[int, float, int], "Report"]
"""Takes a seed, how many seconds there are, and after how many points it may end before."""

Need: TypeAlias = Callable[[], str | None]
"""Says what this machine lacks, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """How much a lane does in a run: it ends at whichever comes first."""

    seconds: float
    points: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One lane, and what it takes."""

    name: str
    module: str
    """Exports `NAME` and `run`; imported by the lane's own process alone."""
    what: str
    """What it does, in a line."""
    points: str
    """What it counts."""
    normal: Box
    """In `make faults`."""
    full: Box
    """In `make faults-full`."""
    cores: int = 1
    """How many it keeps busy; those of one run side by side, and what mostly waits (0) beside any."""
    needs: tuple[Need, ...] = ()

    def lacking(self) -> list[str]:
        """Return what this machine lacks."""
        return [word for need in self.needs if (word := need()) is not None]


@dataclass(frozen=True, slots=True)
class Time:
    """How long a lane goes on. What must be seen may take twice its box: a slow machine sees no less."""

    ends: float
    latest: float

    @classmethod
    def of(cls, seconds: float) -> "Time":
        """Return a box that begins now."""
        now = monotonic()
        return cls(ends=now + seconds, latest=now + 2 * seconds)

    def is_left(self, *, is_missing: bool) -> bool:
        """Whether to go on, where something that must be seen is missing or is not."""
        return monotonic() < (self.latest if is_missing else self.ends)


def program(name: str) -> Need:
    """Need a program on the path."""
    return lambda: None if shutil.which(name) else f"there is no {name}"


def root() -> str | None:
    """Need to be root."""
    return None if os.geteuid() == 0 else "this is not root"


def is_strict() -> bool:
    """Whether what cannot be run fails: in continuous integration."""
    return bool(os.environ.get("CI"))


@dataclass(slots=True, kw_only=True)
class Report:
    """What a lane did."""

    name: str
    seed: int
    points: int = 0
    """How many were tried."""
    tried: str
    """The same in words, with what else is to be known: the first line."""
    fired: Counter[str] = field(default_factory=Counter[str])
    """The faults that were really there, by kind."""
    reached: Counter[str] = field(default_factory=Counter[str])
    wanted: frozenset[str] = frozenset()
    """What `fired` and `reached` must hold between them."""
    figures: dict[str, int] = field(default_factory=dict[str, int])
    """What was measured and must be 0, by its name; see `MEASURES`."""
    broken: list[str] = field(default_factory=list[str])
    """Each promise that was broken, with what replays it."""
    lacking: list[str] = field(default_factory=list[str])
    """Parts that this machine cannot run, and why: they fail where CI is set."""
    notes: list[str] = field(default_factory=list[str])
    seconds: float = 0.0
    """How long it took; the battery fills it in."""
    cpu_s: float = 0.0
    """What it and its children took of the cores, as far as they were waited for."""

    @property
    def missed(self) -> list[str]:
        """What was never reached."""
        return sorted(name for name in self.wanted if not self.fired[name] and not self.reached[name])

    @property
    def measured(self) -> list[str]:
        """The figures that are not 0."""
        return [f"{count:,} {name}" for name, count in sorted(self.figures.items()) if count]

    @property
    def holds(self) -> bool:
        """Whether the lane passes."""
        return not (self.broken or self.missed or self.measured or (self.lacking and is_strict()))

    def lines(self) -> list[str]:
        """The report."""
        found = [f"{self.name}: seed {self.seed}, {self.tried}", f"  faults: {_counted(self.fired)}"]
        found += [f"  reached: {_counted(self.reached)}"]
        if self.figures:
            found.append("  measured: " + ", ".join(f"{n:,} {name}" for name, n in self.figures.items()))
        found += [f"  {note}" for note in self.notes]
        found += [f"  not run: {part}" for part in self.lacking]
        found += [f"  NEVER REACHED: {name}" for name in self.missed]
        found += [f"  NOT 0: {text}" for text in self.measured]
        found += [f"  BROKEN: {text}" for text in self.broken[:BROKEN_MAX]]
        if len(self.broken) > BROKEN_MAX:
            found.append(f"  … and {len(self.broken) - BROKEN_MAX} more")
        return found

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads, and whether it holds."""
        return {
            "name": self.name,
            "seed": self.seed,
            "points": self.points,
            "tried": self.tried,
            "fired": dict(sorted(self.fired.items())),
            "reached": dict(sorted(self.reached.items())),
            "wanted": sorted(self.wanted),
            "figures": self.figures,
            "broken": self.broken,
            "lacking": self.lacking,
            "notes": self.notes,
            "seconds": round(self.seconds, 1),
            "cpu_s": round(self.cpu_s, 1),
            "holds": self.holds,
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Report":
        """Return the report that `to_json` gave."""
        words = {key: value for key, value in found.items() if key != "holds"}
        words["fired"], words["reached"] = Counter(words["fired"]), Counter(words["reached"])
        words["wanted"] = frozenset(words["wanted"])
        return cls(**words)


def failed(name: str, seed: int, why: str, seconds: float) -> Report:
    """Return the report of a lane that could not give one."""
    return Report(name=name, seed=seed, tried="no report", broken=[why], seconds=seconds)


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items())) or "none"
