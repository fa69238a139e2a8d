"""What a provider can do that knows when a call is gone for good: say that an attempt cannot land any more.

Part of `driver.providers`; imports the store's values.
"""

from typing import Protocol, runtime_checkable

from driver.providers.protocol import Provider
from store.records import OperationId


@runtime_checkable
class Landing(Provider, Protocol):
    """A provider that can tell, sooner than time alone, that nothing will come of an attempt any more."""

    def may_land(self, operation_id: OperationId, attempt: int) -> bool:
        """Whether what was sent for an attempt, which has ended without an answer, may still be carried out.

        False only where it is proven: all that it was sent over, and whoever read that, is gone. True of
        attempts that this process life does not know. Never blocks; may be called in any thread.
        """
        ...
