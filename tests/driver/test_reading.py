"""A descriptor that is read again and again."""

import os
from collections.abc import Generator
from contextlib import contextmanager

import anyio
import pytest

from driver.reading import Reader

pytestmark = pytest.mark.anyio


@contextmanager
def pipe() -> Generator[tuple[Reader, int, int]]:
    """Return a reader of a pipe, the end to write to, and the one that is read."""
    ours, theirs = os.pipe2(os.O_NONBLOCK)
    reader = Reader(ours, lambda: os.read(ours, 4))
    try:
        yield reader, theirs, ours
    finally:
        reader.close()
        os.close(ours)
        os.close(theirs)


async def test_what_comes_is_read_in_order_whether_somebody_waits_or_not() -> None:
    """Nothing is lost between two waits, nor read twice."""
    with pipe() as (reader, far, _):
        os.write(far, b"before")
        heard = await reader.receive() + await reader.receive()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write_later, far, b"now")
            heard += await reader.receive()
        os.write(far, b"then")
        await anyio.wait_all_tasks_blocked()
        heard += await reader.receive()
        assert heard == b"beforenowthen"


async def test_one_who_is_cancelled_as_something_comes_takes_nothing_along() -> None:
    """Either they hear of it, or whoever waits next does."""
    with pipe() as (reader, far, _):
        heard: list[bytes] = []
        for turns in range(4):  # between what comes and the cancellation: in one of them it was read already
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(receive_into, reader, heard)
                await anyio.wait_all_tasks_blocked()
                os.write(far, bytes([turns]))
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
        os.write(far, b"more")
        while len(b"".join(heard)) < len(b"....more"):
            heard.append(await reader.receive())
        assert b"".join(heard) == bytes(range(4)) + b"more"


async def test_nothing_is_read_that_nobody_waits_for() -> None:
    """What is not wanted stays with whoever writes it, and holds them up."""
    with pipe() as (reader, far, near):
        os.write(far, b"one")
        assert await reader.receive() == b"one"
        os.write(far, b"rest")
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        assert os.read(near, 9) == b"rest"


async def test_behind_the_end_only_what_is_there_is_read() -> None:
    """And nobody waits for what others might still write."""
    with pipe() as (reader, far, _):
        said: list[bytes] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive_into, reader, said)
            await anyio.wait_all_tasks_blocked()
            reader.end()
        assert said == [b""]
        os.write(far, b"left")
        assert [await reader.receive(), await reader.receive()] == [b"left", b""]


async def test_a_failed_read_is_raised_once() -> None:
    """To whoever waits, and not out of the event loop."""
    ours, theirs = os.pipe2(os.O_NONBLOCK)

    def fail() -> bytes:
        raise ConnectionResetError

    reader = Reader(ours, fail)
    try:
        os.write(theirs, b"x")
        with pytest.raises(ConnectionResetError):
            await reader.receive()
    finally:
        reader.close()
        os.close(ours)
        os.close(theirs)


async def write_later(far: int, data: bytes) -> None:
    """Write once everybody waits."""
    await anyio.wait_all_tasks_blocked()
    os.write(far, data)


async def receive_into(reader: Reader, heard: list[bytes]) -> None:
    """Add what is heard next."""
    heard.append(await reader.receive())
