"""Units that wait for their turn in the journal, each with whoever waits for its outcome.

Part of `store`; imports its own modules. Used by the journal's owner, in the event loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from store.errors import StoreError
from store.transaction import Transaction
from store.view import View
from store.writer import Done, Outcome

U = TypeVar("U", View, Transaction)


@dataclass(slots=True, eq=False)
class Call(Generic[U]):
    """A unit that waits for its turn, and whoever waits for its outcome."""

    unit: Callable[[U], object]
    waiter: asyncio.Future[object] | None

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits, and still does."""
        return self.waiter is not None and not self.waiter.done()

    def release(self, outcome: Outcome) -> None:
        """Hand over what the unit came to."""
        if self.waiter is None or self.waiter.done():  # nobody waits, or not any more
            return
        if isinstance(outcome, Done):
            self.waiter.set_result(outcome.value)
        else:
            self.waiter.set_exception(outcome.error)

    def fail(self, error: StoreError) -> None:
        """Say that the unit will not be run, or that nobody knows."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_exception(error)


def take(queue: deque[Call[U]], count: int) -> list[Call[U]]:
    """Take so many of those that wait, the oldest first; fewer where there are no more."""
    return [queue.popleft() for _ in range(min(count, len(queue)))]
