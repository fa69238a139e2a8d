"""What a conversation needs of a socket: the WebSocket connection of the library is one.

Part of `driver.link`; imports nothing but the standard library.
"""

from collections.abc import Sequence
from typing import Protocol


class Transport(Protocol):
    """What is below a socket."""

    def abort(self) -> None:
        """End it at once, whatever waits to be sent."""
        ...


class Socket(Protocol):
    """One open WebSocket. What ends it is raised as `websockets.exceptions.ConnectionClosed`."""

    @property
    def transport(self) -> Transport:
        """What is below it."""
        ...

    @property
    def subprotocol(self) -> str | None:
        """What the peer selected."""
        ...

    async def recv(self) -> str | bytes:
        """Return the next message. Raises where the socket is closed."""
        ...

    def write(self, frames: Sequence[bytes]) -> bool:
        """Hand over texts, in order, and return whether more can be taken at once; else wait for `drained`.

        Neither blocks nor raises: where the socket is closing, they are lost. It says nothing about their
        arrival.
        """
        ...

    async def drained(self) -> None:
        """Return once more can be taken, or the socket is closed."""
        ...

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close with a handshake, after what was sent."""
        ...

    async def wait_closed(self) -> None:
        """Return once the socket is closed."""
        ...
