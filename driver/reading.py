"""A descriptor that somebody reads again and again, watched once for all of these times.

Part of `driver`; imports nothing of ours, and asyncio alone: the relay starts with it. To wait for a
descriptor each time is two calls of the kernel and a turn of the event loop, more than it takes to read what
came; one that is watched for good is read in the turn in which it is readable.
"""

import asyncio
from collections.abc import Callable


class Reader:
    """Reads `fd` when there is something, for one task at a time.

    `read` returns some bytes, none at the end, and raises `BlockingIOError` where there is nothing, and
    `OSError`. Nothing is read ahead: only once somebody waits for it. Whoever made one closes it, before
    the descriptor.
    """

    def __init__(self, fd: int, read: Callable[[], bytes]) -> None:
        self._fd = fd
        self._read = read
        self._loop = asyncio.get_running_loop()
        self._watched = False
        self._waiter: asyncio.Future[None] | None = None
        self._came: bytes | None = None
        """What was read for whoever waited; for the next one, where that one was cancelled then."""
        self._failure: OSError | None = None
        self._ended = False

    async def receive(self) -> bytes:
        """Return some bytes, none at the end. Raises `OSError`. Cancelled, it loses nothing.

        Others run meanwhile, however much there is to read.
        """
        while self._came is None and self._failure is None:
            if self._ended:
                await asyncio.sleep(0)
                return self._rest()
            if not self._watched:
                self._watched = True
                self._loop.add_reader(self._fd, self._readable)
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        came, self._came = self._came, None
        if came is None:
            failure, self._failure = self._failure, None
            assert failure is not None, "what ends the wait is one or the other"
            raise failure
        return came

    def end(self) -> None:
        """Wait for nothing any more: what is there is still read, and behind it is the end."""
        self._ended = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """Let go of the descriptor."""
        if self._watched:
            self._watched = False
            self._loop.remove_reader(self._fd)

    def _readable(self) -> None:
        if self._waiter is None or self._waiter.done():
            self.close()  # until somebody waits again: it is readable all the while
            return
        try:
            self._came = self._read()
        except BlockingIOError:
            return
        except OSError as failure:
            self._failure = failure
        self._waiter.set_result(None)

    def _rest(self) -> bytes:
        try:
            return self._read()
        except BlockingIOError:
            return b""
