"""Serves the local API on both sockets for as long as the daemon lives.

Part of `driver.local`; imports anyio, uvicorn, starlette, `driver.embedded` and its own siblings.
"""

import math
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import structlog
from anyio import to_thread
from anyio.abc import TaskStatus
from starlette.types import ASGIApp
from uvicorn import Config

from driver.embedded import EmbeddedServer
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
        await tasks.start(
            _LocalServer(Gate(api, Permit.READ, settings.limits), service).serve_on, inspect.socket
        )
        await tasks.start(
            _LocalServer(Gate(api, Permit.ALL, settings.limits), service).serve_on, operator.socket
        )
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


class _LocalServer(EmbeddedServer):
    """Tells the streams when it ends, and cuts off who does not read then."""

    def __init__(self, gate: ASGIApp, service: Service) -> None:
        self._service = service
        super().__init__(_config(gate, service.limits))

    async def end(self, listener: socket.socket) -> None:
        """Let uvicorn wait `drain_s` and cancel what still answers; cut off who does not read."""
        self._service.closing.set()
        await self.shutdown(sockets=[listener])
        for connection in list(self.server_state.connections):
            assert isinstance(connection, Connection)
            connection.transport.abort()
        await self.rest(self._service.limits.drain_s)


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
