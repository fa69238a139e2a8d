"""The reference plane as a server: one port, two doors, each with its own token.

Part of `driver.plane`; imports anyio, starlette, uvicorn and its siblings.

    GET /driver   WebSocket, subprotocol effectd.v1: for daemons, with the drivers' token
    /v1/…         HTTP (`api`): for operators and their programs, with the operators' token

Both tokens are read from their files again for every connection and request, so that a rotated one counts at
once. It speaks no TLS: beyond loopback it belongs behind a proxy that does.
"""

import hmac
import signal
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final

import anyio
import uvicorn
from anyio import to_thread
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.routing import WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from driver.core.frames import FRAME_BYTES_MAX, SUBPROTOCOL
from driver.core.targets import take_origin_form
from driver.embedded import EmbeddedServer
from driver.plane.api import Api, answer_problem
from driver.plane.errors import AddressUnavailable, LedgerBroken, Problem, TokenUnavailable
from driver.plane.fleet import Fleet
from driver.plane.ledger import Ledger, open_ledger
from driver.plane.session import serve_driver

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8930
PING_S: Final = 5.0
"""Between two pings, and how long a pong may take: a driver that is gone is noticed within 10 s."""
GRACE_S: Final = 2
"""How long requests that wait may go on when the plane stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneSettings:
    """Where the plane listens, what it writes to, and where its tokens stand."""

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    db: Path
    token_file: Path
    operator_token_file: Path


class Door:
    """Lets in who carries the token of one file."""

    def __init__(self, token_file: Path) -> None:
        self._token_file = token_file

    def read(self) -> str:
        """Return the token. Raises `TokenUnavailable`."""
        try:
            token = self._token_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise TokenUnavailable(
                self._token_file, getattr(error, "strerror", None) or "not ASCII"
            ) from error
        if not token:
            raise TokenUnavailable(self._token_file, "the file is empty")
        return token

    async def check(self, headers: Headers) -> None:
        """Raise the `Problem` that keeps a caller out: 401 without a token, 403 with a wrong one."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not given:
            raise Problem(HTTPStatus.UNAUTHORIZED, "token_missing", "send Authorization: Bearer <token>")
        try:
            wanted = await to_thread.run_sync(self.read)
        except TokenUnavailable:
            detail = "the plane cannot read its own token file: see its log"
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "token_unavailable", detail) from None
        if not hmac.compare_digest(given.strip().encode(), wanted.encode()):
            raise Problem(HTTPStatus.FORBIDDEN, "token_wrong", "this token does not open this door")


class _OperatorsOnly:
    """Middleware: every HTTP request carries the operators' token."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            take_origin_form(scope)
            try:
                await self._door.check(Headers(scope=scope))
            except Problem as problem:
                answer = await answer_problem(Request(scope), problem)
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


def application(ledger: Ledger, drivers: Door, operators: Door) -> ASGIApp:
    """Return the whole plane as an ASGI application."""
    fleet = Fleet()

    async def driver(websocket: WebSocket) -> None:
        try:
            await drivers.check(websocket.headers)
            if SUBPROTOCOL not in websocket.scope["subprotocols"]:
                detail = f"this is a WebSocket for daemons: offer the subprotocol {SUBPROTOCOL}"
                raise Problem(HTTPStatus.BAD_REQUEST, "subprotocol_missing", detail)
        except Problem as problem:
            await websocket.send_denial_response(await answer_problem(Request({"type": "http"}), problem))
            return
        await serve_driver(websocket, ledger, fleet)

    return Starlette(
        routes=[WebSocketRoute("/driver", driver), *Api(ledger, fleet).routes],
        middleware=[Middleware(_OperatorsOnly, operators)],
        exception_handlers={Problem: answer_problem, HTTPException: answer_problem},
    )


async def serve_plane(settings: PlaneSettings, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM, SIGINT or its cancellation; `ready` is told the URL when it takes connections.

    Raises a `PlaneError` before that where it cannot, and `LedgerBroken` when the file fails: what the last
    transaction left behind can only be told by opening the file again, so nothing more is acknowledged.
    """
    drivers, operators = Door(settings.token_file), Door(settings.operator_token_file)
    for door in (drivers, operators):
        await to_thread.run_sync(door.read)
    listener = _listen(settings.host, settings.port)
    with listener:
        ledger = await to_thread.run_sync(open_ledger, settings.db)
        try:
            host, port = listener.getsockname()[:2]
            ready(f"http://{f'[{host}]' if ':' in host else host}:{port}")
            await _serve(application(ledger, drivers, operators), listener, ledger)
        finally:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(ledger.close)
    if ledger.failure is not None:
        raise LedgerBroken(settings.db, str(ledger.failure)) from ledger.failure


def _listen(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server((host, port), family=found[0], backlog=128)
    except OSError as error:
        raise AddressUnavailable(f"{host}:{port}", error.strerror or str(error)) from error


async def _serve(app: ASGIApp, listener: socket.socket, ledger: Ledger) -> None:
    """Run the server until a signal, or a failure of the ledger, ends it; drivers are told `1012`."""
    config = uvicorn.Config(
        app,
        ws="websockets-sansio",
        ws_max_size=FRAME_BYTES_MAX,
        ws_ping_interval=PING_S,
        ws_ping_timeout=PING_S,
        ws_per_message_deflate=False,
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    server = EmbeddedServer(config)

    async def stop(end: Callable[[], Awaitable[object]]) -> None:
        try:
            await end()
        finally:
            server.should_exit = True

    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stop, partial(anext, signals))
            tasks.start_soon(stop, ledger.failed.wait)
            with anyio.CancelScope(shield=True):  # a cancelled plane still says goodbye, within GRACE_S
                await server.serve(sockets=[listener])
            tasks.cancel_scope.cancel()
