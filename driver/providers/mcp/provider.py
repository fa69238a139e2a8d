"""An MCP server as a provider: which connection serves, when one is started, and what replaces it.

Part of `driver.providers.mcp`; imports its `life`, `settings` and `tools`, and `driver.core`.

There is at most one connection that is sent calls. It is started by the first call that needs it, in a task
of its own, so that no caller's impatience ends a start that others wait for. When it has ended, or has gone
deaf, the next call starts another; starts that fail, and connections that do not last, put a growing pause
before the next.

A process that never answered a call may be at it still, long after anybody listens. Where a call must be
alone, the process that an earlier attempt of its operation was sent to is retired, and its end waited for.
"""

import random
from collections import OrderedDict
from typing import Final

import anyio
import structlog
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskGroup, TaskStatus

from driver.core.attempts import NotSent, Phase, Report, Silence, TaskPending, ToolCall
from driver.core.backoff import delay_s
from driver.core.identity import definition_digest
from driver.log import about_no_call
from driver.providers.mcp.life import ConnectFailed, Life, Mode
from driver.providers.mcp.settings import McpSettings, StdioServer
from driver.providers.mcp.tools import ServedTool
from driver.providers.protocol import LateResults, Progress
from driver.providers.serving import NOBODY, Audience
from store.records import Digest, JsonObject, OperationId

HOLD_S: Final = 5.0
"""A call waits for a start that is due within this; one that is due later refuses it at once."""
PARTING_S: Final = 30.0
"""How long a call that must be alone waits for the end of a process that others may still wait for."""
UNANSWERED_MAX: Final = 1_024
"""Calls without an answer that are remembered; of older ones time alone tells whether they can still land."""
LASTING_S: Final = 10.0
"""A connection that lasted this long was a good one, whatever ended it."""

log: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


_ELSEWHERE: Final = object()
_NOT_ALONE: Final = (
    "the server's process that an earlier attempt was sent to may still be at it, and other calls of it are "
    "waited for or listened to: try again when they have ended"
)


class _Start:
    """A connection in the making, and whoever waits for it."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.failure: NotSent | None = None


class McpProvider:
    """A `Provider` of kind `mcp`: `Describing`, `Listening` and `Landing`, `Serving` and `Asking`."""

    def __init__(self, settings: McpSettings, late: LateResults, audience: Audience = NOBODY) -> None:
        self._settings = settings
        self._late = late
        self._audience = audience
        self._mode: Mode = "auto"
        self._tasks: TaskGroup | None = None
        self._life: Life | None = None
        self._lives: set[Life] = set()
        self._start: _Start | None = None
        self._unanswered: OrderedDict[tuple[OperationId, int], Life | None] = OrderedDict()
        """Calls without an answer, the newest last, and the connection of each; None once that is over."""
        self._failures = 0
        self._not_before = 0.0
        self._last_failure = ""
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
                await self._closing.wait()
                for life in self._lives:
                    life.stop()
        finally:
            self._closing.set()
            self._closed.set()

    async def close(self) -> None:
        """See `Provider.close`."""
        self._closing.set()
        if self._tasks is not None:
            await self._closed.wait()

    def ready(self, call: ToolCall) -> bool:
        """See `Provider.ready`."""
        life = self._life
        return (
            life is not None
            and life.usable
            and not life.listing.stale
            and life.listing.objection(call) is None
        )

    async def prepare(self, call: ToolCall) -> NotSent | None:
        """See `Provider.prepare`."""
        if call.alone and not await self._part(call.operation_id):
            return NotSent(reason="connect_failed", message=_NOT_ALONE)
        life = await self._usable()
        if isinstance(life, NotSent):
            return life
        if life.listing.stale:
            await life.refresh()
        objection = life.listing.objection(call)
        if objection is not None and not life.listing.fresh:
            await life.refresh()
            objection = life.listing.objection(call)
        return objection

    async def dispatch(self, call: ToolCall, progress: Progress) -> Report:
        """See `Provider.dispatch`."""
        deadline = anyio.current_time() + call.timeout_s
        life: Life | NotSent | None = self._life
        if not isinstance(life, Life) or not life.usable:
            progress(Phase.CONNECTING)
            life = None
            with anyio.CancelScope(deadline=deadline):
                life = await self._usable()
        if life is None:
            return NotSent(
                reason="deadline", message="the deadline passed before the server could take the call"
            )
        if isinstance(life, NotSent):
            return life
        attempt = (call.operation_id, call.attempt)
        self._unanswered[attempt] = life
        while len(self._unanswered) > UNANSWERED_MAX:
            self._unanswered.popitem(last=False)
        report = await life.call(call, progress, deadline)
        if not isinstance(report, Silence | TaskPending):
            self._unanswered.pop(attempt, None)
        return report

    def may_land(self, operation_id: OperationId, attempt: int) -> bool:
        """See `Landing.may_land`. A process that has ended does nothing any more; a distant server may."""
        return self._unanswered.get((operation_id, attempt), _ELSEWHERE) is not None

    def reads(self, tool: str) -> bool:
        """See `Describing.reads`."""
        life = self._life
        if not self._settings.trust_annotations or life is None or life.over or life.listing.stale:
            return False
        served = life.listing.tool(tool)
        return served is not None and served.read_only_hint

    async def definition(self, tool: str) -> Digest | NotSent:
        """See `Describing.definition`."""
        life = await self._usable()
        if isinstance(life, NotSent):
            return life
        await life.refresh()
        served = life.listing.tool(tool)
        return life.listing.unknown(tool) if served is None else definition_digest(served.definition)

    async def listened(self, operation_id: OperationId, attempt: int) -> None:
        """See `Listening.listened`."""
        for life in tuple(self._lives):
            await life.listened(operation_id, attempt)

    async def list_tools(self) -> tuple[ServedTool, ...] | NotSent:
        """Start and connect the server, and return the tools that it really serves."""
        life = await self._usable()
        if isinstance(life, NotSent):
            return life
        await life.refresh()
        return life.listing.tools

    async def definitions(self) -> tuple[JsonObject, ...] | NotSent:
        """See `Serving.definitions`."""
        tools = await self.list_tools()
        return tools if isinstance(tools, NotSent) else tuple(tool.definition for tool in tools)

    async def ask(self, method: str, params: JsonObject) -> JsonObject | NotSent:
        """See `Asking.ask`."""
        life = await self._usable()
        if isinstance(life, NotSent):
            return life
        reply = await life.ask(method, params)
        if isinstance(reply, dict | NotSent):
            return reply
        return NotSent(reason="connect_failed", message=f"the server of provider {self.name} did not answer")

    # ------------------------------------------------------------------ which connection

    async def _usable(self) -> Life | NotSent:
        """Return a connection that takes calls, started if need be."""
        while not self._closing.is_set():
            life = self._life
            if life is not None and life.over:
                self._bury(life)
            elif life is not None:
                await life.certain()
                if life.usable:
                    return life
                continue
            start = self._start or self._begin()
            if isinstance(start, NotSent):
                return start
            await start.done.wait()
            if start.failure is not None:
                return start.failure
        return NotSent(reason="connect_failed", message=f"provider {self.name} is being closed")

    def _begin(self) -> _Start | NotSent:
        wait_s = self._not_before - anyio.current_time()
        if wait_s > HOLD_S:
            again = f"the next try is in {wait_s:.0f} s, after {self._failures} in vain"
            return NotSent(reason="connect_failed", message=f"{self._last_failure}; {again}")
        assert self._tasks is not None, "the provider is not running"
        self._start = start = _Start()
        self._tasks.start_soon(self._bring_up, start)
        return start

    async def _bring_up(self, start: _Start) -> None:
        about_no_call()  # it is one call that has begun this, and many that the connection is for
        start.failure = NotSent(reason="connect_failed", message=f"provider {self.name} is being closed")
        try:
            await anyio.sleep_until(self._not_before)
            if not self._closing.is_set():
                start.failure = await self._connect()
        finally:
            self._start = None
            start.done.set()

    async def _connect(self) -> NotSent | None:
        """Return why there is no connection; None where there is one now."""
        try:
            self._life = await self._begin_life()
        except ConnectFailed as failed:
            if failed.died and self._may_be_older:
                self._mode = "legacy"
                return await self._connect()
            self._mode = "auto"
            self._last_failure = failed.report.message
            self._back_off()
            return failed.report
        if isinstance(self._settings.server, StdioServer):
            self._mode = "auto" if self._life.dialect.modern else "legacy"
        return None

    @property
    def _may_be_older(self) -> bool:
        """Some servers of the older era end when their first request is not `initialize`."""
        stdio = isinstance(self._settings.server, StdioServer)
        return stdio and self._mode == "auto" and not self._closing.is_set()

    async def _begin_life(self) -> Life:
        assert self._tasks is not None
        life = Life(self._settings, self._hear, self._audience, mode=self._mode)
        await self._tasks.start(self._live, life)
        return life

    async def _live(self, life: Life, *, task_status: TaskStatus[None]) -> None:
        """Run one connection to its end."""
        self._lives.add(life)
        if self._closing.is_set():
            life.stop()
        try:
            await life.run(task_status=task_status)
        finally:
            self._lives.discard(life)
            self._bury(life)
            self._end_unanswered(life)

    async def _part(self, operation_id: OperationId) -> bool:
        """End the processes that may still be at a call of an operation; False where they do not end in time.

        What a distant server is still at nobody here can end: of that, time alone tells.
        """
        if not isinstance(self._settings.server, StdioServer):
            return True
        lives = {life for (whose, _), life in self._unanswered.items() if whose == operation_id and life}
        for life in lives:
            life.retire()
        with anyio.move_on_after(PARTING_S) as patience:
            for life in lives:
                await life.gone.wait()
        return not patience.cancelled_caught

    def _hear(self, operation_id: OperationId, attempt: int, report: Report) -> None:
        """A late answer is one: nothing more will come of its call."""
        self._unanswered.pop((operation_id, attempt), None)
        self._late(operation_id, attempt, report)

    def _end_unanswered(self, life: Life) -> None:
        """Take note that nothing will come of what was sent to a process that is gone, with all its group."""
        if not isinstance(self._settings.server, StdioServer):
            return
        for attempt in [attempt for attempt, found in self._unanswered.items() if found is life]:
            self._unanswered[attempt] = None

    def _bury(self, life: Life) -> None:
        """Take note, once, that the connection that served is over, though it may still be closing."""
        if self._life is not life:
            return
        self._life = None
        if life.retired or life.age_s >= LASTING_S:
            self._failures = 0
        elif not self._closing.is_set():
            self._last_failure = f"the server of provider {self.name} keeps ending"
            self._back_off()

    def _back_off(self) -> None:
        self._failures += 1
        self._not_before = anyio.current_time() + delay_s(self._failures, random.random())  # noqa: S311
