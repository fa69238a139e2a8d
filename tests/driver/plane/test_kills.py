"""The plane as a process that dies: what it acknowledged is there afterwards, what it sent is on its list."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import anyio
import pytest
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream
from websockets.exceptions import ConnectionClosed

from tests.driver.plane.world import NOTE, PATIENCE_S, Driver, Plane, client, settings

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PROGRAM = "from driver.cli.main import main; main()"


@asynccontextmanager
async def process(folder: Path, address: str) -> AsyncGenerator[tuple[Process, Plane]]:
    """A plane in a process of its own; it is killed when the block is left, if it has not ended by then."""
    files = settings(folder)
    options = [
        "--db",
        files.db,
        "--token-file",
        files.token_file,
        "--operator-token-file",
        files.operator_token_file,
    ]
    command = [sys.executable, "-c", PROGRAM, "plane", "--listen", address, *map(str, options)]
    async with await anyio.open_process(command, stderr=subprocess.PIPE) as plane:
        try:
            assert plane.stdout is not None
            with anyio.fail_after(PATIENCE_S):
                line = await TextReceiveStream(plane.stdout).receive()
            url = line.removeprefix("listening on ").strip()
            async with client(url) as http:
                yield plane, Plane(url=url, folder=folder, http=http)
        finally:
            with suppress(ProcessLookupError):
                plane.kill()


async def stream_until_it_dies(driver: Driver, plane: Process, after_s: float) -> int:
    """Stream events, and kill the plane in the midst; return the highest `seq` that it acknowledged."""
    acked = 0
    with suppress(ConnectionClosed, OSError):
        async with driver.session() as socket, anyio.create_task_group() as tasks:
            acked = socket.welcome["acked_seq"]

            async def kill() -> None:
                await anyio.sleep(after_s)
                os.kill(plane.pid, signal.SIGKILL)

            async def send() -> None:
                with suppress(ConnectionClosed):
                    await socket.say(*driver.journal.frames[acked:])

            tasks.start_soon(kill)
            tasks.start_soon(send)
            with suppress(ConnectionClosed):
                while True:
                    acked = json.loads(await socket.connection.recv())["seq"]
    return acked


async def test_what_was_acknowledged_survives_the_plane(tmp_path: Path) -> None:
    """SIGKILL in the midst of a stream, several times: each new welcome knows what was acknowledged."""
    random = Random(7)
    driver: Driver | None = None
    address, acked = "127.0.0.1:0", 0
    for _ in range(4):
        async with process(tmp_path, address) as (plane, served):
            address = served.url.removeprefix("http://")
            if driver is None:
                driver = Driver(plane=served)
                for _ in range(20_000):
                    driver.journal.commit(NOTE)
            async with driver.session() as socket:
                welcomed = socket.welcome["acked_seq"]
            assert welcomed >= acked
            acked = await stream_until_it_dies(driver, plane, random.uniform(0.05, 0.4))
            assert acked >= welcomed
    assert driver is not None
    async with process(tmp_path, address) as (_, served):
        lines = (await served.http.get("/v1/events")).text.splitlines()
        stored = [line.partition(',"event":')[2][:-1] for line in lines]
        assert len(stored) >= acked > 0
        assert stored == driver.journal.frames[: len(stored)]


async def test_a_delivery_survives_the_plane(tmp_path: Path) -> None:
    """Killed as soon as the command is out: the next life knows who had it, and delivers it again."""
    async with process(tmp_path, "127.0.0.1:0") as (plane, served):
        driver = Driver(plane=served)
        await served.send(command_id="c1")
        async with driver.session() as socket:
            await socket.hear("command")
            plane.kill()
    async with process(tmp_path, served.url.removeprefix("http://")) as (_, served):
        assert (await served.get("/v1/commands/c1"))["state"] == "in_doubt"
        async with driver.session() as socket:
            assert (await socket.hear("command"))["delivered_to"] == [driver.journal.journal_id]


async def test_a_plane_whose_file_fails_acknowledges_nothing_and_stops(tmp_path: Path) -> None:
    """A disk that takes no more: no ack for what could not be written, and exit code 70."""
    async with process(tmp_path, "127.0.0.1:0") as (plane, served):
        driver = Driver(plane=served)
        async with driver.session() as socket:
            await socket.say(driver.journal.commit(NOTE))
            assert (await socket.hear("ack"))["seq"] == 1
            size = (tmp_path / "plane.db-wal").stat().st_size
            resource.prlimit(plane.pid, resource.RLIMIT_FSIZE, (size, size))
            await socket.say(driver.journal.commit(NOTE))
            with pytest.raises(ConnectionClosed):
                await socket.hear()
        assert await plane.wait() == 70
        assert plane.stderr is not None
        said = "".join([text async for text in TextReceiveStream(plane.stderr)])
        assert "nothing more was acknowledged" in said
    async with process(tmp_path, "127.0.0.1:0") as (_, driver.plane), driver.session() as socket:
        assert socket.welcome["acked_seq"] == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_plane_that_is_told_to_stop_stops(tmp_path: Path, number: signal.Signals) -> None:
    """Exit 0, with everything in one file, while a daemon is connected."""
    async with process(tmp_path, "127.0.0.1:0") as (plane, served), Driver(plane=served).session() as socket:
        plane.send_signal(number)
        assert await socket.closing() == 1012
        with anyio.fail_after(PATIENCE_S):
            assert await plane.wait() == 0
    assert not (tmp_path / "plane.db-wal").exists()
