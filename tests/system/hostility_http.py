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
from tests.system.hostility import FAILED, GARBLED, HURRIED_S, LATE, LOST, SUCCEEDED, Case

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

        async def answer(server: Web, stream: SocketStream, request: Request) -> None:
            params: Json = json.loads(json.dumps(request.body["params"]))
            line = {"key": params["_meta"][KEY_NAME], "mode": params["arguments"]["mode"], "pid": os.getpid()}
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


HTTP_CASES: Final = (
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
)
