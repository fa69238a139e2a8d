"""What a provider can do whose calls outlive the daemon: tell a later life how one ended.

Part of `driver.providers`; imports `driver.core.attempts` and the store's values.

After a start, the engine asks for each attempt that its journal shows as begun and not ended. What an
attempt comes to is evidence of the shim's, which outlived the daemon: it ranks as the provider's own.
"""

from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from driver.core.attempts import Phase, Report
from driver.providers.protocol import Provider
from store.records import OperationId


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The attempt has ended: what `dispatch` would have returned, and the last phase it would have told."""

    report: Report
    phase: Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Nobody can tell any more how the attempt ended; `message` says why."""

    message: str


class Running(Protocol):
    """An attempt that is still under way."""

    async def finish(self) -> Finished:
        """Wait for its end, which its own deadline bounds. To be called once.

        Cancelling the caller's scope cancels the call, as with `Provider.dispatch`.
        """
        ...


Readopted: TypeAlias = Finished | Running | Lost


@runtime_checkable
class Readopting(Provider, Protocol):
    """A provider whose attempts survive the daemon."""

    async def readopt(self, operation_id: OperationId, attempt: int) -> Readopted:
        """Return what became of an attempt that an earlier process life dispatched.

        Starts nothing, and may be asked again after a crash. `run` must have started.
        """
        ...

    def settled(self, operation_id: OperationId, attempt: int) -> None:
        """Hear that the outcome of an attempt is durable: what was kept about it may go. Does not wait."""
        ...
