"""A server that does everything wrong: each answer, and each thing that is none, is told for what it is."""

import os
import signal
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from driver.core.attempts import (
    Answered,
    InputRequired,
    NotSent,
    PeerError,
    Phase,
    Report,
    Silence,
    TaskPending,
)
from driver.providers.mcp.pace import FREE_UNITS, REST_S, TURN_UNITS, Pace
from store.records import JsonObject, JsonValue
from tests.driver.providers.mcp.stage import DEADLINE_S, Stage, gone, staged, stdio

pytestmark = [pytest.mark.anyio, pytest.mark.lane]


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncGenerator[Stage]:
    """The hostile server."""
    ledger = tmp_path / "ledger"
    async with staged(stdio("hostile_mcp.py", ledger), ledger) as stage:
        yield stage


async def works(stage: Stage) -> bool:
    """Whether an honest call is answered."""
    return isinstance(await stage.act("honest"), Answered)


# ------------------------------------------------------------------ servers that die


async def test_a_server_that_dies_after_its_effect_is_silence_and_not_a_failed_connect(stage: Stage) -> None:
    """The effect is there, so nothing may say that nothing was sent."""
    report = await stage.act("dies-after")
    assert report == Silence(
        cause="connection_lost", message="the server ended with exit status 7 before it answered"
    )
    assert stage.phases[-1] is Phase.WRITTEN
    assert len(stage.effects()) == 1


async def test_a_server_that_dies_before_its_effect_is_silence_too(stage: Stage) -> None:
    """Nobody can tell the one from the other from outside."""
    report = await stage.act("dies-before")
    assert isinstance(report, Silence)
    assert report.cause == "connection_lost"
    assert stage.effects() == []


async def test_a_server_that_died_is_started_again_and_sent_nothing_twice(stage: Stage) -> None:
    """The call that was lost stays lost; the next one gets a new process."""
    await stage.act("dies-after")
    assert await works(stage)
    assert [effect["mode"] for effect in stage.effects()] == ["dies-after", "honest"]
    assert len(stage.pids()) == 2


async def test_a_server_is_over_when_it_dies_whoever_holds_its_pipes(stage: Stage) -> None:
    """What it started may live on with its stdout: its calls are lost at once, and no other goes to it."""
    assert isinstance(await stage.act("spawn"), Answered)
    ((server, child),) = [(effect["pid"], effect["child"]) for effect in stage.effects()]
    assert isinstance(server, int)
    assert isinstance(child, int)
    reports: list[Report] = []

    async def one() -> None:
        reports.append(await stage.act("silent", timeout_s=60))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one)
            await anyio.wait_all_tasks_blocked()
            os.kill(server, signal.SIGKILL)
        await gone(child)
        assert await works(stage)
    assert [report.cause for report in reports if isinstance(report, Silence)] == ["connection_lost"]


async def test_all_calls_under_way_are_lost_with_their_server(stage: Stage) -> None:
    """Each gets its own silence, at once, and not at its deadline."""
    assert await works(stage)
    reports: list[object] = []

    async def one(mode: str) -> None:
        reports.append(await stage.act(mode, timeout_s=60))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one, "silent")
            tasks.start_soon(one, "silent")
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(one, "dies-after")
    assert [report.cause for report in reports if isinstance(report, Silence)] == ["connection_lost"] * 3


async def test_servers_that_keep_dying_are_started_after_a_growing_pause(stage: Stage) -> None:
    """Every death costs a longer wait; no call of it is ever sent again."""
    assert stage.provider is not None
    began = anyio.current_time()
    for _ in range(3):
        await stage.act("dies-after")
    assert await stage.provider.prepare(stage.call("act", {"mode": "honest"})) is None
    assert anyio.current_time() - began >= 3 * 0.2
    assert len(stage.effects()) == 3


# ------------------------------------------------------------------ answers that are none


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param({"mode": "big", "bytes": 1_048_576}, id="a line just beyond answer_max_bytes"),
        pytest.param({"mode": "big", "bytes": 64_000_000}, id="a line of 64 MB"),
        pytest.param({"mode": "endless"}, id="a line without an end"),
        pytest.param({"mode": "garbage-flood"}, id="a thousand lines of garbage"),
        pytest.param({"mode": "asks-forever"}, id="a flood of requests of its own"),
        pytest.param({"mode": "answers-nobody"}, id="a flood of answers to nobody"),
    ],
)
async def test_a_connection_that_cannot_be_trusted_is_given_up(stage: Stage, mode: JsonObject) -> None:
    """Too large, endless or flooding: protocol error, soon, and the next call gets a new process."""
    assert await works(stage)
    with anyio.fail_after(30):
        report = await stage.dispatch(stage.call("act", mode, timeout_s=60))
        assert isinstance(report, Silence)
        assert report.cause == "protocol_error"
        assert await works(stage)
    assert len(stage.pids()) == 2


async def chatter(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> tuple[int, float]:
    """Let the server chatter until the deadline; return how many messages were taken, and how many may be."""
    taken = 0
    said = Pace.said

    async def counted(pace: Pace, size: int) -> None:
        nonlocal taken
        taken += 1
        await said(pace, size)

    monkeypatch.setattr(Pace, "said", counted)
    assert await works(stage)
    taken, began = 0, anyio.current_time()
    report = await stage.act("chatters", timeout_s=DEADLINE_S)
    turns = (anyio.current_time() - began) / REST_S
    assert isinstance(report, Silence)
    assert report.cause == "deadline"
    return taken, FREE_UNITS + (turns + 2) * TURN_UNITS


async def test_a_server_that_chatters_is_read_slowly_until_its_deadline(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Good messages that nobody asked for are no garbage, and get no more than their share of our time."""
    taken, allowed = await chatter(stage, monkeypatch)
    assert FREE_UNITS < taken <= allowed
    assert await works(stage)


async def test_without_the_rests_a_server_that_chatters_is_read_at_full_speed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: it takes more than its share, and not a little more."""
    monkeypatch.setattr("driver.providers.mcp.pace.REST_S", 0.0)
    taken, allowed = await chatter(stage, monkeypatch)
    assert taken > 2 * allowed


async def test_garbage_ends_the_wait_and_a_late_answer_still_counts(stage: Stage) -> None:
    """Nobody can tell whose answer garbage was; the server answers a ping, and is kept."""
    assert await works(stage)
    report = await stage.act("garbage", seconds=0.1)
    assert report == Silence(cause="protocol_error", message="the server sent no JSON")
    await stage.hear()
    ((_, attempt, late),) = stage.late
    assert (attempt, isinstance(late, Answered)) == (1, True)
    assert await works(stage)
    assert len(stage.pids()) == 1


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc":"2.0","id":ID,"result":{"x":NaN}}',
        '{"jsonrpc":"2.0","id":ID,"result":{"x":1e400}}',
        '{"jsonrpc":"2.0","id":ID,"result":{"x":1}',
        '{"jsonrpc":"2.0","id":ID}',
        '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}',
        '[{"jsonrpc":"2.0","id":ID,"result":{}}]',
        '"ID"',
        "[" * 100_000,
    ],
)
async def test_what_is_no_message_is_a_protocol_error(stage: Stage, line: str) -> None:
    """NaN, infinities, cut, batched, bare and bottomless JSON: none of it is an answer."""
    report = await stage.act("verbatim", line=line)
    assert isinstance(report, Silence)
    assert report.cause == "protocol_error"


@pytest.mark.parametrize(
    "envelope",
    [
        '"result":[]',
        '"result":null',
        '"result":{"resultType":"lottery"}',
        '"error":{"message":"no code"}',
        '"error":{"code":true,"message":"no number"}',
        '"error":"boom"',
    ],
)
async def test_a_malformed_answer_is_a_protocol_error_of_its_call_alone(stage: Stage, envelope: str) -> None:
    """The response names its call, so no other call is disturbed."""
    report = await stage.act("verbatim", line=f'{{"jsonrpc":"2.0","id":ID,{envelope}}}')
    assert isinstance(report, Silence)
    assert report.cause == "protocol_error"
    assert await works(stage)


async def test_an_answer_that_is_too_deep_for_an_event_is_a_protocol_error(stage: Stage) -> None:
    """An event holds 64 levels, and wraps the answer in a few of its own."""
    shallow = await stage.act("deep", levels=40)
    deep = await stage.act("deep", levels=200)
    assert isinstance(shallow, Answered)
    assert isinstance(deep, Silence)
    assert deep.cause == "protocol_error"
    assert "56 levels" in deep.message


# ------------------------------------------------------------------ answers that are odd


async def test_invalid_utf8_and_lone_surrogates_are_replaced(stage: Stage) -> None:
    """The answer counts; only what no UTF-8 can hold is mended."""
    for mode, words in (("invalid-utf8", "caf\ufffd"), ("lone-surrogate", "half \ufffd")):
        report = await stage.act(mode)
        assert isinstance(report, Answered)
        assert report.result["content"] == [{"type": "text", "text": words}]


async def test_an_answer_of_almost_answer_max_bytes_arrives(stage: Stage) -> None:
    """The cap counts the whole line, and what is below it is an answer."""
    report = await stage.act("big", bytes=1_048_000)
    assert isinstance(report, Answered)


async def test_unknown_members_of_an_answer_are_kept(stage: Stage) -> None:
    """What comes back is the wire object, and no library's idea of it."""
    result: JsonObject = {
        "content": [{"type": "hologram", "x": [1, None]}],
        "structuredContent": {"id": 2**70, "f": 0.1},
        "_meta": {"a/b": {"c": True}},
        "isError": False,
        "novel": "kept",
    }
    assert await stage.act("result", result=result) == Answered(result=result)


@pytest.mark.parametrize("code", [-32000, -32001, -32603, -32602, 0, 17])
async def test_a_peers_own_error_is_never_mistaken_for_ours(stage: Stage, code: int) -> None:
    """-32000 and -32001 from a server are its words, whatever the SDK uses them for."""
    assert await stage.act("error", code=code) == PeerError(code=code, message="its own words")
    assert stage.phases[-1] is Phase.ANSWERED


async def test_the_first_of_two_answers_counts(stage: Stage) -> None:
    """A duplicate is dropped, and reaches no other call."""
    report = await stage.act("twice")
    assert isinstance(report, Answered)
    assert report.result["content"] == [{"type": "text", "text": "first"}]
    assert await works(stage)
    assert stage.late == []


@pytest.mark.parametrize("request_id", ["999999", '"ID "', "1.5", "true", "1"])
async def test_an_answer_to_nobody_answers_nothing(stage: Stage, request_id: str) -> None:
    """A wrong id reaches no call: the right one waits until its deadline."""
    assert await works(stage)
    line = f'{{"jsonrpc":"2.0","id":{request_id},"result":{{"content":[]}}}}'
    report = await stage.act("verbatim", line=line, timeout_s=DEADLINE_S)
    assert isinstance(report, Silence)


async def test_an_id_sent_back_as_text_is_understood(stage: Stage) -> None:
    """Some servers turn every id into a string."""
    report = await stage.act("verbatim", line='{"jsonrpc":"2.0","id":"ID","result":{"content":[]}}')
    assert report == Answered(result={"content": []})


@pytest.mark.parametrize("flag", [1, "false", "yes", [], {}])
async def test_success_needs_a_clear_no_to_is_error(stage: Stage, flag: JsonValue) -> None:
    """An `isError` that is no boolean is taken for an error."""
    report = await stage.act("result", result={"content": [], "isError": flag})
    assert isinstance(report, Answered)
    assert report.is_error


async def test_output_that_breaks_its_schema_is_an_answer_and_flagged(stage: Stage) -> None:
    """The result is in hand before it is looked at; only success is looked at."""
    for content, invalid in (({"id": 7}, False), ({"id": "seven"}, True), ({}, True)):
        result: JsonObject = {"content": [], "structuredContent": dict(content)}
        call = stage.call("strict", {"mode": "result", "result": result})
        assert await stage.dispatch(call) == Answered(result=result, output_invalid=invalid)
    missing = await stage.dispatch(stage.call("strict", {"mode": "result", "result": {"content": []}}))
    failed: JsonObject = {"content": [], "isError": True}
    error = await stage.dispatch(stage.call("strict", {"mode": "result", "result": failed}))
    assert missing == Answered(result={"content": []}, output_invalid=True)
    assert error == Answered(result=failed, is_error=True)


async def test_a_wish_for_input_is_reported_and_not_answered(stage: Stage) -> None:
    """No round of input is run by itself: there is one call on the wire."""
    result: JsonObject = {"resultType": "input_required", "requestState": "s"}
    assert await stage.act("result", result=result) == InputRequired(result=result)


async def test_a_task_handle_is_reported_as_one(stage: Stage) -> None:
    """A handle in place of a result is no result."""
    task: JsonObject = {"taskId": "t-1", "status": "working"}
    assert await stage.act("result", result={"task": task}) == TaskPending(handle=task)


# ------------------------------------------------------------------ servers that ask


async def test_a_servers_own_requests_are_answered_and_disturb_nothing(stage: Stage) -> None:
    """A ping gets its pong, sampling a refusal, and neither is taken for an answer."""
    report = await stage.act("asks")
    assert isinstance(report, Answered)
    answers: list[JsonValue] = []
    with anyio.fail_after(30):
        while len(answers) < 2:
            assert await works(stage)
            answers = [effect["answer"] for effect in stage.effects() if "answer" in effect]
    assert {"jsonrpc": "2.0", "id": "p", "result": {}} in answers
    assert any(isinstance(answer, dict) and answer["id"] == "s" and "error" in answer for answer in answers)


# ------------------------------------------------------------------ tool lists


async def test_a_changed_tool_list_is_read_again(stage: Stage) -> None:
    """After `list_changed` the vanished tool is unknown, and the new one can be called."""
    assert stage.provider is not None
    assert await stage.provider.prepare(stage.call("strict")) is None
    await stage.act("vanish")
    gone = await stage.provider.prepare(stage.call("strict"))
    assert isinstance(gone, NotSent)
    assert gone.reason == "unknown_tool"
    assert await stage.provider.prepare(stage.call("fresh")) is None


async def test_a_tool_that_appeared_quietly_is_found(stage: Stage) -> None:
    """Before a tool is called unknown, the list is asked for once more."""
    assert stage.provider is not None
    await stage.act("vanish-quietly")
    await anyio.sleep(1.0)  # a list of this second is not asked for again
    assert await stage.provider.prepare(stage.call("fresh")) is None


async def test_a_broken_input_schema_is_not_the_callers_fault(tmp_path: Path) -> None:
    """The check is skipped, and entries that are no tools are left out of the list."""
    ledger = tmp_path / "ledger"
    async with staged(stdio("hostile_mcp.py", ledger, "bad-schema"), ledger) as stage:
        assert await works(stage)
        assert stage.provider is not None
        tools = await stage.provider.list_tools()
        assert not isinstance(tools, NotSent)
        assert [tool.name for tool in tools] == ["act", "strict"]


async def test_a_tool_list_without_an_end_is_cut(tmp_path: Path) -> None:
    """A paginator that always has another page stops us at our own limit."""
    ledger = tmp_path / "ledger"
    async with staged(stdio("hostile_mcp.py", ledger, "pages"), ledger) as stage:
        assert stage.provider is not None
        assert await stage.provider.prepare(stage.call("page-99")) is None
        beyond = await stage.provider.prepare(stage.call("page-100"))
        assert isinstance(beyond, NotSent)


async def test_a_tool_list_that_is_too_large_as_a_whole_is_cut(tmp_path: Path) -> None:
    """Each page is below answer_max_bytes; a hundred of them would fill the memory."""
    ledger = tmp_path / "ledger"
    async with staged(stdio("hostile_mcp.py", ledger, "fat-pages"), ledger) as stage:
        assert stage.provider is not None
        tools = await stage.provider.list_tools()
        assert not isinstance(tools, NotSent)
        assert [tool.name for tool in tools] == ["page-0"]


async def test_a_server_without_tools_has_none(tmp_path: Path) -> None:
    """`tools/list` may be refused; every tool is unknown then."""
    ledger = tmp_path / "ledger"
    async with staged(stdio("hostile_mcp.py", ledger, "no-list"), ledger) as stage:
        assert stage.provider is not None
        objection = await stage.provider.prepare(stage.call("act"))
        assert isinstance(objection, NotSent)
        assert objection.reason == "unknown_tool"


# ------------------------------------------------------------------ starts


async def test_a_banner_on_stdout_is_survived(tmp_path: Path) -> None:
    """Some servers print before they speak; nothing is under way that it could be mistaken for."""
    ledger = tmp_path / "ledger"
    async with staged(stdio("hostile_mcp.py", ledger, "banner"), ledger) as stage:
        assert await works(stage)


async def test_a_server_that_dies_of_the_newer_handshake_gets_the_older_one(tmp_path: Path) -> None:
    """Some servers end when their first request is not `initialize`."""
    ledger = tmp_path / "ledger"
    async with staged(stdio("hostile_mcp.py", ledger, "dies-on-discover"), ledger) as stage:
        assert await works(stage)


async def test_a_server_that_floods_stderr_is_not_blocked_by_us(tmp_path: Path) -> None:
    """Its stderr is drained, whatever it says."""
    ledger = tmp_path / "ledger"
    async with staged(stdio("hostile_mcp.py", ledger, "stderr-flood"), ledger) as stage:
        assert await works(stage)
