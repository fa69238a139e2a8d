"""An HTTP API on real sockets: phases, what breaks, what comes late, and that nothing is ever sent twice."""

import contextlib
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import httpx2
import pytest
from anyio.abc import AnyByteStream, SocketAttribute

from driver.core.attempts import Answered, HttpStatus, NotSent, Phase, Silence, ToolCall
from driver.core.contracts import HeaderKey
from driver.providers.http.exchange import Exchange
from driver.providers.http.settings import Endpoint
from tests.driver.link.test_dial import certificate
from tests.driver.providers.http.site import (
    PATIENCE_S,
    Request,
    Script,
    Site,
    http,
    says,
    shrunk,
    site,
    slowly,
    then_hangs_up,
    then_resets,
)
from tests.driver.providers.http.stage import (
    ANSWERED,
    Stage,
    endpoint,
    on_stage,
    server_context,
    settings,
    staged,
)

pytestmark = pytest.mark.anyio

Ends = Callable[..., Script]
"""How a connection ends, after these bytes."""

WRITTEN = [Phase.CONNECTING, Phase.WRITING, Phase.WRITTEN]


# ------------------------------------------------------------------ an ordinary call


async def test_a_call_is_one_request_with_all_its_phases() -> None:
    """One request on one connection, connecting to answered, and the answer as it came."""
    async with on_stage(says(http())) as (made, stage):
        report = await stage.dispatch()
        assert report == Answered(
            result={
                "status": 200,
                "headers": {"content-length": "9", "content-type": "application/json"},
                "json": {"id": 7},
            }
        )
        assert stage.phases == ANSWERED
        assert [(request.method, request.target) for request in made.requests] == [("POST", "/act")]


async def test_a_prepared_call_is_connected_and_nothing_of_it_has_left() -> None:
    """`prepare` makes the connection that `dispatch` sends on, so that the intent is committed late."""
    async with on_stage(says(http())) as (made, stage):
        call = stage.call()
        assert await stage.provider.prepare(call) is None
        await made.until(lambda made: made.connections == 1)
        assert made.requests == []
        assert isinstance(await stage.dispatch(call), Answered)
        assert stage.phases == [Phase.WRITING, Phase.WRITTEN, Phase.ANSWERED]
        assert (made.connections, len(made.requests)) == (1, 1)


async def test_a_prepared_call_that_is_never_dispatched_is_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A connection is not held for ever for a caller who has gone; a late dispatch makes another."""
    monkeypatch.setattr("driver.providers.http.exchange.HOLD_S", 0.05)
    async with on_stage(says(http())) as (made, stage):
        call = stage.call()
        assert await stage.provider.prepare(call) is None
        await made.until(lambda made: made.gone == 1)
        assert made.requests == []
        assert isinstance(await stage.dispatch(call), Answered)
        assert (made.connections, len(made.requests)) == (2, 1)


async def test_a_call_that_is_prepared_again_keeps_its_newest_connection() -> None:
    """The engine may prepare a call twice; it is sent once, and the first connection is closed."""
    async with on_stage(says(http())) as (made, stage):
        call = stage.call()
        assert await stage.provider.prepare(call) is None
        assert await stage.provider.prepare(call) is None
        await made.until(lambda made: made.gone == 1)
        assert isinstance(await stage.dispatch(call), Answered)
        assert (made.connections, len(made.requests)) == (2, 1)


@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_each_request_has_a_connection_of_its_own(method: str) -> None:
    """An answer that is sent twice lands on no other call, and no call on a connection that is just dying."""
    twice = says(http() + http(200, b'{"id": "of the call before"}'))
    async with on_stage(twice, tools={"act": endpoint(method=method)}) as (made, stage):
        for _ in range(3):
            report = await stage.run()
            assert isinstance(report, Answered)
            assert report.result["json"] == {"id": 7}
        await made.until(lambda made: made.gone == 3)
        assert [request.headers["connection"] for request in made.requests] == ["close"] * 3


async def test_where_connections_are_kept_another_calls_answer_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Control: with the library's own pool, and nothing said of closing, the rule above is broken."""
    monkeypatch.setattr("driver.providers.http.provider._transport", httpx2.AsyncHTTPTransport)
    monkeypatch.setattr("driver.providers.http.requests._USUAL_HEADERS", {})
    async with on_stage(says(http() + http(200, b'{"id": "of the call before"}'))) as (made, stage):
        await stage.run()
        report = await stage.run()
        assert isinstance(report, Answered)
        assert report.result["json"] == {"id": "of the call before"}
        assert made.connections == 1


async def test_no_call_is_ready_before_it_is_prepared() -> None:
    """Acceptance and intent never share a commit: a connection is made between the two."""
    async with on_stage(says(http())) as (_, stage):
        assert not stage.provider.ready(stage.call())
        assert isinstance(await stage.run(), Answered)
        assert not stage.provider.ready(stage.call())


async def test_without_the_hold_a_prepared_call_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: it is the stop before the first byte that keeps a call here until its intent is durable."""

    async def leave_at_once(exchange: Exchange) -> None:
        exchange.poised.set()
        exchange.begun = True

    monkeypatch.setattr("driver.providers.http.exchange.Exchange._go", leave_at_once)
    async with on_stage(says(http())) as (made, stage):
        await stage.provider.prepare(stage.call())
        await made.until(lambda made: len(made.requests) == 1)


async def test_many_calls_run_at_once() -> None:
    """32 calls to one site, each with its own answer, while none has ended."""

    async def script(made: Site, stream: AnyByteStream, request: Request) -> None:
        await made.until(lambda made: len(made.requests) == 32)
        await stream.send(http(200, request.body))

    tool = endpoint(body={"n": "=arguments.n"})
    async with on_stage(script, tools={"act": tool}) as (made, stage):
        answers: dict[int, object] = {}

        async def one(n: int) -> None:
            report = await stage.provider.dispatch(stage.call("act", {"n": n}), lambda _phase: None)
            assert isinstance(report, Answered)
            answers[n] = report.result["json"]

        async with anyio.create_task_group() as tasks:
            for n in range(32):
                tasks.start_soon(one, n)
        assert answers == {n: {"n": n} for n in range(32)}
        assert len(made.requests) == 32


# ------------------------------------------------------------------ before the first byte


@asynccontextmanager
async def reaching(url: str) -> AsyncGenerator[Stage]:
    """A provider of this address, with one tool."""
    async with staged(settings(url, {"act": endpoint()})) as stage:
        yield stage


async def refused_both_ways(stage: Stage, reason: str = "connect_failed") -> str:
    """A call is `NotSent`, prepared or not, and nothing in its phases says that a byte may have left."""
    prepared = await stage.provider.prepare(stage.call())
    dispatched = await stage.dispatch()
    assert isinstance(prepared, NotSent)
    assert isinstance(dispatched, NotSent)
    assert (prepared.reason, dispatched.reason) == (reason, reason)
    assert not any(phase.may_have_left for phase in stage.phases)
    return dispatched.message


async def test_a_refused_connection_is_not_sent() -> None:
    """Nobody listens: provably nothing left."""
    async with site(says()) as made:
        port = made.port
    async with reaching(f"http://127.0.0.1:{port}") as stage:
        assert f"cannot connect to 127.0.0.1:{port}" in await refused_both_ways(stage)
        assert stage.phases == [Phase.CONNECTING]


async def test_a_name_that_does_not_resolve_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS fails before the call was written."""
    monkeypatch.setattr("driver.providers.http.exchange.CONNECT_S", 1.0)
    async with reaching("http://nowhere.invalid/v1") as stage:
        assert "nowhere.invalid" in await refused_both_ways(stage)


@pytest.mark.parametrize("url", ["http://exa mple/", "http://[::z]/", "http://a..b/"])
async def test_a_base_that_is_no_address_is_not_sent(url: str) -> None:
    """What the configuration lets through, and no library takes, fails each call and not the daemon."""
    async with reaching(url) as stage:
        await refused_both_ways(stage)
        assert isinstance(await stage.provider.reach(), NotSent)


async def test_a_certificate_of_an_unknown_authority_is_not_sent(tmp_path: Path) -> None:
    """TLS is verified, always: the handshake fails before the call was written."""
    tls = server_context(certificate(tmp_path, "site"))
    async with site(says(http()), tls=tls) as made:
        async with reaching(f"https://127.0.0.1:{made.port}") as stage:
            assert "certificate verify failed" in await refused_both_ways(stage)
        assert made.requests == []


async def test_a_certificate_of_the_systems_authorities_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenSSL's own variable names a private authority; a connection that is held tells when it is dead."""
    files = certificate(tmp_path, "site")
    monkeypatch.setenv("SSL_CERT_FILE", str(files[0]))
    async with (
        site(says(http()), tls=server_context(files)) as made,
        reaching(f"https://127.0.0.1:{made.port}") as stage,
    ):
        assert isinstance(await stage.run(), Answered)
        assert stage.phases == [Phase.WRITING, Phase.WRITTEN, Phase.ANSWERED]
        assert len(made.requests) == 1


async def test_a_site_without_tls_is_not_sent() -> None:
    """What answers a handshake with something else gets nothing of the call."""

    class Plain(Site):
        async def serve(self, stream: AnyByteStream) -> None:
            await stream.send(http())
            await stream.aclose()

    async with site(says(), kind=Plain) as made, reaching(f"https://127.0.0.1:{made.port}") as stage:
        await refused_both_ways(stage)


@asynccontextmanager
async def deaf_site() -> AsyncGenerator[int]:
    """A port where the kernel takes connections, and nobody ever says a word: TLS never comes to be."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        yield listener.extra(SocketAttribute.local_port)


async def test_a_connection_that_takes_too_long_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connecting has a bound of its own."""
    monkeypatch.setattr("driver.providers.http.exchange.CONNECT_S", 0.1)
    async with deaf_site() as port, reaching(f"https://127.0.0.1:{port}") as stage:
        await refused_both_ways(stage)


async def test_a_deadline_before_the_first_byte_is_not_sent() -> None:
    """The deadline passes while the connection is made: nothing left, and nothing will."""
    async with deaf_site() as port, reaching(f"https://127.0.0.1:{port}") as stage:
        report = await stage.dispatch(timeout_s=0.5)
        assert isinstance(report, NotSent)
        assert (report.reason, stage.phases) == ("deadline", [Phase.CONNECTING])


async def test_a_deadline_that_has_passed_already_is_not_sent() -> None:
    """A prepared call whose time is over is taken back."""
    async with on_stage(says(http())) as (made, stage):
        call = stage.call()
        assert await stage.provider.prepare(call) is None
        report = await stage.dispatch(replace(call, timeout_s=0))
        assert isinstance(report, NotSent)
        assert report.reason == "deadline"
        await made.until(lambda made: made.gone == 1)
        assert made.requests == []


async def test_a_server_that_hangs_up_on_a_prepared_call_gets_it_on_a_new_connection() -> None:
    """A held connection that has died is seen before the first byte: nothing is written into it."""

    class Impatient(Site):
        async def serve(self, stream: AnyByteStream) -> None:
            if self.connections:
                await super().serve(stream)
                return
            self.connections += 1
            await self.go_on.wait()
            await stream.aclose()
            self.gone += 1
            self.news()

    async with on_stage(says(http()), kind=Impatient) as (made, stage):
        call = stage.call()
        assert await stage.provider.prepare(call) is None
        made.go_on.set()
        await made.until(lambda made: made.gone == 1)
        assert isinstance(await stage.dispatch(call), Answered)
        assert stage.phases == ANSWERED
        assert (made.connections, len(made.requests)) == (2, 1)


class Talker(Site):
    """It says something on its first connection before it was asked."""

    async def serve(self, stream: AnyByteStream) -> None:
        if self.connections == 0:
            await stream.send(http(408))
            self.connections += 1
            self.news()
            await self.told_to_go_on(stream)
            await anyio.aclose_forcefully(stream)
        else:
            await super().serve(stream)


async def test_a_server_that_speaks_before_it_is_asked_is_asked_on_a_new_connection() -> None:
    """What it says then can be no answer: nothing is written on that connection."""
    async with on_stage(says(http()), kind=Talker) as (made, stage):
        call = stage.call()
        assert await stage.provider.prepare(call) is None
        await made.until(lambda made: made.connections == 1)
        assert isinstance(await stage.dispatch(call), Answered)
        assert (made.connections, len(made.requests)) == (2, 1)


async def test_the_last_look_at_a_connection_is_just_before_the_first_byte() -> None:
    """A connection that is spoilt while its request is let go proves that nothing left."""
    async with site(says(http()), kind=Talker) as made, anyio.create_task_group() as tasks:
        exchange = Exchange(httpx2.Request("GET", f"http://127.0.0.1:{made.port}/"), 1_000)
        async with httpx2.AsyncHTTPTransport() as transport:
            tasks.start_soon(exchange.run, transport)
            await exchange.poised.wait()
            await made.until(lambda made: made.connections == 1)
            exchange.release()
            await exchange.ended.wait()
        assert isinstance(exchange.reply, NotSent)
        assert (exchange.reply.reason, exchange.begun) == ("connect_failed", False)


async def test_reaching_a_site_sends_nothing() -> None:
    """`effectd check --connect` asks whether a connection can be made, and no more."""
    async with on_stage(says(http())) as (made, stage):
        assert await stage.provider.reach() is None
        await made.until(lambda made: made.gone == 1)
        assert made.requests == []


# ------------------------------------------------------------------ after the first byte


HALF_A_HEAD = b"HTTP/1.1 200 OK\r\ncontent-le"
CUT_SHORT = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nonly this"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("ends", [then_hangs_up, then_resets])
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="before the head"),
        pytest.param(HALF_A_HEAD, id="within the head"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n", id="after 100 Continue"),
        pytest.param(CUT_SHORT, id="within the body"),
        pytest.param(CHUNKED + b"3\r\nabc\r\n", id="between two chunks"),
    ],
)
async def test_a_connection_that_dies_is_unknown_and_nothing_is_sent_again(ends: Ends, data: bytes) -> None:
    """However the connection ends, the request was sent once, and the report is no answer."""
    async with on_stage(ends(data)) as (made, stage):
        report = await stage.dispatch()
        assert isinstance(report, Silence)
        assert report.cause == "connection_lost"
        assert stage.phases == WRITTEN
        assert len(made.requests) == 1


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x16\x03\x01 garbage\r\n\r\n", id="no HTTP"),
        pytest.param(b"HTTP/1.1 abc\r\n\r\n", id="no status"),
        pytest.param(b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", id="no header"),
        pytest.param(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000 + b"\r\n\r\n", id="a head without end"),
        pytest.param(CHUNKED + b"zz\r\n", id="no chunk"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab", id="two lengths"
        ),
        pytest.param(http(200, b"x" * 100_001), id="a body above the limit"),
        pytest.param(CHUNKED + b"18700\r\n" + b"x" * 0x18700 + b"\r\n0\r\n\r\n", id="chunks above the limit"),
    ],
)
async def test_garbage_is_a_protocol_error_and_its_connection_is_given_up(data: bytes) -> None:
    """What cannot be read as an answer of bounded size is unknown, and nothing more is read."""
    async with on_stage(says(data)) as (made, stage):
        report = await stage.dispatch()
        assert isinstance(report, Silence)
        assert report.cause == "protocol_error"
        assert stage.phases == WRITTEN
        await made.until(lambda made: made.gone == 1)
        assert len(made.requests) == 1


async def test_a_body_without_end_is_cut_off_at_the_limit() -> None:
    """An endless answer costs no more than the limit, and its connection."""

    async def endless(_site: Site, stream: AnyByteStream, _request: Request) -> None:
        await stream.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n")
        while True:
            await stream.send(b"x" * 10_000)

    async with on_stage(endless) as (made, stage):
        report = await stage.dispatch()
        assert isinstance(report, Silence)
        assert report.cause == "protocol_error"
        await made.until(lambda made: made.gone == 1)


@pytest.mark.parametrize(
    "before", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Hints\r\nlink: x\r\n\r\n" * 3]
)
async def test_an_interim_response_is_no_answer(before: bytes) -> None:
    """1xx responses are passed over, as often as they come."""
    async with on_stage(says(before, http(201))) as (_, stage):
        report = await stage.dispatch()
        assert isinstance(report, Answered)
        assert report.result["status"] == 201


async def test_an_answer_to_an_older_protocol_ends_with_its_connection() -> None:
    """HTTP/1.0, without a length: the end of the connection is the end of the answer."""
    async with on_stage(then_hangs_up(b"HTTP/1.0 200 OK\r\n\r\nall of it")) as (_, stage):
        report = await stage.dispatch()
        assert isinstance(report, Answered)
        assert report.result["text"] == "all of it"


async def test_an_answer_before_all_was_written_is_an_answer() -> None:
    """A server may refuse a large body early, and close: what it said counts."""

    class Early(Site):
        async def serve(self, stream: AnyByteStream) -> None:
            await stream.receive()
            await stream.send(http(413, b"too much"))
            await stream.aclose()

    tools = {"act": endpoint(body="=arguments.text")}
    async with on_stage(says(), tools=tools, kind=Early) as (_, stage):
        report = await stage.dispatch(stage.call("act", {"text": "x" * 8_000_000}))
        # a reset may overtake the answer: then it is unknown
        assert isinstance(report, HttpStatus | Silence)
        if isinstance(report, HttpStatus):
            assert report.status == 413


async def test_a_bug_of_ours_ends_one_call_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception of ours after the first byte is unknown, never the peer's word; the provider goes on."""

    async def broken(_response: object, _bytes_max: int) -> None:
        raise RuntimeError

    async with on_stage(says(http())) as (_, stage):
        with monkeypatch.context() as patch:
            patch.setattr("driver.providers.http.exchange.read", broken)
            report = await stage.dispatch()
        assert isinstance(report, Silence)
        assert report.cause == "internal"
        assert isinstance(await stage.dispatch(), Answered)


# ------------------------------------------------------------------ statuses


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_a_redirect_is_never_followed(status: int, method: str) -> None:
    """No request goes anywhere that its declaration does not name, whatever its method."""
    script = says(http(status, b"", location="/elsewhere"))
    async with on_stage(script, tools={"act": endpoint(method=method)}) as (made, stage):
        report = await stage.run()
        assert isinstance(report, HttpStatus)
        assert report.status == status
        headers = report.result["headers"]
        assert isinstance(headers, dict)
        assert headers["location"] == "/elsewhere"
        assert [request.target for request in made.requests] == ["/act"]


@pytest.mark.parametrize("status", [200, 201, 202, 204, 206, 299])
async def test_a_success_is_an_answer(status: int) -> None:
    """2xx is what HTTP calls a success."""
    body = b"" if status == 204 else b"{}"
    async with on_stage(says(http(status, body))) as (_, stage):
        assert isinstance(await stage.dispatch(), Answered)


@pytest.mark.parametrize(
    "status", [300, 304, 400, 401, 403, 404, 409, 418, 422, 429, 500, 501, 502, 503, 504, 520, 599]
)
async def test_another_status_is_told_as_it_is(status: int) -> None:
    """Status, headers and body are kept; what they mean is decided elsewhere."""
    body = b"" if status == 304 else b'{"title": "sorry"}'
    async with on_stage(says(http(status, body, retry_after="7"))) as (made, stage):
        report = await stage.dispatch()
        assert isinstance(report, HttpStatus)
        assert (report.status, report.result["status"]) == (status, status)
        headers = report.result["headers"]
        assert isinstance(headers, dict)
        assert headers["retry-after"] == "7"
        assert report.result.get("json") == (None if status == 304 else {"title": "sorry"})
        assert stage.phases == ANSWERED
        assert len(made.requests) == 1


@pytest.mark.parametrize(("status", "answered"), [(303, True), (200, False), (201, True)])
async def test_the_statuses_that_are_an_answer_can_be_listed(status: int, answered: bool) -> None:
    """`ok_status` takes the place of 2xx."""
    tools = {"act": endpoint(ok_status=[303, 201])}
    async with on_stage(says(http(status)), tools=tools) as (_, stage):
        assert isinstance(await stage.dispatch(), Answered) is answered


# ------------------------------------------------------------------ what is not kept, and not asked


async def test_no_cookie_is_kept() -> None:
    """What one call is told is not sent along with the next."""
    async with on_stage(says(http(set_cookie="session=1"))) as (made, stage):
        for _ in range(3):
            await stage.run()
        assert not any("cookie" in request.headers for request in made.requests)


async def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that other programs obey do not lead a call elsewhere."""
    async with site(says(http(502))) as trap:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{trap.port}")
        async with on_stage(says(http())) as (made, stage):
            assert isinstance(await stage.dispatch(), Answered)
            assert len(made.requests) == 1
        assert trap.connections == 0


async def test_a_server_that_closes_after_each_answer_gets_each_call_once() -> None:
    """Whatever it does with connections between calls, each call is one request."""
    async with on_stage(then_hangs_up(http())) as (made, stage):
        for number in range(1, 4):
            assert isinstance(await stage.run(), Answered)
            await made.until(partial(gone_at_least, number))
        assert (made.connections, len(made.requests)) == (3, 3)


def gone_at_least(number: int, made: Site) -> bool:
    """Whether that many connections have ended."""
    return made.gone >= number


# ------------------------------------------------------------------ deadlines and late answers


async def overdue(stage: Stage) -> ToolCall:
    """Let a call pass its deadline after it was sent, and return it."""
    call = stage.call(timeout_s=0.3)
    report = await stage.run(call)
    assert isinstance(report, Silence)
    assert report.cause == "deadline"
    return call


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param((b"", http()), id="nothing yet"),
        pytest.param((HALF_A_HEAD, b"ngth: 2\r\n\r\n{}"), id="half a head"),
        pytest.param((http()[:-4], http()[-4:]), id="half a body"),
    ],
)
async def test_an_answer_after_the_deadline_is_reported_late(pieces: tuple[bytes, ...]) -> None:
    """The caller waits no longer; the answer is still heard, and belongs to its call."""
    async with on_stage(slowly(*pieces)) as (made, stage):
        call = await overdue(stage)
        assert stage.phases[-1] is Phase.WRITTEN
        made.go_on.set()
        assert isinstance(await stage.hear(), Answered)
        assert stage.late[0][:2] == (call.operation_id, 1)
        assert stage.phases[-1] is Phase.WRITTEN


async def test_a_late_status_is_reported_as_it_is() -> None:
    """What a late failure proves is decided elsewhere."""
    async with on_stage(slowly(b"", http(500, b"{}"))) as (made, stage):
        await overdue(stage)
        made.go_on.set()
        report = await stage.hear()
        assert isinstance(report, HttpStatus)
        assert report.status == 500


async def test_listening_ends_and_takes_the_connection_with_it() -> None:
    """After `late_result_s` the connection is closed, so that the call can land no more."""
    async with on_stage(slowly(b"", http()), late_result_s=0.05) as (made, stage):
        await overdue(stage)
        await made.until(lambda made: made.gone == 1)
        assert stage.late == []


@pytest.mark.parametrize("script", [then_hangs_up(), then_resets(HALF_A_HEAD), says(b"garbage\r\n\r\n")])
async def test_what_is_no_answer_is_not_reported_late(script: Script) -> None:
    """A connection that dies in the late window says nothing."""

    async def late(made: Site, stream: AnyByteStream, request: Request) -> None:
        await made.told_to_go_on(stream)
        await script(made, stream, request)

    async with on_stage(late) as (made, stage):
        await overdue(stage)
        made.go_on.set()
        await made.until(lambda made: made.gone == 1)
        assert stage.late == []


async def test_a_limit_bounds_how_many_late_answers_are_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it a call is hung up on at its deadline."""
    monkeypatch.setattr("driver.providers.http.provider.LISTENED_MAX", 1)
    async with on_stage(slowly(b"", http())) as (made, stage):
        await overdue(stage)
        await overdue(stage)
        await made.until(lambda made: len(made.requests) == 2)
        made.go_on.set()
        await stage.hear()
        await made.until(lambda made: made.gone == 2)
        assert len(stage.late) == 1


async def test_a_request_that_is_not_written_whole_by_the_deadline_is_cut_off() -> None:
    """A server that does not read cannot be sent the rest of a call after its deadline."""
    tools = {"act": endpoint(body="=arguments.text")}
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        staged(settings(f"http://127.0.0.1:{shrunk(listener)}", tools)) as stage,
    ):
        report = await stage.run(stage.call("act", {"text": "x" * 8_000_000}, timeout_s=0.3))
        assert isinstance(report, Silence)
        assert (report.cause, stage.phases) == ("deadline", [Phase.WRITING])
        arrived = await anyio.to_thread.run_sync(drained, listener.extra(SocketAttribute.raw_socket))
        assert 0 < arrived < 8_000_000


def drained(listener: socket.socket) -> int:
    """Take the connection that waits, and return how much comes over it until its end."""
    stream, _ = listener.accept()
    with stream:
        stream.settimeout(PATIENCE_S)
        arrived = 0
        with contextlib.suppress(ConnectionError):
            while data := stream.recv(65_536):
                arrived += len(data)
    return arrived


# ------------------------------------------------------------------ cancel and close


async def test_a_cancel_before_the_first_byte_withdraws_the_call() -> None:
    """Nothing arrives, and the phases prove it."""
    async with deaf_site() as port, reaching(f"https://127.0.0.1:{port}") as stage:
        await cancelled_at(Phase.CONNECTING, stage)
        assert stage.phases == [Phase.CONNECTING]


async def cancelled_at(phase: Phase, stage: Stage) -> None:
    """Dispatch a call, and cancel its scope when it has reached `phase`."""
    scope = anyio.CancelScope()

    def progress(reached: Phase) -> None:
        stage.phases.append(reached)
        if reached is phase:
            scope.cancel()

    with scope:
        await stage.provider.dispatch(stage.call(), progress)
    assert scope.cancelled_caught


async def test_a_cancel_of_a_prepared_call_leaves_nothing_behind() -> None:
    """A scope that is cancelled before `dispatch` gets going sends nothing."""
    async with on_stage(says(http())) as (made, stage):
        call = stage.call()
        assert await stage.provider.prepare(call) is None
        with anyio.CancelScope() as scope:
            scope.cancel()
            await stage.dispatch(call)
        await made.until(lambda made: made.gone == 1)
        assert (stage.phases, made.requests) == ([], [])


async def test_a_cancel_while_preparing_leaves_nothing_behind() -> None:
    """A connection in the making is given up."""
    async with deaf_site() as port, reaching(f"https://127.0.0.1:{port}") as stage:
        with anyio.move_on_after(0.1) as scope:
            await stage.provider.prepare(stage.call())
        assert scope.cancelled_caught


async def test_a_cancel_after_the_first_byte_closes_the_connection() -> None:
    """Hanging up is the only sign that HTTP has; nothing is listened for any more."""
    async with on_stage(slowly(b"", http())) as (made, stage):
        await cancelled_at(Phase.WRITTEN, stage)
        assert stage.phases == WRITTEN
        made.go_on.set()
        await made.until(lambda made: made.gone == 1)
        assert stage.late == []


async def test_closing_ends_what_is_in_flight() -> None:
    """A call under way is silence, one that is asked for afterwards is not sent, and `close` returns."""
    async with on_stage(slowly(b"", http())) as (made, stage):
        reports: list[object] = []

        async def run() -> None:
            reports.append(await stage.dispatch())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await made.until(lambda made: len(made.requests) == 1)
            await stage.provider.close()
        assert [type(report) for report in reports] == [Silence]
        refused = await stage.provider.prepare(stage.call())
        assert isinstance(refused, NotSent)
        assert refused.reason == "connect_failed"


# ------------------------------------------------------------------ secrets


def with_token() -> dict[str, Endpoint]:
    """A tool whose header takes a token from the provider's environment."""
    return {"act": endpoint(headers={"Authorization": "=join(' ', ['Bearer', env.TOKEN])"})}


async def test_a_token_stands_in_a_file_that_is_read_again(tmp_path: Path) -> None:
    """A rotated token is picked up by the next call."""
    file = tmp_path / "token"
    file.write_text("one\n")
    async with on_stage(says(http()), tools=with_token(), env_files={"TOKEN": file}) as (made, stage):
        await stage.run()
        file.write_text("two\n")
        await stage.run()
        assert [request.headers["authorization"] for request in made.requests] == ["Bearer one", "Bearer two"]


async def test_a_token_that_cannot_be_used_is_never_shown(tmp_path: Path) -> None:
    """A missing file is named; a token that is no header's value is not quoted."""
    file = tmp_path / "token"
    async with on_stage(says(http()), tools=with_token(), env_files={"TOKEN": file}) as (made, stage):
        refused = await stage.refusal({})
        assert refused.reason == "connect_failed"
        assert str(file) in refused.message
        file.write_text("secret\r\nx: y")
        refused = await stage.refusal({})
        assert refused.reason == "invalid_arguments"
        assert "secret" not in refused.message
        assert made.connections == 0


async def test_the_key_is_sent_in_its_header() -> None:
    """`key = "header:NAME"`: the operation's id, on every attempt."""
    async with on_stage(says(http()), key=HeaderKey("Idempotency-Key")) as (made, stage):
        call = stage.call()
        await stage.run(call)
        assert made.requests[0].headers["idempotency-key"] == call.operation_id
