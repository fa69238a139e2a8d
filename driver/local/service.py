"""What every group of handlers works with: the daemon's sources, bounded, and the end of the service.

Part of `driver.local`; imports anyio, the store and its own siblings.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

import anyio

from driver.core.answers import Done, NotDone, Requeued
from driver.core.unfencing import Unfencing
from driver.local.errors import Code, Problem
from driver.local.settings import LocalLimits
from driver.local.sources import Sources
from store.errors import StoreError
from store.records import JsonObject, RunId
from store.view import View
from supervisor.wall import Wall

T = TypeVar("T")


class Service:
    """The sources behind the bounds of the local API."""

    def __init__(self, sources: Sources, limits: LocalLimits, *, allow_self_approval: bool = False) -> None:
        self.sources = sources
        self.limits = limits
        self.allow_self_approval = allow_self_approval
        self.closing = anyio.Event()
        self.verifying = anyio.Lock()
        """Held by whoever looks at the whole journal."""
        self._reads = anyio.CapacityLimiter(limits.reads_max)
        self._streams = 0

    async def read(self, unit: Callable[[View], T]) -> T:
        """Return what `unit` reads, in the journal's thread, after a bounded number of other readers.

        A journal that has stopped is a 503 `Problem`. Cancelling the caller only stops the wait.
        """
        async with self._reads:
            with _stopped_journal():
                return await self.sources.journal.read(unit)

    async def submit(self, kind: str, run_id: RunId, data: JsonObject) -> Done:
        """Return the id of a command, with what came of it, once that is fsynced.

        One that was refused, or failed, is a 409 `Problem` with its own code. Otherwise as `read`; cancelling
        the caller only stops the wait.
        """
        with _stopped_journal():
            found = await self.sources.submit(kind, run_id, data)
        match found:
            case Done():
                return found
            case NotDone(code=code, message=message):
                raise Problem(Code(code), message)

    async def metrics(self) -> bytes:
        """Return the daemon's metrics as OpenMetrics text. Raises as `read` does."""
        async with self._reads:
            with _stopped_journal():
                return await self.sources.metrics()

    async def wall(self, run_id: RunId) -> Wall | None:
        """Return what a triage model would be shown of the run; None where there is none.

        After a bounded number of other readers. Raises as `read` does.
        """
        async with self._reads:
            with _stopped_journal():
                return await self.sources.wall(run_id)

    async def requeue(self, seq: int) -> Requeued:
        """Return what came of reporting a dead letter again, once that is fsynced. Raises as `submit` does.

        One that is not there is a 404 `Problem`.
        """
        with _stopped_journal():
            found = await self.sources.requeue(seq)
        if isinstance(found, Requeued):
            return found
        raise Problem(Code(found.code), found.message)

    async def unfence(self, actor: str, *, accept_rollback: bool) -> Unfencing:
        """Return what came of lifting the fence, once that is fsynced. Raises as `read` does."""
        with _stopped_journal():
            return await self.sources.unfence(actor, accept_rollback=accept_rollback)

    async def ailment(self) -> str | None:
        """Return None while the journal can commit, else what is wrong. Raises as `read` does."""
        with _stopped_journal():
            return await self.sources.ailment()

    @contextmanager
    def stream(self) -> Generator[None]:
        """Count one stream while it lasts. Raises the 503 `Problem` where there are too many."""
        if self._streams >= self.limits.streams_max:
            raise Problem(
                Code.BUSY,
                f"{self.limits.streams_max} streams are open already: close one, or read without follow",
            )
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1


@contextmanager
def _stopped_journal() -> Generator[None]:
    try:
        yield
    except StoreError as error:
        raise Problem(
            Code.JOURNAL_STOPPED,
            "the journal has stopped, and the daemon is about to exit: see its log, then try again",
        ) from error
