"""Where log lines go: a bounded queue, and a thread that writes them to a descriptor.

Part of `driver`; imports only the standard library. Whoever logs waits for nothing: not for a slow reader of
a pipe, not for a disk, not for a terminal that was stopped. A line for which there is no room, or which
cannot be written (a full disk, a closed pipe), is dropped and counted, and the next line that can be written
says how many were.

Lines are written some milliseconds after they were logged, many at once: a thread that is woken for each line
would cost more than the lines do. What was logged in the last moments before a SIGKILL may be lost with it.
"""

import os
import select
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Final

LINES_MAX: Final = 2_000
"""Lines that wait: some seconds of a busy daemon, and about a megabyte."""
FLUSH_S: Final = 1.0
"""How long the end of the process waits for what was logged last."""
GATHER_S: Final = 0.005
"""How long lines are gathered for one write."""
WRITE_BYTES: Final = select.PIPE_BUF
"""What a pipe takes without blocking, where `poll` says that it takes anything."""

_NEWLINE: Final = ord("\n")


class Outlet:
    """Writes lines to `descriptor`, in order. Close it at the end.

    `announce` renders the line that says how many were dropped.
    """

    def __init__(self, descriptor: int, announce: Callable[[int], str]) -> None:
        self._descriptor = descriptor
        self._announce = announce
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._lock = Lock()
        self._dropped = 0
        self._announced = 0
        self._torn = False
        """Whether the last thing that was written is a part of a line."""
        self._closed = False
        self._writable = select.poll()
        self._writable.register(descriptor, select.POLLOUT)
        # a daemon thread: a reader that never reads again must not hold up the end of the process
        self._thread = Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Lines that were not written since the start."""
        return self._dropped

    def write_line(self, line: str) -> None:
        """Let a line be written soon, or count it as dropped. Never blocks, never raises; from any thread."""
        if self._closed or self._lines.qsize() >= LINES_MAX:
            self._drop(1)
        else:
            self._lines.put(line)

    # structlog calls the method that is named like the level
    msg = debug = info = warning = error = critical = exception = fatal = log = write_line

    def close(self) -> None:
        """Write what waits, within `FLUSH_S`; what cannot be written by then is lost."""
        if not self._closed:
            self._closed = True
            self._lines.put(None)
            self._thread.join(FLUSH_S)

    def _drop(self, lines: int) -> None:
        with self._lock:
            self._dropped += lines

    # ------------------------------------------------------------ in the thread

    def _run(self) -> None:
        last = False
        while not last:
            batch, last = self._gather()
            dropped = self._dropped - self._announced
            if dropped:
                batch.insert(0, self._announce(dropped))
            written = self._write(batch)
            if dropped and written:
                self._announced += dropped
            self._drop(len(batch) - max(written, int(dropped > 0)))

    def _gather(self) -> tuple[list[str], bool]:
        """Wait for lines; return them, and whether they are the last."""
        batch: list[str] = []
        line = self._lines.get()
        if line is not None:
            time.sleep(GATHER_S)
        while line is not None:
            batch.append(line)
            if len(batch) >= LINES_MAX:
                return batch, False
            try:
                line = self._lines.get_nowait()
            except Empty:
                return batch, False
        return batch, True

    def _write(self, batch: list[str]) -> int:
        """Write lines, waiting for room as long as it takes; return how many were written whole."""
        data = "".join(f"{line}\n" for line in batch).encode(errors="backslashreplace")
        rest = memoryview(b"\n" + data if self._torn and data else data)
        try:
            while rest:
                self._writable.poll()
                sent = os.write(self._descriptor, rest[:WRITE_BYTES])
                self._torn = rest[sent - 1] != _NEWLINE
                rest = rest[sent:]
        except OSError:
            return len(batch) - min(bytes(rest).count(b"\n"), len(batch))
        return len(batch)
