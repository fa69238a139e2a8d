"""What the link needs of the daemon: the engine stands behind it.

Part of `driver.link`; imports `driver.core`.
"""

from collections.abc import Sequence
from typing import Protocol

from driver.core.answers import Answer
from driver.core.signals import Delivery, Opened


class Desk(Protocol):
    """Where the plane's commands are handed in. Implemented by `driver.engine`."""

    async def deliver(self, frames: Sequence[Delivery]) -> Sequence[Answer]:
        """Return one answer for each of `frames`, in their order.

        What is answered `Silent` has been accepted durably. An exception is the daemon's own failure, and
        ends the link with it. Cancelled only when the daemon stops.
        """
        ...

    def history_confirmed(self) -> None:
        """Note that the plane, on this connection, knows this journal. Called once for each connection."""
        ...

    async def fence(self, reason: str, detail: str) -> None:
        """Return once the fence is durable, and nothing is dispatched any more."""
        ...

    async def agree(self) -> None:
        """Return once a restored journal has begun another history: the plane knows the one that ends.

        The hello to come names the new one.
        """
        ...

    def acknowledged(self, seq: int) -> None:
        """Note that the plane holds every event of this history up to `seq`, but those that it refused."""
        ...

    def refused(self, seq: int) -> None:
        """Note that an event was refused, and left out: it will never be acknowledged for itself."""
        ...

    async def opening(self) -> Opened:
        """Return where the daemon and its journal stand now, for the session of a socket that is open."""
        ...
