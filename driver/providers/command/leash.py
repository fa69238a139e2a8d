"""The daemon's end of a leash: a program that only reads, and of which nothing is left at the end.

Part of `driver.providers.command`; imports its `errors`, `nameless`, `shim` and `zygote`.

The program, and whatever it starts, in a session of its own or not, ends with the block that it runs in, and
with the daemon, however the daemon ends.
"""

import errno
import os
import signal
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Final

import anyio

from driver.providers.command.errors import Refused
from driver.providers.command.nameless import memory
from driver.providers.command.shim.words import (
    ENDED,
    FAILED,
    KILL_S,
    LEASH,
    MESSAGE_BYTES_MAX,
    READY,
    Command,
    Leashed,
)
from driver.providers.command.zygote import Zygote

GONE_S: Final = KILL_S + 1.0
"""From the end of the link until a leash is killed that is still there: it is stopped, or what it keeps hangs
in the kernel."""
CHUNK_BYTES: Final = 65_536


class Leash:
    """One program. Made by `start`, and ended by `leashed`."""

    def __init__(self, link: socket.socket, output: int) -> None:
        self._link = link
        self._output = output
        self._process: int | None = None
        self._code: int | None = None
        self._failure: str | None = None

    async def output(self) -> AsyncIterator[bytes]:
        """Yield what the program prints, until nobody is left that could print anything."""
        while True:
            await anyio.wait_readable(self._output)
            chunk = os.read(self._output, CHUNK_BYTES)
            if not chunk:
                return
            yield chunk

    async def ended(self) -> int:
        """Return the exit code, or -N for signal N, once nothing of the program is left.

        Raises `OSError` where it was not executed.
        """
        while self._code is None:
            if not await self._hear():
                self._code = -signal.SIGKILL  # the leash was killed, and the kernel kills the program with it
        if self._failure is not None:
            raise OSError(errno.ENOEXEC, self._failure)
        return self._code

    async def end(self) -> None:
        """Kill what is left of the program, and give everything back."""
        try:
            with suppress(OSError):
                self._link.shutdown(socket.SHUT_WR)
            with anyio.move_on_after(GONE_S):
                while await self._hear():
                    pass
                return
            if self._process is not None:
                with suppress(OSError):
                    signal.pidfd_send_signal(self._process, signal.SIGKILL)
        finally:
            self._link.close()
            os.close(self._output)
            if self._process is not None:
                os.close(self._process)

    async def _hear(self) -> bool:
        """Take one message of the leash; return False when there is none any more, for it has ended."""
        await anyio.wait_readable(self._link)
        try:
            heard = self._link.recv(MESSAGE_BYTES_MAX)
        except OSError:
            return False
        if heard.startswith(READY):
            with suppress(OSError):  # it has ended since
                self._process = os.pidfd_open(int(heard.removeprefix(READY)))
        elif heard.startswith(ENDED):
            self._code = int(heard.removeprefix(ENDED))
        elif heard.startswith(FAILED):
            self._failure = heard.removeprefix(FAILED).decode("utf-8", "replace")
            self._code = 0
        return bool(heard)


def start(zygote: Zygote, command: Command, folder: int, stdin: bytes, *, both: bool) -> Leash:
    """Return a program that is about to be executed, in the folder that a descriptor leads to.

    It reads `stdin`; its standard output is kept, and with `both` its standard error in one with it. Blocks:
    call it in a worker thread. Raises `OSError` where the machine cannot start it.
    """
    with ExitStack() as ours_on_failure, ExitStack() as theirs:
        link, their_link = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours_on_failure.callback(link.close)
        theirs.callback(their_link.close)
        output, their_output = os.pipe()
        ours_on_failure.callback(os.close, output)
        theirs.callback(os.close, their_output)
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        theirs.callback(os.close, nowhere)
        told = memory("effectd-command", command.to_bytes(), theirs)
        given = memory("effectd-stdin", stdin, theirs)
        errors = their_output if both else nowhere
        handed = Leashed(told, their_link.fileno(), folder, given, their_output, errors)
        try:
            zygote.fork(LEASH, handed)
        except Refused as refused:
            raise OSError(errno.ECHILD, str(refused)) from refused
        link.settimeout(0)
        os.set_blocking(output, False)
        ours_on_failure.pop_all()
    return Leash(link, output)


@asynccontextmanager
async def leashed(begin: Callable[[], Leash]) -> AsyncGenerator[Leash]:
    """Hold what `begin`, called in a worker thread, has started; nothing of it is left after the block.

    Raises what `begin` does.
    """
    program = await _begun(begin)
    try:
        yield program
    finally:
        with anyio.CancelScope(shield=True):
            await program.end()


async def _begun(begin: Callable[[], Leash]) -> Leash:
    """A cancelled caller waits for it all the same, and ends what has begun."""
    begun: list[Leash] = []
    with anyio.CancelScope(shield=True):
        begun.append(await anyio.to_thread.run_sync(begin))
    return begun[0]
