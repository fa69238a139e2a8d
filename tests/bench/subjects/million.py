"""A journal of a million operations: how long a start, a listing and a deep look take in it."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from tests.driver.engine.rig import ScriptedProvider, engine
from tests.store import large
from tests.store.bulk import CALLS_OF_A_RUN, EVENTS

FEW: Final = 1_000
MANY: Final = 1_000_000
VERIFIED: Final = 1_000_000 // EVENTS // CALLS_OF_A_RUN * CALLS_OF_A_RUN
"""Operations of a million events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LongJournal:
    """What was measured."""

    start_s: float
    listing_few_s: float
    listing_many_s: float
    verified: large.Verified


def measure_journal(folder: Path) -> LongJournal:
    """Make the journals in `folder`, some gigabytes, and measure."""
    listing_few_s, _ = anyio.run(_measure, folder / "few", FEW)
    listing_many_s, start_s = anyio.run(_measure, folder / "many", MANY)
    large.remove(folder / "many")
    anyio.run(large.make, folder / "verified", VERIFIED)
    return LongJournal(
        start_s=start_s,
        listing_few_s=listing_few_s,
        listing_many_s=listing_many_s,
        verified=large.verify_deeply(folder / "verified", VERIFIED),
    )


async def _measure(folder: Path, operations: int) -> tuple[float, float]:
    await large.make(folder, operations)
    began = time.perf_counter()
    async with engine(folder, ScriptedProvider()):
        start_s = time.perf_counter() - began
    async with large.opened(folder) as journal:
        return await large.listing_s(journal), start_s


def lines(found: LongJournal) -> Iterator[str]:
    """Yield what is printed."""
    verified = found.verified
    yield f"start (open and recover) with {MANY:,} operations: {found.start_s:.2f} s"
    yield (
        f"listing {large.UNSETTLED} unsettled operations beside {FEW:,} settled ones: "
        f"{found.listing_few_s * 1e3:.2f} ms, beside {MANY:,}: {found.listing_many_s * 1e3:.2f} ms"
    )
    yield (
        f"verify --deep of {verified.events:,} events: {verified.seconds:.1f} s "
        f"({verified.cpu_s:.1f} s of processors), {len(verified.findings)} findings"
    )
