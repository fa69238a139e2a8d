"""Keeps one program, from its fork until nothing of it is left.

Part of `driver.providers.command.shim`, whose docstring is the theory of this; imports its `execution`,
`files`, `kernel` and `words`, and the standard library.
"""

import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Final, Literal, NoReturn

from driver.providers.command.shim import kernel
from driver.providers.command.shim.execution import Surroundings, become
from driver.providers.command.shim.files import Stream, record
from driver.providers.command.shim.words import (
    FORMAT,
    KILL_S,
    LINGER_S,
    LINGER_TERM_S,
    STARTED,
    TERM_S,
    Descriptors,
    Plan,
)

WAIT_S_MAX: Final = 86_400.0
"""One wait: what `poll` takes is a C integer of milliseconds."""


class Stage(Enum):
    """How far the end has got. Each stage but the last has a moment at which the next one is due."""

    RUNNING = auto()
    LINGERING = auto()
    """The program has ended, and what it started has a moment to do so."""
    TERMINATING = auto()
    KILLING = auto()
    OVER = auto()


class Keeper:
    """One program. `start` it, then `keep` it."""

    def __init__(self, plan: Plan, handed: Descriptors) -> None:
        self._plan = plan
        self._handed = handed
        self._stdout = Stream(handed.folder, "stdout", plan.output_bytes_max)
        self._stderr = Stream(handed.folder, "stderr", plan.output_bytes_max)
        self._poll = select.poll()
        self._waiters: dict[int, Callable[[], int]] = {}
        self._wake = kernel.wake_on_signals()
        self._wait_for(self._wake, self._on_signal)
        self._failure = -1
        self._never_executed: str | None = None
        self._child = 0
        self._status: int | None = None
        self._cause: Literal["deadline", "cancelled"] | None = None
        self._stage = Stage.RUNNING
        self._until = self._began = self._ended = 0.0
        self._ended_by_us = self._left = 0

    # ------------------------------------------------------------ the start

    def start(self, seconds: float) -> None:
        """Fork a child, write `started`, and only then let the child execute the program."""
        self._began = time.monotonic()
        self._until = self._began + seconds
        waiting, release = os.pipe()
        self._failure, failure_end = os.pipe()
        os.set_blocking(self._failure, False)
        self._child = kernel.fork(self._handed.group)
        if not self._child:
            os.close(release)
            os.close(self._handed.control)
            self._execute(waiting, failure_end)
        ends = (waiting, failure_end, self._stdout.write_end, self._stderr.write_end)
        for descriptor in (*ends, self._handed.cwd, self._handed.stdin):
            os.close(descriptor)
        record(self._handed.folder, "started", self._start_record())
        os.write(release, b".")
        os.close(release)

    def _execute(self, waiting: int, failure: int) -> NoReturn:
        """Become the program, in the child, once a byte says that `started` is written."""
        handed = self._handed
        around = Surroundings(handed.cwd, handed.stdin, self._stdout.write_end, self._stderr.write_end)
        # nothing comes from a shim that is dead
        become(self._plan, around, failure, lambda: bool(os.read(waiting, 1)))

    def _start_record(self) -> dict[str, object]:
        return {
            "format": FORMAT,
            "pid": os.getpid(),
            "pid_started": kernel.start_ticks(os.getpid()),
            "child": self._child,
            "child_started": kernel.start_ticks(self._child),
            "deadline": self._until,
            "stdout_pipe": self._stdout.pipe,
            "stderr_pipe": self._stderr.pipe,
        }

    # ------------------------------------------------------------ while it runs

    def keep(self) -> None:
        """Return when the program and all that it started have ended, or cannot be ended."""
        for stream in (self._stdout, self._stderr):
            self._wait_for(stream.read_end, stream.pump)
        self._wait_for(self._failure, self._on_executed)
        self._wait_for(self._handed.control, self._on_cancel)
        self._wait_out()
        if self._failure in self._waiters:
            self._on_executed()  # all of that went faster than the first look

    def _wait_for(self, descriptor: int, waiter: Callable[[], int]) -> None:
        """Call `waiter` whenever there is something to read, until it returns 0: then that is at its end."""
        self._waiters[descriptor] = waiter
        self._poll.register(descriptor, select.POLLIN)

    def _wait_out(self) -> None:
        while True:
            self._reap()
            self._advance(time.monotonic())
            if self._stage is Stage.OVER:
                return
            wait_s = min(max(self._until - time.monotonic(), 0.0), WAIT_S_MAX)
            for descriptor, _ in self._poll.poll(int(wait_s * 1000) + 1):
                if not self._waiters[descriptor]():
                    del self._waiters[descriptor]
                    self._poll.unregister(descriptor)

    def _on_executed(self) -> int:
        """The child's end of this pipe was closed by the kernel at `execve`, or tells why there was none."""
        with suppress(OSError):  # the daemon is gone, and a later one reads records; or the child hangs
            why = os.read(self._failure, 256)
            if why:
                self._never_executed = why.decode("ascii", "replace")
            else:
                os.write(self._handed.link, STARTED)
        os.close(self._handed.link)
        return 0

    def _on_cancel(self) -> int:
        asked = len(os.read(self._handed.control, 64))
        self._reap()
        if self._stage is Stage.RUNNING and self._status is None:
            now = time.monotonic()
            self._interrupt("cancelled", min(now + TERM_S, max(self._until, now)))
        return asked

    def _on_signal(self) -> int:
        return len(os.read(self._wake, 4_096))

    def _reap(self) -> None:
        """Collect what has ended. Without children, there is nothing left to do."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._stage = Stage.OVER
                return
            if not pid:
                return
            if pid == self._child:
                self._status = status
                self._ended = time.monotonic()

    def _advance(self, now: float) -> None:
        """Do what is due at `now`."""
        if self._stage is Stage.RUNNING and self._status is not None:
            self._enter(Stage.LINGERING, now + LINGER_S)
        elif self._stage is Stage.KILLING and now < self._until:
            self._kill()  # what was forked since the last look
        elif now >= self._until and self._stage is not Stage.OVER:
            self._overdue(now)

    def _overdue(self, now: float) -> None:
        match self._stage:
            case Stage.RUNNING:
                self._interrupt("deadline", now + TERM_S)
            case Stage.LINGERING:
                self._ended_by_us = kernel.signal_descendants(signal.SIGTERM)
                self._enter(Stage.TERMINATING, now + LINGER_TERM_S)
            case Stage.TERMINATING:
                self._kill()
                self._enter(Stage.KILLING, now + KILL_S)
            case _:
                self._left = len(kernel.descendants())
                self._enter(Stage.OVER, now)

    def _interrupt(self, cause: Literal["deadline", "cancelled"], until: float) -> None:
        """Ask a program to end that has not ended by itself: what it says from now on is no answer."""
        self._cause = cause
        kernel.signal_descendants(signal.SIGTERM)
        self._enter(Stage.TERMINATING, until)

    def _enter(self, stage: Stage, until: float) -> None:
        self._stage = stage
        self._until = until

    def _kill(self) -> None:
        kernel.signal_descendants(signal.SIGKILL)
        if self._handed.group is not None:
            kernel.kill_group(self._handed.group)

    # ------------------------------------------------------------ the end

    def end_all(self) -> None:
        """Leave nothing behind, whatever went wrong here."""
        if self._stage is not Stage.OVER:
            self._kill()
            self._enter(Stage.KILLING, time.monotonic() + KILL_S)
            self._wait_out()

    def end_record(self) -> dict[str, object]:
        """Return how it ended, when the output is durable."""
        self._stdout.drain()
        self._stderr.drain()
        code = None if self._status is None else os.waitstatus_to_exitcode(self._status)
        return {
            "format": FORMAT,
            "operation_id": self._plan.operation_id,
            "attempt": self._plan.attempt,
            "never_executed": self._never_executed,
            "cause": self._cause,
            "exit_code": code if code is not None and code >= 0 else None,
            "signal": -code if code is not None and code < 0 else None,
            "ok": code in self._plan.ok_exit_codes,
            "duration_ms": round(((self._ended or time.monotonic()) - self._began) * 1000),
            "stdout_bytes": self._stdout.kept,
            "stderr_bytes": self._stderr.kept,
            "stdout_truncated": self._stdout.truncated,
            "stderr_truncated": self._stderr.truncated,
            "processes_ended": self._ended_by_us,
            "processes_left": self._left,
        }
