"""The connection to the plane, cut at every byte: either way, by RST and by FIN, with TLS and without.

Part of `network`. A session has two parts. The *opening* is all that passes until the daemon is welcomed;
the *conversation* is a command, its three events, and their acknowledgements. A point is one byte of one
part. After the cut the daemon reconnects, and the session must come to the same end as without it: one
receipt, one effect, each event in its bytes and without a gap (the plane looks at each of them), all
acknowledged.

The first pass cuts at each byte once, by RST and FIN in turns; the second one takes the other kind; what
time is left goes to sessions that are cut twice, at random. A broken promise is reported with its point.
"""

import random
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, get_args

import anyio
import structlog

from tests.faults.balance import Balance
from tests.faults.lane import BROKEN_MAX
from tests.faults.network import calls
from tests.faults.network.cutter import KINDS, SIDES, Cut, Side
from tests.faults.network.station import Station, leaves, station
from tests.system.audit import key_of
from tests.system.patches import apply
from tests.system.plane import call

Part: TypeAlias = Literal["opening", "conversation"]

PARTS: Final[tuple[Part, ...]] = get_args(Part)
NAMED: Final[Mapping[Side, str]] = MappingProxyType({"daemon": "daemon", "peer": "plane"})
CHAIN: Final = 8
"""Openings that are cut one after the other, before one may come through."""
LIFE_MAX: Final = 400
"""Points with one journal: what is looked at for each of them grows with it."""
LATEST: Final = 2.0
GRACE_S: Final = 40.0
"""The first pass is about every byte. It may take twice the time box and this, but ends before the battery
takes the lane for hung."""
CONTROL_S: Final = 120.0
CONTROL_POINTS: Final = 200
SILENT: Final = 50


@dataclass(slots=True, kw_only=True)
class Sweep:
    """Many points over one transport."""

    folder: Path
    tls: bool
    tally: Balance
    until: float
    target: int = sys.maxsize
    sizes: dict[tuple[Part, Side], int] = field(default_factory=dict[tuple[Part, Side], int])
    """How many bytes each part has in each direction, where all of them were cut at."""
    _lives: int = 0
    _commands: int = 0
    _executed: set[str] = field(default_factory=set[str])
    """The keys of what earlier points have executed: none may come again."""

    @property
    def over(self) -> bool:
        """Whether nothing more is to be tried."""
        tally = self.tally
        return monotonic() > self.until or tally.tried >= self.target or len(tally.broken) >= BROKEN_MAX

    async def every_byte(self, parity: int) -> None:
        """Cut at each byte once; kinds in turns, beginning as `parity` says."""
        for part in PARTS:
            for towards in SIDES:
                after: int | None = 0
                while after is not None and not self.over:
                    after = await self._life(part, towards, after, parity)

    async def _life(self, part: Part, towards: Side, after: int, parity: int) -> int | None:
        """Cut at one byte after the other with one journal; return where to go on, None behind the last."""
        width = CHAIN if part == "opening" else 1
        try:
            async with self._station() as made:
                for _ in range(LIFE_MAX // width):
                    numbers = range(after, after + width)
                    cuts = [Cut(after=n, towards=towards, kind=KINDS[(n + parity) % 2]) for n in numbers]
                    fired = await self._attack(made, part, cuts)
                    after += width
                    if fired < width:
                        self.sizes[part, towards] = after - width + fired
                        return None
                    if self.over:
                        break
        except AssertionError as error:
            self._blame(part, f"{towards} {after}", error)
            after += width
        return after

    async def at_random(self, chance: random.Random) -> None:
        """Cut sessions twice, as many as one journal may have."""
        cuts: list[Cut] = []
        try:
            async with self._station() as made:
                for _ in range(LIFE_MAX):
                    if self.over:
                        break
                    cuts = [self._draw(chance, "conversation"), self._draw(chance, "opening")]
                    if await self._attack(made, "conversation", cuts) == len(cuts):
                        self.tally.reached["a session that was cut twice"] += 1
        except AssertionError as error:
            self._blame("conversation", str(cuts), error)

    def _draw(self, chance: random.Random, part: Part) -> Cut:
        towards = chance.choice(SIDES)
        longest = self.sizes.get((part, towards), 1_000)
        if part == "opening":
            # what was lost comes again right behind it
            longest += self.sizes.get(("conversation", towards), 1_000)
        return Cut(after=chance.randrange(longest), towards=towards, kind=chance.choice(KINDS))

    # --- one point

    async def _attack(self, made: Station, part: Part, cuts: list[Cut]) -> int:
        """Cut, and return how many of the cuts happened once all is whole. Raises AssertionError."""
        try:
            return await self._cut(made, part, cuts)
        except AssertionError:
            keys = [str(each.key) for each in made.rig.provider.executed]
            again = [key for key in keys if key in self._executed]
            self.tally.count(made.plane, Counter([*keys, *again]))
            raise

    async def _cut(self, made: Station, part: Part, cuts: list[Cut]) -> int:
        began = monotonic()
        self._commands += 1
        name = f"cmd-{self._commands:07}"
        if part == "opening":
            made.cutter.plan(*cuts)
            made.plane.cut()
            fired = await made.fired_or_whole(len(cuts))
        else:
            made.cutter.plan(*cuts[1:], now=cuts[0])
            await made.plane.give(call(name, "tools/act", n=self._commands))
            fired = await made.fired_or_whole()
        await made.settled()
        fired = len(made.cutter.fired)
        self._judge(made, [] if part == "opening" else [name])
        self.tally.tried += fired
        self.tally.took(began)
        for cut in cuts[:fired]:
            self.tally.fired[f"{cut.kind} towards the {NAMED[cut.towards]}"] += 1
        self.tally.reached["with TLS" if self.tls else "without TLS"] += fired
        return fired

    def _judge(self, made: Station, names: list[str]) -> None:
        """Raise AssertionError where something was executed that should not, or not as it was told."""
        executed = [str(each.key) for each in made.rig.provider.executed]
        ordered = [key_of(made.plane.orders[name].command) for name in names]
        assert executed == ordered, f"executed: {executed}, ordered: {ordered}"
        for name in names:
            receipt = made.plane.receipt(name)
            assert receipt is not None
            assert receipt["kind"] == "operation.succeeded", receipt
        self.tally.reached["an event came again, in the same bytes"] += sum(made.plane.repeats.values())
        self.tally.reached["a command was delivered again"] += made.plane.redeliveries
        self._executed.update(executed)
        made.rig.provider.executed.clear()
        made.plane.repeats.clear()
        made.plane.orders.clear()
        made.plane.redeliveries = 0

    # --- one journal

    @asynccontextmanager
    async def _station(self) -> AsyncGenerator[Station]:
        self._lives += 1
        self.tally.lives += 1
        try:
            async with station(self.folder / f"{self.tls}-{self._lives}", tls=self.tls) as made:
                await made.settled()
                yield made
        except* Exception as group:  # noqa: BLE001 - a daemon that falls over breaks a promise, too
            errors = list(leaves(group))
        else:
            errors = []
        if errors:
            raise AssertionError("; ".join(errors)[:2_000])

    def _blame(self, part: Part, place: str, error: AssertionError) -> None:
        self.tally.broken.append(f"{'with' if self.tls else 'without'} TLS, {part}, {place}: {error}")


def work(folder: Path, seed: int, seconds: float, target: int) -> Balance:
    """Cut for so many seconds or so often, and for as long as the first pass takes."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(SILENT))
    return anyio.run(_work, folder, seed, seconds, target)


async def _work(folder: Path, seed: int, seconds: float, target: int) -> Balance:
    tally, began = Balance(), monotonic()
    first = began + seconds * LATEST + GRACE_S
    sweeps = [Sweep(folder=folder, tls=tls, tally=tally, until=first) for tls in (False, True)]
    await calls.every_byte(tally, first)
    for sweep in sweeps:
        await sweep.every_byte(seed % 2)
        if len(sweep.sizes) == len(PARTS) * len(SIDES):
            name = f"every byte, {'with' if sweep.tls else 'without'} TLS"
            tally.reached[name] = sum(sweep.sizes.values())
    for sweep in sweeps:
        sweep.until, sweep.target = began + seconds, target
        await sweep.every_byte(1 - seed % 2)
    chance = random.Random(seed)
    while not sweeps[0].over:
        for sweep in sweeps:
            await sweep.at_random(chance)
    return tally


def control(folder: Path, seed: int) -> Balance:
    """Do the same to a daemon that executes whatever is delivered: it must be noticed."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(SILENT))
    apply("no_dedupe")
    return anyio.run(_control, folder, seed)


async def _control(folder: Path, seed: int) -> Balance:
    tally = Balance()
    sweep = Sweep(folder=folder, tls=False, tally=tally, until=monotonic() + CONTROL_S)
    chance = random.Random(seed)
    while not tally.broken and tally.tried < CONTROL_POINTS:
        try:
            async with sweep._station() as made:
                while tally.tried < CONTROL_POINTS:
                    cut = Cut(after=chance.randrange(1_500), towards="peer", kind="rst")
                    await sweep._attack(made, "conversation", [cut])
        except AssertionError as error:
            tally.broken.append(str(error))
    return tally
