"""What must not depend on how long the journal is: a start, and a look at what is unsettled.

The journal that these tests measure is as long as a lane can afford; `make bench` measures a million.
"""

import time
from collections.abc import Generator
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from tests.driver.engine.rig import ScriptedProvider, engine
from tests.report import add
from tests.store import large

pytestmark = [pytest.mark.lane, pytest.mark.anyio]

SECTION = "a long journal"
FEW = 1_000
MANY = 200_000
VERIFIED = 34_000
"""Operations of about 100,000 events."""


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> Generator[dict[int, Path]]:
    """A short journal and a long one."""
    made = {count: tmp_path_factory.mktemp(f"of-{count}") for count in (FEW, MANY)}
    for count, folder in made.items():
        anyio.run(large.make, folder, count)
    yield made
    for folder in made.values():
        large.remove(folder)


async def test_listing_the_unsettled_costs_the_same_in_a_long_journal(
    journals: dict[int, Path], pytestconfig: pytest.Config
) -> None:
    """With two hundred times as many settled ones, no more than twice as much."""
    taken: dict[int, float] = {}
    for count, folder in journals.items():
        async with large.opened(folder) as journal:
            taken[count] = await large.listing_s(journal)
    add(
        pytestconfig,
        SECTION,
        f"unsettled beside {FEW:,}: {taken[FEW] * 1e3:.2f} ms, beside {MANY:,}: {taken[MANY] * 1e3:.2f} ms",
    )
    assert taken[MANY] <= taken[FEW] * 2 + 0.0002


async def test_a_start_does_not_read_the_journal(
    journals: dict[int, Path], pytestconfig: pytest.Config
) -> None:
    """Open and recover: what is open is found by its index, and the tail alone is looked at."""
    taken: dict[int, float] = {}
    for count, folder in journals.items():
        began = time.perf_counter()
        async with engine(folder, ScriptedProvider()) as rig:
            taken[count] = time.perf_counter() - began
            assert rig.recovered.unknown == 0
    add(pytestconfig, SECTION, f"start with {FEW:,}: {taken[FEW]:.2f} s, with {MANY:,}: {taken[MANY]:.2f} s")
    assert taken[MANY] <= taken[FEW] * 3 + 3


async def test_a_deep_look_goes_through_a_long_journal_and_says_how_far_it_is(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """A million events take two processors a minute, if they are idle; ten times that is allowed."""
    await large.make(tmp_path, VERIFIED)
    found = await to_thread.run_sync(large.verify_deeply, tmp_path, VERIFIED)
    large.remove(tmp_path / "state")
    add(
        pytestconfig,
        SECTION,
        f"verify --deep of {found.events:,} events: {found.seconds:.1f} s, {found.cpu_s:.1f} s of processors",
    )
    assert found.findings == ()
    assert {step.check for step in found.steps} >= {
        "integrity",
        "chain",
        "operations",
        "attempts",
        "comparison",
    }
    assert found.cpu_s < 1_200 * found.millions
