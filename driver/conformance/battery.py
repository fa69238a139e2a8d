"""All cases against one adapter, and the certificate.

Part of `driver.conformance`. Before the subject, the battery judges two clients of its own: one that is known
to be good, and one that is known to be bad in ways that it must find. Where it does not, it says nothing of
anybody else.
"""

import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import Final

from pydantic import JsonValue

from driver.conformance.adapter import About
from driver.conformance.cases import CASES, Found, Stage, play
from driver.conformance.errors import SelfCheckFailed
from driver.conformance.ledger import World
from driver.conformance.verdict import Harm

REVISION: Final = 1
"""Of the battery: a certificate names it, since other cases would be another examination."""
ADAPTERS: Final = ("effectd", "in-memory")
"""Those that come with effectd, by the name that the command line knows."""
GOOD: Final = "careful"
BAD: Final = "reckless"
MUST_FIND: Final[Mapping[str, Harm]] = MappingProxyType(
    {
        "timeout-after-commit": Harm.DUPLICATE,
        "error-after-commit": Harm.FALSE_FAILURE,
        "kill-after-effect": Harm.DUPLICATE,
        "restart-with-redelivery": Harm.DUPLICATE,
        "key-stability": Harm.UNSTABLE_KEY,
        "conflict-on-changed-arguments": Harm.CONFLICT_IGNORED,
    }
)
"""What the bad client does, which the battery must see."""

Told = Callable[["Judged"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One case, and what came of it."""

    case: str
    found: Found
    seconds: float

    @property
    def verdict(self) -> str:
        """`failed`, `not_exercised` where the subject never did what the case is about, else `passed`."""
        if self.found.harms:
            return "failed"
        return "passed" if self.found.exercised else "not_exercised"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What can be said of a subject."""

    adapter: str
    about: About
    at: datetime
    judged: tuple[Judged, ...]

    @property
    def conforms(self) -> bool:
        """Whether no case failed."""
        return all(not one.found.harms for one in self.judged)

    def as_json(self) -> dict[str, JsonValue]:
        """Return it for machines; times are UTC, durations in seconds."""
        verdicts = [one.verdict for one in self.judged]
        return {
            "battery": "effectd conformance",
            "revision": REVISION,
            "adapter": self.adapter,
            "runtime": self.about.runtime,
            "version": self.about.version,
            "at": self.at.isoformat(timespec="seconds"),
            "conforms": self.conforms,
            "passed": verdicts.count("passed"),
            "failed": verdicts.count("failed"),
            "not_exercised": verdicts.count("not_exercised"),
            "cases": [
                {
                    "case": one.case,
                    "verdict": one.verdict,
                    "harms": [str(harm) for harm in sorted(one.found.harms)],
                    "told": str(one.found.told),
                    "effects": one.found.effects,
                    "calls": one.found.calls,
                    "seconds": round(one.seconds, 2),
                }
                for one in self.judged
            ],
        }


def built_in(name: str) -> tuple[str, ...]:
    """Return the command of an adapter that comes with effectd."""
    return (sys.executable, "-m", f"driver.conformance.adapters.{name.replace('-', '_')}")


async def examine(
    adapter: str, argv: Sequence[str], *, cases: Collection[str] = (), told: Told = lambda _: None
) -> Certificate:
    """Play cases, all where none is named, against an adapter; `told` gets each as it ends.

    Takes about a minute. Raises `ConformanceError` where the adapter does not keep to the three verbs.
    Cancelled, it leaves no process and no file.
    """
    met: list[About] = []
    judged: list[Judged] = []
    for name in cases or CASES:
        began = monotonic()
        async with _stage(argv, met) as stage:
            found = await play(CASES[name], stage)
        judged.append(Judged(case=name, found=found, seconds=monotonic() - began))
        told(judged[-1])
    return Certificate(adapter=adapter, about=met[-1], at=datetime.now(UTC), judged=tuple(judged))


@asynccontextmanager
async def _stage(argv: Sequence[str], met: list[About]) -> AsyncGenerator[Stage]:
    """Make the folders of one case: the world's, and the subject's own."""
    with tempfile.TemporaryDirectory(prefix="effectd-conformance-") as folder:
        world, state = Path(folder) / "world", Path(folder) / "state"
        world.mkdir()
        state.mkdir()
        made = World(folder=world)
        made.goes()
        yield Stage(argv=argv, world=made, state=state, met=met)


async def self_check(told: Told = lambda _: None) -> None:
    """Judge the two clients of the battery's own. Raises `SelfCheckFailed` where one is judged wrongly."""
    good = await examine(GOOD, built_in(GOOD), told=told)
    bad = await examine(BAD, built_in(BAD), cases=tuple(MUST_FIND), told=told)
    wrong = [
        f"the good client fails {one.case} ({', '.join(sorted(one.found.harms))})"
        for one in good.judged
        if one.found.harms
    ]
    wrong += [
        f"the bad client passes {one.case}, or fails it for something other than {MUST_FIND[one.case]}"
        for one in bad.judged
        if MUST_FIND[one.case] not in one.found.harms
    ]
    if wrong:
        raise SelfCheckFailed(wrong)
