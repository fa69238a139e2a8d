"""The plane's queue of a daemon's frames: its order, and its two bounds."""

import anyio
import pytest

from driver.core.frames import Gap
from driver.plane.arrivals import BYTES_MAX, FRAMES_MAX, Arrivals
from driver.plane.intake import Arrival
from store.records import Chain

pytestmark = pytest.mark.anyio


def arrival(n: int, size: int = 1) -> Arrival:
    """Frame `n`, of this size."""
    return Arrival(frame=Gap(from_=n, to=n, chain=Chain("0" * 32)), text="x" * size)


@pytest.mark.parametrize(
    ("size", "fit"),
    [(1, FRAMES_MAX), (BYTES_MAX // 4, 4), (BYTES_MAX // 2 + 1, 1), (BYTES_MAX + 1, 1)],
)
async def test_who_puts_waits_beyond_a_bound_of_frames_or_of_bytes(size: int, fit: int) -> None:
    """Small frames are bounded by their number, long ones by what they hold; one always goes."""
    arrivals = Arrivals()
    frames = [arrival(n, size) for n in range(1, fit + 2)]
    for each in frames[:fit]:
        await arrivals.put(each)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(arrivals.put, frames[fit])
        await anyio.wait_all_tasks_blocked()
        assert await arrivals.take() == frames[:fit]
    assert await arrivals.take() == frames[fit:]


async def test_who_takes_waits_for_the_first() -> None:
    """All that has arrived by then is taken at once, in order."""
    arrivals = Arrivals()
    taken: list[Arrival] = []

    async def take() -> None:
        taken.extend(await arrivals.take())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take)
        await anyio.wait_all_tasks_blocked()
        await arrivals.put(arrival(1))
        await arrivals.put(arrival(2))
    assert taken == [arrival(1), arrival(2)]
