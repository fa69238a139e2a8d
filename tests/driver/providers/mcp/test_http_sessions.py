"""Over HTTP, what outlasts a call: late answers, cancellations, sessions, and servers that come back."""

from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketStream

from driver.core.attempts import Answered, HttpStatus, PeerError, Silence
from driver.providers.mcp.jsonrpc import notification, write_message
from store.records import JsonObject
from tests.driver.providers.mcp.site import connected, hangs_up, says, succeeds
from tests.driver.providers.mcp.stage import DEADLINE_S
from tests.driver.providers.mcp.web import (
    LEGACY,
    MODERN,
    Request,
    Web,
    done,
    http,
    message,
    rpc,
)

pytestmark = pytest.mark.anyio


# ------------------------------------------------------------------ patience


@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_a_late_answer_over_http_is_heard(tmp_path: Path, era: str) -> None:
    """The request goes on after our deadline, and the peer is not told to stop it."""
    answers = anyio.Event()

    async def late(_server: Web, stream: SocketStream, request: Request) -> None:
        await answers.wait()
        await stream.send(rpc(request, done("late")))

    async with connected(tmp_path, late, era=era) as (server, stage):
        call = stage.call("act", timeout_s=DEADLINE_S)
        assert await stage.dispatch(call) == Silence(cause="deadline", message="no answer within 1 s")
        answers.set()
        await stage.hear()
        assert [operation_id for operation_id, _, _ in stage.late] == [call.operation_id]
        assert not [request for request in server.requests if request.rpc == "notifications/cancelled"]


async def test_a_peer_over_http_is_told_when_nobody_listens_any_more(tmp_path: Path) -> None:
    """In the era that has a sign for it, and only after `late_result_s`."""

    async def never(_server: Web, _stream: SocketStream, _request: Request) -> None:
        await anyio.sleep_forever()

    async with connected(tmp_path, never, era=LEGACY, late_result_s=0.3) as (server, stage):
        await stage.act("x", timeout_s=DEADLINE_S)
        (call,) = server.calls()
        params: JsonObject = {"requestId": call.body["id"], "reason": "nobody waits any more"}
        with anyio.fail_after(30):
            await server.sent(notification("notifications/cancelled", params))


async def test_a_cancellation_hangs_up_where_there_is_no_other_sign(tmp_path: Path) -> None:
    """From 2026-07-28 on, closing the response is how a client cancels."""
    hung_up = anyio.Event()

    async def listens(server: Web, stream: SocketStream, request: Request) -> None:
        if server.calls()[1:]:
            await succeeds(server, stream, request)
            return
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            await stream.receive()
        hung_up.set()

    async with connected(tmp_path, listens) as (server, stage):
        await stage.cancel(stage.call("act", {"mode": "x"}))
        with anyio.fail_after(30):
            await hung_up.wait()
        assert stage.late == []
        assert len(server.calls()) == 1
        assert isinstance(await stage.act("x"), Answered)


async def test_a_server_that_hangs_for_ever_ends_at_our_deadline(tmp_path: Path) -> None:
    """The HTTP library alone would wait for ever."""

    async def never(_server: Web, _stream: SocketStream, _request: Request) -> None:
        await anyio.sleep_forever()

    async with connected(tmp_path, never) as (_, stage):
        with anyio.fail_after(30):
            report = await stage.act("x", timeout_s=DEADLINE_S)
        assert isinstance(report, Silence)
        assert report.cause == "deadline"


# ------------------------------------------------------------------ sessions


async def test_a_session_is_used_and_ended(tmp_path: Path) -> None:
    """Its id goes with every request, and the server is told when it is over."""
    async with connected(tmp_path, succeeds, era=LEGACY, session="s-1") as (server, stage):
        assert stage.provider is not None
        await stage.act("x")
        await stage.provider.close()
        (call,) = server.calls()
        assert call.headers["mcp-session-id"] == "s-1"
        assert server.requests[-1].method == "DELETE"


NO_SESSION: JsonObject = {
    "jsonrpc": "2.0",
    "error": {"code": -32001, "message": "Session not found"},
    "id": None,
}
"""What servers made with the TypeScript SDK say beside a 404; some say it beside a 400, and without an id."""


@pytest.mark.parametrize(
    "forgotten",
    [
        http(404, b"no such session", kind="text/plain"),
        http(404, write_message(NO_SESSION)),
        http(400, write_message(NO_SESSION)),
        http(400, b"no valid session ID provided", kind="text/plain"),
    ],
)
async def test_a_session_that_the_server_forgot_is_made_anew(tmp_path: Path, forgotten: bytes) -> None:
    """The lost call is told as the refusal that it got, and is not sent again; the next one works."""
    async with connected(tmp_path, says(forgotten), era=LEGACY, session="s-1") as (server, stage):
        lost = await stage.act("x")
        assert isinstance(lost, HttpStatus | PeerError)
        server.answer, server.session = succeeds, "s-2"
        assert isinstance(await stage.act("x"), Answered)
        assert [call.headers["mcp-session-id"] for call in server.calls()] == ["s-1", "s-2"]


async def test_a_bad_request_that_is_about_the_call_keeps_the_session(tmp_path: Path) -> None:
    """The error names the request, so the session is known."""

    async def refuses(_server: Web, stream: SocketStream, request: Request) -> None:
        error: JsonObject = {"error": {"code": -32602, "message": "bad"}}
        await stream.send(http(400, message(request, error)))

    async with connected(tmp_path, refuses, era=LEGACY, session="s-1") as (server, stage):
        assert await stage.act("x") == PeerError(code=-32602, message="bad")
        server.answer = succeeds
        assert isinstance(await stage.act("x"), Answered)
        assert [call.headers["mcp-session-id"] for call in server.calls()] == ["s-1", "s-1"]


@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_a_lost_connection_puts_the_server_in_doubt(tmp_path: Path, era: str) -> None:
    """It may have been restarted: it is asked before the next call goes out, and not by that call."""
    async with connected(tmp_path, hangs_up, era=era, session="s-1") as (server, stage):
        lost = await stage.act("x")
        assert isinstance(lost, Silence)
        assert lost.cause == "connection_lost"
        server.answer = succeeds
        assert isinstance(await stage.act("x"), Answered)
        asked = [request.rpc for request in server.requests if request.rpc]
        assert asked[-3:] == ["tools/call", "ping" if era == LEGACY else "server/discover", "tools/call"]
