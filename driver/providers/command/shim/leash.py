"""Keeps a program that has no outcome to lose, and leaves nothing of it: it ends with whoever asked for it.

Part of `driver.providers.command.shim`; imports its `execution`, `kernel` and `words`, and the standard
library.

A leash is what a shim is without its records, and without its life of its own. It is the reaper of all its
descendants, so that none gets away in a session of its own; it is told to end them by the end of its link,
and that comes with the daemon's end, too, however the daemon ended. When it says how the program ended,
nothing of that is left.
"""

import os
import select
import signal
import time
from contextlib import suppress

from driver.providers.command.shim import kernel
from driver.providers.command.shim.execution import Surroundings, become
from driver.providers.command.shim.words import (
    ENDED,
    FAILED,
    KILL_S,
    LINGER_S,
    MESSAGE_BYTES_MAX,
    READY,
    Command,
    Leashed,
)


def leash(handed: Leashed) -> None:
    """Execute the program; returns when nothing of it is left, or cannot be ended."""
    command = Command.read(handed.command)
    os.close(handed.command)
    kernel.reap_orphans()
    os.write(handed.link, READY + str(os.getpid()).encode())
    held = _Held(command, handed)
    held.hold()
    held.tell()


class _Held:
    """One program, from its fork on."""

    def __init__(self, command: Command, handed: Leashed) -> None:
        self._link = handed.link
        self._status: int | None = None
        self._until: float | None = None
        """When what is left is killed, or, once it is being killed, given up; None while the program runs."""
        self._killing = False
        self._wake = kernel.wake_on_signals()
        self._failure, failure_end = os.pipe()
        self._child = os.fork()
        if not self._child:
            around = Surroundings(handed.cwd, handed.stdin, handed.stdout, handed.stderr)
            become(command, around, failure_end, lambda: True)
        for descriptor in (failure_end, handed.cwd, handed.stdin, handed.stdout, handed.stderr):
            os.close(descriptor)

    def hold(self) -> None:
        """Wait for the program's end, and for the link's, and kill what is left then."""
        poll = select.poll()
        for descriptor in (self._link, self._wake):
            poll.register(descriptor, select.POLLIN)
        while self._reap():
            left_s = None if self._until is None else self._until - time.monotonic()
            if left_s is not None and left_s <= 0:
                if self._killing:
                    return
                self._kill()
                continue
            if self._killing:
                kernel.signal_descendants(signal.SIGKILL)  # what was forked since the last look
            for descriptor, _ in poll.poll(None if left_s is None else int(left_s * 1000) + 1):
                if descriptor == self._wake:
                    os.read(self._wake, 4_096)
                else:  # nobody says anything on it: the daemon has had enough, or is gone
                    poll.unregister(self._link)
                    self._kill()

    def _kill(self) -> None:
        self._killing = True
        self._until = time.monotonic() + KILL_S
        kernel.signal_descendants(signal.SIGKILL)

    def _reap(self) -> bool:
        """Collect what has ended, and return whether anything is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            if pid == self._child:
                self._status = status
                if not self._killing:
                    self._until = time.monotonic() + LINGER_S

    def tell(self) -> None:
        """Say how the program ended."""
        if self._status is None:
            return  # it hangs in the kernel, and so does whoever waits for it, for a bounded time
        why = os.read(self._failure, MESSAGE_BYTES_MAX - len(FAILED))
        code = os.waitstatus_to_exitcode(self._status)
        with suppress(OSError):  # the daemon is gone
            os.write(self._link, FAILED + why if why else ENDED + str(code).encode())
