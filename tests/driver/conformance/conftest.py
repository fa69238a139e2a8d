"""The battery is a program of its own: it waits for its subject alone, and may block on a small file."""

from collections.abc import Iterator

import pytest
from blockbuster import BlockBuster


@pytest.fixture(autouse=True)
def loop_may_block(loop_must_not_block: BlockBuster) -> Iterator[None]:
    """Switch the guard of the daemon's loop off for the tests of this folder, and on again."""
    loop_must_not_block.deactivate()
    yield
    loop_must_not_block.activate()
