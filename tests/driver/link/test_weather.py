"""Networks and planes that go dead without a word: noticed within `dead_after_s`, and left."""

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from websockets.exceptions import ConnectionClosed

from tests.driver.link.stage import Plane, Wire, cable_to, dead_after, eventually, linked, serving

pytestmark = pytest.mark.anyio

DEAD_AFTER_S = 1.5
SLACK_S = 0.75
"""What a busy machine may add to the best of a few attempts."""
ATTEMPTS = 4
LIVELY_S = 2.5
"""`dead_after_s` for who is alive: an answer to a ping may take 1 s, and there are three within `QUIET_S`."""
QUIET_S = 3.2


async def noticed_in_time(measure: Callable[[Path], Awaitable[float]], folder: Path) -> None:
    """Fail if no attempt takes at most `DEAD_AFTER_S`: what else the machine does can only add to it."""
    took_s: list[float] = []
    while not took_s or min(took_s) >= DEAD_AFTER_S + SLACK_S:
        assert len(took_s) < ATTEMPTS, f"noticed after {took_s} s"
        (attempt := folder / str(len(took_s))).mkdir()
        took_s.append(await measure(attempt))


async def test_a_black_hole_is_noticed_in_time(tmp_path: Path) -> None:
    """A cable that carries nothing and closes nothing is given up in time, and dialled again."""
    await noticed_in_time(black_hole, tmp_path)


async def black_hole(tmp_path: Path) -> float:
    """Return how long it takes to notice one."""
    async with serving() as plane, cable_to(plane) as cable:
        url = f"ws://127.0.0.1:{cable.port}/driver"
        async with linked(tmp_path, url, settings=dead_after(DEAD_AFTER_S)) as daemon:
            wire = await plane.accept()
            await wire.welcome()
            await eventually(lambda: daemon.link.statistics().connected)
            cable.freeze()
            began = time.monotonic()
            await daemon.commit(5)
            await eventually(lambda: not daemon.link.statistics().connected)
            took_s = time.monotonic() - began
            cable.thaw()
            again = await welcomed_again(plane)
            assert [frame["seq"] for frame in await again.take(5)] == [1, 2, 3, 4, 5]
    return took_s


async def welcomed_again(plane: Plane) -> Wire:
    """Welcome the next connection that lives; one that took too long to come to be has been given up."""
    while True:
        wire = await plane.accept()
        with suppress(ConnectionClosed):
            await wire.welcome()
            return wire


async def test_a_plane_that_does_not_read_is_noticed_in_time(tmp_path: Path) -> None:
    """With every buffer full, pings cannot leave either: the deadline on sending finds out."""
    await noticed_in_time(full_buffers, tmp_path)


async def full_buffers(tmp_path: Path) -> float:
    """Return how long it takes to notice that nobody reads."""
    async with serving() as plane, cable_to(plane) as cable:
        url = f"ws://127.0.0.1:{cable.port}/driver"
        async with linked(tmp_path, url, settings=dead_after(DEAD_AFTER_S)) as daemon:
            wire = await plane.accept()
            await wire.welcome(window=1_000)
            await eventually(lambda: daemon.link.statistics().connected)
            cable.freeze()
            for _ in range(20):
                await daemon.commit(10, size=50_000)
            began = time.monotonic()  # what the disk takes is not the link's
            await eventually(lambda: not daemon.link.statistics().connected)
            took_s = time.monotonic() - began
            cable.thaw()
            again = await welcomed_again(plane)
            assert (await again.hear())["seq"] == 1
    return took_s


async def test_a_living_link_is_left_alone(tmp_path: Path) -> None:
    """A quiet connection whose pings are answered stays, however long nothing is said."""
    async with serving() as plane, linked(tmp_path, plane.url, settings=dead_after(LIVELY_S)) as daemon:
        wire = await plane.accept()
        await wire.welcome()
        assert await wire.is_silent_for(QUIET_S)
        assert daemon.link.statistics().connected
        assert len(plane.requests) == 1


async def test_a_tool_that_takes_long_does_not_look_like_a_dead_link(tmp_path: Path) -> None:
    """The desk may take as long as it likes over a command: the keep-alive does not depend on it."""
    async with serving() as plane, linked(tmp_path, plane.url, settings=dead_after(LIVELY_S)) as daemon:
        wire = await plane.accept()
        await wire.welcome()
        daemon.desk.gate = anyio.Event()
        await wire.command("cmd-1")
        assert await wire.is_silent_for(QUIET_S)
        daemon.desk.gate.set()
        assert [frame["kind"] for frame in await wire.take(2)] == ["command.accepted", "command.completed"]


async def test_a_server_that_accepts_and_says_nothing_is_left(tmp_path: Path) -> None:
    """The handshake has a deadline of its own."""

    async def say_nothing(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await anyio.sleep_forever()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, say_nothing)
        async with linked(tmp_path, f"ws://127.0.0.1:{port}/", settings=dead_after(0.3)) as daemon:
            await eventually(lambda: daemon.link.statistics().attempts >= 2)
            assert "timed out" in (daemon.link.statistics().last_error or "")
        tasks.cancel_scope.cancel()


async def test_nobody_there_is_tried_for_ever(tmp_path: Path) -> None:
    """A refused connection is tried again and again, with growing pauses; the daemon says why it waits."""
    async with linked(tmp_path, "ws://127.0.0.1:9/driver") as daemon:
        await eventually(lambda: daemon.link.statistics().attempts >= 3)
        seen = daemon.link.statistics()
        assert not seen.connected
        assert "ws://127.0.0.1:9/driver cannot be reached" in (seen.last_error or "")


async def test_stopping_does_not_wait_for_a_dead_plane(tmp_path: Path) -> None:
    """The goodbye has a bound: a daemon before a black hole stops before it would even notice."""
    async with serving() as plane, cable_to(plane) as cable:
        url = f"ws://127.0.0.1:{cable.port}/driver"
        began = 0.0
        async with linked(tmp_path, url, settings=dead_after(10.0)) as daemon:
            wire = await plane.accept()
            await wire.welcome(window=1_000)
            await eventually(lambda: daemon.link.statistics().connected)
            cable.freeze()
            for _ in range(20):
                await daemon.commit(10, size=50_000)
            began = time.monotonic()
            daemon.stop()
        assert time.monotonic() - began < 8.0
        cable.thaw()


async def test_without_the_deadline_it_would_not_be_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: the library's keep-alive alone waits behind the full buffer, for ever."""
    monkeypatch.setattr("driver.link.conversation.SEND_SHARE", 100.0)
    async with serving() as plane, cable_to(plane) as cable:
        url = f"ws://127.0.0.1:{cable.port}/driver"
        async with linked(tmp_path, url, settings=dead_after(DEAD_AFTER_S)) as daemon:
            wire = await plane.accept()
            await wire.welcome(window=1_000)
            await eventually(lambda: daemon.link.statistics().connected)
            cable.freeze()
            for _ in range(20):
                await daemon.commit(10, size=50_000)
            await anyio.sleep(DEAD_AFTER_S * 2)
            assert daemon.link.statistics().connected
        cable.thaw()
