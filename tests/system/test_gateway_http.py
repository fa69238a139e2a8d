"""The gateway over Streamable HTTP: who comes in, and what a call is worth whose answer nobody heard."""

import socket
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import pytest

from driver.core.identity import is_id
from driver.gateway.wire import LINE_BYTES_MAX, PROTOCOL_VERSION
from tests.system.agents import ERAS, Era, http_agent
from tests.system.posting import heard, posting, request
from tests.system.sandbox import Sandbox, sandbox
from tests.system.test_gateway_hostile import NO_JSON
from tests.system.test_gateway_lists import TABLES
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.kill]

SECRET: Final = "open-sesame"


@asynccontextmanager
async def listening(zygote: Zygote, **tables: dict[str, Any]) -> AsyncGenerator[tuple[Sandbox, int]]:
    """Make a sandbox whose gateway is ready over HTTP, at this port."""
    async with sandbox(zygote, None) as made:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port: int = free.getsockname()[1]
        token = made.root / "gateway-token"
        token.write_text(SECRET + "\n")
        token.chmod(0o600)
        served = {"listen": f"127.0.0.1:{port}", "token_file": str(token)}
        made.configure(**{**tables, "gateway": served})
        await made.start().ready()
        yield made, port


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_over_http_is_served_in_either_era(zygote: Zygote, era: Era) -> None:
    """The same tools and answers as over stdio; the run is the one that the header names."""
    async with listening(zygote) as (made, port):
        async with http_agent(port, SECRET, era=era, effectd_run="over-http") as one:
            assert "counter__count" in await one.tools()
            told = [await one.call("counter__count", n=1) for _ in range(2)]
        operation = await made.operation(told[0].operation_id)
        assert [item.outcome for item in told] == ["succeeded", "succeeded"]
        assert (operation["run_id"], operation["origin"]) == ("over-http", "gateway")
        assert len(made.effects()) == 2


@pytest.mark.parametrize(
    ("headers", "path", "status"),
    [
        ({}, "/mcp", 401),
        ({"authorization": "Bearer wrong"}, "/mcp", 401),
        ({"authorization": f"Bearer {SECRET}", "host": "evil.example"}, "/mcp", 421),
        ({"authorization": f"Bearer {SECRET}", "origin": "http://evil.example"}, "/mcp", 403),
        ({"authorization": f"Bearer {SECRET}", "effectd-run": "no run"}, "/mcp", 400),
        ({"authorization": f"Bearer {SECRET}"}, "/v1/status", 404),
    ],
)
async def test_who_has_no_token_or_comes_from_a_web_page_is_not_let_in(
    zygote: Zygote, headers: dict[str, str], path: str, status: int
) -> None:
    """Token, Host, Origin and the names of runs are looked at before anything is done."""
    async with listening(zygote) as (_, port):
        async with httpx2.AsyncClient() as client:
            answer = await client.post(f"http://127.0.0.1:{port}{path}", json={}, headers=headers)
        assert answer.status_code == status
        assert SECRET not in answer.text


async def test_a_session_that_the_newer_era_does_not_have_names_no_run(zygote: Zygote) -> None:
    """A client may send any text there: the run stays one that a run may be called."""
    async with listening(zygote) as (made, port):
        for number, session in enumerate(("a b", "x" * 5_000, "../..//")):
            async with http_agent(port, SECRET, era="auto", mcp_session_id=session) as one:
                told = await one.call("counter__count", n=number)
            operation = await made.operation(told.operation_id)
            assert is_id(operation["run_id"]), session


async def test_a_session_is_told_over_http_that_lists_change(zygote: Zygote) -> None:
    """As over stdio: what the handshake says makes clients listen."""
    async with listening(zygote, **TABLES) as (_, port):
        changed = anyio.Event()

        async def hear(message: Any) -> None:  # noqa: ANN401 - whatever the SDK hands over
            if "ToolListChanged" in type(getattr(message, "root", message)).__name__:
                changed.set()

        async with http_agent(port, SECRET, message_handler=hear) as one:
            capabilities = one.client.server_capabilities
            assert capabilities is not None
            assert capabilities.tools is not None
            assert capabilities.tools.list_changed
            await one.tools()
            await one.call("changing__grow")
            with anyio.fail_after(60):
                await changed.wait()


async def test_a_stream_that_is_to_go_on_from_an_event_goes_on_from_now(zygote: Zygote) -> None:
    """None is kept to be read again: whoever listens for changes is served as anybody else."""
    async with listening(zygote) as (_, port), posting(port, SECRET) as one:
        headers = {"last-event-id": "5"}
        async with one.client.stream("GET", one.url, headers=headers) as answer:
            assert answer.status_code == 200
            assert answer.headers["content-type"] == "text/event-stream"


@pytest.mark.lane
async def test_connections_that_ask_nothing_end(zygote: Zygote) -> None:
    """No token is needed for them: they leave room for those that have one."""
    async with listening(zygote) as (_, port):
        async with anyio.create_task_group() as tasks:
            for number in range(SILENT):
                tasks.start_soon(say_and_wait_for_the_end, port, BEGINNINGS[number % len(BEGINNINGS)])
        async with http_agent(port, SECRET) as one:
            assert (await one.call("counter__count", n=1)).outcome == "succeeded"


async def say_and_wait_for_the_end(port: int, data: bytes) -> None:
    """Connect, say the beginning of a request, and return once the other end has hung up."""
    with anyio.fail_after(120):
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            if data:
                await stream.send(data)
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while True:
                    await stream.receive()


SILENT: Final = 300
"""More connections than the gateway may have at once."""
LARGE_BYTES: Final = 8_000_000
LARGE_PIECE: Final = b"x" * 100_000
VERBOSE: Final[dict[str, Any]] = {
    "kind": "mcp",
    "argv": [sys.executable, "-I", "-S", str(Path(__file__).parent / "verbose_mcp.py"), str(LARGE_BYTES)],
}
MODERN: Final = "2026-07-28"
PARSE_ERROR: Final = -32_700
INVALID_REQUEST: Final = -32_600
NO_MESSAGES: Final = {
    "": PARSE_ERROR,
    "nothing": PARSE_ERROR,
    "[": PARSE_ERROR,
    "\ufeff{}": PARSE_ERROR,
    "[" * 100_000: PARSE_ERROR,
    "[]": INVALID_REQUEST,
    "null": INVALID_REQUEST,
    "{}": INVALID_REQUEST,
    '[{"jsonrpc":"2.0","id":1,"method":"ping"}]': INVALID_REQUEST,
    '{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}': INVALID_REQUEST,
    '{"jsonrpc":"2.0","method":"ping","params":{"a":NaN},"id":1}': INVALID_REQUEST,
    '{"jsonrpc":"2.0","method":"notifications/x","params":{"a":1,"a":2}}': PARSE_ERROR,
}
_REFUSED: Final = b"GET /mcp HTTP/1.1\r\nHost: x\r\n\r\n"
BEGINNINGS: Final = (b"", b"POST /mcp HTTP/1.1\r\nHo", _REFUSED, _REFUSED + b"POST /m")


async def test_an_answer_that_nobody_heard_guards_its_call(zygote: Zygote) -> None:
    """The client hangs up; its resend executes nothing, gets the result, and the next call is a new one."""
    async with listening(zygote) as (made, port):
        gate = made.root / "gate"
        arguments = {"until": str(gate), "n": 1}
        await hang_up_during(made, port, arguments)
        gate.touch()
        await made.events_until(lambda event: event["kind"] == "operation.succeeded")
        async with http_agent(port, SECRET, effectd_run="mine") as one:
            again = await one.call("counter__slow", **arguments)
            third = await one.call("counter__slow", **arguments)
        assert (again.outcome, again.meta["dev.effectd/code"]) == ("refused", "answer_undelivered")
        assert '"count": 1' in again.text.replace('\\"', '"')
        assert third.outcome == "succeeded"
        assert len(made.effects()) == 2


async def test_an_answer_that_nobody_heard_guards_after_a_restart_too(zygote: Zygote) -> None:
    """Whether an answer was delivered is in the journal, not in the process that has died."""
    async with listening(zygote) as (made, port):
        life = made.lives[-1]
        gate = made.root / "gate"
        arguments = {"until": str(gate), "n": 1}
        await hang_up_during(made, port, arguments)
        gate.touch()
        await made.events_until(lambda event: event["kind"] == "operation.succeeded")
        await life.kill()
        await made.start().ready()
        async with http_agent(port, SECRET, effectd_run="mine") as one:
            again = await one.call("counter__slow", **arguments)
        assert (again.outcome, len(made.effects())) == ("refused", 1)


async def test_a_new_session_does_not_repeat_what_an_earlier_one_may_have_done(zygote: Zygote) -> None:
    """Nobody names a run, and sessions end with the daemon: the new one's run continues its client's."""
    async with listening(zygote) as (made, port):
        arguments = {"n": 1, "until": str(made.root / "gate")}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call_and_be_cut_off, port, arguments)
            await made.effects_reach(1)
            await made.lives[-1].kill()
        await made.start().ready()
        async with (
            http_agent(port, SECRET) as one,
            http_agent(port, SECRET, user_agent="another/1.0") as other,
        ):
            equal = await one.call("counter__slow", **arguments)
            (made.root / "gate").touch()
            unlike = await one.call("counter__slow", n=2, seconds=0)
            unrelated = await other.call("counter__slow", **arguments)
        assert (equal.outcome, equal.meta["dev.effectd/code"]) == ("refused", "lookalike_unsettled")
        assert (unlike.outcome, unrelated.outcome) == ("succeeded", "succeeded")
        assert len(made.effects()) == 3


async def call_and_be_cut_off(port: int, arguments: dict[str, Any]) -> None:
    """Call the slow tool in a session that names no run, and lose the connection."""
    async with posting(port, SECRET, run=None) as one:
        with pytest.raises(httpx2.TransportError):
            await one.call(2, "counter__slow", **arguments)


async def test_a_session_that_hung_up_is_continued_and_one_that_is_there_is_not(zygote: Zygote) -> None:
    """Two programs of one name work at once; one that comes back while its call runs starts no second one."""
    async with listening(zygote) as (made, port):
        gate = made.root / "gate"
        arguments = {"n": 1, "until": str(gate)}
        async with posting(port, SECRET, run=None) as one, anyio.create_task_group() as tasks:
            tasks.start_soon(partial(one.call, 2, "counter__slow", **arguments))
            await made.effects_reach(1)
            async with posting(port, SECRET, run=None) as beside, anyio.create_task_group() as more:
                more.start_soon(partial(beside.call, 2, "counter__slow", **arguments))
                await made.effects_reach(2)
                more.cancel_scope.cancel()
            tasks.cancel_scope.cancel()
        async with posting(port, SECRET, run=None) as anew:
            told = await anew.call(2, "counter__slow", **arguments)
        gate.touch()
        assert told["result"]["_meta"]["dev.effectd/outcome"] == "refused"
        assert len(made.effects()) == 2


def called(arguments: str, tool: str = "counter__count", meta: str = "{}") -> str:
    """Return a call as a body, of which the arguments may be anything."""
    params = f'{{"name":"{tool}","arguments":{arguments},"_meta":{meta}}}'
    return f'{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}'


async def hang_up_during(made: Sandbox, port: int, arguments: dict[str, Any]) -> None:
    """Call the slow tool in the older era, and be gone once it has had its effect."""
    async with posting(port, SECRET) as one, anyio.create_task_group() as tasks:
        tasks.start_soon(partial(one.call, 2, "counter__slow", **arguments))
        await made.effects_reach(1)
        tasks.cancel_scope.cancel()


async def test_a_call_is_taken_back_after_its_answer_went_out(zygote: Zygote) -> None:
    """The answer and the word that nobody wants it have crossed: an equal call is refused with its result."""
    async with listening(zygote) as (made, port):
        async with posting(port, SECRET) as one:
            told = [await one.call(2, "counter__count", n=1)]
            await one.notify("notifications/cancelled", requestId=2, reason="too slow")
            told += [await one.call(number, "counter__count", n=1) for number in (3, 4)]
            await one.notify("notifications/cancelled", requestId=99)
            told += [await one.call(5, "counter__count", n=1)]
        outcomes = [item["result"]["_meta"]["dev.effectd/outcome"] for item in told]
        assert outcomes == ["succeeded", "refused", "succeeded", "succeeded"]
        assert len(made.effects()) == 3


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_hangs_up_in_the_middle_of_its_answer_has_not_heard_it(
    zygote: Zygote, era: Era
) -> None:
    """It read the head and a part: what the daemon still held was heard by nobody, and guards."""
    async with listening(zygote, providers__verbose=VERBOSE) as (_, port):
        async with posting(port, SECRET) as one:
            await read_until(port, large_call(one.client.headers, era), LARGE_PIECE)
        async with http_agent(port, SECRET, era=era, effectd_run="mine") as one:
            again = await one.call("verbose__speak")
        assert (again.outcome, again.meta["dev.effectd/code"]) == ("refused", "answer_undelivered")


async def test_a_client_that_hangs_up_on_its_answer_has_heard_it(zygote: Zygote) -> None:
    """Clients do so once they have the response, and do not wait for the end of the stream around it."""
    async with listening(zygote) as (made, port):
        async with posting(port, SECRET) as one:
            for _ in range(2):
                await read_until(port, raw(one.client.headers, called('{"n":1}')), b"succeeded")
        assert len(made.effects()) == 2


def large_call(session: Mapping[str, str], era: Era) -> bytes:
    """Return a whole request for an answer that no socket has room for."""
    if era == "legacy":
        return raw(session, called("{}", "verbose__speak"))
    client = '"io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"}'
    can = '"io.modelcontextprotocol/clientCapabilities":{}'
    body = called("{}", "verbose__speak", f'{{"{PROTOCOL_VERSION}":"{MODERN}",{client},{can}}}')
    about = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "verbose__speak"}
    return raw(session, body, **about)


def raw(session: Mapping[str, str], body: str, **about: str) -> bytes:
    """Return a request of a session as bytes; `about` stands for the session in the era without any."""
    headers = {
        "host": "localhost",
        **{name: session[name] for name in ("authorization", "effectd-run", "accept")},
        **(about or {"mcp-session-id": session["mcp-session-id"]}),
        "content-type": "application/json",
        "content-length": str(len(body)),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n{body}".encode()


async def read_until(port: int, data: bytes, piece: bytes) -> None:
    """Send a request, read its answer until this stands in it, and hang up."""
    got = b""
    with anyio.fail_after(60):
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(data.replace(b"localhost", f"localhost:{port}".encode(), 1))
            while piece not in got:
                got += await stream.receive()


async def test_what_json_does_not_have_is_not_taken_over_http_either(zygote: Zygote) -> None:
    """The same words as on the socket, before the SDK reads it; nothing is executed."""
    async with listening(zygote) as (made, port):
        async with posting(port, SECRET) as one:
            for modern in (False, True):
                one.client.headers["mcp-protocol-version"] = "2026-07-28" if modern else "2025-11-25"
                for arguments in NO_JSON:
                    answer = await one.post(called(arguments))
                    assert answer.status_code == 200, arguments[:80]
                    told = heard(answer)["result"]
                    assert told["_meta"]["dev.effectd/outcome"] == "invalid_arguments", arguments[:80]
                for body, code in NO_MESSAGES.items():
                    answer = await one.post(body)
                    assert answer.status_code == 400, body[:80]
                    assert heard(answer)["error"]["code"] == code, body[:80]
                    assert len(answer.text) < 2_000, body[:80]
        assert made.effects() == []


async def test_a_call_that_is_too_long_to_be_read_is_a_tool_error(zygote: Zygote) -> None:
    """In whichever pieces it comes: whoever waits is told, nothing is executed, and the session goes on."""
    async with listening(zygote) as (made, port):
        async with posting(port, SECRET) as one:
            body = request(
                7, "tools/call", {"name": "counter__count", "arguments": {"n": "1" * LINE_BYTES_MAX}}
            )

            async def pieces() -> AsyncGenerator[bytes]:
                for begin in range(0, len(body), 1_000_000):
                    yield body[begin : begin + 1_000_000].encode()

            headers = {"content-type": "application/json"}
            for content in (body, pieces()):
                answer = heard(await one.client.post(one.url, content=content, headers=headers))
                assert answer["id"] == 7
                assert answer["result"]["isError"] is True
                assert answer["result"]["_meta"] == {
                    "dev.effectd/outcome": "refused", "dev.effectd/code": "oversize",
                }  # fmt: skip
            nobody = heard(await one.post(b'{"x":"' + b"y" * LINE_BYTES_MAX + b'"}'))
            assert "longer than" in nobody["error"]["message"]
            told = await one.call(8, "counter__count", n=2)
            assert told["result"]["_meta"]["dev.effectd/outcome"] == "succeeded"
        assert len(made.effects()) == 1


async def test_an_id_that_waits_is_not_taken_twice_in_a_session(zygote: Zygote) -> None:
    """The SDK would give the second one the answer of the first: it is refused, and the first goes on."""
    async with listening(zygote) as (made, port):
        gate = made.root / "gate"
        told: dict[str, dict[str, Any]] = {}
        async with posting(port, SECRET) as one:

            async def ask_first() -> None:
                told["first"] = await one.call(2, "counter__slow", until=str(gate))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask_first)
                await made.effects_reach(1)
                told["second"] = await one.call(2, "counter__count", n=1)
                gate.touch()
        outcomes = {name: item["result"]["_meta"]["dev.effectd/outcome"] for name, item in told.items()}
        assert outcomes == {"first": "succeeded", "second": "invalid_arguments"}
        assert len(made.effects()) == 1


async def test_a_client_that_hangs_up_in_its_question_is_no_error(zygote: Zygote) -> None:
    """Nothing is executed, and the log, which others watch, says nothing of it."""
    async with listening(zygote) as (made, port):
        async with posting(port, SECRET) as one:
            whole = raw(one.client.headers, called('{"n":1}'))
            for cut in (1, 40):
                async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                    await stream.send(whole.replace(b"localhost", f"localhost:{port}".encode(), 1)[:-cut])
            assert (await one.call(8, "counter__count", n=2))["result"]["_meta"]["dev.effectd/outcome"]
        life = made.lives[-1]
        assert await life.stop() == 0
        assert "Error handling" not in life.text  # which is what the SDK says of it
        assert len(made.effects()) == 1
