"""Says to a provider what is asked of it, and hears what it says: steps 2 and 5 of `dispatcher`.

Part of `driver.engine`; imports `driver.core` and `driver.providers`' protocols. Nothing is committed here.
"""

from datetime import datetime
from typing import Final

import anyio
import structlog

from driver.core.attempts import Answered, NotSent, Phase, Report, ToolCall
from driver.core.contracts import ToolName
from driver.engine.reports import abandoned, broken, no_provider
from driver.engine.running import Running
from driver.engine.surroundings import Surroundings
from driver.providers.describing import Describing
from driver.providers.listening import Listening
from driver.providers.protocol import Provider

log = structlog.get_logger(__name__)

CANCEL_DRAIN_S: Final = 5.0
"""How long a provider may take over a cancel (docs/configuration.md)."""
MARGIN_S: Final = 0.1
"""A cancel's outcome is recorded so much before the deadline of its attempt, and so of its command."""


class Caller:
    """Speaks to the providers for the dispatcher."""

    def __init__(self, around: Surroundings) -> None:
        self._providers = around.providers
        self._clock = around.clock
        self._boundary = around.boundary
        self._traces = around.traces

    async def prepare(self, running: Running) -> NotSent | None:
        """Step 2. A cancel, the expiry or a drain ends the wait; step 3 sees which it was."""
        assignment = running.assignment
        provider = self._provider(assignment.tool)
        if provider is None:
            return NotSent(reason="unknown_tool", message=no_provider(ToolName.parse(assignment.tool)))
        with anyio.CancelScope(deadline=loop_time(assignment.expires_at, self._clock())) as running.scope:
            call = self._tool_call(running, timeout_s=assignment.contract.execution_s)
            refusal = await provider.prepare(call)
            if refusal is None and assignment.needs_approval and isinstance(provider, Describing):
                found = await provider.definition(call.tool)
                running.definition, refusal = (found, None) if isinstance(found, str) else (None, found)
            self._boundary("dispatch.prepared")
            return refusal
        running.interrupted = True
        return None

    async def call(self, running: Running) -> Report:
        """Step 5. Whatever happens, this returns what is known about the call."""
        provider = self._provider(running.assignment.tool)
        assert provider is not None, "an intent is committed only for a tool of a configured provider"
        assert running.deadline_at is not None, "an intent has a deadline"
        timeout_s = max((running.deadline_at - self._clock()).total_seconds(), 0.0)
        try:
            with anyio.CancelScope() as running.scope:
                self._boundary("dispatch.before_call")
                return await provider.dispatch(self._tool_call(running, timeout_s=timeout_s), running.reach)
        except Exception as exc:
            log.exception(
                "provider_failed", operation_id=running.assignment.operation_id, error=type(exc).__name__
            )
            return broken(running.phase, exc)
        await self._hear_out(running, provider)
        if isinstance(running.heard, Answered) and not running.heard.is_error:
            running.reach(Phase.ANSWERED)
            return running.heard
        return abandoned(running.phase)

    async def _hear_out(self, running: Running, provider: Provider) -> None:
        """Give a provider that was told of the cancel a moment to say how far it had got."""
        if not running.phase.may_have_left or not isinstance(provider, Listening):
            return
        assert running.deadline_at is not None, "an intent has a deadline"
        latest = loop_time(running.deadline_at, self._clock()) - MARGIN_S
        ends = min(running.cancelled_at + CANCEL_DRAIN_S, latest)
        assignment = running.assignment
        with anyio.CancelScope(deadline=ends):
            await provider.listened(assignment.operation_id, assignment.attempt)

    def _tool_call(self, running: Running, *, timeout_s: float) -> ToolCall:
        assignment = running.assignment
        return running.call(timeout_s, self._traces.carrier(assignment.operation_id, assignment.traceparent))

    def _provider(self, tool: str) -> Provider | None:
        return self._providers.get(ToolName.parse(tool).provider)


def loop_time(moment: datetime | None, now: datetime) -> float:
    """Return the event loop's time at `moment`, where it is `now`; infinity where there is none."""
    if moment is None:
        return float("inf")
    return anyio.current_time() + (moment - now).total_seconds()
