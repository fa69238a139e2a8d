"""Waits for what the journal will say.

Part of `driver.engine`; imports `store`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import anyio

from store.journal import Journal
from store.records import StoredEvent
from store.view import View

T = TypeVar("T")


async def until(
    journal: Journal, look: Callable[[View], T | None], concerns: Callable[[StoredEvent], bool]
) -> T:
    """Return what `look` finds, now or after a commit of an event that `concerns` it; None is nothing yet.

    Cancelling it leaves nothing behind.
    """
    while True:
        told = anyio.Event()
        unsubscribe = journal.subscribe(partial(_hear, told, concerns))
        try:
            found = await journal.read(look)
            if found is not None:
                return found
            await told.wait()
        finally:
            unsubscribe()


def _hear(told: anyio.Event, concerns: Callable[[StoredEvent], bool], events: Sequence[StoredEvent]) -> None:
    if any(map(concerns, events)):
        told.set()
