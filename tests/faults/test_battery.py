"""The machinery around lanes: who fails, who is killed, and what is told of it."""

import os
import select
from collections import Counter
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from tests.faults import battery
from tests.faults.__main__ import LANES
from tests.faults.battery import Battery, Ran, share
from tests.faults.lane import Box, Lane, Report, program

pytestmark = pytest.mark.anyio
SHORT = Box(seconds=0.5, points=1)


def lane(name: str, cores: int = 1) -> Lane:
    """A lane that nobody registered."""
    return Lane(
        name=name, module="none", what="nothing", points="points", normal=SHORT, full=SHORT, cores=cores
    )


def report(**words: Any) -> Report:  # noqa: ANN401 - any of its fields
    """A report that holds, but for what is given."""
    return Report(name="a lane", seed=1, tried="one point", points=1, **words)


@pytest.mark.parametrize("registered", LANES, ids=[lane.name for lane in LANES])
def test_every_lane_exports_its_name_and_what_runs_it(registered: Lane) -> None:
    """The battery calls `run` with a seed, seconds and a count, of a module that it imports by name."""
    module = import_module(registered.module)
    assert registered.name == module.NAME
    assert len(signature(module.run).parameters) == 3


def test_a_lane_that_reached_nothing_fails() -> None:
    """What proves nothing must not pass: a wanted fault that never fired is a failure."""
    assert report().holds
    assert report(wanted=frozenset({"a kill"}), fired=Counter({"a kill": 1})).holds
    assert report(wanted=frozenset({"a kill"})).missed == ["a kill"]
    assert not report(wanted=frozenset({"a kill"})).holds


def test_a_figure_that_is_not_zero_fails() -> None:
    """Figures are of what must never be."""
    assert report(figures={"lost receipts": 0}).holds
    assert not report(figures={"lost receipts": 1}).holds


@pytest.mark.parametrize("in_ci", [True, False])
def test_what_cannot_be_run_fails_in_ci_alone(monkeypatch: pytest.MonkeyPatch, in_ci: bool) -> None:
    """Elsewhere it is left out with a word."""
    monkeypatch.setenv("CI", "true" if in_ci else "")
    assert report(lacking=["network namespaces"]).holds is not in_ci
    assert "  not run: network namespaces" in report(lacking=["network namespaces"]).lines()


def test_a_program_that_is_missing_is_named() -> None:
    """So that it can be installed."""
    assert program("sh")() is None
    assert program("no-such-program")() == "there is no no-such-program"


def test_a_report_survives_its_way_from_the_lane() -> None:
    """What a lane's process wrote is what the battery prints."""
    whole = report(
        fired=Counter({"a kill": 2}),
        reached=Counter({"fence": 1}),
        wanted=frozenset({"fence"}),
        figures={"orphans": 0},
        broken=["I5"],
        notes=["a note"],
    )
    assert Report.from_json(whole.to_json()) == whole


async def test_a_lane_that_hangs_is_killed_and_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With all that it has started, also what left its process group."""
    alive = tmp_path / "alive"
    script = f"setsid sh -c 'echo $$ > {alive}; exec sleep 600' & sleep 600"
    ran = await _run(monkeypatch, script, grace_s=2.0)
    assert "it was killed after 3 s" in ran.report.broken[0]
    assert _has_ended(int(alive.read_text()))


def _has_ended(pid: int) -> bool:
    """Whether a process that was sent SIGKILL is over, or is so in a moment."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], 20)[0])
    finally:
        os.close(handle)


async def test_a_lane_without_a_report_fails_with_what_it_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane that dies has not passed."""
    ran = await _run(monkeypatch, "echo so it ends; exit 3", grace_s=30.0)
    assert ran.report.broken == ["it ended without a report, exit code 3: so it ends"]
    assert not ran.report.holds


async def _run(monkeypatch: pytest.MonkeyPatch, script: str, *, grace_s: float) -> Ran:
    monkeypatch.setattr(battery, "GRACE_S", grace_s)
    monkeypatch.setattr(battery, "COMMAND", ("sh", "-c", script, "lane"))
    ended: list[Ran] = []
    await Battery(seed=1, say=ended.append).run([(lane("one"), SHORT)])
    return ended[0]


def test_lanes_that_run_alone_share_what_is_left() -> None:
    """One that ended early leaves its time to those behind it; on a slow machine all have less, to a half."""
    boxes = [Box(seconds=30, points=7), Box(seconds=10, points=7)]
    assert share(boxes[0], boxes, 80) == Box(seconds=60, points=7)
    assert share(boxes[1], boxes[1:], 50) == Box(seconds=50, points=7)
    assert share(boxes[0], boxes, 32) == Box(seconds=24, points=7)
    assert share(boxes[0], boxes, -5) == Box(seconds=15, points=7)


async def test_lanes_of_two_cores_run_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And those of one core side by side: never more cores are busy than there are."""
    log = tmp_path / "log"
    monkeypatch.setattr(
        battery, "COMMAND", ("sh", "-c", f"echo + >> {log}; sleep 0.2; echo - >> {log}", "lane")
    )
    ended: list[Ran] = []
    work = [(lane("two", cores=2), SHORT), (lane("one"), SHORT), (lane("another"), SHORT)]
    await Battery(seed=1, say=ended.append, cores=2).run(work)
    assert ended[-1].lane.name == "two"
    assert log.read_text().split()[-2:] == ["+", "-"]


async def test_a_lane_that_mostly_waits_runs_beside_any_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """From the start: the one that keeps all cores busy lets it go on, and here it ends it."""
    come = tmp_path / "come"
    os.mkfifo(come)
    script = f'case "$2" in two) echo >> {come};; *) read line < {come};; esac'
    monkeypatch.setattr(battery, "COMMAND", ("sh", "-c", script, "lane"))
    ended: list[Ran] = []
    work = [(lane("two", cores=2), SHORT), (lane("soak", cores=0), SHORT)]
    await Battery(seed=1, say=ended.append, cores=2).run(work)
    assert {ran.lane.name for ran in ended} == {"two", "soak"}
    assert all("exit code 0" in ran.report.broken[0] for ran in ended), "neither was killed while it waited"
