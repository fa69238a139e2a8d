"""An HTTP API as a provider.

Part of `driver.providers.http`; imports all of it, and `driver.core`.

Theory of operation
-------------------
`prepare` makes the request and the connection that it will go out on, and holds both just before the first
byte (see `exchange`); `dispatch` lets it go. So what can fail before the call leaves, fails before the intent
is durable.

Each request has a connection of its own, which nothing was sent on before: it cannot be lost on one that the
server is just closing, nor be answered by what belongs to another call. No redirect is followed, no cookie
kept, no proxy of the environment used, and nothing sent twice: the library's transport is used by itself,
without the client that would.
"""

import ssl
from typing import Final

import anyio
import httpx2
import structlog
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskGroup, TaskStatus

from driver.core.attempts import NotSent, Phase, Report, Silence, ToolCall
from driver.providers.environment import environment
from driver.providers.http.answers import Answer, report_of
from driver.providers.http.errors import Refused
from driver.providers.http.exchange import Exchange
from driver.providers.http.requests import base_of, request_of
from driver.providers.http.settings import Endpoint, HttpSettings
from driver.providers.protocol import LateResults, Progress
from driver.providers.serving import described
from driver.providers.value_files import ValueFileUnusable
from store.records import JsonObject, JsonValue, OperationId

LISTENED_MAX: Final = 256
"""Calls that a late answer is awaited for at once; more than this are hung up on."""

log: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


class HttpProvider:
    """A `Provider` of kind `http`, which is `Serving`."""

    def __init__(self, settings: HttpSettings, late: LateResults) -> None:
        self._settings = settings
        self._late = late
        self._tasks: TaskGroup | None = None
        self._transport: httpx2.AsyncHTTPTransport | None = None
        self._open = anyio.Event()
        self._held: dict[tuple[OperationId, int], Exchange] = {}
        """Requests that are prepared, by their attempts."""
        self._listening = 0
        self._closing = anyio.Event()
        self._closed = anyio.Event()

    @property
    def name(self) -> str:
        """See `Provider.name`."""
        return self._settings.name

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """See `Provider.run`."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                task_status.started()
                # in a worker thread: certificates are read from the disk
                self._transport = await anyio.to_thread.run_sync(_transport)
                self._open.set()
                await self._closing.wait()
                tasks.cancel_scope.cancel()
        finally:
            self._closing.set()
            self._open.set()
            if self._transport is not None:
                with anyio.CancelScope(shield=True):
                    await self._transport.aclose()
            self._closed.set()

    async def close(self) -> None:
        """See `Provider.close`."""
        self._closing.set()
        if self._tasks is not None:
            await self._closed.wait()

    async def definitions(self) -> tuple[JsonObject, ...]:
        """See `Serving.definitions`."""
        return tuple(described(name, _sources(point)) for name, point in self._settings.endpoints.items())

    def ready(self, call: ToolCall) -> bool:
        """See `Provider.ready`: never, for each call is connected first."""
        del call
        return False

    async def prepare(self, call: ToolCall) -> NotSent | None:
        """See `Provider.prepare`."""
        exchange = await self._begin(call)
        if isinstance(exchange, NotSent):
            return exchange
        try:
            await exchange.poised.wait()
        except anyio.get_cancelled_exc_class():
            exchange.withdraw()
            raise
        if isinstance(exchange.reply, NotSent):
            return exchange.reply
        self._hold(call, exchange)
        return None

    async def dispatch(self, call: ToolCall, progress: Progress) -> Report:
        """See `Provider.dispatch`. A request that is not written whole by the deadline is cut off."""
        deadline = anyio.current_time() + call.timeout_s
        exchange = self._held.pop(_attempt(call), None)
        if exchange is not None and exchange.stale:
            exchange.withdraw()
            exchange = None
        if exchange is None:
            begun: Exchange | NotSent | None = None
            with anyio.CancelScope(deadline=deadline):
                begun = await self._begin(call)
            if not isinstance(begun, Exchange):
                return begun or _TOO_LATE
            exchange = begun
        return await self._finish(call, exchange, progress, deadline)

    async def reach(self) -> NotSent | None:
        """Connect to where the base URL leads, and return why that fails. Sends nothing."""
        try:
            request = httpx2.Request("GET", base_of(self._settings))
        except Refused as refused:
            return refused.report
        exchange = await self._start(request)
        if isinstance(exchange, NotSent):
            return exchange
        try:
            await exchange.poised.wait()
        finally:
            exchange.withdraw()
        return exchange.reply if isinstance(exchange.reply, NotSent) else None

    # ------------------------------------------------------------ one call

    async def _begin(self, call: ToolCall) -> Exchange | NotSent:
        """Start the request of `call`: it connects, and waits for its release."""
        try:
            request = request_of(self._settings, call, await self._environment())
        except Refused as refused:
            return refused.report
        return await self._start(request)

    async def _start(self, request: httpx2.Request) -> Exchange | NotSent:
        await self._open.wait()
        if self._closing.is_set() or self._transport is None or self._tasks is None:
            return NotSent(reason="connect_failed", message=f"provider {self.name} is being closed")
        exchange = Exchange(request, self._settings.answer_max_bytes)
        self._tasks.start_soon(exchange.run, self._transport)
        return exchange

    async def _environment(self) -> dict[str, str]:
        """Raises `Refused`."""
        settings = self._settings
        if not settings.env_files:
            return dict(settings.env)
        try:
            found = await anyio.to_thread.run_sync(environment, settings.env, settings.env_files)
        except ValueFileUnusable as error:
            raise Refused("connect_failed", str(error)) from error
        return {name: found[name] for name in (*settings.env, *settings.env_files)}

    def _hold(self, call: ToolCall, exchange: Exchange) -> None:
        """Keep a request that is ready to go; one that its `dispatch` never comes for takes itself back."""
        for attempt in [attempt for attempt, other in self._held.items() if other.ended.is_set()]:
            del self._held[attempt]
        earlier = self._held.pop(_attempt(call), None)
        if earlier is not None:
            earlier.withdraw()
        self._held[_attempt(call)] = exchange

    async def _finish(
        self, call: ToolCall, exchange: Exchange, progress: Progress, deadline: float
    ) -> Report:
        exchange.on_phase = progress
        try:
            # the last look: from here to the first byte nothing waits for anything but the connection
            await anyio.lowlevel.checkpoint_if_cancelled()
            if anyio.current_time() < deadline:
                exchange.release()
                with anyio.CancelScope(deadline=deadline):
                    await exchange.ended.wait()
        except anyio.get_cancelled_exc_class():
            if not exchange.withdraw():
                exchange.hang_up()
            raise
        finally:
            exchange.on_phase = _ignore
        return self._conclude(call, exchange, progress)

    def _conclude(self, call: ToolCall, exchange: Exchange, progress: Progress) -> Report:
        if exchange.reply is not None:
            report = self._report(call, exchange.reply)
            if isinstance(exchange.reply, Answer):
                progress(Phase.ANSWERED)
            return report
        if exchange.withdraw():
            return _TOO_LATE
        if exchange.whole:
            self._listen_to(call, exchange)
        else:
            exchange.hang_up()
        return Silence(cause="deadline", message=f"no answer within {round(call.timeout_s, 2):g} s")

    def _report(self, call: ToolCall, reply: Answer | NotSent | Silence) -> Report:
        if not isinstance(reply, Answer):
            return reply
        return report_of(reply, self._settings.endpoints[call.tool])

    def _listen_to(self, call: ToolCall, exchange: Exchange) -> None:
        if self._listening == LISTENED_MAX or self._tasks is None:
            log.warning("late_answer_not_awaited", provider=self.name, listened_max=LISTENED_MAX)
            exchange.hang_up()
            return
        self._listening += 1
        self._tasks.start_soon(self._listen, call, exchange)

    async def _listen(self, call: ToolCall, exchange: Exchange) -> None:
        try:
            with anyio.move_on_after(self._settings.late_result_s):
                await exchange.ended.wait()
            exchange.hang_up()
            if isinstance(exchange.reply, Answer):
                self._late(call.operation_id, call.attempt, self._report(call, exchange.reply))
        finally:
            self._listening -= 1


_TOO_LATE: Final = NotSent(reason="deadline", message="the deadline passed before the request was sent")


def _transport() -> httpx2.AsyncHTTPTransport:
    """Return what connects and sends. How many requests there are at once is the engine's limit. Blocks."""
    return httpx2.AsyncHTTPTransport(
        # the system's authorities; without it the library would build a context of its own
        verify=ssl.create_default_context(),
        trust_env=False,
        retries=0,
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
    )


def _attempt(call: ToolCall) -> tuple[OperationId, int]:
    return call.operation_id, call.attempt


def _ignore(phase: Phase) -> None:
    """Whoever was told of phases waits no more."""
    del phase


def _sources(endpoint: Endpoint) -> tuple[JsonValue, ...]:
    filled = (endpoint.path, *endpoint.query.values(), *endpoint.headers.values())
    body = () if endpoint.body is None else (endpoint.body,)
    return tuple(template.source for template in (*filled, *body))
