"""What a provider can do that still listens to a call nobody waits for any more: tell when it has stopped.

Part of `driver.providers`; imports the store's values.
"""

from typing import Protocol, runtime_checkable

from driver.providers.protocol import Provider
from store.records import OperationId


@runtime_checkable
class Listening(Provider, Protocol):
    """A provider that can hear an answer after its `dispatch` has ended without one."""

    async def listened(self, operation_id: OperationId, attempt: int) -> None:
        """Return once nothing more will be heard of an attempt: `late` has its answer, or none comes.

        At once where it is not listened to. May be cancelled, which changes nothing.
        """
        ...
