"""A server behind a URL: phases, answers, statuses, streams, sessions, and everything that can break."""

import gzip
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketStream

from driver.core.attempts import Answered, HttpStatus, NotSent, PeerError, Phase, Silence
from driver.core.contracts import HeaderKey
from driver.providers.mcp.exchange import Exchange
from driver.providers.mcp.http import HttpWire
from driver.providers.mcp.jsonrpc import request, write_message
from driver.providers.mcp.settings import HttpServer
from store.records import JsonObject
from tests.driver.providers.mcp.site import connected, hangs_up, says, succeeds
from tests.driver.providers.mcp.stage import staged
from tests.driver.providers.mcp.web import (
    LEGACY,
    MODERN,
    STREAM,
    Request,
    Web,
    done,
    event,
    http,
    message,
    web,
)

pytestmark = pytest.mark.anyio


class Nobody:
    """A watcher that does not care."""

    def on_garbage(self) -> None: ...

    def on_expired(self) -> None: ...

    def on_tools_changed(self) -> None: ...

    def on_told(self, message: JsonObject) -> None: ...


ALL_PHASES = [Phase.WRITING, Phase.WRITTEN, Phase.ANSWERED]


# ------------------------------------------------------------------ answers


@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_a_call_over_http_is_answered(tmp_path: Path, era: str) -> None:
    """One POST, all phases in order, the answer as it came."""
    async with connected(tmp_path, succeeds, era=era) as (server, stage):
        report = await stage.dispatch(stage.call("act", {"x": 1}))
        assert isinstance(report, Answered)
        assert report.result == done()["result"]
        assert stage.phases == ALL_PHASES
        (call,) = server.calls()
        assert call.headers["mcp-protocol-version"] == era
        assert ("mcp-method" in call.headers) == (era == MODERN)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("named", [{}, {"id": None}, {"id": 1.5}, {"id": True}])
async def test_a_result_that_names_no_request_is_no_answer(
    tmp_path: Path, named: JsonObject, streamed: bool
) -> None:
    """An error may name none, where its sender could not read the request; a success must."""

    async def answer(_server: Web, stream: SocketStream, _request: Request) -> None:
        data = write_message({"jsonrpc": "2.0", **named, **done()})
        await stream.send(STREAM + event(data) if streamed else http(200, data))
        await stream.aclose()

    async with connected(tmp_path, answer) as (_, stage):
        report = await stage.act("x")
        assert isinstance(report, Silence)
        assert report.cause == "protocol_error"


async def test_a_stream_carries_the_answer_behind_other_messages(tmp_path: Path) -> None:
    """Progress, comments, other events and requests of the server's own come before it."""

    async def answer(_server: Web, stream: SocketStream, request: Request) -> None:
        await stream.send(STREAM + b": comment\n\nevent: other\ndata: ?\n\nid: 1\ndata:\n\n")
        await stream.send(event(b'{"jsonrpc":"2.0","method":"notifications/progress","params":{}}'))
        await stream.send(event(b'{"jsonrpc":"2.0","id":"p","method":"ping"}'))
        data = event(message(request, done("streamed")))
        await stream.send(data[:20])
        await stream.send(data[20:])
        await stream.aclose()

    async with connected(tmp_path, answer, era=LEGACY) as (server, stage):
        report = await stage.act("x")
        assert isinstance(report, Answered)
        with anyio.fail_after(30):
            await server.sent({"jsonrpc": "2.0", "id": "p", "result": {}})


async def test_the_key_can_travel_as_a_header(tmp_path: Path) -> None:
    """`header:NAME` is what HTTP is for."""
    async with connected(tmp_path, succeeds, key=HeaderKey("Idempotency-Key")) as (server, stage):
        await stage.dispatch(stage.call("act", key="op_9"))
        (call,) = server.calls()
        assert call.headers["idempotency-key"] == "op_9"
        assert "dev.effectd" not in str(call.body)


@pytest.mark.parametrize("status", [200, 400, 404, 500, 501])
async def test_a_peers_own_error_beside_a_status_is_its_word(tmp_path: Path, status: int) -> None:
    """A JSON-RPC error in the body says more than the status that it came with."""

    async def answer(_server: Web, stream: SocketStream, request: Request) -> None:
        body = message(request, {"error": {"code": -32020, "message": "header mismatch"}})
        await stream.send(http(status, body))

    async with connected(tmp_path, answer) as (server, stage):
        assert await stage.act("x") == PeerError(code=-32020, message="header mismatch")
        assert len(server.calls()) == 1


async def test_a_header_mismatch_is_never_sent_again_by_itself(tmp_path: Path) -> None:
    """The SDK's client would ask for the tools and try once more: every resend is the engine's decision."""

    async def answer(_server: Web, stream: SocketStream, request: Request) -> None:
        body = message(request, {"error": {"code": -32020, "message": "header mismatch"}})
        await stream.send(http(400, body))

    async with connected(tmp_path, answer) as (server, stage):
        await stage.act("x")
        await stage.act("x")
        assert len(server.calls()) == 2


# ------------------------------------------------------------------ statuses


@pytest.mark.parametrize("status", [301, 302, 307, 308, 401, 403, 404, 409, 429, 500, 502, 503, 504])
async def test_a_status_without_an_answer_is_told_as_it_is(tmp_path: Path, status: int) -> None:
    """Nothing is followed, nothing is sent twice, and the body beside it is kept."""
    data = http(status, b"sorry", kind="text/plain", headers={"retry-after": "7", "location": "/elsewhere"})
    async with connected(tmp_path, says(data)) as (server, stage):
        report = await stage.act("x")
        assert report == HttpStatus(
            status=status,
            result={
                "status": status,
                "headers": {"content-type": "text/plain", "retry-after": "7"},
                "text": "sorry",
            },
        )
        assert stage.phases == ALL_PHASES
        assert len(server.calls()) == 1


@pytest.mark.parametrize("status", [409, 429, 502, 503, 504])
async def test_some_statuses_say_more_than_any_body(tmp_path: Path, status: int) -> None:
    """A gateway can write JSON-RPC too."""

    async def answer(_server: Web, stream: SocketStream, request: Request) -> None:
        await stream.send(http(status, message(request, {"error": {"code": 1, "message": "m"}})))

    async with connected(tmp_path, answer) as (_, stage):
        report = await stage.act("x")
        assert isinstance(report, HttpStatus)
        assert report.status == status


# ------------------------------------------------------------------ what breaks


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        pytest.param(b"\x00\x01garbage\r\n\r\n", "protocol_error", id="no HTTP"),
        pytest.param(http(200, b"not json"), "protocol_error", id="no JSON"),
        pytest.param(http(200, b"[]"), "protocol_error", id="a batch"),
        pytest.param(http(200, b'{"id":5,"result":{}}'), "protocol_error", id="another's answer"),
        pytest.param(http(200, b"<html>", kind="text/html"), "protocol_error", id="a web page"),
        pytest.param(http(202, b""), "protocol_error", id="accepted, and no answer"),
        pytest.param(
            http(200, gzip.compress(b"{}"), headers={"content-encoding": "gzip"}),
            "protocol_error",
            id="compressed",
        ),
        pytest.param(http(200, b"x" * 1_048_577), "protocol_error", id="too large"),
        pytest.param(STREAM + b"data: " + b"x" * 1_100_000, "protocol_error", id="too large an event"),
        pytest.param(STREAM + event(b"not json"), "protocol_error", id="an event of no JSON"),
    ],
)
async def test_what_is_no_answer_is_silence(tmp_path: Path, data: bytes, cause: str) -> None:
    """It was sent, and nothing that counts as an answer came."""
    async with connected(tmp_path, says(data)) as (server, stage):
        report = await stage.act("x")
        assert isinstance(report, Silence)
        assert report.cause == cause
        assert stage.phases == [Phase.WRITING, Phase.WRITTEN]
        assert len(server.calls()) == 1


async def test_a_server_that_hangs_up_is_a_lost_connection(tmp_path: Path) -> None:
    """Once it was written, nobody can tell whether it was done."""

    async def cuts_a_body(_server: Web, stream: SocketStream, _request: Request) -> None:
        await stream.send(http(200, b"{" + b" " * 100)[:-50])
        await stream.aclose()

    async def cuts_a_stream(_server: Web, stream: SocketStream, _request: Request) -> None:
        await stream.send(STREAM + b"id: 1\ndata:\n\n")
        await stream.aclose()

    for number, answer in enumerate((hangs_up, cuts_a_body, cuts_a_stream)):
        async with connected(tmp_path / str(number), answer) as (server, stage):
            report = await stage.act("x")
            assert isinstance(report, Silence)
            assert report.cause == "connection_lost"
            assert stage.phases == [Phase.WRITING, Phase.WRITTEN]
            assert len(server.calls()) == 1


async def test_what_cannot_be_connected_to_is_not_sent(tmp_path: Path) -> None:
    """Refused before the first byte: provably nothing left."""
    async with connected(tmp_path, succeeds) as (server, stage):
        port = server.port
        assert stage.provider is not None
    async with staged(HttpServer(url=f"http://127.0.0.1:{port}/mcp"), tmp_path / "ledger") as stage:
        report = await stage.dispatch(stage.call("act"))
        assert isinstance(report, NotSent)
        assert report.reason == "connect_failed"
        assert f"127.0.0.1:{port}" in report.message
        assert stage.phases == [Phase.CONNECTING]


async def test_a_server_that_went_away_between_calls_is_not_sent_to(tmp_path: Path) -> None:
    """The connection is gone, and so is the port: nothing of the second call left."""
    async with connected(tmp_path, succeeds) as (server, stage):
        await stage.act("x")
        server.stop()
        await server.gone.wait()
        await anyio.wait_all_tasks_blocked()
        report = await stage.act("x")
        assert isinstance(report, NotSent)
        assert report.reason == "connect_failed"
        assert Phase.WRITING not in stage.phases


@pytest.fixture
def full_port() -> Iterator[int]:
    """A port whose queue is full: the kernel leaves whoever connects to it waiting."""
    with ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            queued = sockets.enter_context(socket.socket())
            queued.setblocking(False)
            queued.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


async def test_a_request_that_is_still_connecting_can_be_withdrawn(full_port: int) -> None:
    """Nothing has left, and nothing will."""
    wire = HttpWire("p", HttpServer(url=f"http://127.0.0.1:{full_port}/mcp"), 1_000, Nobody())
    async with anyio.create_task_group() as tasks:
        await tasks.start(wire.run)
        exchange = Exchange(1_000, request(1_000, "tools/call", {}))
        wire.submit(exchange)
        await anyio.wait_all_tasks_blocked()
        assert wire.withdraw(exchange)
        with anyio.fail_after(30):
            await exchange.wait()
        assert isinstance(exchange.reply, NotSent)
        wire.stop()
    late = Exchange(1_001, request(1_001, "tools/call", {}))
    wire.submit(late)
    assert isinstance(late.reply, NotSent)


@pytest.mark.parametrize("status", [401, 503])
async def test_a_handshake_that_is_refused_is_a_failed_connect(tmp_path: Path, status: int) -> None:
    """Nothing of the call left, and the message says what the server said."""
    async with web() as server:
        server.refuses = status
        settings = HttpServer(url=f"http://127.0.0.1:{server.port}/mcp")
        async with staged(settings, tmp_path / "ledger") as stage:
            assert stage.provider is not None
            report = await stage.provider.prepare(stage.call("act"))
    assert isinstance(report, NotSent)
    assert report.reason == "connect_failed"
    assert f"HTTP status {status}" in report.message


async def test_a_refusal_that_names_no_request_does_not_hold_the_handshake_up(tmp_path: Path) -> None:
    """Older servers refuse what comes before `initialize` with an id of null: that is an answer, too."""
    async with web(era=LEGACY, answer=succeeds) as server:
        server.bewildered = True
        settings = HttpServer(url=f"http://127.0.0.1:{server.port}/mcp")
        async with staged(settings, tmp_path / "ledger") as stage:
            with anyio.fail_after(30):
                assert isinstance(await stage.act("x"), Answered)


async def test_no_proxy_of_the_environment_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever can set a variable must not get to see calls."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with connected(tmp_path, succeeds) as (_, stage):
        assert isinstance(await stage.act("x"), Answered)
