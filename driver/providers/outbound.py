"""The stream that a session of the MCP SDK writes to, whichever side it is.

Part of `driver.providers`; imports the SDK's messages.
"""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from mcp.shared.message import SessionMessage


class Outbound:
    """The stream that the session writes to: each message goes straight to the wire."""

    def __init__(self, write: Callable[[SessionMessage], Awaitable[None]]) -> None:
        self._write = write

    async def send(self, item: SessionMessage, /) -> None:
        """Write a message."""
        await self._write(item)

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
