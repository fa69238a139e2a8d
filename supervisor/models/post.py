"""One POST of JSON to a model's API, bounded in time and size, with a key that nobody else sees.

Part of `supervisor.models`; imports `supervisor.models.model` and the HTTP library.

The key is read from its file at every use, so that a rotated one is picked up, and stands in a header and
nowhere else. Redirects are not followed, for they would carry it to somebody else; proxies and credentials
of the environment are not used. What a peer says in an error is not repeated: it may quote what was sent.
"""

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, cast

import anyio
import httpx2

from store.records import JsonObject
from supervisor.models.model import ANSWER_BYTES_MAX, ModelFailed

KEY_BYTES_MAX: Final = 16_384
RETRY_AFTER_S_MAX: Final = 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a model is asked, and how long it may take. `key_file` is None where none is needed."""

    url: str
    model_name: str
    key_file: Path | None = field(repr=False)
    timeout_s: float


async def read_key(endpoint: Endpoint) -> str | None:
    """Return the key, without the whitespace around it; None where there is none. Raises `ModelFailed`.

    Cancelled, it leaves the reading thread to itself: a file on a dead network mount may never answer.
    """
    if endpoint.key_file is None:
        return None
    try:
        content = await anyio.to_thread.run_sync(_read, endpoint.key_file, abandon_on_cancel=True)
    except OSError as error:
        raise ModelFailed(
            endpoint.model_name, f"has a key file that cannot be read ({error.strerror})"
        ) from None
    text = content.decode("ascii", errors="replace").strip()
    if not text or len(content) > KEY_BYTES_MAX or not all("!" <= char <= "~" for char in text):
        raise ModelFailed(endpoint.model_name, "has a key file that does not hold one word of visible ASCII")
    return text


def _read(path: Path) -> bytes:
    # not blocking, for opening a FIFO without a writer would wait for ever
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        return os.read(descriptor, KEY_BYTES_MAX + 1)
    finally:
        os.close(descriptor)


async def post(endpoint: Endpoint, headers: Mapping[str, str], body: JsonObject) -> JsonObject:
    """Return the JSON object that the API answers, within `timeout_s`. Raises `ModelFailed`."""
    name = endpoint.model_name
    try:
        with anyio.fail_after(endpoint.timeout_s):
            return await _exchange(endpoint, headers, body)
    except TimeoutError:
        raise ModelFailed(name, f"did not answer within {endpoint.timeout_s:g} s") from None
    except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, OSError) as error:
        # the library's words may quote a header
        raise ModelFailed(name, f"cannot be reached ({type(error).__name__})") from None


async def _exchange(endpoint: Endpoint, headers: Mapping[str, str], body: JsonObject) -> JsonObject:
    name = endpoint.model_name
    content = json.dumps(body, separators=(",", ":")).encode("ascii")
    sent = {
        "content-type": "application/json",
        "accept": "application/json",
        "accept-encoding": "identity",
        **headers,
    }
    # the library reads certificates from the disk
    made = await anyio.to_thread.run_sync(_client)
    async with (
        made as client,
        client.stream("POST", endpoint.url, content=content, headers=sent) as response,
    ):
        if response.status_code != HTTPStatus.OK:
            raise ModelFailed(
                name, f"answered HTTP {response.status_code}", retry_after_s=_retry_after(response.headers)
            )
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "text/event-stream":
            raise ModelFailed(name, "answered with a stream, although it was asked for one answer")
        return _object(name, await _body(name, response))


def _client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(timeout=None, follow_redirects=False, trust_env=False)


async def _body(name: str, response: httpx2.Response) -> bytes:
    found = bytearray()
    async for chunk in response.aiter_bytes():
        found += chunk
        if len(found) > ANSWER_BYTES_MAX:
            raise ModelFailed(name, f"answered more than {ANSWER_BYTES_MAX:,} bytes")
    return bytes(found)


def _object(name: str, content: bytes) -> JsonObject:
    try:
        value: Any = json.loads(content)
    except (ValueError, RecursionError):
        raise ModelFailed(name, "answered what is no JSON") from None
    if not isinstance(value, dict):
        raise ModelFailed(name, "answered what is no JSON object")
    return cast("JsonObject", value)


def _retry_after(headers: httpx2.Headers) -> float | None:
    """Only the form in seconds: a date would trust the peer's clock."""
    text = headers.get("retry-after", "").strip()
    return min(float(text), RETRY_AFTER_S_MAX) if text.isascii() and text.isdecimal() else None
