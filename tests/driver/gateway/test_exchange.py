"""What counts as heard of an answer over HTTP: the result that was asked for, and nothing beside it."""

import json
from collections.abc import Callable, Sequence
from typing import Final

import pytest
from mcp_types import JSONRPCResponse
from starlette.requests import Request
from starlette.types import Message, Send

from driver.gateway.exchange import Exchange
from driver.gateway.outcomes import Delivered
from driver.gateway.patience import CONNECTION, Patience
from driver.gateway.sessions import Sessions
from store.records import CommandId, Digest, RunId
from tests.driver.gateway.test_patience import START, serve, sockets

pytestmark = pytest.mark.anyio

ABOUT: Final = Delivered(command_id=CommandId("c"), run_id=RunId("r"), digest=Digest("0" * 64))
PROGRESS: Final = '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}'
END: Final[Message] = {"type": "http.response.body", "body": b""}
IDS: Final = (7, -1, 2**63 - 1, 10**40, "7", 'a"\\\n', "é", "\u2028\U0001f600", "x" * 600)


def event(text: str) -> Message:
    """Return a part of a stream."""
    body = f"event: message\r\ndata: {text}\r\n\r\n".encode()
    return {"type": "http.response.body", "body": body, "more_body": True}


async def none_left(prefix: str, taken: Callable[[RunId], bool]) -> tuple[RunId, ...]:
    """Find no run that was left open."""
    del prefix, taken
    return ()


async def heard_after(request_id: str | int, parts: Sequence[Message]) -> list[bool]:
    """Return after which part of the answer it counts as heard."""
    found: list[bool] = []
    told: list[Delivered] = []
    gone: list[CommandId] = []

    async def application(connection: Patience, send: Send) -> None:
        request = Request({"type": "http", "headers": [], CONNECTION: connection})
        exchange = Exchange(
            request,
            uid=0,
            sessions=Sessions(none_left),
            delivered=told.append,
            let_go=gone.append,
            stall_s=60.0,
            send=send,
        )
        exchange.asks(request_id)
        exchange.answers(ABOUT.command_id, ABOUT)
        for part in (START, *parts):
            await exchange.send(part)
            found.append(exchange.heard is not None)
        exchange.end()

    with sockets() as (listener, _client):
        await serve(listener, application)
    assert told == [ABOUT] * found[-1]
    assert gone == [ABOUT.command_id] * (not found[-1]), "a stop waits for it no longer"
    return found


@pytest.mark.parametrize("request_id", IDS)
async def test_the_result_counts_whatever_its_id_is(request_id: str | int) -> None:
    """As either transport of the SDK writes it, and before the stream around it has ended."""
    made = JSONRPCResponse(jsonrpc="2.0", id=request_id, result={})
    escaped = json.dumps({"jsonrpc": "2.0", "id": request_id, "result": {}}, separators=(",", ":"))
    for text in (made.model_dump_json(by_alias=True, exclude_unset=True), escaped):
        found = await heard_after(request_id, (event(PROGRESS), event(text), END))
        assert found == [False, False, True, True]


@pytest.mark.parametrize(
    "text",
    [
        PROGRESS,
        '{"jsonrpc":"2.0","id":7,"error":{"code":-32800,"message":"Request cancelled"}}',
        '{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}',
        '{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"Session terminated"}}',
    ],
)
async def test_a_stream_that_ends_without_its_result_was_not_heard(text: str) -> None:
    """A session that is ended, or a daemon that stops, ends streams too: the call guards."""
    assert not any(await heard_after(7, (event(text), END)))
