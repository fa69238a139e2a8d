"""Spans of commands, attempts and commits, read with an SDK's exporter; and nothing at all without one."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from driver.core.attempts import Answered, NotSent, Phase, Silence
from driver.core.contracts import Contract, MetaKey
from driver.core.frames import CommandFrame
from driver.engine.traces import UNTRACED
from driver.engine.tracing import HTTP, MCP_HTTP, MCP_STDIO, PROGRAM, OpenTelemetry, Transport
from store.records import OperationId
from tests.driver.engine.rig import Rig, ScriptedProvider, call, command, engine

pytestmark = pytest.mark.anyio

TRACE: Final = 0x4BF92F3577B34DA6A3CE929D0E0E4736
PARENT: Final = 0x00F067AA0BA902B7
GIVEN: Final = f"00-{TRACE:032x}-{PARENT:016x}-01"


class Spans:
    """What was exported."""

    def __init__(self, transport: Transport = MCP_STDIO, *, sampled: bool = True) -> None:
        provider = TracerProvider() if sampled else TracerProvider(sampler=ALWAYS_OFF)
        self._exporter = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.traces = OpenTelemetry(provider, {"tools": transport}, "1")

    @property
    def all(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    def named(self, start: str) -> list[ReadableSpan]:
        return [span for span in self.all if span.name.startswith(start)]

    def one(self, start: str) -> ReadableSpan:
        (span,) = self.named(start)
        return span


@asynccontextmanager
async def traced(
    folder: Path, provider: ScriptedProvider, spans: Spans, contract: Contract | None = None
) -> AsyncGenerator[Rig]:
    """An engine with a tracer."""
    async with engine(folder, provider, traces=spans.traces, contract=contract) as rig:
        yield rig


def traced_call(command_id: str = "cmd-1") -> CommandFrame:
    """A call that comes with a trace context."""
    plain = call(command_id, arguments={"n": command_id, "secret": "hunter2"})
    return CommandFrame(
        command_id=plain.command_id,
        run_id=plain.run_id,
        kind=plain.kind,
        data=plain.data,
        traceparent=GIVEN,
    )


def context_of(span: ReadableSpan) -> tuple[int, int]:
    """Its trace and its own id."""
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def parent_of(span: ReadableSpan) -> tuple[int, int] | None:
    """The trace and the id of its parent."""
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def attributes_of(span: ReadableSpan) -> dict[str, object]:
    """Its attributes."""
    return dict(span.attributes or {})


async def test_a_call_is_a_command_an_attempt_and_its_commits(tmp_path: Path) -> None:
    """The command hangs below whoever gave it, the attempt below the command, and commits below both."""
    spans = Spans()
    async with traced(tmp_path, ScriptedProvider(), spans) as rig:
        await rig.intake.deliver([traced_call()])
        found = await rig.settled()
    given, attempt = spans.one("tool.call tools/act"), spans.one("tools/call act")
    first, second = sorted(spans.named("commit"), key=lambda span: span.start_time or 0)
    assert parent_of(given) == (TRACE, PARENT)
    assert parent_of(attempt) == context_of(given)
    assert parent_of(first) == context_of(given), "acceptance and intent share one"
    assert parent_of(second) == context_of(attempt)
    assert given.kind is SpanKind.CONSUMER
    assert attempt.kind is SpanKind.CLIENT
    assert attributes_of(attempt) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "act",
        "gen_ai.tool.type": "extension",
        "gen_ai.tool.call.id": found.operation_id,
        "mcp.method.name": "tools/call",
        "network.transport": "pipe",
        "effectd.provider": "tools",
        "effectd.attempt": 1,
        "effectd.outcome": "succeeded",
        "effectd.effect": "occurred",
        "effectd.phase": "answered",
    }
    assert attributes_of(given) | {"effectd.command.id": "cmd-1", "effectd.run.id": "run-1"} == attributes_of(
        given
    )
    assert attributes_of(first)["effectd.commit.units"] == 1
    for span in spans.all:
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time <= span.end_time
    assert "hunter2" not in repr([span.to_json() for span in spans.all])


async def test_the_provider_is_called_with_the_context_of_the_attempt(tmp_path: Path) -> None:
    """What the provider does hangs below the attempt, in the trace that the plane began."""
    spans, provider = Spans(), ScriptedProvider()
    async with traced(tmp_path, provider, spans) as rig:
        await rig.intake.deliver([traced_call()])
        await rig.settled()
    trace_id, span_id = context_of(spans.one("tools/call act"))
    assert [sent.traceparent for sent in provider.executed] == [f"00-{trace_id:032x}-{span_id:016x}-01"]
    assert trace_id == TRACE


async def test_without_a_tracer_the_context_of_the_command_goes_on(tmp_path: Path) -> None:
    """No SDK, no span: the provider gets what the plane sent."""
    provider = ScriptedProvider()
    async with engine(tmp_path, provider) as rig:
        await rig.intake.deliver([traced_call()])
        await rig.settled()
    assert [sent.traceparent for sent in provider.executed] == [GIVEN]
    assert UNTRACED.carrier(OperationId("op_1"), GIVEN) is GIVEN


async def test_what_is_not_sampled_says_so_to_the_provider(tmp_path: Path) -> None:
    """A sampler's no travels with the call; nothing is exported."""
    spans, provider = Spans(sampled=False), ScriptedProvider()
    async with traced(tmp_path, provider, spans) as rig:
        await rig.intake.deliver([traced_call()])
        await rig.settled()
    assert spans.all == ()
    (sent,) = provider.executed
    assert sent.traceparent is not None
    assert sent.traceparent.startswith(f"00-{TRACE:032x}-")
    assert sent.traceparent.endswith("-00")


@pytest.mark.parametrize(
    ("transport", "name", "kind", "network"),
    [
        (MCP_HTTP, "tools/call act", SpanKind.CLIENT, "tcp"),
        (HTTP, "execute_tool act", SpanKind.CLIENT, "tcp"),
        (PROGRAM, "execute_tool act", SpanKind.INTERNAL, None),
    ],
)
async def test_each_kind_of_provider_is_named_as_the_conventions_do(
    tmp_path: Path, transport: Transport, name: str, kind: SpanKind, network: str | None
) -> None:
    """Only MCP has a method; a program is no client's business."""
    spans = Spans(transport)
    async with traced(tmp_path, ScriptedProvider(), spans) as rig:
        await rig.intake.deliver([traced_call()])
        await rig.settled()
    span = spans.one(name)
    assert span.kind is kind
    assert attributes_of(span).get("network.transport") == network
    assert ("mcp.method.name" in attributes_of(span)) == (transport is MCP_HTTP)


@pytest.mark.parametrize(
    ("answer", "error", "outcome", "effect"),
    [
        (Answered(result={}, is_error=True), "tool_error", "failed", "unknown"),
        (Silence(cause="deadline", message="hunter2"), "execution_timeout", "unknown", "unknown"),
    ],
)
async def test_an_attempt_that_fails_says_how_and_nothing_more(
    tmp_path: Path, answer: Answered | Silence, error: str, outcome: str, effect: str
) -> None:
    """The class of the error, and no message: that may quote what was withheld."""
    spans = Spans()
    async with traced(tmp_path, ScriptedProvider(answer=answer), spans) as rig:
        await rig.intake.deliver([traced_call()])
        await rig.settled()
    span = spans.one("tools/call act")
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description is None
    found = attributes_of(span)
    assert (found["error.type"], found["effectd.outcome"], found["effectd.effect"]) == (
        error,
        outcome,
        effect,
    )
    assert spans.one("tool.call").status.status_code is StatusCode.ERROR
    assert "hunter2" not in repr([span.to_json() for span in spans.all])


async def test_each_attempt_of_an_operation_is_a_span(tmp_path: Path) -> None:
    """Two attempts below one command; each call goes out in its own."""
    spans = Spans()
    contract = Contract(
        declared=True,
        idempotent=True,
        dedupe_horizon_s=3_600,
        key_carrier=MetaKey(),
        retry="same-key",
        retry_backoff_s=0.001,
        error_means="none",
    )
    refused = NotSent(reason="connect_failed", message="refused")
    provider = ScriptedProvider(refusals=[refused])
    async with traced(tmp_path, provider, spans, contract) as rig:
        await rig.intake.deliver([traced_call()])
        await rig.settled()
        attempts = len(await rig.attempts())
    found = spans.named("tools/call act")
    assert [attributes_of(span)["effectd.attempt"] for span in found] == list(range(1, attempts + 1))
    assert {parent_of(span) for span in found} == {context_of(spans.one("tool.call"))}
    assert len({context_of(span) for span in found}) == attempts


async def test_what_is_repeated_or_refused_for_now_makes_no_span(tmp_path: Path) -> None:
    """A command has one span, however often it is delivered; a final refusal has one, too."""
    spans = Spans()
    async with traced(tmp_path, ScriptedProvider(), spans) as rig:
        await rig.intake.deliver([traced_call()])
        await rig.settled()
        before = len(spans.all)
        await rig.intake.deliver([traced_call(), traced_call()])
        assert len(spans.all) == before
        rig.posture.draining = True
        await rig.intake.deliver([traced_call("cmd-2")])
        assert len(spans.all) == before
        rig.posture.draining = False
        await rig.intake.deliver([command("no.such.kind", "cmd-3")])
        refused = [span for span in spans.all if attributes_of(span).get("error.type") == "unknown_kind"]
        assert len(refused) == 1
        assert spans.traces._arrived == {}


async def test_what_is_open_at_the_end_is_ended_there(tmp_path: Path) -> None:
    """A life's spans are exported even where it leaves an operation to the next one, which has no parent."""
    spans = Spans()
    provider = ScriptedProvider(held_at=Phase.WRITING)
    async with traced(tmp_path, provider, spans) as rig:
        await rig.intake.deliver([traced_call()])
        await provider.arrived.wait()
        assert spans.named("tools/call") == []
    assert attributes_of(spans.one("tools/call act"))["effectd.left_open"] is True
    assert attributes_of(spans.one("tool.call"))["effectd.left_open"] is True
    later = Spans()
    async with traced(tmp_path, ScriptedProvider(), later):
        assert later.all == ()


async def test_a_tracer_that_raises_ends_the_tracing_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call is made and recorded, with the command's own context."""
    spans, provider = Spans(), ScriptedProvider()

    def broken(*_args: object, **_more: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(spans.traces, "_tracer", type("Broken", (), {"start_span": broken})())
    async with traced(tmp_path, provider, spans) as rig:
        await rig.intake.deliver([traced_call()])
        assert (await rig.settled()).effect.value == "occurred"
    assert [sent.traceparent for sent in provider.executed] == [GIVEN]


async def test_a_large_answer_is_traced_without_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The span ends as it should; what would take long to parse is left out of it."""
    monkeypatch.setattr("driver.engine.tracing.BODY_BYTES_MAX", 2_000)
    spans = Spans()
    provider = ScriptedProvider(answers=[Answered(result={"text": "x" * 3_000})])
    async with traced(tmp_path, provider, spans) as rig:
        await rig.intake.deliver([traced_call()])
        await rig.settled()
    assert attributes_of(spans.one("tools/call act"))["effectd.outcome"] == "succeeded"
    assert spans.one("tools/call act").status.status_code is StatusCode.UNSET


async def test_what_an_earlier_life_accepted_goes_on_below_its_own_trace(tmp_path: Path) -> None:
    """The journal remembers the `traceparent`: the attempt is below it, and the provider in that trace."""
    waiting = ScriptedProvider()
    async with engine(tmp_path, waiting, confirmed=False) as rig:
        await rig.intake.deliver([traced_call()])
    spans, provider = Spans(), ScriptedProvider()
    async with traced(tmp_path, provider, spans) as rig:
        await rig.settled()
    assert waiting.executed == []
    assert parent_of(spans.one("tools/call act")) == (TRACE, PARENT)
    (told,) = provider.executed
    assert told.traceparent is not None
    assert told.traceparent.startswith(f"00-{TRACE:032x}-")


async def test_without_a_tracer_a_restart_keeps_the_context_of_the_command(tmp_path: Path) -> None:
    """The provider is called with it, as it would have been."""
    async with engine(tmp_path, ScriptedProvider(), confirmed=False) as rig:
        await rig.intake.deliver([traced_call()])
    provider = ScriptedProvider()
    async with engine(tmp_path, provider) as rig:
        await rig.settled()
    assert [item.traceparent for item in provider.executed] == [GIVEN]
