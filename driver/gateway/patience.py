"""uvicorn's protocol, with an end for connections on which nothing is asked, and a word about who is there.

Part of `driver.gateway`; imports uvicorn. Who comes in is known by the head of a request: without a bound,
connections that never send one would take all there may be, and no token is needed for that.

uvicorn passes an answer to its transport and looks no further: what is left there when the client hangs up
is lost, and nobody is told. So the transport has no room of its own here, and an application finds its
connection in the scope, to ask.
"""

import asyncio
import select
from typing import Any, Final, cast

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEAD_S: Final = 10.0
"""From a connection, or from an answer on it, to the whole head of the next request; twice that at most."""
SPARE: Final = 2
"""Connections for each that may be answered at once: who only connects takes no descriptor beyond them."""
CONNECTION: Final = "effectd.connection"
"""In the ASGI scope: the `Patience` that a request came over."""


class Patience(H11Protocol):
    """One connection over HTTP."""

    _seen: RequestResponseCycle | None = None
    _timer: asyncio.TimerHandle | None = None
    lost = False
    """Whether the client hung up, or the connection broke, as far as the event loop has heard."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Begin to wait for a request; of more connections than there may ever be, end the new one."""
        super().connection_made(transport)
        if self.limit_concurrency is not None and len(self.connections) > SPARE * self.limit_concurrency:
            self.cut()
            return
        transport.set_write_buffer_limits(high=0)  # whatever is left there makes `drained` wait
        app = self.app

        async def served(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - uvicorn's own types
            scope[CONNECTION] = self
            await app(scope, receive, send)

        self.app = served
        self._wait()

    def eof_received(self) -> None:
        """Take note that the client says no more: asyncio closes the connection then."""
        self.lost = True
        super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self.lost = self.lost or exc is not None  # before uvicorn wakes those that wait
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def is_there(self) -> bool:
        """Whether the client has not hung up: what the kernel knows of it counts, too."""
        if self.lost or self.transport.is_closing():
            return False
        watched = select.poll()
        watched.register(self.transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
        return not watched.poll(0)

    async def drained(self) -> bool:
        """Return, once the kernel has all that was written, whether the client had not hung up before.

        At once where it has it already. Who waits for a client that reads nothing has to end that.
        """
        await self.flow.drain()
        return not self.lost

    def cut(self) -> None:
        """End the connection, whatever it still holds."""
        self.lost = True
        self.transport.abort()

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
