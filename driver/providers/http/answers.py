"""From a response to the report: its status, its headers, and a body that cannot flood us.

Part of `driver.providers.http`; imports its `settings`, `driver.core`, and the HTTP library's values.
"""

import zlib
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Literal

import httpx2

from driver.core.attempts import Answered, HttpStatus
from driver.core.reports import ANSWER_DEPTH_MAX
from driver.core.strictjson import NotStrictJson, deeper_than, loads
from driver.providers.http.settings import Endpoint
from store.records import JsonObject, JsonValue

_INFLATED: Final = frozenset({"gzip", "x-gzip", "deflate"})
"""Content codings that are undone, though none was asked for."""
_ZLIB_OR_GZIP: Final = zlib.MAX_WBITS | 32
_LISTED: Final = "set-cookie"
"""The one header whose values cannot be joined."""


class UnusableBody(Exception):
    """A body that is no answer. `detail` never quotes it."""

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(detail)


class TooLarge(UnusableBody):
    """It is beyond `bytes_max`, as it came or decompressed."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"the answer is larger than {bytes_max:,} bytes (answer_max_bytes)")


class NotDecompressed(UnusableBody):
    """It was compressed, though nobody asked for that, and `fault` is wrong with it."""

    def __init__(self, fault: Literal["coding", "data", "end"]) -> None:
        super().__init__(f"the answer is compressed, which was not asked for, and its {fault} is wrong")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A response that arrived whole, its body decoded and within its limit."""

    status: int
    headers: JsonObject
    body: bytes


async def read(response: httpx2.Response, bytes_max: int) -> Answer:
    """Read the body of a response to its end.

    Holds `bytes_max` bytes of it, and one piece as it came, at most. Raises `UnusableBody`, and what the
    library raises; the connection is given up then.
    """
    async with aclosing(response):
        body = _Body(_coding(response), bytes_max)
        async with aclosing(response.aiter_raw()) as pieces:
            async for piece in pieces:
                body.take(piece)
    return Answer(status=response.status_code, headers=_headers(response.headers), body=body.whole())


def report_of(answer: Answer, endpoint: Endpoint) -> Answered | HttpStatus:
    """Return what the response says, with `status`, `headers`, and `json` or `text`."""
    result: JsonObject = {"status": answer.status, "headers": answer.headers, **_content(answer)}
    if endpoint.answers_with(answer.status):
        return Answered(result=result)
    return HttpStatus(status=answer.status, result=result)


class _Body:
    """A body in the making, bounded before and after it is decompressed, which the library's are not."""

    def __init__(self, coding: str | None, bytes_max: int) -> None:
        self._inflate = None if coding is None else zlib.decompressobj(_ZLIB_OR_GZIP)
        self._bytes_max = bytes_max
        self._arrived = 0
        self._room = bytes_max
        self._kept = bytearray()

    def take(self, piece: bytes) -> None:
        """Add what came next. Raises `UnusableBody`."""
        self._arrived += len(piece)
        if self._arrived > self._bytes_max:
            raise TooLarge(self._bytes_max)
        if self._inflate is None:
            self._kept += piece
            return
        try:
            # one byte more than there is room for, so that it shows
            inflated = self._inflate.decompress(piece, self._room + 1)
        except zlib.error:
            raise NotDecompressed("data") from None
        self._room -= len(inflated)
        if self._room < 0:
            raise TooLarge(self._bytes_max)
        if self._inflate.unused_data:
            raise NotDecompressed("end")
        self._kept += inflated

    def whole(self) -> bytes:
        """Return all of it. Raises `UnusableBody` where the compressed data ends too early."""
        if self._inflate is not None and self._arrived and not self._inflate.eof:
            raise NotDecompressed("end")
        return bytes(self._kept)


def _coding(response: httpx2.Response) -> str | None:
    """How the body is compressed, though it was not asked to be. Raises `UnusableBody` for the unusual."""
    named = [
        coding.strip().lower() for coding in response.headers.get_list("content-encoding", split_commas=True)
    ]
    codings = [coding for coding in named if coding not in {"identity", ""}]
    if not codings:
        return None
    if len(codings) > 1 or codings[0] not in _INFLATED:
        raise NotDecompressed("coding")
    return codings[0]


def _headers(headers: httpx2.Headers) -> JsonObject:
    """The headers by their names in lower case; the values of one that came several times are joined."""
    found: JsonObject = dict(headers.items())
    if _LISTED in headers:
        found[_LISTED] = list[JsonValue](headers.get_list(_LISTED))
    return found


def _content(answer: Answer) -> JsonObject:
    """The body as `json` where it says that it is some, and is; else as `text`."""
    kind = str(answer.headers.get("content-type", "")).partition(";")[0].strip().lower()
    if kind.endswith(("/json", "+json")):
        try:
            return {"json": _json(answer.body)}
        except NotStrictJson:
            pass
    try:
        return {"text": answer.body.decode()}
    except UnicodeDecodeError:
        return {"text": answer.body.decode(errors="replace"), "invalid_utf8": True}


def _json(body: bytes) -> JsonValue:
    """Raises `NotStrictJson` for what the journal could not hold as JSON."""
    found = loads(b'{"json":' + body.removeprefix(b"\xef\xbb\xbf") + b"}")
    if len(found) != 1 or deeper_than(found, ANSWER_DEPTH_MAX):
        raise NotStrictJson("invalid_json", "not one JSON value, or one that is nested too deeply")
    return found["json"]
