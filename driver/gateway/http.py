"""Streamable HTTP: the same server as on the socket, behind a token, for clients that start nothing.

Part of `driver.gateway`; imports the SDK's server side, starlette, uvicorn and its siblings.

Whoever calls says for which run with the header `Effectd-Run`; without it the run is the session's, which
continues those of the same client (`sessions`), or, in the era that has none, that of the client's name.
Nobody asks again here when an answer is lost: so it guards until it counts as heard (`exchange`). What is
posted is read strictly, as on the socket, before the SDK has it: its readers take duplicate keys, and numbers
that JSON does not have, each in its own way.
"""

import hmac
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import anyio
import structlog
from anyio.abc import TaskStatus
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import (
    TransportSecurityMiddleware,
    TransportSecuritySettings,
)
from mcp_types import (
    INVALID_REQUEST,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Message, Receive, Scope, Send
from uvicorn import Config

from driver.core.commands import RESUMES_MAX
from driver.core.identity import is_id
from driver.embedded import EmbeddedServer
from driver.gateway.bodies import posted
from driver.gateway.calls import Calls
from driver.gateway.errors import AddressUnusable
from driver.gateway.exchange import RESUMES, RUN, Exchange, listed, session_of
from driver.gateway.front import Context, Front
from driver.gateway.limits import GatewayLimits
from driver.gateway.outcomes import Delivered
from driver.gateway.patience import CONNECTION, Patience
from driver.gateway.rejections import TWICE, Unreadable, message_of, rejection, too_long
from driver.gateway.sessions import Sessions
from driver.gateway.sockets import ALIASES_MAX
from driver.gateway.wire import TOO_LONG

PATH: Final = "/mcp"
TURN: Final = "effectd.turn"
"""In the ASGI scope: what becomes of the answer to this request."""
LAST_EVENT_ID: Final = b"last-event-id"
BACKLOG: Final = 128

Asked = tuple[str, str]
"""A session, and the id of a request within it."""
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
        self._security = TransportSecurityMiddleware(security)
        self._app = StreamableHTTPASGIApp(self._manager)
        self._sessions = Sessions(calls.predecessors)
        self._open: dict[Asked, Exchange] = {}
        """Requests of sessions that are being answered."""
        self._heard: OrderedDict[Asked, Delivered] = OrderedDict()
        """Those that were, the newest last."""

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
        """Let pass who shows the token, and see whether the answer is heard."""
        refusal = await self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        exchange = Exchange(
            Request(scope),
            uid=self._uid,
            sessions=self._sessions,
            delivered=self._calls.delivered,
            let_go=self._calls.unconfirmed.let_go,
            stall_s=self._limits.stall_s,
            send=send,
        )
        scope[TURN] = exchange
        try:
            with self._sessions.attended(session_of(Headers(scope=scope)), scope[CONNECTION]):
                await self._read(scope, receive, exchange.send)
        finally:
            exchange.end()

    async def _read(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what is no message; give the SDK what is."""
        found = await posted(receive)
        if found is None:
            return  # it hung up in the middle of its question: to the SDK that would be an error
        body = found.data
        first: Message = {"type": "http.request", "body": body, "more_body": False}
        if scope["method"] != "POST":
            await self._app(_from_now_on(scope), _replaying(first, receive), send)
            return
        if not found.whole:
            await _answered(too_long(body), TOO_LONG, INVALID_REQUEST)(scope, receive, send)
            return
        try:
            message = message_of(body)
        except Unreadable as fault:
            await _rejected(body, fault.why, fault.code)(scope, receive, send)
            return
        exchange: Exchange = scope[TURN]
        session = session_of(Headers(scope=scope))
        if isinstance(message, JSONRPCNotification):
            await self._hear_of(session, message)
        if isinstance(message, JSONRPCRequest):
            exchange.asks(message.id)
        if session is None or not isinstance(message, JSONRPCRequest):
            await self._app(scope, _replaying(first, receive), send)
            return
        asked = (session, str(message.id))
        if asked in self._open:
            await _rejected(body, TWICE, INVALID_REQUEST)(scope, receive, send)
            return
        self._open[asked] = exchange
        try:
            await self._app(scope, _replaying(first, receive), send)
        finally:
            self._forget(asked)

    def _forget(self, asked: Asked) -> None:
        """End a request, and keep a while what its client has heard: it may take that back."""
        heard = self._open.pop(asked).heard
        if heard is not None:
            self._heard[asked] = heard
            while len(self._heard) > ALIASES_MAX:
                self._heard.popitem(last=False)

    async def _hear_of(self, session: str | None, message: JSONRPCNotification) -> None:
        """Have a call guard again whose answer and the client's word that it wants none have crossed."""
        if session is None or message.method != "notifications/cancelled":
            return
        asked = (session, str((message.params or {}).get("requestId")))
        exchange = self._open.get(asked)
        if exchange is not None:
            exchange.give_up()
        heard = self._heard.pop(asked, None) if exchange is None else exchange.heard
        if heard is not None:
            await self._calls.take_back(heard.command_id, heard.run_id, heard.digest)

    async def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if scope["path"] != PATH:
            return PlainTextResponse(f"MCP is served at {PATH}", HTTPStatus.NOT_FOUND)
        if not await self._is_allowed(headers.get("authorization", "")):
            return PlainTextResponse(
                "a bearer token is required: the one in gateway.token_file",
                HTTPStatus.UNAUTHORIZED,
                headers={"www-authenticate": "Bearer"},
            )
        names = [headers.get(RUN) or "-", *listed(headers.get(RESUMES, ""))]
        if len(names) > RESUMES_MAX or not all(map(is_id, names)):
            message = f"{RUN} and {RESUMES} name runs: 1 to 128 characters of A-Z a-z 0-9 . _ : -"
            return PlainTextResponse(message, HTTPStatus.BAD_REQUEST)
        # the SDK looks at this, too, but not before what was posted has been read
        return await self._security.validate_request(Request(scope), is_post=scope["method"] == "POST")

    async def _is_allowed(self, authorization: str) -> bool:
        scheme, _, shown = authorization.partition(" ")
        try:
            token = await self._settings.read_token()
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody comes in
            log.error("gateway_token_unusable", error=str(error))  # noqa: TRY400 - its text is enough
            return False
        return scheme.lower() == "bearer" and hmac.compare_digest(shown.strip().encode(), token.encode())


def turn_of(ctx: Context) -> Exchange:
    """Return the turn of a request that came over HTTP."""
    assert ctx.request is not None, "the SDK hands on the request"
    turn = ctx.request.scope[TURN]
    assert isinstance(turn, Exchange)
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


def _rejected(body: bytes, why: str, code: int) -> Response:
    """Return the answer to what the SDK is not given."""
    return _answered(rejection(body, why), why, code)


def _answered(answer: JSONRPCResponse | JSONRPCError | None, why: str, code: int) -> Response:
    """Return an answer as a response: where nobody can be told who waits, one that says so."""
    if answer is None:
        said = ErrorData(code=code, message=f"{why}; nothing was executed")
        answer = JSONRPCError(jsonrpc="2.0", id=None, error=said)
    status = HTTPStatus.OK if isinstance(answer, JSONRPCResponse) else HTTPStatus.BAD_REQUEST
    text = answer.model_dump_json(by_alias=True, exclude_unset=True)
    return Response(text, status, media_type="application/json")


def _from_now_on(scope: Scope) -> Scope:
    """Return a scope that asks for nothing of before: nothing is kept, and the SDK has no answer to that."""
    return {**scope, "headers": [header for header in scope["headers"] if header[0] != LAST_EVENT_ID]}


def _replaying(first: Message, receive: Receive) -> Receive:
    """Return a `receive` that begins with what was received already."""
    waiting = [first]

    async def receiving() -> Message:
        return waiting.pop() if waiting else await receive()

    return receiving


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
