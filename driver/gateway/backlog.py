"""What a relay has asked for and has no answer to yet: the bound of what one connection can cost.

Part of `driver.gateway`; imports anyio, the SDK's types and its siblings.

Whoever asks without reading the answers is not read any further until there is room again. The bound of calls
is above what may wait in the whole gateway, so that a word about one that waits (a cancellation, an answer of
the user's) is never kept from being read by calls alone.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import anyio
from mcp_types import JSONRPCRequest, RequestId

from driver.gateway.limits import GatewayLimits

LONG: Final = frozenset({"tools/call", "subscriptions/listen"})
"""Requests that may rightly wait; all others are answered at once, and their answers may be large."""


class Backlog:
    """The unanswered requests of one connection, and the answers that it leaves unread."""

    def __init__(self, limits: GatewayLimits) -> None:
        self._limits = limits
        self._long: set[str] = set()
        self._short: set[str] = set()
        self._unread_bytes = 0
        self._changed = anyio.Event()

    async def room(self) -> None:
        """Wait until another message may be read."""
        while self._is_full():
            self._changed = anyio.Event()
            await self._changed.wait()

    def begin(self, request: JSONRPCRequest) -> bool:
        """Take note of a request. False where one of this id has no answer yet."""
        key = str(request.id)
        if key in self._long or key in self._short:
            return False
        (self._long if request.method in LONG else self._short).add(key)
        return True

    def end(self, request_id: RequestId) -> None:
        """Forget a request that is answered, or not wanted any more."""
        self._long.discard(str(request_id))
        self._short.discard(str(request_id))
        self._changed.set()

    @contextmanager
    def writing(self, size: int) -> Generator[None]:
        """Count bytes as unread until they are written."""
        self._unread_bytes += size
        try:
            yield
        finally:
            self._unread_bytes -= size
            self._changed.set()

    def _is_full(self) -> bool:
        limits = self._limits
        return (
            len(self._long) >= limits.calls_max + limits.reads_max
            or len(self._short) >= limits.reads_max
            or self._unread_bytes >= limits.unread_bytes_max
        )
