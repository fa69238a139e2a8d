"""The table of seeded bugs: whole, about controls that there are, and fatal for a battery that misses one."""

import json
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

from tests.faults import __main__ as command
from tests.faults.__main__ import BY_NAME
from tests.faults.battery import Battery, Ran
from tests.faults.fates import CAUGHT, MUTANTS, Mutant, escaped, fates_of, told
from tests.faults.lane import Box, Lane, Report

NAMES = (
    "synchronous=NORMAL",
    "intent after effect",
    "ack before journal",
    "dedupe in memory",
    "retry of an unknown",
    "prune before ack",
    "verdict from memory after an I/O error",
    "best-effort allowing a retry",
    "a claim without its check",
    "resend with a new timestamp",
    "approval reused",
    "wrong evidence rank",
    "a shield removed",
    "a lock by unlink",
    "digest without the tool",
)


def reports(but: str | None = None) -> list[Report]:
    """What lanes report that notice every bug, but one."""
    seen: dict[str, Counter[str]] = {}
    for mutant in MUTANTS:
        seen.setdefault(mutant.lane, Counter())[CAUGHT + mutant.control] = int(mutant.name != but)
    return [Report(name=lane, seed=1, tried="", reached=reached) for lane, reached in seen.items()]


def test_every_bug_has_a_lane() -> None:
    """Those that were once thought of, each once; more may be added."""
    assert [mutant.name for mutant in MUTANTS if mutant.name in NAMES] == list(NAMES)
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_every_bug_is_a_control_of_its_lane(mutant: Mutant) -> None:
    """What a lane calls it is what the lane plays: a control that was renamed is not lost in silence."""
    assert mutant.control in controls_of(mutant.lane)


def controls_of(lane: str) -> set[str]:
    """What a lane calls its controls: it has a table of them, or wants each to be caught."""
    module = import_module(import_module(BY_NAME[lane].module).run.__module__)
    found: set[str] = set()
    for table in ("CONTROLS", "SEEDED", "WANTED"):
        for each in getattr(module, table, ()):
            found.add(str(getattr(each, "name", each)).removeprefix(CAUGHT))
    return found


def test_all_caught_is_told_with_each_lane() -> None:
    """A reader sees which lane noticed what."""
    found = fates_of(reports())
    assert escaped(found, excused=()) == []
    assert told(found)[0] == f"mutants: {len(MUTANTS)} of {len(MUTANTS)} caught"
    assert "  a lock by unlink: caught by mutants" in told(found)


@pytest.mark.parametrize("name", [mutant.name for mutant in MUTANTS])
def test_a_bug_that_nobody_noticed_has_escaped(name: str) -> None:
    """Whichever it is."""
    found = fates_of(reports(but=name))
    assert escaped(found, excused=()) == [name]
    assert any(line.startswith(f"  NOT CAUGHT: {name}, by ") for line in told(found))


def test_a_lane_that_did_not_run_has_noticed_nothing() -> None:
    """Unless this machine cannot run it, of which the battery tells by itself."""
    found = fates_of(report for report in reports() if report.name != "model")
    lost = [mutant.name for mutant in MUTANTS if mutant.lane == "model"]
    assert escaped(found, excused=()) == lost
    assert escaped(found, excused=("model",)) == []
    assert any(line.endswith("by model, which did not run") for line in told(found))


@pytest.mark.parametrize("but", [None, "a shield removed"])
def test_a_battery_fails_with_a_bug_that_escaped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, but: str | None
) -> None:
    """Although every lane of it holds; what escaped stands in the figures."""

    async def run(self: Battery, work: list[tuple[Lane, Box]]) -> None:
        by_name = {lane.name: (lane, box) for lane, box in work}
        for report in reports(but):
            lane, box = by_name[report.name]
            self.ended.append(Ran(lane=lane, box=box, report=report, printed=""))

    def possible(work: list[tuple[Lane, Box]]) -> tuple[list[tuple[Lane, Box]], list[str]]:
        return work, []

    monkeypatch.setattr(Battery, "run", run)
    monkeypatch.setattr(command, "_possible", possible)
    to = tmp_path / "figures.json"
    assert command.main(["--json", str(to)]) == (0 if but is None else 1)
    missed = [fate["name"] for fate in json.loads(to.read_text())["mutants"] if not fate["caught"]]
    assert missed == ([] if but is None else [but])
