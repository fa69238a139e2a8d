"""Spans of commands, attempts and commits, for whatever OpenTelemetry SDK the process was started with.

Part of `driver.engine`; imports `driver.core`, `store` and the API of OpenTelemetry. Loaded only where a
provider of tracers is set up, so that nobody else pays for it.

Theory of operation
-------------------
Spans follow the journal, as the log does: a command's begins when it arrived and ends with its receipt, an
attempt's begins when its intent is durable and ends when its outcome is. So no path through the engine can
forget to end one, and what was refused or repeated makes none. A commit that recorded something of a command
or an attempt is a span below that: what of the time went to the disk.

A command's parent is the `traceparent` that it came with; the provider is called with the attempt's own
context, for MCP in `_meta`, for HTTP in the header. The span of a command that an earlier life accepted ended
with that: what is still done for it is below its `traceparent`, which the journal remembers.

The names of attributes are those of the semantic conventions for generative AI and MCP; those of ours begin
with `effectd.`. Arguments, results and messages never stand in a span: they may be secret.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from driver.core.contracts import ToolName
from driver.core.frames import CommandFrame, InvalidCommand
from store.events import (
    AttemptEnded,
    CommandAccepted,
    CommandFailed,
    CommandRefused,
    OperationFailed,
    OperationNotExecuted,
    OperationStarted,
    OperationSucceeded,
    OperationUnknown,
)
from store.records import CommandId, JsonObject, OperationId, StoredEvent
from store.wire import frame_of

log = structlog.get_logger(__name__)

OPEN_MAX: Final = 10_000
"""Spans that are kept open at once, far beyond what may wait and run; others are not traced."""
BODY_BYTES_MAX: Final = 16_384
"""A larger event, which holds an answer, is traced without its details: this runs in the event loop."""

ENDS: Final = frozenset(
    event.KIND
    for event in (AttemptEnded, OperationSucceeded, OperationFailed, OperationNotExecuted, OperationUnknown)
)
TOOL_ERROR: Final = "tool_error"
"""What the conventions call an error that the tool itself reported."""

_W3C: Final = TraceContextTextMapPropagator()


@dataclass(frozen=True, slots=True)
class Transport:
    """How a provider is spoken to, in the words of the conventions; `network` is None for a program."""

    mcp: bool
    network: str | None
    kind: SpanKind


MCP_STDIO: Final = Transport(mcp=True, network="pipe", kind=SpanKind.CLIENT)
MCP_HTTP: Final = Transport(mcp=True, network="tcp", kind=SpanKind.CLIENT)
HTTP: Final = Transport(mcp=False, network="tcp", kind=SpanKind.CLIENT)
PROGRAM: Final = Transport(mcp=False, network=None, kind=SpanKind.INTERNAL)


@dataclass(frozen=True, slots=True)
class _Commit:
    began_ns: int
    ended_ns: int
    units: int


class OpenTelemetry:
    """A `Traces`. Whatever the SDK raises ends the tracing of this process life, and nothing else."""

    def __init__(self, provider: TracerProvider, transports: Mapping[str, Transport], version: str) -> None:
        self._tracer: Tracer = trace.get_tracer("effectd", version, provider)
        self._transports = transports
        self._arrived: dict[CommandId, tuple[int, str | None]] = {}
        self._commands: dict[CommandId, Span] = {}
        self._attempts: dict[OperationId, Span] = {}
        self._operations: dict[OperationId, CommandId] = {}
        self._recalled: dict[OperationId, str] = {}
        self._commit = _Commit(0, 0, 0)
        self._broken = False

    def arrived(self, frames: Sequence[CommandFrame | InvalidCommand]) -> None:
        """See `Traces.arrived`."""
        now = time.time_ns()
        for frame in frames:
            given = frame.traceparent if isinstance(frame, CommandFrame) else None
            self._arrived.setdefault(frame.command_id, (now, given))

    def answered(self, frames: Sequence[CommandFrame | InvalidCommand]) -> None:
        """See `Traces.answered`."""
        for frame in frames:
            self._arrived.pop(frame.command_id, None)

    def recall(self, operation_id: OperationId, given: str | None) -> None:
        """See `Traces.recall`."""
        if given is not None and len(self._recalled) < OPEN_MAX:
            self._recalled[operation_id] = given

    def carrier(self, operation_id: OperationId, given: str | None) -> str | None:
        """See `Traces.carrier`."""
        span = self._attempts.get(operation_id)
        if span is None:
            return given
        fields: dict[str, str] = {}
        _W3C.inject(fields, trace.set_span_in_context(span, Context()))
        return fields.get("traceparent", given)

    def committed(self, seconds: float, units: int) -> None:
        """See `Traces.committed`."""
        now = time.time_ns()
        self._commit = _Commit(now - round(seconds * 1e9), now, units)

    def note(self, events: Sequence[StoredEvent]) -> None:
        """See `Traces.note`."""
        if self._broken:
            return
        try:
            self._follow([event for event in events if event.requeue_of is None])
        except Exception as error:
            self._broken = True
            log.exception("tracing_failed", error=type(error).__name__)

    def close(self) -> None:
        """See `Traces.close`: what goes on in the next life ends here with its trace."""
        for span in (*self._attempts.values(), *self._commands.values()):
            span.set_attribute("effectd.left_open", value=True)
            span.end()
        self._attempts.clear()
        self._commands.clear()
        self._operations.clear()
        self._recalled.clear()

    # ------------------------------------------------------------ spans

    def _follow(self, events: Sequence[StoredEvent]) -> None:
        ended: dict[int, Span] = {}
        touched: dict[int, Span] = {}
        for event in events:
            if event.kind in (CommandAccepted.KIND, CommandRefused.KIND):
                self._begin_command(event)
            span = self._touched(event)
            if event.kind == OperationStarted.KIND:
                self._begin_attempt(event)
            if event.kind in ENDS:
                ended |= self._end_attempt(event)
            if event.terminal:
                ended |= self._end_command(event)
            if span is not None:
                touched[id(span)] = span
        for span in touched.values():
            self._commit_below(span)
        for span in ended.values():
            span.end()

    def _touched(self, event: StoredEvent) -> Span | None:
        """Return the span whose work this event is: the attempt's, where one is open, else the command's."""
        attempt = None if event.operation_id is None else self._attempts.get(event.operation_id)
        if attempt is not None or event.command_id is None:
            return attempt
        return self._commands.get(event.command_id)

    def _begin_command(self, event: StoredEvent) -> None:
        if event.command_id is None or len(self._commands) >= OPEN_MAX:
            return
        data = _data(event)
        kind, tool = str(data.get("kind", "command")), data.get("tool")
        at, given = self._arrived.get(event.command_id, (None, None))
        attributes = {"effectd.command.id": event.command_id, "effectd.command.kind": kind}
        if event.run_id is not None:
            attributes["effectd.run.id"] = event.run_id
        if event.operation_id is not None:
            attributes["effectd.operation.id"] = event.operation_id
            self._operations[event.operation_id] = event.command_id
        self._commands[event.command_id] = self._tracer.start_span(
            kind if tool is None else f"{kind} {tool}",
            context=Context() if given is None else _W3C.extract({"traceparent": given}, Context()),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            start_time=at,
        )

    def _end_command(self, event: StoredEvent) -> dict[int, Span]:
        span = None if event.command_id is None else self._commands.pop(event.command_id, None)
        if event.operation_id is not None:
            self._operations.pop(event.operation_id, None)
            self._recalled.pop(event.operation_id, None)
        if span is None:
            return {}
        _describe_end(span, event)
        return {id(span): span}

    def _begin_attempt(self, event: StoredEvent) -> None:
        if event.operation_id is None or len(self._attempts) >= OPEN_MAX:
            return
        data = _data(event)
        name = ToolName.parse(str(data.get("tool", "")))
        how = self._transports.get(name.provider, PROGRAM)
        attributes: dict[str, str | int] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name.tool,
            "gen_ai.tool.type": "extension",
            "gen_ai.tool.call.id": event.operation_id,
            "effectd.provider": name.provider,
            "effectd.attempt": int(str(data.get("attempt", 1))),
        }
        if how.mcp:
            attributes["mcp.method.name"] = "tools/call"
        if how.network is not None:
            attributes["network.transport"] = how.network
        command = self._commands.get(self._operations.get(event.operation_id, CommandId("")))
        self._attempts[event.operation_id] = self._tracer.start_span(
            f"{'tools/call' if how.mcp else 'execute_tool'} {name.tool}",
            context=self._above(event.operation_id, command),
            kind=how.kind,
            attributes=attributes,
        )

    def _above(self, operation_id: OperationId, command: Span | None) -> Context:
        if command is not None:
            return trace.set_span_in_context(command, Context())
        given = self._recalled.get(operation_id)
        return Context() if given is None else _W3C.extract({"traceparent": given}, Context())

    def _end_attempt(self, event: StoredEvent) -> dict[int, Span]:
        span = None if event.operation_id is None else self._attempts.pop(event.operation_id, None)
        if span is None:
            return {}
        _describe_end(span, event)
        return {id(span): span}

    def _commit_below(self, span: Span) -> None:
        commit = self._tracer.start_span(
            "commit",
            context=trace.set_span_in_context(span, Context()),
            attributes={"effectd.commit.units": self._commit.units},
            start_time=self._commit.began_ns,
        )
        commit.end(self._commit.ended_ns)


def _describe_end(span: Span, event: StoredEvent) -> None:
    data = _data(event)
    outcome = str(data.get("outcome") or event.kind.partition(".")[2])
    span.set_attribute("effectd.outcome", outcome)
    for member in ("effect", "phase"):
        if data.get(member) is not None:
            span.set_attribute(f"effectd.{member}", str(data[member]))
    if outcome not in ("succeeded", "completed"):
        span.set_attribute("error.type", _error_type(event, data))
        # no description: it would be the message, which may quote what was withheld
        span.set_status(StatusCode.ERROR)


def _error_type(event: StoredEvent, data: JsonObject) -> str:
    if event.kind in (CommandRefused.KIND, CommandFailed.KIND):
        return str(data.get("code", "_OTHER"))
    error, reason = data.get("error"), data.get("reason")
    code = error.get("code") if isinstance(error, dict) else None
    return str(code or reason or TOOL_ERROR)


def _data(event: StoredEvent) -> JsonObject:
    if event.body is None or len(event.body) > BODY_BYTES_MAX:
        return {}
    data: JsonObject = frame_of(event.body)["data"]
    return data
