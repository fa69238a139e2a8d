"""One process of `kill points`: prepares some of the scenes, and fights battle after battle in them.

Part of `kill points`. The order is fixed by the seed: each scene's first blows go through all of its places,
those that there are few of early; a kind of place that has not been fired at yet comes first.
"""

import os
import random
import ssl
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Final

import anyio

from driver.faults import BOUNDARIES
from tests.faults.kill_points.battle import Ready, Tally, Weakness, fight, prepare, recovery
from tests.faults.kill_points.blows import Blow, Points, kind_of, parse
from tests.faults.kill_points.scenes import BY_NAME
from tests.faults.lane import CONTRADICTING_RECEIPTS, DUPLICATE_EFFECTS, LOST_RECEIPTS, Time
from tests.system.zygote import Zygote

AT_ONCE: Final = 3
"""Battles: while one waits for a process, the others go on."""
KINDS: Final = frozenset(
    {
        "pread64", "pwrite64", "openat", "newfstatat", "unlink", "fcntl", "ftruncate", "fsync", "fdatasync",
        *BOUNDARIES,
    }
)  # fmt: skip
"""The kinds of places that must have been struck at."""
RECOVERIES_MIN, RECOVERIES_MAX = 3, 6
"""How many recoveries of a battle are killed: as in a crash loop, each begins where the one before died."""
STRICTLY_EVERY: Final = 5
BROKEN_MAX: Final = 20
MEMORY: Final = "/dev/shm"
"""What SIGKILL leaves of a file does not depend on the disk below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a worker is to do."""

    scenes: Sequence[str]
    seed: int
    seconds: float
    points: int
    controls: bool = False
    """Whether the first of the scenes is played with each weakness, too."""


@dataclass(slots=True)
class Course:
    """The battles of one scene, in their order."""

    ready: Ready
    firsts: list[Blow]
    recoveries: Iterator[Blow]
    fought: int = 0

    @classmethod
    def of(cls, ready: Ready, recovery: Points, seed: int) -> "Course":
        """Return the course of a scene."""
        chance = random.Random(f"{seed} {ready.scene.name}")
        firsts = ready.points.in_order(chance)
        return cls(ready, firsts[::-1], cycle(recovery.in_order(chance)))

    def has_kinds_left(self, fired: Counter[str]) -> bool:
        """Whether there is a kind of place here that must be struck at, and has not been."""
        return any(not fired[kind_of(blow)] for blow in self.firsts if kind_of(blow) in KINDS)

    def next(self, begun: Counter[str], fired: Counter[str]) -> list[Blow]:
        """Return the blows of the next battle: one, and some in the recoveries that follow.

        First of a kind that nobody has aimed at (`begun`), then of one that has not been struck at.
        """
        of_a_kind: dict[str, Blow] = {}
        for blow in reversed(self.firsts):
            of_a_kind.setdefault(kind_of(blow), blow)
        never = (blow for kind, blow in of_a_kind.items() if not begun[kind])
        missed = (blow for kind, blow in of_a_kind.items() if kind in KINDS and not fired[kind])
        first = next(never, None) or next(missed, self.firsts[-1])
        self.firsts.remove(first)
        self.fought += 1
        crashes = RECOVERIES_MIN + self.fought % (1 + RECOVERIES_MAX - RECOVERIES_MIN)
        return [first, *(next(self.recoveries) for _ in range(crashes))]


@dataclass(slots=True)
class _Work:
    asked: Asked
    zygote: Zygote
    time: Time
    tally: Tally = field(default_factory=Tally)
    begun: Counter[str] = field(default_factory=Counter[str])
    """What blows were aimed at."""
    turn: int = 0
    kinds: frozenset[str] = frozenset()
    """Those of the places of its scenes that must have been struck at."""

    async def run(self) -> None:
        """Prepare everything, and fight. The first scene's recovery stands for those of all."""
        first, *others = [BY_NAME[name] for name in self.asked.scenes]
        ready = [await prepare(self.zygote, first)]
        again = await recovery(self.zygote, ready[0])
        async with anyio.create_task_group() as tasks:
            if self.asked.controls:
                tasks.start_soon(self._control, ready[0])
            ready += [await prepare(self.zygote, scene) for scene in others]
        courses = [Course.of(each, again, self.asked.seed) for each in ready]
        for each in (*(course.ready.points for course in courses), again):
            self.tally.places.update(map(kind_of, each.blows()))
        self.kinds = KINDS & {kind_of(blow) for course in courses for blow in course.firsts}
        turns = cycle(courses)
        async with anyio.create_task_group() as tasks:
            for _ in range(AT_ONCE):
                tasks.start_soon(self._fight, turns, courses)

    async def _control(self, ready: Ready) -> None:
        for each in CONTROLS:
            blows = [parse(text) for text in each.blows]
            found = await fight(self.zygote, ready, blows, weakness=each.weakness)
            self.tally.controls[each.name] = each.noticed(found)

    async def _fight(self, turns: Iterator[Course], courses: Sequence[Course]) -> None:
        while self._goes_on() and any(course.firsts for course in courses):
            course = self._wanted(courses) or next(turns)
            if not course.firsts:
                continue
            blows = course.next(self.begun, self.tally.fired)
            self.begun.update(map(kind_of, blows))
            strictly = course.fought % STRICTLY_EVERY == 0
            self.tally.add(await fight(self.zygote, course.ready, blows, strictly=strictly))

    def _wanted(self, courses: Sequence[Course]) -> Course | None:
        """Every other time, return the one fought least of those that have not shown what they are for.

        That is its states, and the kinds of its places: some are in one scene alone.
        """
        self.turn += 1
        behind = [course for course in courses if course.firsts and self._is_behind(course)]
        return min(behind, key=lambda course: course.fought) if behind and self.turn % 2 else None

    def _is_behind(self, course: Course) -> bool:
        has_shown = self._has_shown(course.ready.scene.reached)
        return not has_shown or course.has_kinds_left(self.tally.fired)

    def _has_shown(self, states: Sequence[str]) -> bool:
        return all(self.tally.reached[state] for state in states)

    def _goes_on(self) -> bool:
        is_missing = any(not self.tally.fired[kind] for kind in self.kinds) or not all(
            self._has_shown(BY_NAME[name].reached) for name in self.asked.scenes
        )
        is_time = self.time.is_left(is_missing=is_missing) and self.tally.tried < self.asked.points
        return is_time and len(self.tally.broken) < BROKEN_MAX


def work(asked: Asked) -> Tally:
    """Fight until the time, or the number of points, is reached."""
    time = Time.of(asked.seconds)
    with _warm() as zygote:
        made = _Work(asked, zygote, time)
        anyio.run(made.run)
        return made.tally


@contextmanager
def _warm() -> Generator[Zygote]:
    """Keep all files in memory, know one certificate, and have a warm process to fork lives from.

    Nobody here speaks TLS, and for a life all certificates of a machine cost as much as a whole recovery.
    """
    _in_memory()
    with tempfile.TemporaryDirectory(prefix="effectd-") as folder:
        if known := ssl.create_default_context().get_ca_certs(binary_form=True):
            path = Path(folder) / "one.pem"
            path.write_text(ssl.DER_cert_to_PEM_cert(known[0]), encoding="ascii")
            os.environ["SSL_CERT_FILE"] = str(path)
        zygote = Zygote(is_brisk=True)
        try:
            yield zygote
        finally:
            zygote.close()


def _in_memory() -> None:
    if os.access(MEMORY, os.W_OK) and Path(MEMORY).is_dir():
        tempfile.tempdir = MEMORY


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A weakness, where it is struck at, what it is, and by which measure it must be noticed."""

    name: str
    measure: str
    weakness: Weakness
    blows: tuple[str, ...]

    def noticed(self, found: Tally) -> list[str]:
        """Return what was found, where that is what the weakness does: a life that fell over is not."""
        return found.broken if found.figures[self.measure] else []


CONTROLS: Final = (
    Control(
        name="no intent before the call",
        measure=DUPLICATE_EFFECTS,
        weakness=Weakness(patch="no_intent_commit", life=0),
        blows=("dispatch.answered:1",),
    ),
    Control(
        name="told before it is committed",
        measure=LOST_RECEIPTS,
        weakness=Weakness(patch="told_before_commit", life=0),
        blows=("link.acknowledged:12",),
    ),
    Control(
        name="what was lost is called not executed",
        measure=CONTRADICTING_RECEIPTS,
        weakness=Weakness(patch="lost_is_not_executed", life=1),
        blows=("dispatch.answered:1", "link.acknowledged:2"),
    ),
)


def replay(scene: str, blows: Sequence[str]) -> Tally:
    """Fight one battle again."""

    async def once(zygote: Zygote) -> Tally:
        ready = await prepare(zygote, BY_NAME[scene])
        return await fight(zygote, ready, [parse(text) for text in blows], strictly=True)

    with _warm() as zygote:
        return anyio.run(once, zygote)
