"""The relay that breaks connections: exactly where it was told, and by what it was told."""

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from tests.faults.network.cutter import KINDS, Cut, Cutter, Kind, cutter

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def echoing() -> AsyncGenerator[Cutter]:
    """A relay to somebody who sends back what comes."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", family=socket.AF_INET)

    async def echo(stream: SocketStream) -> None:
        async with stream:
            try:
                async for data in stream:
                    await stream.send(data)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, echo)
        with cutter(Cutter(("127.0.0.1", listener.extra(SocketAttribute.local_port)))) as made:
            yield made
        tasks.cancel_scope.cancel()


async def heard(stream: SocketStream) -> tuple[bytes, str]:
    """What comes until the end, and which end it was."""
    found = b""
    with anyio.fail_after(30):
        while True:
            try:
                found += await stream.receive()
            except anyio.EndOfStream:
                return found, "fin"
            except anyio.BrokenResourceError:
                return found, "rst"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("after", [0, 1, 5])
async def test_so_many_bytes_come_through_and_no_more(kind: Kind, after: int) -> None:
    """The end of the stream, or a reset, stands in the place of the byte behind them."""
    async with echoing() as made:
        made.plan(cut := Cut(after=after, towards="daemon", kind=kind))
        async with await anyio.connect_tcp("127.0.0.1", made.port) as stream:
            await stream.send(b"hello, you")
            found, end = await heard(stream)
        assert made.fired == [cut]
        assert (b"hello, you"[:after].startswith(found), end) == (True, kind)
        if kind == "fin":
            assert found == b"hello, you"[:after]


async def test_bytes_are_counted_from_the_plan_on() -> None:
    """A cut of the present connection knows nothing of what it has carried before."""
    async with echoing() as made, await anyio.connect_tcp("127.0.0.1", made.port) as stream:
        await stream.send(b"first")
        assert await stream.receive() == b"first"
        made.plan(now=Cut(after=3, towards="daemon", kind="fin"))
        await stream.send(b"second")
        assert await heard(stream) == (b"sec", "fin")
        assert made.heard == len(b"second")


async def test_a_cut_behind_the_last_byte_does_not_happen() -> None:
    """Whoever asks for it is not told that it has."""
    async with echoing() as made:
        made.plan(Cut(after=5, towards="peer", kind="rst"))
        async with await anyio.connect_tcp("127.0.0.1", made.port) as stream:
            await stream.send(b"hello")
            assert await stream.receive() == b"hello"
        assert made.fired == []
        assert made.carried == {"daemon": 5, "peer": 5}
