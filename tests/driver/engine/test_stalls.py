"""What retention and erasure add to the commits beside them: bounded work in each, and small checkpoints."""

from pathlib import Path
from statistics import median, quantiles

import pytest
from anyio import fail_after

from store.writer import CHECKPOINT_PAGES
from tests.driver.engine.stalls import Beside, Erased, Measure, filled, lasts, measured, pruned
from tests.report import add
from tests.store.stalls import Work

pytestmark = [pytest.mark.lane, pytest.mark.anyio]

SECTION = "commits beside retention"
OPERATIONS = 10_000
SECONDS = 9.0
SECONDS_MAX = 600
ENOUGH = 20
"""Removals of each kind, and checkpoints: however slow the machine is, so many are looked at."""
OURS_S = 0.02
"""What a commit may be held up by work of retention."""
PAGES = 320
"""What a commit may write to the `-wal`: 256 KiB that are overwritten are 64 pages; trees make it more."""


def broken(measure: Measure) -> list[str]:
    """Which bounds do not hold.

    A processor's time is taken at its 95th of a hundred: what else the machine does makes some of it longer.
    """
    found = list[str]()
    plain = [work.total.cpu for work in measure.done if not work.removes and not work.checkpoint]
    usual = median(plain) if plain else 0.0
    ours = [work.total.cpu - usual for work in measure.done if work.removes]
    copying = [work.total.cpu for work in measure.done if work.checkpoint]
    for name, times in (("removal", ours), ("checkpoint", copying)):
        if times and (late := max(times) if len(times) < 20 else quantiles(times, n=20)[-1]) > OURS_S:
            found.append(f"a {name} keeps the journal's thread busy for {late * 1e3:.1f} ms")
    if (pages := max((work.frames for work in measure.done if work.removes), default=0)) > PAGES:
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
    others: dict[str, Beside] = {"pruning": pruned, "erasing": Erased()}
    is_over = lasts(SECONDS)

    def is_enough(measure: Measure) -> bool:
        removals = [sum(work.removes for work in measure.during(beside)) for beside in others]
        copied = sum(work.checkpoint for work in measure.done)
        return is_over(measure) and min(*removals, copied) >= ENOUGH

    await filled(tmp_path, OPERATIONS)
    with fail_after(SECONDS_MAX):
        measure = await measured(tmp_path, others, is_enough=is_enough)
    add(pytestconfig, SECTION, *measure.lines())
    assert broken(measure) == []


async def test_the_bounds_would_be_seen_to_be_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: steps without a budget, and a checkpoint that comes too late."""
    monkeypatch.setattr("store.pace.STEP_S", 0.2)
    monkeypatch.setattr("store.pace.STEP_BYTES", 10**9)
    monkeypatch.setattr("store.pace.SHARE_MIN", 1.0)
    monkeypatch.setattr("store.pace.STEP_PAGES", 10**9)
    monkeypatch.setattr("store.writer.CHECKPOINT_PAGES", CHECKPOINT_PAGES * 5)
    await filled(tmp_path, OPERATIONS)

    def is_seen(measure: Measure) -> bool:
        found = " ".join(broken(measure))
        return all(what in found for what in ("a removal keeps", "a removal writes", "wait for a checkpoint"))

    with fail_after(SECONDS_MAX):
        await measured(tmp_path, {"pruning": pruned}, is_enough=is_seen)
