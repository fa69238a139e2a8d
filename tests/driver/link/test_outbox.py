"""Frames that wait for the socket."""

import anyio
import pytest

from driver.core.signals import CloseLink
from driver.link.outbox import BATCH_BYTES, BATCH_MAX, BYTES_MAX, FRAMES_MAX, ROOMY_BYTES, Outbox

pytestmark = pytest.mark.anyio


async def test_frames_come_out_in_order_and_in_bounded_batches() -> None:
    """First in, first out, the close among them; never more at once than one deadline is meant for."""
    outbox = Outbox()
    frames = [str(n).encode() for n in range(BATCH_MAX + 1)]
    close = CloseLink(1000, "")
    assert all(outbox.put(frame) for frame in frames)
    assert outbox.put(close)
    assert await outbox.take() == (frames[:BATCH_MAX], None)
    assert await outbox.take() == (frames[BATCH_MAX:], close)


async def test_what_is_written_at_once_is_bounded_in_bytes_too() -> None:
    """But for one frame that is longer than the bound by itself."""
    outbox = Outbox()
    frames = [b"x" * (BATCH_BYTES // 2), b"y" * BATCH_BYTES, b"z"]
    assert all(outbox.put(frame) for frame in frames)
    assert await outbox.take() == (frames[:2], None)
    assert await outbox.take() == (frames[2:], None)


async def test_the_queue_is_bounded_in_frames_and_in_bytes() -> None:
    """Beyond either bound nothing is added, and the caller is told."""
    outbox = Outbox()
    for _ in range(FRAMES_MAX):
        assert outbox.put(b"x")
    assert not outbox.put(b"x")
    outbox = Outbox()
    assert outbox.put(b"x" * BYTES_MAX)
    assert not outbox.put(b"x")


async def test_taking_waits_for_a_frame() -> None:
    """An empty outbox makes its writer wait, without spinning."""
    outbox = Outbox()
    async with anyio.create_task_group() as tasks:

        async def later() -> None:
            await anyio.lowlevel.checkpoint()
            outbox.put(b"x")

        tasks.start_soon(later)
        assert await outbox.take() == ([b"x"], None)


async def test_answers_wait_for_room_or_for_the_end() -> None:
    """Whoever can wait does so while much is queued, and is let go when it is taken, or given up."""
    outbox = Outbox()
    await outbox.roomy()
    outbox.put(b"x" * ROOMY_BYTES)
    with anyio.move_on_after(0.02) as waiting:
        await outbox.roomy()
    assert waiting.cancelled_caught
    await outbox.take()
    await outbox.roomy()
    outbox.put(b"x" * ROOMY_BYTES)
    outbox.give_up()
    await outbox.roomy()
