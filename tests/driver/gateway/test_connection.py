"""The socket between a relay and the daemon."""

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
import pytest
from anyio.abc import UNIXSocketStream

from driver.gateway.connection import Connection

pytestmark = pytest.mark.anyio

MUCH = b"x" * 8_000_000
"""More than a socket takes at once."""


@asynccontextmanager
async def pair() -> AsyncGenerator[tuple[Connection, UNIXSocketStream]]:
    """Return both ends."""
    ours, theirs = socket.socketpair()
    async with (
        Connection(await UNIXSocketStream.from_socket(ours)) as connection,
        await UNIXSocketStream.from_socket(theirs) as far,
    ):
        yield connection, far


async def test_messages_are_whole_however_many_are_sent_at_once() -> None:
    """One is written to its end before another begins."""
    async with pair() as (connection, far), anyio.create_task_group() as tasks:
        for letter in (b"a", b"b", b"c"):
            tasks.start_soon(connection.send, letter * 1_000_000)
        heard = await much(far, 3_000_000)
        assert heard == b"a" * 1_000_000 + b"b" * 1_000_000 + b"c" * 1_000_000


async def test_a_message_that_is_cancelled_half_way_ends_the_connection() -> None:
    """The other end could not tell where the next one begins."""
    async with pair() as (connection, far):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.send, MUCH)
            await much(far, 1)
            tasks.cancel_scope.cancel()
        heard = await rest(far)
        assert 0 < len(heard) < len(MUCH)
        with pytest.raises(OSError, match="Broken pipe"):
            await connection.send(b"next")


async def much(far: UNIXSocketStream, least: int) -> bytes:
    """Return so many bytes at least."""
    heard = b""
    while len(heard) < least:
        heard += await far.receive()
    return heard


async def rest(far: UNIXSocketStream) -> bytes:
    """Return what comes until the end."""
    heard = b""
    with suppress(anyio.EndOfStream):
        while True:
            heard += await far.receive()
    return heard


async def test_one_that_is_cancelled_before_its_first_byte_leaves_the_connection_alone() -> None:
    """Nothing of it was written, and what follows is read as ever."""
    async with pair() as (connection, far), anyio.create_task_group() as tasks:
        tasks.start_soon(connection.send, MUCH)
        heard = await much(far, 1)
        with anyio.CancelScope(deadline=anyio.current_time()):
            await connection.send(b"never")
        tasks.start_soon(connection.send, b"next")
        heard += await much(far, len(MUCH) + len(b"next") - len(heard))
        assert heard == MUCH + b"next"


async def test_the_end_of_the_other_side_is_the_end() -> None:
    """And no error."""
    async with pair() as (connection, far):
        await far.aclose()
        with pytest.raises(anyio.EndOfStream):
            await connection.receive()
