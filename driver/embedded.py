"""uvicorn as a part of a process that has its own signals, its own idle and its own end.

Part of `driver`; imports anyio and uvicorn. The local API, the gateway and the reference plane are served so.
"""

import asyncio
import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import anyio
from anyio.abc import TaskStatus
from uvicorn import Server

REST_S: Final = 1.0
"""How long what uvicorn has cancelled may take to its end."""


class EmbeddedServer(Server):
    """uvicorn's server without its signal handlers, and in `serve_on` without its clock.

    uvicorn's own main loop wakes ten times a second to look for signals and to write the date; there is
    nothing of that here to do, and an idle daemon should be idle.
    """

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave the process's signals alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen; what is sent in two pieces goes out as two, and at once.

        asyncio sees to that only where a socket was made for the protocol TCP by its number. Else the second
        piece of an answer (uvicorn writes the head and the body) waits until the peer acknowledges the first,
        which it puts off for 40 ms. Connections get the option from their listener.
        """
        for listener in sockets or ():
            if listener.family in (socket.AF_INET, socket.AF_INET6):
                listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await super().startup(sockets=sockets)

    async def serve_on(
        self, listener: socket.socket, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve `listener` until cancelled, then `end`, which nobody cancels."""
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        await self.startup(sockets=[listener])
        try:
            task_status.started()
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await self.end(listener)

    async def end(self, listener: socket.socket) -> None:
        """Listen no more, and end what is open."""
        await self.shutdown(sockets=[listener])
        await self.rest(REST_S)

    async def rest(self, seconds: float) -> None:
        """Wait so long for what still answers."""
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=seconds)
