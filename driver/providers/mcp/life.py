"""One connection to a server, from its handshake to its close.

Part of `driver.providers.mcp`; imports its `calls`, `exchange`, `jsonrpc`, `listeners`, `listing`,
`settings`, `tasks` and wires, and the SDK's client.

Theory of operation
-------------------
`run` is the one task that opens and closes it all. A call waits in its caller's task for a reply, a
disturbance or its deadline. When it stops waiting without a reply it becomes *listened to*: a task of the
connection waits on for `late_result_s`, and hands what comes then to `late`. Only after that is the server
told that nobody waits: one that is told drops its answer, or stops halfway, and the best evidence there is
would be lost by our own doing. Where somebody cancelled the call, it is told at once.

Where the reply is a task's handle, the task is asked after (`tasks`) for as long as the call would wait, and
then for as long as it would be listened to. A task that nobody waits for any more is left to go on: whoever
has its handle can still look. Only who cancels the call cancels the task.

A connection is **in doubt** from any such end on until the server has answered a ping; calls are held
meanwhile, by `certain`. One that does not answer within `PING_S` is deaf, and **retired**: it is sent no more
calls, is replaced by its owner, and ends by itself when nobody waits for it or listens to it any longer.
"""

import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Final, Literal, TypeAlias

import anyio
import structlog
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskGroup, TaskStatus
from mcp import Client
from mcp_types import Implementation

from driver.core.attempts import (
    Answered,
    HttpStatus,
    NotSent,
    Phase,
    Report,
    Silence,
    TaskPending,
    ToolCall,
)
from driver.core.groups import innermost
from driver.core.identity import definition_digest
from driver.providers.mcp.address import AddressUnusable
from driver.providers.mcp.calls import (
    CLIENT_NAME,
    CLIENT_VERSION,
    Dialect,
    arguments_of,
    call_headers,
    call_params,
)
from driver.providers.mcp.child import SpawnFailed
from driver.providers.mcp.exchange import Exchange, Reply, Wire
from driver.providers.mcp.following import Following
from driver.providers.mcp.http import HttpWire
from driver.providers.mcp.jsonrpc import report_of, request
from driver.providers.mcp.listeners import Listeners
from driver.providers.mcp.listing import Listing, NoList
from driver.providers.mcp.settings import McpSettings, StdioServer
from driver.providers.mcp.stdio import StdioWire
from driver.providers.mcp.tasks import PeerTask
from driver.providers.protocol import LateResults, Progress
from driver.providers.serving import Audience
from store.records import Digest, JsonObject, OperationId

CONNECT_S: Final = 60.0
"""For a start, a handshake and the first tool list; a package runner may have to download first."""
ASK_S: Final = 30.0
"""For a resource or a prompt."""
PING_S: Final = 2.0
"""A server that does not answer within this is deaf."""
_FIRST_ID: Final = 1_000
"""The SDK's session counts its own requests up from 1, and makes a handful."""

_TOO_LATE: Final = NotSent(reason="deadline", message="the deadline passed before the server took the call")

Mode: TypeAlias = Literal["auto", "legacy"]
"""How the protocol is negotiated: by `server/discover` first, or by `initialize` alone."""

log: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


class ConnectFailed(Exception):
    """The connection never came to be. `died`: the server ended by itself during the handshake."""

    def __init__(self, report: NotSent, *, died: bool) -> None:
        self.report = report
        self.died = died
        super().__init__(report.message)


class Life:
    """One connection. `run` it in a task group, and use it once `run` has started."""

    def __init__(self, settings: McpSettings, late: LateResults, audience: Audience, *, mode: Mode) -> None:
        self._settings = settings
        self._following = Following(settings.name, audience)
        self._mode: Mode = mode
        self._wire = _open_wire(settings, self)
        self._ids = count(_FIRST_ID)
        self._tasks: TaskGroup | None = None
        self._dialect: Dialect | None = None
        self.listing = Listing(settings, self._ask)
        """The tools that it lists."""
        self._loading = anyio.Lock()
        self._connected_at = math.inf
        self._doubt: anyio.Event | None = None
        self._retired = False
        self.gone: Final = anyio.Event()
        """Set once `run` is over: nothing that was sent to a process is carried out from then on."""
        self._waiting = 0
        self._listeners = Listeners(settings, late, self._end_if_done)

    # ------------------------------------------------------------------ the connection

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Connect, serve until the server ends or `stop` is called, and close.

        Raises `ConnectFailed` before it has started, and nothing afterwards.
        """
        failure: ConnectFailed | None = None
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                failure = await self._open_and_serve(tasks, task_status)
                self._wire.stop()
        finally:
            self.gone.set()
        if failure is not None:
            raise failure

    def stop(self) -> None:
        """Let `run` close the connection; whoever still waits gets a `Silence`."""
        self._wire.stop()

    @property
    def dialect(self) -> Dialect:
        """What was negotiated."""
        assert self._dialect is not None, "the connection has not started"
        return self._dialect

    @property
    def usable(self) -> bool:
        """True where a call may be sent now."""
        return self._dialect is not None and self._doubt is None and not self.over

    @property
    def over(self) -> bool:
        """True where no call may be sent any more."""
        return self._retired or self._wire.ended.is_set()

    @property
    def retired(self) -> bool:
        """True where it is sent no more calls, and ends when nobody waits for it or listens to it."""
        return self._retired

    @property
    def age_s(self) -> float:
        """Seconds since it has connected."""
        return anyio.current_time() - self._connected_at

    async def certain(self) -> None:
        """Wait until the connection is not in doubt."""
        while self._doubt is not None:
            await self._doubt.wait()

    def on_garbage(self) -> None:
        """See `WireWatcher`."""
        self._put_in_doubt()

    def retire(self) -> None:
        """Send it no more calls; it ends by itself when nobody waits for it or listens to it any longer."""
        self._retired = True
        self._end_if_done()

    def on_expired(self) -> None:
        """See `WireWatcher`."""
        self.retire()

    def on_tools_changed(self) -> None:
        """See `WireWatcher`."""
        self.listing.has_changed()
        self._following.tools_changed()

    def on_told(self, message: JsonObject) -> None:
        """See `WireWatcher`."""
        self._following.told(message)

    async def _open_and_serve(self, tasks: TaskGroup, task_status: TaskStatus[None]) -> ConnectFailed | None:
        try:
            await tasks.start(self._wire.run)
        except SpawnFailed as error:
            return ConnectFailed(NotSent(reason="spawn_failed", message=str(error)), died=False)
        except AddressUnusable as error:
            return ConnectFailed(NotSent(reason="connect_failed", message=str(error)), died=False)
        try:
            async with self._connected():
                task_status.started()
                await self._wire.ended.wait()
        except TimeoutError:
            return self._connect_failed(f"no handshake within {CONNECT_S:g} s")
        except Exception as error:  # noqa: BLE001 - the SDK raises errors, groups of them, and pydantic's
            if self._dialect is None:
                return self._connect_failed(_reason(error))
            log.warning("connection_failed", provider=self._settings.name, error=_reason(error))
        return None

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[None]:
        info = Implementation(name=CLIENT_NAME, version=CLIENT_VERSION)
        client = Client(self._wire.sdk, mode=self._mode, cache=None, client_info=info)
        with anyio.fail_after(CONNECT_S) as connecting:
            async with client:
                dialect = Dialect(client.protocol_version)
                await self.listing.load(dialect)
                self._dialect = dialect
                self._connected_at = anyio.current_time()
                connecting.deadline = math.inf
                yield

    def _connect_failed(self, detail: str) -> ConnectFailed:
        died = self._wire.ended.is_set()
        why = detail if self._wire.why is None else self._wire.why.message
        message = f"the server of provider {self._settings.name} cannot be connected to: {why}"
        return ConnectFailed(NotSent(reason="connect_failed", message=message), died=died)

    # ------------------------------------------------------------------ doubt

    def _put_in_doubt(self) -> None:
        if self._doubt is None and not self.over and self._dialect is not None and self._tasks is not None:
            self._doubt = anyio.Event()
            self._tasks.start_soon(self._ping, self._doubt)

    async def _ping(self, verdict: anyio.Event) -> None:
        try:
            reply = await self._ask(
                self.dialect, "server/discover" if self.dialect.modern else "ping", {}, PING_S
            )
            if not isinstance(reply, dict | HttpStatus) and not self._wire.ended.is_set():
                log.warning("server_deaf", provider=self._settings.name, ping_s=PING_S)
                self._retired = True
        finally:
            self._doubt = None
            verdict.set()
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._retired and not self._waiting and not self._listeners.any:
            self._wire.stop()

    # ------------------------------------------------------------------ tools

    async def refresh(self) -> None:
        """Ask for the tool list again; where that fails, the old one stays."""
        async with self._loading:
            if not self.listing.fresh and not self.over:
                try:
                    await self.listing.load(self.dialect)
                except NoList:
                    self._put_in_doubt()

    async def ask(self, method: str, params: JsonObject) -> Reply | None:
        """Return the reply to a request that changes nothing, None where there is none within `ASK_S`."""
        uri = params.get("uri", params.get("name"))
        name = uri if isinstance(uri, str) else None
        return await self._ask(self.dialect, method, params, ASK_S, name=name)

    async def _ask(
        self, dialect: Dialect, method: str, params: JsonObject, seconds: float, *, name: str | None = None
    ) -> Reply | None:
        """Return the reply to a request of our own about `name`, None where there is none in time."""
        request_id = next(self._ids)
        message = request(request_id, method, dialect.stamped(params))
        exchange = Exchange(request_id, message, headers=dialect.headers(method, name))
        self._wire.submit(exchange)
        with anyio.move_on_after(seconds):
            await _reply_to(exchange)
        if exchange.reply is None and not self._wire.withdraw(exchange):
            self._wire.forget(exchange)
        return exchange.reply

    # ------------------------------------------------------------------ calls

    async def call(self, call: ToolCall, progress: Progress, deadline: float) -> Report:
        """Send `call`, and return what was seen of it until `deadline` (of the event loop's clock).

        See `Provider.dispatch` for what a cancellation does.
        """
        arguments = arguments_of(call, self._settings.key)
        if isinstance(arguments, NotSent):
            return arguments
        if call.definition is not None and not self._is_served_as(call.tool, call.definition):
            message = f"the definition of {call.tool} changed after a person had approved this call"
            return NotSent(reason="unknown_tool", message=message)
        # the last look: from here to the first byte nothing waits
        await anyio.lowlevel.checkpoint_if_cancelled()
        if anyio.current_time() >= deadline:
            return _TOO_LATE
        exchange = self._exchange(call, arguments, progress)
        self._waiting += 1
        try:
            report = await self._send(call, exchange, progress, deadline)
            return await self._follow(call, report, deadline) if isinstance(report, TaskPending) else report
        finally:
            self._waiting -= 1
            self._following.end(exchange.request_id)
            self._end_if_done()

    async def _send(self, call: ToolCall, exchange: Exchange, progress: Progress, deadline: float) -> Report:
        try:
            self._wire.submit(exchange)
            with anyio.CancelScope(deadline=deadline):
                await exchange.wait()
            return self._conclude(call, exchange, progress)
        except anyio.get_cancelled_exc_class():
            self._let_go(call, exchange, cancelled=True)
            raise

    async def _follow(self, call: ToolCall, pending: TaskPending, deadline: float) -> Report:
        """Return what came of a task until `deadline`, the handle where nothing did."""
        task = self._task(call, pending)
        try:
            with anyio.CancelScope(deadline=deadline):
                return await task.outcome() or pending
        except anyio.get_cancelled_exc_class():
            self._listeners.add(self._tasks, call, task.cancel)
            raise
        self._listeners.add(self._tasks, call, task.outcome)
        return pending

    def _task(self, call: ToolCall, pending: TaskPending) -> PeerTask:
        return PeerTask(
            pending.handle,
            ask=partial(self._ask_about_task, name=str(pending.handle["taskId"])),
            read=partial(self._report, call),
            ended=self._wire.ended,
        )

    async def _ask_about_task(
        self, method: str, params: JsonObject, seconds: float, *, name: str
    ) -> Reply | None:
        return await self._ask(self.dialect, method, params, seconds, name=name)

    def _is_served_as(self, name: str, definition: Digest) -> bool:
        tool = self.listing.tool(name)
        return tool is not None and definition_digest(tool.definition) == definition

    def _exchange(self, call: ToolCall, arguments: JsonObject, progress: Progress) -> Exchange:
        dialect, key = self.dialect, self._settings.key
        request_id = next(self._ids)
        tool = self.listing.tool(call.tool)
        token = self._following.begin(request_id, call.operation_id)
        params = dialect.stamped(call_params(call, arguments, key, tool, progress=token))
        headers = call_headers(call, arguments, key, dialect, tool)
        message = request(request_id, "tools/call", params)
        return Exchange(request_id, message, headers=headers, on_phase=progress)

    def _conclude(self, call: ToolCall, exchange: Exchange, progress: Progress) -> Report:
        if exchange.reply is not None:
            report = self._report(call, exchange.reply)
            if isinstance(report, Silence):
                self._put_in_doubt()
            if not isinstance(report, Silence | NotSent):
                progress(Phase.ANSWERED)
            return report
        if exchange.disturbance is not None:
            disturbance = exchange.disturbance
            self._listen_for(call, exchange)
            return disturbance
        if self._let_go(call, exchange):
            return _TOO_LATE
        return Silence(cause="deadline", message=f"no answer within {round(call.timeout_s, 2):g} s")

    def _let_go(self, call: ToolCall, exchange: Exchange, *, cancelled: bool = False) -> bool:
        """Stop waiting. True where nothing of the call has left, and nothing will."""
        if exchange.reply is None:
            if self._wire.withdraw(exchange):
                return True
            if cancelled:
                self._wire.cancel(exchange)
            self._put_in_doubt()
        self._listen_for(call, exchange, told=cancelled)
        return False

    def _listen_for(self, call: ToolCall, exchange: Exchange, *, told: bool = False) -> None:
        """Listen to a call that has had no reply; `told`: its peer knows that nobody waits."""
        exchange.listen_on()
        self._listeners.add(
            self._tasks,
            call,
            partial(self._late_report, call, exchange, told=told),
            partial(self._give_up, exchange, told=told),
        )

    async def listened(self, operation_id: OperationId, attempt: int) -> None:
        """See `Listening.listened`."""
        await self._listeners.listened(operation_id, attempt)

    def _give_up(self, exchange: Exchange, *, told: bool) -> None:
        if exchange.reply is None and not told and not self.over:
            self._wire.cancel(exchange)
        self._wire.forget(exchange)

    async def _late_report(self, call: ToolCall, exchange: Exchange, *, told: bool) -> Report | None:
        await _reply_to(exchange)
        assert exchange.reply is not None, "that is what was waited for"
        report = self._report(call, exchange.reply)
        if not isinstance(report, TaskPending):
            return report
        task = self._task(call, report)
        return await (task.cancel() if told else task.outcome())

    def _report(self, call: ToolCall, reply: Reply) -> Report:
        if not isinstance(reply, dict):
            return reply
        report = report_of(reply)
        if isinstance(report, Answered) and not report.is_error:
            tool = self.listing.tool(call.tool)
            if tool is not None and tool.output_invalid(report.result):
                return replace(report, output_invalid=True)
        return report


def _open_wire(settings: McpSettings, watcher: Life) -> Wire:
    if isinstance(settings.server, StdioServer):
        return StdioWire(settings.name, settings.server, settings.answer_max_bytes, watcher)
    return HttpWire(settings.name, settings.server, settings.answer_max_bytes, watcher)


async def _reply_to(exchange: Exchange) -> None:
    """Wait for the reply, whatever disturbs."""
    while exchange.reply is None:
        await exchange.wait()
        if exchange.reply is None:
            exchange.listen_on()


def _reason(error: BaseException) -> str:
    """The innermost error's own words; its type where it has none."""
    inner = innermost(error)
    return str(inner).splitlines()[0] if str(inner) else type(inner).__name__
