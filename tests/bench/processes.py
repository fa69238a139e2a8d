"""Processes beside the bench's own: what they say, and what the kernel counted for them."""

import signal
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

ROOT: Final = Path(__file__).resolve().parents[2]
LINE_BYTES_MAX: Final = 65_536
START_S: Final = 60.0


class Lines:
    """What a process prints, line by line, and what it is told."""

    def __init__(self, process: Process) -> None:
        assert process.stdout is not None
        self.process: Final = process
        self._stdout: Final = BufferedByteReceiveStream(process.stdout)

    async def receive(self) -> str:
        """Return the next line. Raises anyio.EndOfStream or IncompleteRead where the process ended."""
        return (await self._stdout.receive_until(b"\n", LINE_BYTES_MAX)).decode()

    async def tell(self, line: str) -> None:
        """Write a line to the process."""
        assert self.process.stdin is not None
        await self.process.stdin.send(f"{line}\n".encode())


@asynccontextmanager
async def spoken_by(*argv: str) -> AsyncGenerator[Lines]:
    """Run a program with pipes until the block ends, and stop it."""
    async with await anyio.open_process(argv, cwd=ROOT, stderr=None) as process:
        try:
            yield Lines(process)
        finally:
            await stop(process)


@asynccontextmanager
async def running(*argv: str) -> AsyncGenerator[Process]:
    """Run a program that says nothing until the block ends, and stop it."""
    async with await anyio.open_process(
        argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=None
    ) as process:
        try:
            yield process
        finally:
            await stop(process)


class ProcessEnded(Exception):
    """A process was not there long enough."""

    def __init__(self, code: int | None) -> None:
        super().__init__(f"it ended with {code} before it was ready: see what it wrote")


async def alive_until(event: anyio.Event, process: Process) -> None:
    """Wait for the event. Raises TimeoutError, and `ProcessEnded` where the process ended before."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_wait_for, process, tasks.cancel_scope)
        with anyio.fail_after(START_S):
            await event.wait()
        tasks.cancel_scope.cancel()
    if not event.is_set():
        raise ProcessEnded(process.returncode)


async def _wait_for(process: Process, scope: anyio.CancelScope) -> None:
    await process.wait()
    scope.cancel()


async def stop(process: Process) -> None:
    """End the process, and wait for it."""
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


def cpu_s(pid: int) -> float:
    """Return the processor time that all threads of a process have used, without its children."""
    stats = (path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(int(text.split()[0]) for text in stats) / 1e9


def rss_bytes(pid: int) -> int:
    """Return what of a process is in memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024
