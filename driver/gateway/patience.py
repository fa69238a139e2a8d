"""uvicorn's protocol, with an end for connections on which nothing is asked.

Part of `driver.gateway`; imports uvicorn. Who comes in is known by the head of a request: without a bound,
connections that never send one would take all there may be, and no token is needed for that.
"""

import asyncio
from typing import Final, cast

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEAD_S: Final = 10.0
"""From a connection, or from an answer on it, to the whole head of the next request; twice that at most."""


class Patience(H11Protocol):
    """One connection over HTTP."""

    _seen: RequestResponseCycle | None = None
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        self._timer = self.loop.call_later(HEAD_S, self._look)

    def _look(self) -> None:
        """End the connection where nothing was asked since the last look, and nothing is answered."""
        # none, before the first request: uvicorn declares it otherwise
        newest = cast("RequestResponseCycle | None", self.cycle)
        if newest is self._seen and (newest is None or newest.response_complete):
            self.transport.close()
            return
        self._seen = newest
        self._wait()
