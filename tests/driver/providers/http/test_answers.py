"""From a response to the result: bodies of every kind, compressed or not, and what is too much."""

import gzip
import json
import tracemalloc
import zlib

import pytest
from anyio.abc import AnyByteStream

from driver.core.attempts import Answered, Report, Silence
from driver.core.reports import ANSWER_DEPTH_MAX, sound
from store.records import JsonObject, JsonValue
from tests.driver.providers.http.site import Request, Site, http, says
from tests.driver.providers.http.stage import endpoint, on_stage

pytestmark = pytest.mark.anyio


async def answer_to(data: bytes, *, method: str = "POST", bytes_max: int = 100_000) -> Report:
    """Return what the provider makes of this response."""
    tools = {"act": endpoint(method=method)}
    async with on_stage(says(data), tools=tools, answer_max_bytes=bytes_max) as (_, stage):
        return await stage.dispatch()


async def result_of(data: bytes, *, method: str = "POST") -> JsonObject:
    """Return the result without its headers."""
    report = await answer_to(data, method=method)
    assert isinstance(report, Answered)
    return {name: value for name, value in report.result.items() if name != "headers"}


@pytest.mark.parametrize(
    ("body", "kind", "content"),
    [
        (b'{"a": [1, null]}', "application/json", {"json": {"a": [1, None]}}),
        (b"[]", "application/json; charset=utf-8", {"json": []}),
        (b" 7 ", "application/problem+json", {"json": 7}),
        (b"null", "APPLICATION/JSON", {"json": None}),
        (b"\xef\xbb\xbf{}", "application/json", {"json": {}}),
        (b"1" * 400, "application/json", {"json": int("1" * 400)}),
        (b"{}", "text/plain", {"text": "{}"}),
        (b"{}", None, {"text": "{}"}),
        (b"", "application/json", {"text": ""}),
        (b"{not json}", "application/json", {"text": "{not json}"}),
        (b"NaN", "application/json", {"text": "NaN"}),
        (b'{"a":1,"a":2}', "application/json", {"text": '{"a":1,"a":2}'}),
        (b'1,"b":2', "application/json", {"text": '1,"b":2'}),
        (b'"\\ud800"', "application/json", {"text": '"\\ud800"'}),
        (b"caf\xc3\xa9", "text/plain", {"text": "café"}),
        (b"caf\xe9\xff", "text/plain", {"text": "caf\ufffd\ufffd", "invalid_utf8": True}),
        (b'{"a": "\xff"}', "application/json", {"text": '{"a": "\ufffd"}', "invalid_utf8": True}),
    ],
)
async def test_a_body_is_json_where_it_says_so_and_is_and_else_text(
    body: bytes, kind: str | None, content: JsonObject
) -> None:
    """JSON that the journal could not hold is kept as text; invalid UTF-8 is replaced, and flagged."""
    assert await result_of(http(200, body, kind=kind)) == {"status": 200, **content}


@pytest.mark.parametrize(
    ("depth", "name"),
    [(ANSWER_DEPTH_MAX - 1, "json"), (ANSWER_DEPTH_MAX, "text"), (49_000, "text")],
)
async def test_json_that_is_too_deep_for_an_event_is_text(depth: int, name: str) -> None:
    """An event wraps the body in a few levels of its own, and its frame has a limit."""
    for inmost in (b"", b"1"):
        result = await result_of(http(200, b"[" * depth + inmost + b"]" * depth))
        assert set(result) == {"status", name}
        answer = Answered(result=result)
        assert sound(answer) is answer


async def test_headers_are_kept_by_their_names_in_lower_case() -> None:
    """Values of one name are joined, but for cookies, which cannot be."""
    data = http(200, b"", X_A="1", x_a="2", Set_Cookie="a=1; b", set_cookie="c=2")
    report = await answer_to(data)
    assert isinstance(report, Answered)
    headers = report.result["headers"]
    assert isinstance(headers, dict)
    assert (headers["x-a"], headers["set-cookie"]) == ("1, 2", ["a=1; b", "c=2"])


async def test_an_answer_to_head_has_no_body_whatever_it_announces() -> None:
    """A length, a coding and a kind of a body that is not there."""
    data = b"HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\ncontent-encoding: gzip\r\n\r\n"
    assert await result_of(data, method="HEAD") == {"status": 200, "text": ""}


# ------------------------------------------------------------------ compressed though nobody asked for it

PLAIN = json.dumps({"a": "b" * 500}).encode()


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(PLAIN, mtime=0)),
        ("x-gzip", gzip.compress(PLAIN, mtime=0)),
        ("deflate", zlib.compress(PLAIN)),
        ("identity", PLAIN),
        ("GZIP", gzip.compress(PLAIN, mtime=0)),
    ],
)
async def test_a_compressed_answer_is_read(coding: str, body: bytes) -> None:
    """It was not asked for, and is an answer still."""
    assert await result_of(http(200, body, content_encoding=coding)) == {
        "status": 200,
        "json": json.loads(PLAIN),
    }


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        pytest.param("br", b"\x0b\x02\x80", id="a coding that is not undone"),
        pytest.param("gzip, gzip", gzip.compress(gzip.compress(PLAIN, mtime=0)), id="twice"),
        pytest.param("gzip", PLAIN, id="not compressed"),
        pytest.param("gzip", gzip.compress(PLAIN, mtime=0)[:-9], id="cut short"),
        pytest.param("gzip", gzip.compress(PLAIN, mtime=0) + b"more", id="with a tail"),
    ],
)
async def test_a_compressed_answer_that_cannot_be_read_is_unknown(coding: str, body: bytes) -> None:
    """Whatever it said is lost: a protocol error, never a success with half of its content."""
    report = await answer_to(http(200, body, content_encoding=coding))
    assert isinstance(report, Silence)
    assert report.cause == "protocol_error"


async def test_a_decompression_bomb_is_bounded() -> None:
    """60 MB in 60 kB: it costs the limit, and is a protocol error."""
    bomb = gzip.compress(b"\0" * 60_000_000, mtime=0)
    assert len(bomb) < 100_000
    tracemalloc.start()
    try:
        report = await answer_to(http(200, bomb, content_encoding="gzip"))
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()
    assert isinstance(report, Silence)
    assert "answer_max_bytes" in report.message


@pytest.mark.parametrize("coding", ["identity", "gzip"])
@pytest.mark.parametrize(("size", "fits"), [(50_000, True), (50_001, False)])
async def test_the_limit_is_exact(coding: str, size: int, fits: bool) -> None:
    """It counts what the body is, and what came for it."""
    body = b"x" * size
    data = http(200, gzip.compress(body, mtime=0) if coding == "gzip" else body, content_encoding=coding)
    assert isinstance(await answer_to(data, bytes_max=50_000), Answered) is fits


async def test_a_body_in_tiny_pieces_costs_no_more_than_its_size() -> None:
    """One byte at a time: what is kept is bounded by the limit all the same."""
    pieces = 20_000

    async def script(_site: Site, stream: AnyByteStream, _request: Request) -> None:
        await stream.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        await stream.send(b"1\r\nx\r\n" * pieces + b"0\r\n\r\n")

    async with on_stage(script) as (_, stage):
        report = await stage.dispatch()
    assert isinstance(report, Answered)
    text: JsonValue = report.result["text"]
    assert text == "x" * pieces
