"""Calls that nobody waits for any more, and whose answer is still listened to.

Part of `driver.providers.mcp`; imports `driver.core` and the provider protocol.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import anyio
import structlog
from anyio.abc import TaskGroup

from driver.core.attempts import NotSent, PeerError, Report, Silence, ToolCall
from driver.providers.mcp.settings import McpSettings
from driver.providers.protocol import LateResults
from store.records import OperationId

LISTENED_MAX: Final = 1_024
"""Calls that a late answer is awaited for at once; more than this are forgotten."""
REQUEST_CANCELLED: Final = -32_800
"""The code with which some servers answer a request that they were told to cancel."""

Hear: TypeAlias = Callable[[], Awaitable[Report | None]]
"""Returns what comes late; None where nothing can come any more."""

log: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


class Listeners:
    """Those of one connection. `on_end` is called whenever one has stopped listening."""

    def __init__(self, settings: McpSettings, late: LateResults, on_end: Callable[[], None]) -> None:
        self._settings = settings
        self._late = late
        self._on_end = on_end
        self._listened: dict[tuple[OperationId, int], anyio.Event] = {}

    @property
    def any(self) -> bool:
        """True while anybody listens."""
        return bool(self._listened)

    def add(
        self, tasks: TaskGroup | None, call: ToolCall, hear: Hear, give_up: Callable[[], None] | None = None
    ) -> None:
        """Hand what `hear` returns to `late`; `give_up` where that takes longer than anybody listens."""
        if len(self._listened) >= LISTENED_MAX or tasks is None:
            log.warning("late_answer_not_awaited", provider=self._settings.name, listened_max=LISTENED_MAX)
            if give_up is not None:
                give_up()
            return
        self._listened[call.operation_id, call.attempt] = anyio.Event()
        tasks.start_soon(self._listen, call, hear, give_up)

    async def listened(self, operation_id: OperationId, attempt: int) -> None:
        """See `Listening.listened`."""
        over = self._listened.get((operation_id, attempt))
        if over is not None:
            await over.wait()

    async def _listen(self, call: ToolCall, hear: Hear, give_up: Callable[[], None] | None) -> None:
        try:
            with anyio.move_on_after(self._settings.late_result_s) as patience:
                report = await hear()
                if report is not None and not _says_nothing(report):
                    self._late(call.operation_id, call.attempt, report)
            if patience.cancelled_caught and give_up is not None:
                give_up()
        finally:
            self._listened.pop((call.operation_id, call.attempt)).set()
            self._on_end()


def _says_nothing(report: Report) -> bool:
    """No answer, or one to our own cancellation: the tool was interrupted somewhere, and that is all."""
    return isinstance(report, Silence | NotSent) or (
        isinstance(report, PeerError) and report.code == REQUEST_CANCELLED
    )
