"""The gateway over Streamable HTTP: who comes in, and what a call is worth whose answer nobody heard."""

import json
import socket
from contextlib import suppress
from typing import Any, Final

import anyio
import httpx2
import pytest

from driver.core.identity import is_id
from tests.system.agents import ERAS, Era, http_agent
from tests.system.sandbox import Sandbox, sandbox
from tests.system.test_gateway_lists import TABLES
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.kill]

SECRET: Final = "open-sesame"


def listening(made: Sandbox, **tables: dict[str, Any]) -> int:
    """Configure a gateway over HTTP; return its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    token = made.root / "gateway-token"
    token.write_text(SECRET + "\n")
    token.chmod(0o600)
    served = {"listen": f"127.0.0.1:{port}", "token_file": str(token)}
    made.configure(**{**tables, "gateway": served})
    return port


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_over_http_is_served_in_either_era(zygote: Zygote, era: Era) -> None:
    """The same tools and answers as over stdio; the run is the one that the header names."""
    async with sandbox(zygote, None) as made:
        port = listening(made)
        await made.start().ready()
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
    async with sandbox(zygote, None) as made:
        port = listening(made)
        await made.start().ready()
        async with httpx2.AsyncClient() as client:
            answer = await client.post(f"http://127.0.0.1:{port}{path}", json={}, headers=headers)
        assert answer.status_code == status
        assert SECRET not in answer.text


async def test_a_session_that_the_newer_era_does_not_have_names_no_run(zygote: Zygote) -> None:
    """A client may send any text there: the run stays one that a run may be called."""
    async with sandbox(zygote, None) as made:
        port = listening(made)
        await made.start().ready()
        for number, session in enumerate(("a b", "x" * 5_000, "../..//")):
            async with http_agent(port, SECRET, era="auto", mcp_session_id=session) as one:
                told = await one.call("counter__count", n=number)
            operation = await made.operation(told.operation_id)
            assert is_id(operation["run_id"]), session


async def test_a_session_is_told_over_http_that_lists_change(zygote: Zygote) -> None:
    """As over stdio: what the handshake says makes clients listen."""
    async with sandbox(zygote, None) as made:
        port = listening(made, **TABLES)
        await made.start().ready()
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


@pytest.mark.lane
async def test_connections_that_ask_nothing_end(zygote: Zygote) -> None:
    """No token is needed for them: they leave room for those that have one."""
    async with sandbox(zygote, None) as made:
        port = listening(made)
        await made.start().ready()
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
_REFUSED: Final = b"GET /mcp HTTP/1.1\r\nHost: x\r\n\r\n"
BEGINNINGS: Final = (b"", b"POST /mcp HTTP/1.1\r\nHo", _REFUSED, _REFUSED + b"POST /m")


async def test_an_answer_that_nobody_heard_guards_its_call(zygote: Zygote) -> None:
    """The client hangs up; its resend executes nothing, gets the result, and the next call is a new one."""
    async with sandbox(zygote, None) as made:
        port = listening(made)
        life = made.start()
        await life.ready()
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
    async with sandbox(zygote, None) as made:
        port = listening(made)
        life = made.start()
        await life.ready()
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


async def hang_up_during(made: Sandbox, port: int, arguments: dict[str, Any]) -> None:
    """Call the slow tool in the older era, and be gone once it has had its effect."""
    headers = {
        "authorization": f"Bearer {SECRET}",
        "effectd-run": "mine",
        "accept": "application/json, text/event-stream",
    }
    url = f"http://127.0.0.1:{port}/mcp"
    async with httpx2.AsyncClient(headers=headers, timeout=60) as client:
        opened = await client.post(url, json=_request(1, "initialize", _HANDSHAKE))
        client.headers["mcp-session-id"] = opened.headers["mcp-session-id"]
        await client.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
        call = _request(2, "tools/call", {"name": "counter__slow", "arguments": arguments})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: client.post(url, content=json.dumps(call), headers=_JSON))
            await made.effects_reach(1)
            tasks.cancel_scope.cancel()


_JSON: Final = {"content-type": "application/json"}
_HANDSHAKE: Final[dict[str, Any]] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


def _request(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
