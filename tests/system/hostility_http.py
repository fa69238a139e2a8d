"""What a server behind a URL can do wrong, as cases beside those of `tests.system.hostility`.

Each case is a server of its own that answers byte by byte on a real socket: `tests.driver.providers.mcp.web`.
Each call has one effect, a line in the ledger, before it is answered.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.abc import SocketStream

from store.records import JsonObject
from tests.driver.providers.mcp.web import (
    LEGACY,
    MODERN,
    STREAM,
    Answer,
    Request,
    Web,
    done,
    event,
    http,
    message,
    rpc,
)
from tests.servers.hostile_mcp import KEY_NAME
from tests.system.history import Json
from tests.system.hostility import FAILED, GARBLED, HURRIED_S, LATE, LOST, PENDING, SUCCEEDED, Case, again

GATEWAY: Final = "operation.unknown/gateway_error"
REDIRECTED: Final = "operation.unknown/redirected"
UNREACHED: Final = "operation.not_executed/connect_failed"
HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCase(Case):
    """One way to be hostile over HTTP."""

    answer: Answer
    era: str = LEGACY

    def provider(self, place: str) -> Mapping[str, object]:
        """See `Case.provider`; `place` is a URL."""
        return {"kind": "mcp", "url": place}

    @property
    def killed(self) -> frozenset[str]:
        """See `Case.killed`. Nobody starts such a server again."""
        return frozenset({LOST, UNREACHED})

    @property
    def outlives(self) -> bool:
        """See `Case.outlives`."""
        return False

    def counting(self, ledger: str) -> Answer:
        """Return its answer, with the effect before it."""
        known: set[str] = set()

        async def answer(server: Web, stream: SocketStream, request: Request) -> None:
            params: Json = json.loads(json.dumps(request.body["params"]))
            key = params["_meta"][KEY_NAME]
            if self.tried_again and key in known:
                await _done(server, stream, request)
                return
            known.add(key)
            line = {"key": key, "mode": params["arguments"]["mode"], "pid": os.getpid()}
            async with await anyio.open_file(ledger, "a") as lines:
                await lines.write(json.dumps(line) + "\n")
            honest = params["arguments"]["mode"] == "honest"
            await (_done if honest else self.answer)(server, stream, request)

        return answer


async def _done(_server: Web, stream: SocketStream, request: Request) -> None:
    await stream.send(rpc(request, done()))


async def _hangs(_server: Web, _stream: SocketStream, _request: Request) -> None:
    await anyio.sleep_forever()


async def _late(_server: Web, stream: SocketStream, request: Request) -> None:
    await anyio.sleep(3)
    await stream.send(rpc(request, done()))


async def _endless(_server: Web, stream: SocketStream, _request: Request) -> None:
    await stream.send(STREAM + b"data: ")
    while True:
        await stream.send(b"x" * 65_536)


async def _asks(_server: Web, stream: SocketStream, request: Request) -> None:
    asked = (
        b'{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}'
    )
    await stream.send(STREAM + event(asked) + event(message(request, done())))
    await stream.aclose()


async def _twice(_server: Web, stream: SocketStream, request: Request) -> None:
    error: JsonObject = {"error": {"code": -32603, "message": "not done"}}
    await stream.send(STREAM + event(message(request, done())) + event(message(request, error)))
    await stream.aclose()


async def _wrong_id(_server: Web, stream: SocketStream, request: Request) -> None:
    other = Request(request.method, request.headers, {**request.body, "id": 999_999})
    await stream.send(rpc(other, done()))


async def _no_id(_server: Web, stream: SocketStream, _request: Request) -> None:
    await stream.send(http(200, json.dumps({"jsonrpc": "2.0", "id": None, **done()}).encode()))


async def _error(_server: Web, stream: SocketStream, request: Request) -> None:
    error: JsonObject = {"error": {"code": -32001, "message": "its own words"}}
    await stream.send(http(500, message(request, error)))


async def _redirects(server: Web, stream: SocketStream, _request: Request) -> None:
    where = {"location": f"http://127.0.0.1:{server.port}/elsewhere"}
    await stream.send(http(307, b"", headers=where))


async def _text_id(_server: Web, stream: SocketStream, request: Request) -> None:
    other = Request(request.method, request.headers, {**request.body, "id": str(request.body["id"])})
    await stream.send(rpc(other, done()))


async def _big(_server: Web, stream: SocketStream, _request: Request) -> None:
    """64 MB in one answer."""
    await stream.send(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 64000000\r\n\r\n"
    )
    for _ in range(1_000):
        await stream.send(b"x" * 64_000)


def _streams(*events: bytes) -> Answer:
    """Send these events for ever."""

    async def answer(_server: Web, stream: SocketStream, _request: Request) -> None:
        await stream.send(STREAM)
        while True:
            await stream.send(b"".join(event(data) for data in events) * 1_000)

    return answer


def _results(result: JsonObject) -> Answer:
    """Answer with this result."""

    async def answer(_server: Web, stream: SocketStream, request: Request) -> None:
        await stream.send(rpc(request, {"result": result}))

    return answer


def _says(line: str) -> Answer:
    """Answer with this text, `ID` replaced."""

    async def answer(_server: Web, stream: SocketStream, request: Request) -> None:
        await stream.send(http(200, line.replace("ID", str(request.body["id"])).encode("latin-1")))

    return answer


def _sends(data: bytes) -> Answer:
    """Send these bytes, and hang up."""

    async def answer(_server: Web, stream: SocketStream, _request: Request) -> None:
        if data:
            await stream.send(data)
        await stream.aclose()

    return answer


def _status(status: int) -> Answer:
    return _sends(http(status, b"?", kind="text/plain"))


def _case(name: str, ends: str, answer: Answer, era: str = LEGACY, execution_s: float = 20.0) -> HttpCase:
    late = name == "http-late"
    return HttpCase(name=name, ends=ends, answer=answer, era=era, execution_s=execution_s, answers_late=late)


CHATTER: Final = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}'
TO_NOBODY: Final = b'{"jsonrpc":"2.0","id":"nobody","result":{"content":[]}}'
PING: Final = b'{"jsonrpc":"2.0","id":"p","method":"ping"}'

HTTP_CASES: Final[tuple[HttpCase, ...]] = (
    _case("http-honest", SUCCEEDED, _done, MODERN),
    _case("http-hangs", LATE, _hangs, MODERN, HURRIED_S),
    _case("http-late", LATE, _late, execution_s=HURRIED_S),
    _case("http-hangs-up", LOST, _sends(b""), MODERN),
    _case("http-cuts-its-body", LOST, _sends(HEAD + b'{"jsonrpc":')),
    _case("http-cuts-its-stream", LOST, _sends(STREAM + b"data: {"), MODERN),
    _case("http-garbage", GARBLED, _sends(b"220 mail.example ESMTP\r\n\r\n")),
    _case("http-no-json", GARBLED, _sends(http(200, b"<html>")), MODERN),
    _case("http-endless", GARBLED, _endless),
    _case("http-wrong-id", GARBLED, _wrong_id, MODERN),
    _case("http-no-id", GARBLED, _no_id),
    _case("http-twice", SUCCEEDED, _twice, MODERN),
    _case("http-asks", SUCCEEDED, _asks),
    _case("http-error", FAILED, _error, MODERN),
    _case("http-404", FAILED, _status(404)),
    _case("http-429", FAILED, _status(429), MODERN),
    _case("http-502", GATEWAY, _status(502)),
    _case("http-503", FAILED, _status(503), MODERN),
    _case("http-redirects", REDIRECTED, _redirects),
    # what servers over stdio do, too
    _case("http-big", GARBLED, _big, MODERN),
    _case(
        "http-bomb",
        GARBLED,
        _says('{"jsonrpc":"2.0","id":ID,"result":{"content":[' + "[]," * 300_000 + "[]]}}"),
    ),
    _case(
        "http-deep",
        GARBLED,
        _says('{"jsonrpc":"2.0","id":ID,"result":' + "[" * 200 + "]" * 200 + "}"),
        MODERN,
    ),
    _case("http-bottomless", GARBLED, _says("[" * 100_000)),
    _case("http-chatters", LATE, _streams(CHATTER), MODERN, HURRIED_S),
    _case("http-answers-nobody", LATE, _streams(TO_NOBODY), execution_s=HURRIED_S),
    _case("http-asks-forever", GARBLED, _streams(PING)),
    _case("http-not-a-number", GARBLED, _says('{"jsonrpc":"2.0","id":ID,"result":{"x":NaN}}'), MODERN),
    _case("http-no-code", GARBLED, _says('{"jsonrpc":"2.0","id":ID,"error":{"message":"no code"}}')),
    _case("http-text-id", SUCCEEDED, _text_id, MODERN),
    _case(
        "http-invalid-utf8", SUCCEEDED, _says('{"jsonrpc":"2.0","id":ID,"result":{"content":["caf\xe9"]}}')
    ),
    _case(
        "http-lone-surrogate", SUCCEEDED, _says(r'{"jsonrpc":"2.0","id":ID,"result":{"content":["\ud83d"]}}')
    ),
    _case("http-is-error", FAILED, _results({"content": [], "isError": True}), MODERN),
    _case(
        "http-wants-input", FAILED, _results({"resultType": "input_required", "requestState": "s"}), MODERN
    ),
    _case("http-task", PENDING, _results({"task": {"taskId": "t-1", "status": "working"}})),
)

_LOST_FOR_A_WHILE: Final = (
    *(
        "http-hangs",
        "http-late",
        "http-hangs-up",
        "http-cuts-its-body",
        "http-cuts-its-stream",
        "http-garbage",
    ),
    *("http-no-json", "http-endless", "http-wrong-id", "http-429", "http-502", "http-503", "http-task"),
)
RETRIED_HTTP_CASES: Final = tuple(
    again(case, SUCCEEDED) for case in HTTP_CASES if case.name in _LOST_FOR_A_WHILE
)
"""Cases of servers that know the keys they have seen, and tell of what has happened."""
