"""A gate holds back what a network would drop, and lets it pass in its order."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from tests.faults.network.gate import HERE, Gate

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def joined(gate: Gate) -> AsyncGenerator[tuple[SocketStream, SocketStream]]:
    """Yield both ends of a connection through the gate: the daemon's, and the plane's."""
    sending, receiving = anyio.create_memory_object_stream[SocketStream](1)

    async def serve(stream: SocketStream) -> None:
        await sending.send(stream)
        await anyio.sleep_forever()

    async with (
        await anyio.create_tcp_listener(local_host=HERE) as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, serve)
        async with gate.way(int(listener.extra(SocketAttribute.local_port))) as port:
            async with await anyio.connect_tcp(HERE, port) as near, await receiving.receive() as far:
                yield near, far
            sending.close()
            receiving.close()
        tasks.cancel_scope.cancel()


async def test_what_is_dropped_one_way_passes_the_other_and_comes_when_all_is_well() -> None:
    """A black hole towards the plane lets the plane's words through, and loses nothing for good."""
    gate = Gate(number=1)
    async with joined(gate) as (near, far):
        gate.drop("OUTPUT")
        await near.send(b"up")
        await near.send_eof()
        await far.send(b"down")
        assert await near.receive() == b"down"
        with anyio.fail_after(20):
            while not gate.dropped():  # noqa: ASYNC110 - a gate tells nobody
                await anyio.sleep(0.01)
        gate.heal()
        assert await far.receive() == b"up"
        with pytest.raises(anyio.EndOfStream):
            await far.receive()


async def test_nobody_is_connected_through_a_black_hole() -> None:
    """A connection that was begun meanwhile reaches the plane when all is well."""
    gate = Gate(number=1)
    gate.drop("INPUT", "OUTPUT")
    async with anyio.create_task_group() as tasks:

        async def heal() -> None:
            with anyio.fail_after(20):
                while not gate.dropped():  # noqa: ASYNC110 - a gate tells nobody
                    await anyio.sleep(0.01)
            gate.heal()

        tasks.start_soon(heal)
        async with joined(gate) as (near, far):
            await near.send(b"up")
            assert await far.receive() == b"up"


async def test_what_is_lost_comes_a_moment_later() -> None:
    """And in its order."""
    gate = Gate(number=1)
    gate.drop("OUTPUT", share=0.5)
    async with joined(gate) as (near, far):
        text = b""
        for number in range(8):
            await near.send(bytes([number]))
        while len(text) < 8:
            text += await far.receive()
        assert text == bytes(range(8))
