"""A descriptor that somebody reads again and again, watched once for all of these times.

Part of `driver`; imports nothing of ours, and asyncio alone: the relay starts with it. To wait for a
descriptor each time is two calls of the kernel and more of Python's than it takes to read what came; one that
is watched for good is read in the turn in which it is readable.
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
        self._waiter: asyncio.Future[bytes] | None = None
        self._ended = False

    async def receive(self) -> bytes:
        """Return some bytes, none at the end. Raises `OSError`.

        Others run meanwhile, however much there is to read. A cancel scope loses nothing: it leaves a task
        alone that has what it waited for.
        """
        self._waiter = self._loop.create_future()
        try:
            if self._ended:
                self._loop.call_soon(self._give)
            elif not self._watched:
                self._watched = True
                self._loop.add_reader(self._fd, self._give)
            return await self._waiter
        finally:
            self._waiter = None

    def end(self) -> None:
        """Wait for nothing any more: what is there is still read, and behind it is the end."""
        self.close()
        self._ended = True
        if self._waiter is not None:
            self._give()

    def close(self) -> None:
        """Let go of the descriptor."""
        if self._watched:
            self._watched = False
            self._loop.remove_reader(self._fd)

    def _give(self) -> None:
        """Read for whoever waits."""
        if self._waiter is None or self._waiter.done():
            self.close()  # until somebody waits again: it may be readable all the while
            return
        try:
            self._waiter.set_result(self._read())
        except BlockingIOError:
            if self._ended:
                self._waiter.set_result(b"")
        except OSError as failure:
            self._waiter.set_exception(failure)
