"""The wire to a URL: Streamable HTTP, one POST for each request.

Part of `driver.providers.mcp`; imports its `address`, `exchange`, `jsonrpc`, `pace`, `sdk` and `settings`.

Theory of operation
-------------------
Each request has a task of the wire's own, which outlives the caller's patience, so that a late answer is
heard. The phases come from the HTTP library's own trace: `writing` is reported when it is about to write the
request's head. Whatever fails before that is `NotSent`; whatever fails afterwards is a `Silence`.

No redirect is followed, no proxy of the environment is used, no request is sent twice, and nothing waits
without a bound: the library's own deadline for connecting, and the caller's for all else. The optional stream
that a server may send unasked messages on is not opened: what it would say about tools is found out when a
call does not fit.
"""

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import anyio
import httpx2
import structlog
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskGroup, TaskStatus
from mcp.shared.inbound import MCP_METHOD_HEADER, MCP_PROTOCOL_VERSION_HEADER
from mcp_types import INTERNAL_ERROR, METHOD_NOT_FOUND

from driver.core.attempts import HttpStatus, NotSent, Phase, Silence
from driver.providers.mcp.address import Address, read_address
from driver.providers.mcp.calls import CLIENT_NAME
from driver.providers.mcp.exchange import Exchange, Reply, WireWatcher
from driver.providers.mcp.jsonrpc import (
    TOOLS_CHANGED,
    FromPeer,
    Garbage,
    RequestId,
    Response,
    notification,
    read_message,
    write_message,
)
from driver.providers.mcp.pace import Pace
from driver.providers.mcp.sdk import SdkSide
from driver.providers.mcp.settings import HttpServer
from store.records import JsonObject

HTTP_CONNECT_S: Final = 10.0
"""To connect, TLS included; a call's own deadline may end it earlier."""
KEEP_ALIVE_S: Final = 2.0
"""An idle connection is kept this long: on one that the server closes just then, a call would be lost."""
KEPT_ALIVE_MAX: Final = 32
"""Idle connections that are kept."""
GOODBYE_S: Final = 2.0
"""To end a session that the server keeps for us."""
TELL_S: Final = 5.0
"""To deliver a message that is answered by nothing but its status."""
STATUS_BODY_BYTES_MAX: Final = 65_536
"""What is kept of the body beside a status that is no answer."""

_SESSION: Final = "mcp-session-id"
_KEPT_HEADERS: Final = ("content-type", "retry-after")
_NOT_FOUND: Final = 404
_BAD_REQUEST: Final = 400
_PEER_SPEAKS: Final = frozenset({*range(400, 500), 500, 501} - {409, 429})
"""Statuses beside which a JSON-RPC error is the peer's own word. Any other says more than the body does."""

log: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


class _Withdrawn(Exception):
    """The call was taken back before its first byte."""


class _TooLarge(Exception):
    """A body grew past its limit."""


class _Post:
    """One request under way."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.scope = anyio.CancelScope()
        self.begun = False
        self.withdrawn = False
        self.answering = False

    async def trace(self, event: str, _info: Mapping[str, object]) -> None:
        """Told by the HTTP library of each step, before the step."""
        if event.endswith(".send_request_headers.started"):
            if self.withdrawn:
                raise _Withdrawn
            self.begun = True
            self.exchange.on_phase(Phase.WRITING)
        elif event.endswith(".send_request_body.complete"):
            self.exchange.on_phase(Phase.WRITTEN)
        elif event.endswith(".receive_response_headers.complete"):
            self.answering = True

    def heard_garbage(self, error: Exception) -> bool:
        """Whether what came is no HTTP.

        The library raises the same error where the peer just went away, but then without a parser's error in
        it.
        """
        if not isinstance(error, httpx2.RemoteProtocolError) or self.answering or error.__cause__ is None:
            return False
        return any(isinstance(inner, Exception) for inner in error.__cause__.args)


class HttpWire:
    """A `Wire` over Streamable HTTP."""

    def __init__(
        self, provider: str, server: HttpServer, answer_max_bytes: int, watcher: WireWatcher
    ) -> None:
        self._provider = provider
        self._server = server
        self._address: Address | None = None
        self._answer_max_bytes = answer_max_bytes
        self._watcher = watcher
        self._client: httpx2.AsyncClient | None = None
        self._tasks: TaskGroup | None = None
        self._posts: dict[RequestId, _Post] = {}
        self._session_id: str | None = None
        self._version: str | None = None
        self._stopping = anyio.Event()
        self.sdk = SdkSide(self._send)
        self.ended = anyio.Event()
        self.why: Silence | None = None

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """See `Wire.run`. Raises `AddressUnusable` before it has started."""
        try:
            self._address = await anyio.to_thread.run_sync(read_address, self._provider, self._server)
            # in a worker thread: certificates are read from disk, and the library imports its own parts only
            # now
            async with await anyio.to_thread.run_sync(_client, self._address) as client:
                self._client = client
                async with anyio.create_task_group() as tasks:
                    self._tasks = tasks
                    task_status.started()
                    await self._stopping.wait()
                    self.ended.set()
                    tasks.cancel_scope.cancel()
                await self._say_goodbye(client)
        finally:
            self.ended.set()
            self.sdk.close()

    def submit(self, exchange: Exchange) -> None:
        """See `Wire.submit`."""
        if self.ended.is_set() or self._tasks is None:
            exchange.resolve(
                NotSent(reason="connect_failed", message="the connection had ended before the call")
            )
            return
        post = self._posts[exchange.request_id] = _Post(exchange)
        self._tasks.start_soon(self._post, post)

    def withdraw(self, exchange: Exchange) -> bool:
        """See `Wire.withdraw`."""
        post = self._posts.get(exchange.request_id)
        if post is None or post.begun:
            return False
        # the scope alone is not enough: a step that is ready to run runs before the cancellation is seen
        post.withdrawn = True
        post.scope.cancel()
        return True

    def cancel(self, exchange: Exchange) -> None:
        """See `Wire.cancel`. From 2026-07-28 on, hanging up is the only sign that HTTP has."""
        post = self._posts.get(exchange.request_id)
        if post is None or self._tasks is None:
            return
        if MCP_METHOD_HEADER not in exchange.headers:
            params: JsonObject = {"requestId": exchange.request_id, "reason": "nobody waits any more"}
            self._tasks.start_soon(
                self._tell, notification("notifications/cancelled", params), exchange.headers
            )
        else:
            self.forget(exchange)

    def forget(self, exchange: Exchange) -> None:
        """See `Wire.forget`."""
        post = self._posts.get(exchange.request_id)
        if post is not None:
            post.scope.cancel()

    def stop(self) -> None:
        """See `Wire.stop`."""
        self._stopping.set()

    # ------------------------------------------------------------------ requests

    async def _post(self, post: _Post) -> None:
        exchange = post.exchange
        try:
            with post.scope:
                exchange.resolve(await self._answer_to(post))
        except _Withdrawn:
            pass
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            exchange.resolve(self._failed(post, error))
        finally:
            self._posts.pop(exchange.request_id, None)
            if post.begun:
                exchange.resolve(Silence(cause="connection_lost", message="the connection was closed"))
            else:
                exchange.resolve(NotSent(reason="connect_failed", message="the connection was closed"))

    async def _answer_to(self, post: _Post) -> Reply:
        exchange = post.exchange
        async with self._sent(exchange.message, exchange.headers, post) as response:
            if response.headers.get("content-encoding", "identity") != "identity":
                return Silence(
                    cause="protocol_error", message="the answer is compressed, which was not asked for"
                )
            if not response.is_success:
                return await self._status(exchange, response)
            if exchange.message["method"] == "initialize":
                self._session_id = response.headers.get(_SESSION)
            kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind == "application/json":
                return await self._json(exchange, response)
            if kind == "text/event-stream":
                return await self._events(exchange, response)
            message = f"HTTP status {response.status_code} without an answer"
            return Silence(cause="protocol_error", message=message)

    async def _json(self, exchange: Exchange, response: httpx2.Response) -> Reply:
        try:
            body = await _body(response, self._answer_max_bytes)
        except _TooLarge:
            return self._too_large()
        match read_message(body):
            case Response(reply=reply) as said if _answers(said, exchange):
                return reply
            case Garbage(detail=detail):
                return Silence(cause="protocol_error", message=f"the server sent {detail}")
            case _:
                return Silence(cause="protocol_error", message="the server sent no answer to this request")

    async def _events(self, exchange: Exchange, response: httpx2.Response) -> Reply:
        pace = Pace()
        try:
            async for event in httpx2.EventSource(response, max_event_size=self._answer_max_bytes):
                await pace.said(len(event.data))
                if event.event == "message" and event.data:
                    reply = self._event(exchange, event.data.encode("utf-8", "replace"))
                    if reply is not None:
                        return reply
        except httpx2.SSEError:
            return self._too_large()
        return Silence(cause="connection_lost", message="the stream ended without an answer")

    def _event(self, exchange: Exchange, data: bytes) -> Reply | None:
        """The reply, where this message is or decides it."""
        match read_message(data):
            case Response(reply=reply) as said if _answers(said, exchange):
                return reply
            case Response(request_id=None):
                return Silence(
                    cause="protocol_error", message="the server sent a result that names no request"
                )
            case Garbage(detail=detail):
                return Silence(cause="protocol_error", message=f"the server sent {detail}")
            case FromPeer() as message if message.method == TOOLS_CHANGED:
                self._watcher.on_tools_changed()
            case FromPeer(message=message) as asked if asked.is_request:
                if not self.sdk.deliver(message):
                    return Silence(cause="protocol_error", message="the server floods us with requests")
            case FromPeer(message=message):
                self._watcher.on_told(message)
            case _:
                pass  # responses to nobody
        return None

    async def _status(self, exchange: Exchange, response: httpx2.Response) -> Reply:
        status = response.status_code
        try:
            body = await _body(response, STATUS_BODY_BYTES_MAX)
        except _TooLarge:
            body = b""
        said = read_message(body)
        if self._session_id is not None and _forgot_session(status, said, exchange):
            self._watcher.on_expired()
        if status in _PEER_SPEAKS:
            match said:
                case Response(reply=dict() as reply) if "error" in reply and _answers(said, exchange):
                    return reply
                case _:
                    pass
        headers: JsonObject = {
            name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers
        }
        result: JsonObject = {"status": status, "headers": headers, "text": body.decode("utf-8", "replace")}
        return HttpStatus(status=status, result=result)

    def _too_large(self) -> Silence:
        message = f"an answer of more than {self._answer_max_bytes} bytes, the provider's answer_max_bytes"
        return Silence(cause="protocol_error", message=message)

    def _failed(self, post: _Post, error: Exception) -> NotSent | Silence:
        url = self._there.url
        where = f"{url.host}:{url.port or url.scheme}"
        detail = str(error) or type(error).__name__
        if not post.begun:
            return NotSent(reason="connect_failed", message=f"cannot connect to {where}: {detail}")
        if post.heard_garbage(error):
            return Silence(cause="protocol_error", message=f"what {where} sent is no HTTP")
        return Silence(cause="connection_lost", message=f"the connection to {where} was lost: {detail}")

    # ------------------------------------------------------------------ the SDK's own messages

    async def _send(self, message: JsonObject, headers: Mapping[str, str]) -> None:
        if self.ended.is_set() or self._tasks is None:
            raise anyio.BrokenResourceError
        request_id = message.get("id")
        if "method" in message and isinstance(request_id, int | str):
            exchange = Exchange(request_id, message, headers=headers)
            self.submit(exchange)
            self._tasks.start_soon(self._relay, exchange)
        else:
            await self._tell(message, headers)

    async def _relay(self, exchange: Exchange) -> None:
        """Hand the session its answer, or an error in its place: it has no use for finer distinctions."""
        await exchange.wait()
        match exchange.reply:
            case dict() as envelope:
                # an error beside a status may name no request; it came back on this one's connection
                self.sdk.deliver({**envelope, "id": exchange.request_id})
            case HttpStatus(status=status):
                code = METHOD_NOT_FOUND if status == _NOT_FOUND else INTERNAL_ERROR
                self._deliver_error(exchange, code, f"HTTP status {status}")
            case NotSent(message=message) | Silence(message=message):
                self._deliver_error(exchange, INTERNAL_ERROR, message)
            case None:
                pass

    def _deliver_error(self, exchange: Exchange, code: int, message: str) -> None:
        error: JsonObject = {"code": code, "message": message}
        self.sdk.deliver({"jsonrpc": "2.0", "id": exchange.request_id, "error": error})

    async def _tell(self, message: JsonObject, headers: Mapping[str, str]) -> None:
        """Send what has no answer; nobody can be told if it fails."""
        try:
            with anyio.move_on_after(TELL_S):
                async with self._sent(message, headers):
                    pass
        except (httpx2.HTTPError, OSError) as error:
            log.debug("message_not_delivered", provider=self._provider, error=type(error).__name__)

    # ------------------------------------------------------------------ HTTP

    @property
    def _there(self) -> Address:
        assert self._address is not None, "the wire has not started"
        return self._address

    @asynccontextmanager
    async def _sent(
        self, message: JsonObject, headers: Mapping[str, str], post: _Post | None = None
    ) -> AsyncGenerator[httpx2.Response]:
        assert self._client is not None
        extensions = {} if post is None else {"trace": post.trace}
        async with self._client.stream(
            "POST",
            self._there.url,
            content=write_message(message),
            headers=self._stamped(message, headers),
            extensions=extensions,
        ) as response:
            yield response

    def _stamped(self, message: JsonObject, headers: Mapping[str, str]) -> dict[str, str]:
        """The request's headers, with the session's id, and the version that the session last spoke."""
        if message.get("method") == "initialize":
            self._version = None
        self._version = headers.get(MCP_PROTOCOL_VERSION_HEADER, self._version)
        stamped = dict(headers)
        if self._version is not None:
            stamped[MCP_PROTOCOL_VERSION_HEADER] = self._version
        if self._session_id is not None:
            stamped[_SESSION] = self._session_id
        return stamped

    async def _say_goodbye(self, client: httpx2.AsyncClient) -> None:
        if self._session_id is None:
            return
        try:
            with anyio.move_on_after(GOODBYE_S):
                await client.request("DELETE", self._there.url, headers=self._stamped({}, {}))
        except (httpx2.HTTPError, OSError) as error:
            log.debug("session_not_ended", provider=self._provider, error=type(error).__name__)


def _answers(response: Response, exchange: Exchange) -> bool:
    """Whether it answers this request. Only an error may name none: its sender could not read the request."""
    if response.request_id is None:
        return isinstance(response.reply, Silence) or "error" in response.reply
    return response.request_id == exchange.request_id


def _forgot_session(status: int, said: Response | FromPeer | Garbage, exchange: Exchange) -> bool:
    """Whether a status says that there is no such session: 404, or a 400 that is not about this request."""
    if status == _NOT_FOUND:
        return True
    return status == _BAD_REQUEST and not (
        isinstance(said, Response) and said.request_id == exchange.request_id
    )


def _client(address: Address) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        verify=ssl.create_default_context(),
        trust_env=False,
        follow_redirects=False,
        timeout=httpx2.Timeout(None, connect=HTTP_CONNECT_S),
        # how many requests there are at once is the engine's limit; a queue here would only hide them
        limits=httpx2.Limits(
            max_connections=None, max_keepalive_connections=KEPT_ALIVE_MAX, keepalive_expiry=KEEP_ALIVE_S
        ),
        headers={
            "accept": "application/json, text/event-stream",
            "accept-encoding": "identity",
            "content-type": "application/json",
            "user-agent": CLIENT_NAME,
            **address.headers,
        },
    )


async def _body(response: httpx2.Response, bytes_max: int) -> bytes:
    """The whole body. Raises `_TooLarge`, and holds no more than the limit and one chunk."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.aiter_raw():
        size += len(chunk)
        if size > bytes_max:
            raise _TooLarge
        chunks.append(chunk)
    return b"".join(chunks)
