"""The tests of this folder are a long lane: each of them waits for a real peer."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.driver.providers.command.stage import groups, left_since


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.lane)


@pytest.fixture(autouse=True)
def _no_cgroup_is_left() -> Iterator[None]:
    """Whatever a test did to its commands, none of their cgroups outlives it."""
    before = groups()
    yield
    assert left_since(before) == set()
