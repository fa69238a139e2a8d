"""The plane that most of these tests talk to."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.driver.plane.world import Driver, Plane, running


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    """A plane of this test's own, in this process."""
    async with running(tmp_path) as plane:
        yield plane


@pytest.fixture
def driver(plane: Plane) -> Driver:
    """A driver of that plane."""
    return Driver(plane=plane)
