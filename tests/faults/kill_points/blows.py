"""Where a life is killed: at a call about a file, or at a named boundary. Part of `kill points`.

A blow at a file is struck by the supervisor of `tests.faults.notifier`, at the N-th call of one kind below
the state, runtime and backup folders: the call waits in the kernel while the process dies, and is never made.
One at a boundary is struck by the daemon itself, as `driver.faults` has it.
"""

import math
import random
from collections import Counter
from dataclasses import dataclass
from typing import Final, TypeAlias

from driver.faults import BOUNDARIES
from tests.faults.notifier import CALLS, KILL, Call

FOLDERS: Final = ("state", "run", "backups")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileBlow:
    """Before the N-th call of a kind."""

    call: str
    number: int

    def __str__(self) -> str:
        return f"{self.call}:{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedBlow:
    """At the N-th passing of a boundary."""

    boundary: str
    passing: int

    def __str__(self) -> str:
        return f"{self.boundary}:{self.passing}"


Blow: TypeAlias = FileBlow | NamedBlow


def kind_of(blow: Blow) -> str:
    """Return the kind of call, or the boundary."""
    return blow.call if isinstance(blow, FileBlow) else blow.boundary


def parse(text: str) -> Blow:
    """Return the blow that is written so. Raises ValueError."""
    name, _, number = text.rpartition(":")
    if name in BOUNDARIES:
        return NamedBlow(boundary=name, passing=int(number))
    if name not in CALLS.values():
        raise ValueError(f"{text} is neither CALL:NUMBER nor BOUNDARY:PASSING")
    return FileBlow(call=name, number=int(number))


@dataclass(slots=True)
class Striker:
    """Decides about each call: it kills at the blow's. Without one it lets all pass, and they are counted."""

    blow: FileBlow | None
    passed: int = 0
    struck: Call | None = None

    def __call__(self, call: Call) -> int:
        if self.blow is None or call.name != self.blow.call:
            return 0
        self.passed += 1
        if self.passed != self.blow.number:
            return 0
        self.struck = call
        return KILL


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Where a life can be killed: how often it makes each kind of call, and passes each boundary."""

    calls: Counter[str]
    boundaries: Counter[str]

    def blows(self) -> list[Blow]:
        """Return each of these places, in a fixed order."""
        calls, boundaries = sorted(self.calls.items()), sorted(self.boundaries.items())
        files = (FileBlow(call=name, number=n + 1) for name, count in calls for n in range(count))
        named = (NamedBlow(boundary=name, passing=n + 1) for name, count in boundaries for n in range(count))
        return [*files, *named]

    def in_order(self, chance: random.Random) -> list[Blow]:
        """Return the same in an order by chance, in which the kinds that there are few of come early."""
        blows = self.blows()
        chance.shuffle(blows)
        many, rank = Counter(map(kind_of, blows)), Counter[str]()
        places: list[tuple[float, int]] = []
        for index, kind in enumerate(map(kind_of, blows)):
            places.append(((rank[kind] + chance.random()) / math.sqrt(many[kind]), index))
            rank[kind] += 1
        return [blows[index] for _, index in sorted(places)]
