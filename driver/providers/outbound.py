"""The streams that a session of the MCP SDK is given, whichever side it is.

Part of `driver.providers`; imports the SDK's messages.
"""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from mcp.shared.message import SessionMessage


class Lent:
    """A stream that the session enters, leaves and closes, and whose wire somebody else closes."""

    async def aclose(self) -> None:
        """Nothing is held here."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        return None


class Outbound(Lent):
    """The stream that the session writes to: each message goes straight to the wire."""

    def __init__(self, write: Callable[[SessionMessage], Awaitable[None]]) -> None:
        self._write = write

    async def send(self, item: SessionMessage, /) -> None:
        """Write a message."""
        await self._write(item)
