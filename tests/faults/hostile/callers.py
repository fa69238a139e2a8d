"""Lines on the local sockets of a daemon that are no requests, or not good ones. Part of `hostile`.

Whoever sends them hears one HTTP answer after the other, each with a status and a code that docs/local-api.md
names, or the end of the connection; within `HANG_S`, for they end their side when they have said all.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import monotonic
from typing import Final

import anyio

from tests.faults.balance import HANG_S, Balance
from tests.faults.hostile.gullible import documented
from tests.faults.hostile.words import word

PATHS: Final = (
    "/v1/status", "/v1/operations", "/v1/operations?limit=1", "/v1/operations?limit=x",
    "/v1/operations?limit=501",
    "/v1/operations/op_" + "0" * 32, "/v1/operations/%00", "/v1/operations/..%2f..%2fetc", "/v1/runs/run-1",
    "/v1/commands/x", "/v1/events?after=0", "/v1/events?after=-1", "/v1/events?after=9" + "9" * 30,
    "/metrics",
    "/healthz", "/readyz", "/v1/supervisor/walls/run-1", "/v1/dead-letters", "/openapi.json", "/", "", "*",
    "//", "?",
    "http://effectd/v1/status", "/v1/../v1/status", "/v1/status#x", "/v1/status\x00", "/\u017e",
    "/" + "a" * 9_000,
    "/" + "a" * 70_000,
)  # fmt: skip
WRITES: Final = (
    "/v1/operations/op_" + "0" * 32 + "/reconcile", "/v1/operations/op_" + "0" * 32 + "/annotate",
    "/v1/operations/op_" + "0" * 32 + "/approve", "/v1/operations/op_" + "0" * 32 + "/retry",
    "/v1/runs/no-such-run/triage", "/v1/dead-letters/1/requeue", "/v1/dead-letters/x/requeue", "/v1/verify",
    "/v1/unfence",
)  # fmt: skip
METHODS: Final = ("GET", "GET", "GET", "POST", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE", "CONNECT",
                  "PATCH", "get", "G\x00T", "PRI", "\u017e", "A" * 5_000)  # fmt: skip
HEADERS: Final = (
    "Host: effectd", "Host: a\r\nHost: b", "Content-Length: 5", "Content-Length: -1", "Content-Length: 1e3",
    "Content-Length: 99999999999999999999", "Content-Length: 3, 3", "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: identity", "Expect: 100-continue",
    "Upgrade: websocket",
    "Connection: Upgrade", "Connection: close", "Origin: http://evil.example", "Referer: http://evil.example",
    "X: " + "y" * 20_000, "X: \x00", "no colon", ": no name", " folded", "X : y", "Content-Type: text/plain",
    "Authorization: Bearer x", "Accept: application/problem+json", "Range: bytes=0-1", "Sec-WebSocket-Key: x",
)  # fmt: skip
BODIES: Final = (
    b"",
    b"{}",
    b"[]",
    b"null",
    b"{",
    b"\xff",
    b'{"deep":1}',
    b'{"deep":true,"deep":false}',
    b"5\r\nhello",
)
STATUS: Final = re.compile(rb"HTTP/1\.1 ([0-9]{3})[^\r\n]*\r\n")


def lines(seed: int, number: int) -> bytes:
    """Return what one caller sends."""
    chance = Random(seed * 1_000_000_033 + number)
    if chance.random() < 0.05:
        return chance.randbytes(chance.choice((1, 10, 1_000, 20_000)))
    data = b"".join(_request(chance, seed, number) for _ in range(chance.choice((1, 1, 1, 2, 5))))
    match chance.randrange(8):
        case 0:
            return data[: chance.randint(0, len(data))]
        case 1:
            at = chance.randrange(len(data))
            return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        case 2:
            return data.replace(b"\r\n", chance.choice((b"\n", b"\r", b"\r\n\r\n", b"\x00\r\n")))
        case _:
            return data


def _request(chance: Random, seed: int, number: int) -> bytes:
    method = chance.choice(METHODS)
    path = chance.choice(WRITES if method == "POST" else PATHS)
    version = (
        "HTTP/1.1" if chance.random() < 0.9 else chance.choice(("HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "", "X"))
    )
    headers = ["Host: effectd", *chance.choices(HEADERS, k=chance.choice((0, 0, 1, 3)))]
    if chance.random() < 0.01:
        headers += [f"X-{n}: y" for n in range(2_000)]
    text = word(seed, number) if chance.random() < 0.3 else chance.choice(BODIES)
    body = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if method == "POST" and chance.random() < 0.8:
        headers.append(f"Content-Length: {len(body)}")
    head = "\r\n".join([f"{method} {path} {version}", *headers, "", ""])
    return head.encode("utf-8", "surrogatepass") + (body if method == "POST" else b"")


async def call_in(balance: Balance, sockets: Sequence[Path], seed: int, numbers: range) -> None:
    """Send each of these lines over a connection of its own. What is wrong is noted in `broken`."""
    for number in numbers:
        place = sockets[number % len(sockets)]
        began = monotonic()
        answer = await _answer(place, lines(seed, number))
        balance.took(began)
        balance.tried += 1
        balance.fired["lines on a local socket"] += 1
        wrong = "no end" if answer is None else _wrong(balance, answer)
        if wrong is not None:
            balance.broken.append(
                f"{place.name}, seed {seed}, lines {number}: {wrong}: {lines(seed, number)[:300]!r}"
            )


async def _answer(place: Path, data: bytes) -> bytes | None:
    """Return all that comes; None where there is no end of it in time."""
    found = bytearray()
    with anyio.move_on_after(2 * HANG_S) as scope:
        async with await anyio.connect_unix(place) as stream:
            try:
                await stream.send(data)
                await stream.send_eof()
                while True:
                    found += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass
            except OSError:
                pass
    return None if scope.cancelled_caught else bytes(found)


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    head: bytes
    body: bytes


def _wrong(balance: Balance, data: bytes) -> str | None:
    """Return what is wrong with what was answered, up to the last whole answer."""
    balance.reached["a caller that was hung up on"] += not data
    while data:
        found = STATUS.match(data)
        head, end, rest = data.partition(b"\r\n\r\n")
        if found is None or not end:
            return f"no HTTP: {data[:200]!r}"
        size = re.search(rb"(?i)content-length: ([0-9]+)", head)
        # whoever asks with HEAD gets a length, and no body
        length = (
            0 if rest.startswith(b"HTTP/1.1 ") or not rest else len(rest) if size is None else int(size[1])
        )
        body = rest[:length]
        balance.reached[f"HTTP {int(found[1])}"] += 1
        if (wrong := _undocumented(_Answer(int(found[1]), head, body))) is not None:
            return wrong
        data = rest[length:]
    return None


def _undocumented(answer: _Answer) -> str | None:
    if answer.status < 400 or not answer.body:
        return None if answer.status < 500 else f"status {answer.status}"
    if b"application/problem+json" not in answer.head.lower():
        return f"status {answer.status} with something else than a problem: {answer.body[:200]!r}"
    try:
        problem = json.loads(answer.body)
    except ValueError:
        return f"status {answer.status} with a cut problem: {answer.body[:200]!r}"
    if problem["code"] == "internal" or problem["code"] not in documented("local-api.md"):
        return f"a problem that is none: {problem}"
    return None if problem["status"] == answer.status else f"two statuses: {answer.status}, {problem}"
