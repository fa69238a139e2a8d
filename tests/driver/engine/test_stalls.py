"""What retention and erasure add to the commits beside them: bounded work in each, and small checkpoints."""

from pathlib import Path
from statistics import median, quantiles

import pytest

from store.writer import CHECKPOINT_PAGES
from tests.driver.engine.stalls import Erased, Measure, filled, measured, pruned
from tests.report import add
from tests.store.stalls import Work

pytestmark = [pytest.mark.lane, pytest.mark.anyio]

SECTION = "commits beside retention"
OPERATIONS = 10_000
SECONDS = 9.0
OURS_S = 0.02
"""What a commit may be held up by work of retention."""
PAGES = 320
"""What a commit may write to the `-wal`: 256 KiB that are overwritten are 64 pages; trees make it more."""


def broken(measure: Measure) -> list[str]:
    """Which bounds do not hold.

    A processor's time is taken at its 95th of a hundred: what else the machine does makes some of it longer.
    """
    found = list[str]()
    usual = median(work.total.cpu for work in measure.done if not work.removes and not work.checkpoint)
    ours = [work.total.cpu - usual for work in measure.done if work.removes]
    copying = [work.total.cpu for work in measure.done if work.checkpoint]
    for name, times in (("removal", ours), ("checkpoint", copying)):
        if (late := max(times) if len(times) < 20 else quantiles(times, n=20)[-1]) > OURS_S:
            found.append(f"a {name} keeps the journal's thread busy for {late * 1e3:.1f} ms")
    if (pages := max(work.frames for work in measure.done if work.removes)) > PAGES:
        found.append(f"a removal writes {pages} pages")
    if (pages := most_waiting(measure.done)) > CHECKPOINT_PAGES + 2 * PAGES:
        found.append(f"{pages} pages wait for a checkpoint")
    return found


def most_waiting(done: tuple[Work, ...]) -> int:
    """How many pages there were in the `-wal` at the most."""
    most = waiting = 0
    for work in done:
        waiting = 0 if work.checkpoint else waiting + work.frames
        most = max(most, waiting)
    return most


async def test_what_retention_adds_to_a_commit_is_bounded(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """In processor time, in pages, and in pages that a checkpoint copies: from the first one on."""
    await filled(tmp_path, OPERATIONS)
    measure = await measured(tmp_path, SECONDS, {"pruning": pruned, "erasing": Erased()})
    add(pytestconfig, SECTION, *measure.lines())
    for beside in ("pruning", "erasing"):
        assert sum(work.removes for work in measure.during(beside)) > 10
    assert sum(work.checkpoint for work in measure.done) > 5
    assert broken(measure) == []


async def test_the_bounds_would_be_seen_to_be_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: steps without a budget, and a checkpoint that comes too late."""
    monkeypatch.setattr("store.pace.STEP_S", 0.2)
    monkeypatch.setattr("store.pace.STEP_BYTES", 10**9)
    monkeypatch.setattr("store.pace.SHARE_MIN", 1.0)
    monkeypatch.setattr("store.pace.STEP_PAGES", 10**9)
    monkeypatch.setattr("store.writer.CHECKPOINT_PAGES", CHECKPOINT_PAGES * 5)
    await filled(tmp_path, OPERATIONS)
    measure = await measured(tmp_path, SECONDS / 3, {"pruning": pruned})
    found = " ".join(broken(measure))
    for what in ("a removal keeps", "a removal writes", "wait for a checkpoint"):
        assert what in found
