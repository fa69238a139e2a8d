"""A connection over HTTP: what is known of who is at its other end."""

import socket
from collections.abc import Awaitable, Callable, Generator
from contextlib import AsyncExitStack, contextmanager
from typing import Final

import anyio
import pytest
from starlette.types import Message, Receive, Scope, Send
from uvicorn import Config

from driver.embedded import EmbeddedServer
from driver.gateway.patience import CONNECTION, SPARE, Patience

pytestmark = pytest.mark.anyio

LARGE: Final = 32_000_000
"""Bytes that no socket has room for."""
START: Final[Message] = {"type": "http.response.start", "status": 200, "headers": []}

Application = Callable[[Patience, Send], Awaitable[None]]


@contextmanager
def sockets() -> Generator[tuple[socket.socket, socket.socket]]:
    """A listener, and a client that has asked for something."""
    with socket.socket() as listener, socket.socket() as client:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        client.connect(listener.getsockname())
        client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        yield listener, client


async def serve(listener: socket.socket, application: Application) -> None:
    """Answer one request with an application."""
    answered = anyio.Event()

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        await application(scope[CONNECTION], send)
        answered.set()

    config = Config(app, http=Patience, lifespan="off", log_config=None, access_log=False)
    async with anyio.create_task_group() as tasks:
        await tasks.start(EmbeddedServer(config).serve_on, listener)
        with anyio.fail_after(60):
            await answered.wait()
        tasks.cancel_scope.cancel()


async def test_an_answer_that_the_kernel_took_whole_is_drained_at_once() -> None:
    """Nobody waits for a client that has all its bytes, read or not."""
    found: list[bool] = []

    async def application(connection: Patience, send: Send) -> None:
        found.append(connection.is_there())
        await send(START)
        await send({"type": "http.response.body", "body": b"x"})
        found.append(await connection.drained())

    with sockets() as (listener, client):
        await serve(listener, application)
        assert client.recv(1) == b"H"
    assert found == [True, True]


async def test_who_hung_up_is_not_there_before_the_event_loop_has_heard_of_it() -> None:
    """The kernel is asked: what the loop knows is older."""
    found: list[bool] = []

    with sockets() as (listener, client):

        async def application(connection: Patience, send: Send) -> None:
            client.close()
            found.extend((connection.lost, connection.is_there()))
            await send(START)
            await send({"type": "http.response.body", "body": b""})

        await serve(listener, application)
    assert found == [False, False]


async def test_who_hangs_up_in_the_middle_has_not_got_it() -> None:
    """What still lies here is lost, whatever uvicorn's `send` has returned before."""
    found: list[bool] = []
    sent = anyio.Event()

    async def application(connection: Patience, send: Send) -> None:
        await send(START)
        await send({"type": "http.response.body", "body": b"x" * LARGE})
        sent.set()
        found.append(await connection.drained())

    with sockets() as (listener, client):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve, listener, application)
            await sent.wait()
            assert found == []
            client.close()
    assert found == [False]


async def test_who_reads_nothing_is_cut_off() -> None:
    """Whoever waits for it goes on, and knows that it has not got it."""
    found: list[bool] = []

    async def application(connection: Patience, send: Send) -> None:
        await send(START)
        await send({"type": "http.response.body", "body": b"x" * LARGE})
        connection.cut()
        found.append(await connection.drained())

    with sockets() as (listener, _client):
        await serve(listener, application)
    assert found == [False]


async def test_connections_beyond_all_that_may_be_answered_are_cut_off_at_once() -> None:
    """I11: no token is needed to connect, and a process has so many descriptors; who came before stays."""
    most = 2

    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        pass

    config = Config(
        app, http=Patience, lifespan="off", log_config=None, access_log=False, limit_concurrency=most
    )
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        async with anyio.create_task_group() as tasks, AsyncExitStack() as stack:
            await tasks.start(EmbeddedServer(config).serve_on, listener)
            came = [
                await stack.enter_async_context(await anyio.connect_tcp(*listener.getsockname()))
                for _ in range(SPARE * most + 1)
            ]
            with anyio.fail_after(60), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await came[-1].receive()
            with anyio.fail_after(60):
                await came[0].send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
                assert (await came[0].receive()).startswith(b"HTTP/1.1 503")
            tasks.cancel_scope.cancel()
