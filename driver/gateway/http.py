"""Streamable HTTP: the same server as on the socket, behind a token, for clients that start nothing.

Part of `driver.gateway`; imports the SDK's server side, starlette, uvicorn and its siblings.

Whoever calls says for which run with the header `Effectd-Run`; without it the run is the session's, or, in
the era that has none, that of the client's name. Nobody asks again here when an answer is lost: so it counts
as delivered when it was written to its end, to a connection that was still there, and guards until then.
"""

import hashlib
import hmac
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import anyio
import structlog
from anyio.abc import TaskStatus
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send
from uvicorn import Config

from driver.core.identity import is_id
from driver.embedded import EmbeddedServer
from driver.gateway.calls import Calls, Delivered
from driver.gateway.errors import AddressUnusable
from driver.gateway.front import Context, Front
from driver.gateway.limits import GatewayLimits
from driver.gateway.patience import Patience
from driver.gateway.runs import Speaker
from driver.gateway.sockets import RESUMES_MAX
from store.records import CommandId, RunId

PATH: Final = "/mcp"
RUN: Final = "effectd-run"
RESUMES: Final = "effectd-resumes"
SESSION: Final = "mcp-session-id"
TURN: Final = "effectd.turn"
"""In the ASGI scope: what becomes of the answer to this request."""
BACKLOG: Final = 128

ReadToken = Callable[[], Awaitable[str]]
"""Returns the token that clients have to show, as it is now. Raises an `Exception` with its reason."""

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """Where clients connect, and how the token that they show is read."""

    host: str
    port: int
    read_token: ReadToken

    @property
    def address(self) -> str:
        """The two as one text."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class HttpTurn:
    """One request over HTTP. Implements `driver.gateway.turns.Turn`."""

    def __init__(self, request: Request, uid: int) -> None:
        self._request = request
        self._uid = uid
        self.about: Delivered | None = None
        self.disconnected = False

    @property
    def gone(self) -> bool:
        """See `Turn.gone`: never. In the era that has no sessions, to hang up is to cancel."""
        return False

    @property
    def key(self) -> str:
        """See `Turn.key`."""
        return f"http:{self._request.headers.get(SESSION, '')}"

    @property
    def speaker(self) -> Speaker:
        """See `Turn.speaker`."""
        headers = self._request.headers
        session = headers.get(SESSION)
        # in the era that has no sessions this is whatever the client likes, and no part of a run's name
        own = session if session is not None and is_id(f"http-{session}") else self._client
        resumes = tuple(map(RunId, _listed(headers.get(RESUMES, ""))))
        return Speaker(
            holder=f"http:{own}",
            run_id=RunId(headers.get(RUN) or f"http-{own}"),
            resumes=resumes,
            uid=self._uid,
            relayed=False,
        )

    @property
    def _client(self) -> str:
        """Names a client that has no session, the same after any restart: by what it calls itself."""
        agent = self._request.headers.get("user-agent", "")
        return hashlib.sha256(agent.encode()).hexdigest()[:16]

    def answers(self, asked: CommandId, about: Delivered) -> None:
        """See `Turn.answers`."""
        del asked
        self.about = about


class Http:
    """Serves clients over HTTP."""

    def __init__(
        self, front: Front, calls: Calls, limits: GatewayLimits, settings: HttpSettings, uid: int
    ) -> None:
        self._calls = calls
        self._limits = limits
        self._settings = settings
        self._uid = uid
        names = (_bracketed(settings.host), "localhost", "127.0.0.1", "[::1]")
        hosts = [f"{name}:{settings.port}" for name in names]
        security = TransportSecuritySettings(
            enable_dns_rebinding_protection=True,
            allowed_hosts=hosts,
            allowed_origins=[f"http://{host}" for host in hosts],
        )
        self._manager = StreamableHTTPSessionManager(
            app=front.server, security_settings=security, max_sessions=limits.sessions_max
        )
        self._app = StreamableHTTPASGIApp(self._manager)

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Listen until cancelled. Raises `AddressUnusable` before it has started."""
        listener = self._bind()
        async with self._manager.run():
            server = EmbeddedServer(_config(self._handle, self._limits))
            try:
                listener.listen(BACKLOG)
                await server.serve_on(listener, task_status=task_status)
            finally:
                listener.close()

    def _bind(self) -> socket.socket:
        settings = self._settings
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((settings.host, settings.port))
            made.setblocking(False)  # noqa: FBT003 - foreign
        except OSError as error:
            made.close()
            raise AddressUnusable(settings.address, error) from error
        return made

    # ------------------------------------------------------------ one request

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let pass who shows the token, and note which answers went out to their end."""
        refusal = await self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        turn = HttpTurn(Request(scope), self._uid)
        scope[TURN] = turn
        over = False

        async def receiving() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect" and not over:
                turn.disconnected = True
            return message

        async def sending(message: Message) -> None:
            nonlocal over
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                over = True
                if turn.about is not None and not turn.disconnected:
                    self._calls.delivered(turn.about)

        await self._app(scope, receiving, sending)

    async def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        if scope["path"] != PATH:
            return PlainTextResponse(f"MCP is served at {PATH}", HTTPStatus.NOT_FOUND)
        if not await self._is_allowed(headers.get("authorization", "")):
            return PlainTextResponse(
                "a bearer token is required: the one in gateway.token_file",
                HTTPStatus.UNAUTHORIZED,
                headers={"www-authenticate": "Bearer"},
            )
        names = [headers.get(RUN) or "-", *_listed(headers.get(RESUMES, ""))]
        if len(names) > RESUMES_MAX or not all(map(is_id, names)):
            message = f"{RUN} and {RESUMES} name runs: 1 to 128 characters of A-Z a-z 0-9 . _ : -"
            return PlainTextResponse(message, HTTPStatus.BAD_REQUEST)
        return None

    async def _is_allowed(self, authorization: str) -> bool:
        scheme, _, shown = authorization.partition(" ")
        try:
            token = await self._settings.read_token()
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody comes in
            log.error("gateway_token_unusable", error=str(error))  # noqa: TRY400 - its text is enough
            return False
        return scheme.lower() == "bearer" and hmac.compare_digest(shown.strip().encode(), token.encode())


def turn_of(ctx: Context) -> HttpTurn:
    """Return the turn of a request that came over HTTP."""
    assert ctx.request is not None, "the SDK hands on the request"
    turn = ctx.request.scope[TURN]
    assert isinstance(turn, HttpTurn)
    return turn


def _config(app: Callable[[Scope, Receive, Send], Awaitable[None]], limits: GatewayLimits) -> Config:
    return Config(
        app,
        http=Patience,
        ws="none",
        loop="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        limit_concurrency=limits.connections_max,
        timeout_graceful_shutdown=round(limits.drain_s),
    )


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
