"""uvicorn within the daemon: what its connections are like."""

import socket
from collections.abc import Generator

import anyio
import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from uvicorn import Config, Server

from driver.embedded import EmbeddedServer

pytestmark = pytest.mark.anyio


@pytest.fixture
def listener() -> Generator[socket.socket]:
    """A listening socket of no protocol by number, as most are made."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as made:
        made.bind(("127.0.0.1", 0))
        made.listen()
        yield made


async def delays(server: EmbeddedServer, listener: socket.socket) -> bool:
    """Whether a connection of the server holds back a second piece until the first one is acknowledged."""
    host, port = listener.getsockname()
    found = 0
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.serve_on, listener)
        async with httpx2.AsyncClient(trust_env=False) as client:
            assert (await client.get(f"http://{host}:{port}/")).text == "/"
            (connection,) = server.server_state.connections
            accepted = connection.transport.get_extra_info("socket")  # pyright: ignore[reportOptionalMemberAccess] - it is connected
            found = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        tasks.cancel_scope.cancel()
    return found == 0


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that answers with the path."""
    await PlainTextResponse(Request(scope).url.path)(scope, receive, send)


def config() -> Config:
    """A server of that."""
    return Config(answer, lifespan="off", log_config=None, access_log=False)


async def test_an_answer_does_not_wait_for_an_acknowledgement(listener: socket.socket) -> None:
    """Its head and its body are two writes: 40 ms lie between them otherwise."""
    assert not await delays(EmbeddedServer(config()), listener)


async def test_without_the_option_it_would(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: asyncio does not see to it where the socket does not say that it is TCP."""
    monkeypatch.setattr(EmbeddedServer, "startup", Server.startup)
    assert await delays(EmbeddedServer(config()), listener)
