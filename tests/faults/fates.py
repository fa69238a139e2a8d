"""Which lane must notice which seeded bug, by the name of the control that is the bug.

A bug that no lane notices is a promise that nothing watches: a battery of all lanes fails with it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.faults.lane import Report

CAUGHT: Final = "caught: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A bug, and who must notice it."""

    name: str
    lane: str
    control: str
    """What the lane calls it."""


def _of(name: str, lane: str, control: str | None = None) -> Mutant:
    return Mutant(name=name, lane=lane, control=control or name)


MUTANTS: Final = (
    _of("synchronous=NORMAL", "crash states", "lazy_fsync"),
    _of("intent after effect", "simulation"),
    _of("ack before journal", "kill points", "told before it is committed"),
    _of("dedupe in memory", "simulation"),
    _of("retry of an unknown", "simulation", "any retry"),
    _of("prune before ack", "model", "pruned before the ack"),
    _of("verdict from memory after an I/O error", "errors", "verdict_from_memory"),
    _of("best-effort allowing a retry", "mutants"),
    _of("a claim without its check", "model", "verdict about an old wall"),
    _of("resend with a new timestamp", "mutants"),
    _of("approval reused", "mutants"),
    _of("wrong evidence rank", "model"),
    _of("a shield removed", "mutants"),
    _of("a lock by unlink", "mutants"),
    _of("digest without the tool", "mutants"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What became of a bug in a run."""

    mutant: Mutant
    ran: bool
    """Whether its lane gave a report."""
    caught: bool

    def to_json(self) -> dict[str, Any]:
        """Return what the page of figures reads."""
        return {"name": self.mutant.name, "lane": self.mutant.lane, "ran": self.ran, "caught": self.caught}


def fates_of(reports: Iterable[Report]) -> list[Fate]:
    """Return what became of every bug in a run with these reports."""
    by_lane: Mapping[str, Report] = {report.name: report for report in reports}
    return [_fate(mutant, by_lane.get(mutant.lane)) for mutant in MUTANTS]


def _fate(mutant: Mutant, report: Report | None) -> Fate:
    caught = report is not None and report.reached[CAUGHT + mutant.control] > 0
    return Fate(mutant=mutant, ran=report is not None, caught=caught)


def told(found: Iterable[Fate]) -> list[str]:
    """Return the verdict, and each bug with its lane."""
    every = list(found)
    caught = sum(fate.caught for fate in every)
    return [f"mutants: {caught} of {len(every)} caught", *(f"  {_line(fate)}" for fate in every)]


def _line(fate: Fate) -> str:
    if fate.caught:
        return f"{fate.mutant.name}: caught by {fate.mutant.lane}"
    return f"NOT CAUGHT: {fate.mutant.name}, by {fate.mutant.lane}" + (
        "" if fate.ran else ", which did not run"
    )


def escaped(found: Iterable[Fate], excused: Iterable[str]) -> list[str]:
    """Return the bugs that nobody noticed, but those of lanes that are `excused` from running."""
    absent = frozenset(excused)
    return [fate.mutant.name for fate in found if not fate.caught and fate.mutant.lane not in absent]
