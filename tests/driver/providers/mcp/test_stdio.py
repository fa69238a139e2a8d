"""A well-behaved server over stdio: calls, phases, keys, parallel calls, both eras of the protocol."""

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from driver.core.attempts import Answered, NotSent, Phase
from driver.core.contracts import ArgumentKey, KeyCarrier, NoKey, Sep3182Key
from store.records import JsonObject
from tests.driver.providers.mcp.stage import Stage, is_running, staged, stdio

pytestmark = pytest.mark.anyio

ERAS = [pytest.param((), id="2025-11-25"), pytest.param(("--modern",), id="2026-07-28")]


@pytest.fixture(params=ERAS)
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Stage]:
    """The counting server, in each era of the protocol."""
    options: tuple[str, ...] = request.param
    ledger = tmp_path / "ledger"
    async with staged(stdio("counter_mcp.py", ledger, *options), ledger) as stage:
        yield stage


async def test_a_call_is_answered_as_it_came_and_counted_once(stage: Stage) -> None:
    """The raw wire object comes back, all phases are told in order, and there is one effect."""
    report = await stage.dispatch(stage.call("count", {"n": 1}))
    assert isinstance(report, Answered)
    assert report.result["structuredContent"] == {"count": 1, "key": "op_key"}
    assert (report.is_error, report.output_invalid) == (False, False)
    assert stage.phases == [Phase.CONNECTING, Phase.WRITING, Phase.WRITTEN, Phase.ANSWERED]
    assert [(effect["tool"], effect["arguments"]) for effect in stage.effects()] == [("count", {"n": 1})]


async def test_the_second_call_needs_no_start(stage: Stage) -> None:
    """One process serves all calls, and `ready` says when nothing needs to be started."""
    assert stage.provider is not None
    call = stage.call("count")
    assert not stage.provider.ready(call)
    assert await stage.provider.prepare(call) is None
    assert stage.provider.ready(call)
    assert stage.effects() == []
    await stage.dispatch(call)
    await stage.dispatch(stage.call("count"))
    assert stage.phases == [Phase.WRITING, Phase.WRITTEN, Phase.ANSWERED]
    assert len(stage.pids()) == 1


async def test_a_tools_own_error_is_an_answer(stage: Stage) -> None:
    """`isError: true` is reported as it came; what it means is not the provider's to say."""
    report = await stage.dispatch(stage.call("fail"))
    assert isinstance(report, Answered)
    assert report.is_error
    assert stage.phases[-1] is Phase.ANSWERED


async def test_32_calls_at_once_are_each_answered_once(stage: Stage) -> None:
    """One pipe carries 32 calls, and no answer goes to another call."""
    assert stage.provider is not None
    assert await stage.provider.prepare(stage.call("count")) is None
    answers: dict[int, object] = {}

    async def one(n: int) -> None:
        report = await stage.dispatch(stage.call("slow", {"n": n, "seconds": 0.2}, key=f"key-{n}"))
        assert isinstance(report, Answered)
        content = report.result["structuredContent"]
        assert isinstance(content, dict)
        answers[n] = content["key"]

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for n in range(32):
                tasks.start_soon(one, n)
    assert answers == {n: f"key-{n}" for n in range(32)}
    assert sorted(str(effect["key"]) for effect in stage.effects()) == sorted(f"key-{n}" for n in range(32))


@pytest.mark.parametrize(
    ("tool", "arguments", "reason"),
    [
        ("nope", {}, "unknown_tool"),
        ("", {}, "unknown_tool"),
        ("count", {"n": "one"}, "invalid_arguments"),
        ("slow", {"when": "never"}, "invalid_arguments"),
    ],
)
async def test_what_the_tool_list_rules_out_is_refused_before_dispatch(
    stage: Stage, tool: str, arguments: JsonObject, reason: str
) -> None:
    """An unknown tool, or arguments that break its input schema: provably nothing was sent."""
    assert stage.provider is not None
    call = stage.call(tool, arguments)
    objection = await stage.provider.prepare(call)
    assert isinstance(objection, NotSent)
    assert objection.reason == reason
    assert not stage.provider.ready(call)
    assert stage.effects() == []


async def test_an_objection_never_quotes_a_value(stage: Stage) -> None:
    """Arguments may be secret; the message names the place and the rule."""
    assert stage.provider is not None
    objection = await stage.provider.prepare(stage.call("count", {"n": "hunter2"}))
    assert isinstance(objection, NotSent)
    assert objection.message == "the arguments of count do not fit: $.n is not of type integer"


async def test_the_served_tools_can_be_listed(stage: Stage) -> None:
    """`check --connect` holds contracts against what is really served."""
    assert stage.provider is not None
    tools = await stage.provider.list_tools()
    assert not isinstance(tools, NotSent)
    assert [tool.name for tool in tools] == ["count", "slow", "fail"]
    assert tools[0].definition["description"] == "one effect"


# ------------------------------------------------------------------ how the key travels


@pytest.mark.parametrize(
    ("carrier", "key", "line"),
    [
        (None, "op_1", {"key": "op_1", "arguments": {"n": 1}}),
        (None, None, {"key": None, "arguments": {"n": 1}}),
        (NoKey(), "op_1", {"key": None, "arguments": {"n": 1}}),
        (ArgumentKey("label"), "op_1", {"key": None, "arguments": {"n": 1, "label": "op_1"}}),
        (ArgumentKey("label"), None, {"key": None, "arguments": {"n": 1}}),
        (Sep3182Key(), "op_1", {"key": "op_1", "arguments": {"n": 1}}),
        (Sep3182Key(), None, {"key": None, "arguments": {"n": 1}}),
    ],
)
async def test_the_key_travels_as_configured(
    tmp_path: Path, carrier: KeyCarrier | None, key: str | None, line: JsonObject
) -> None:
    """In `_meta` by default, as an argument, beside the arguments, or not at all."""
    ledger = tmp_path / "ledger"
    async with staged(stdio("counter_mcp.py", ledger), ledger, key=carrier) as stage:
        report = await stage.dispatch(stage.call("count", {"n": 1}, key=key))
        assert isinstance(report, Answered)
        (effect,) = stage.effects()
        assert {name: effect[name] for name in line} == line


async def test_a_caller_cannot_supply_the_key(tmp_path: Path) -> None:
    """The argument that carries the key is the daemon's alone: refused, never overwritten."""
    ledger = tmp_path / "ledger"
    async with staged(stdio("counter_mcp.py", ledger), ledger, key=ArgumentKey("label")) as stage:
        assert stage.provider is not None
        call = stage.call("count", {"label": "mine"})
        objection = await stage.provider.prepare(call)
        assert isinstance(objection, NotSent)
        assert objection.reason == "invalid_arguments"
        assert await stage.dispatch(call) == objection
        assert stage.effects() == []


async def test_closing_waits_for_the_server_to_be_gone(tmp_path: Path) -> None:
    """After `close` nothing runs, further calls are refused, and closing again is harmless."""
    ledger = tmp_path / "ledger"
    async with staged(stdio("counter_mcp.py", ledger), ledger) as stage:
        assert stage.provider is not None
        await stage.dispatch(stage.call("count"))
        await stage.provider.close()
        report = await stage.dispatch(stage.call("count"))
        assert isinstance(report, NotSent)
        assert report.reason == "connect_failed"
        assert await stage.provider.prepare(stage.call("count")) == report
        (pid,) = stage.pids()
        assert not is_running(pid)
