"""An HTTP API on real sockets: phases, what breaks, what comes late, and that nothing is ever sent twice."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import httpx2
import pytest
from anyio.abc import AnyByteStream

from driver.core.attempts import Answered, HttpStatus, Phase, Silence
from driver.core.contracts import HeaderKey
from driver.providers.http.exchange import Exchange
from driver.providers.http.settings import Endpoint
from tests.driver.providers.http.site import (
    Request,
    Script,
    Site,
    http,
    says,
    site,
    then_hangs_up,
    then_resets,
)
from tests.driver.providers.http.stage import (
    ANSWERED,
    endpoint,
    on_stage,
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
