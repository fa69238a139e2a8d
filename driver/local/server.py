"""Serves the local API on both sockets for as long as the daemon lives.

Part of `driver.local`; imports anyio, uvicorn, starlette and its own siblings.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

import anyio
import structlog
from anyio import to_thread
from anyio.abc import TaskStatus
from starlette.types import ASGIApp
from uvicorn import Config, Server

from driver.local import app
from driver.local.connection import Connection, protocol_of
from driver.local.gate import Gate, Permit
from driver.local.service import Service
from driver.local.settings import LocalLimits, LocalSettings
from driver.local.sockets import BACKLOG, Listener, listen, prepare_runtime_dir
from driver.local.sources import Sources

_log = structlog.stdlib.get_logger(__name__)

INSPECT_MODE = 0o660
OPERATOR_MODE = 0o600


async def serve_local(
    sources: Sources,
    settings: LocalSettings,
    *,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; `task_status` is told when both sockets take connections.

    Raises `SocketError` before that where a socket cannot be made. Cancelling it stops listening, ends
    streams, lets answers in progress finish within `drain_s`, cuts what is left, and removes the sockets.
    """
    await to_thread.run_sync(prepare_runtime_dir, settings.runtime_dir)
    service = Service(sources, settings.limits, allow_self_approval=settings.allow_self_approval)
    api = app.build(service)
    async with (
        _listening(settings, Permit.READ) as inspect,
        _listening(settings, Permit.ALL) as operator,
        anyio.create_task_group() as tasks,
    ):
        await tasks.start(_LocalServer(Gate(api, Permit.READ, settings.limits), service).serve_on, inspect)
        await tasks.start(_LocalServer(Gate(api, Permit.ALL, settings.limits), service).serve_on, operator)
        _log.info("local_api_listening", inspect=str(inspect.path), operator=str(operator.path))
        task_status.started()


@asynccontextmanager
async def _listening(settings: LocalSettings, permit: Permit) -> AsyncGenerator[Listener]:
    """Make one of the sockets, and take it away again."""
    path, mode = (
        (settings.inspect_socket, INSPECT_MODE)
        if permit is Permit.READ
        else (settings.operator_socket, OPERATOR_MODE)
    )
    listener = await to_thread.run_sync(listen, path, mode)
    try:
        yield listener
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(listener.close)


class _LocalServer(Server):
    """uvicorn's server without its signal handlers (the daemon has its own) and without its clock.

    uvicorn's own main loop wakes ten times a second to look for signals and to write the date; there is
    nothing of that here to do, and an idle daemon should be idle.
    """

    def __init__(self, gate: ASGIApp, service: Service) -> None:
        self._service = service
        super().__init__(_config(gate, service.limits))

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave the process's signals alone."""
        yield

    async def serve_on(
        self, listener: Listener, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve `listener` until cancelled, then shut down within bounds."""
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        await self.startup(sockets=[listener.socket])
        try:
            task_status.started()
            await anyio.sleep_forever()
        finally:
            self._service.closing.set()
            with anyio.CancelScope(shield=True):
                await self._end(listener)

    async def _end(self, listener: Listener) -> None:
        """Let uvicorn wait `drain_s` and cancel what still answers; cut off who does not read."""
        await self.shutdown(sockets=[listener.socket])
        for connection in list(self.server_state.connections):
            assert isinstance(connection, Connection)
            connection.transport.abort()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=self._service.limits.drain_s)


def _config(gate: ASGIApp, limits: LocalLimits) -> Config:
    return Config(
        gate,
        http=protocol_of(limits),
        ws="none",
        loop="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="critical",  # the gate logs what fails, without quoting requests
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=BACKLOG,
        h11_max_incomplete_event_size=limits.header_bytes_max,
        timeout_keep_alive=math.ceil(limits.request_s),
        timeout_graceful_shutdown=math.ceil(limits.drain_s),
    )
