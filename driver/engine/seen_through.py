"""What is not to end in the middle, though whoever wants it has gone.

Part of `driver.engine`; imports anyio. A unit that was handed to the journal is committed whatever happens to
who waits for it: what has to follow the commit must then follow it, too, or journal and daemon disagree until
the next start.
"""

from collections.abc import Awaitable
from typing import TypeVar

from anyio import CancelScope

T = TypeVar("T")


async def seen_through(work: Awaitable[T]) -> T:
    """Return what `work` returns; raises what it raises. A cancelled caller waits for its end.

    The cancel comes with the caller's next await: what it does without one is done.
    """
    with CancelScope(shield=True):
        return await work
    raise AssertionError  # for the type checkers: a scope that nobody cancels swallows nothing
