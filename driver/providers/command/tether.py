"""The daemon's end of a shim: it hears when the shim is ready and when it is gone, and tells it to end.

Part of `driver.providers.command`; imports its `shim`, `spool` and `remains`, and `driver.core.attempts`.

Both waits are for descriptors: the link while the program has not begun, and then the control, whose other
end the shim alone holds, whichever life of the daemon started it.
"""

import os
import signal
import socket
from contextlib import suppress
from typing import Final

import anyio

from driver.core.attempts import NotSent
from driver.providers.command import remains
from driver.providers.command.shim.words import MESSAGE_BYTES_MAX, READY, STARTED
from driver.providers.command.spool import Place

READY_S: Final = 10.0
"""A shim takes some milliseconds; beyond this the machine is in no state to run commands."""


class Tether:
    """One shim. `link` is None where another life of the daemon started it."""

    def __init__(self, place: Place, control: int, link: socket.socket | None = None) -> None:
        self.place = place
        self.deadline = 0.0
        """In seconds of `time.monotonic`, which is the event loop's time too."""
        self.released = link is None
        self.deaf = False
        """Whether nothing was heard of it in good time: its zygote is stopped, or hangs."""
        self._control = control
        self._link = link
        self._process: int | None = None

    async def ready(self, deadline: float) -> NotSent | None:
        """Wait until the shim can execute the program at once; else return why it will not."""
        own = anyio.current_time() + READY_S
        with anyio.move_on_at(min(deadline, own)):
            heard = await self._heard()
            if heard.startswith(READY):
                self._identify(int(heard.removeprefix(READY)))
                return None
            complaint = await anyio.to_thread.run_sync(self.place.complaint)
            return NotSent(reason="spawn_failed", message=f"the shim did not start: {complaint}")
        if deadline <= own:
            return NotSent(reason="deadline", message="the deadline passed before the program was started")
        self.deaf = True
        return NotSent(reason="spawn_failed", message=f"the shim was not ready within {READY_S:g} s")

    def release(self, deadline: float) -> None:
        """Let the shim execute the program, and end it at `deadline`. The point of no return."""
        assert self._link is not None, "only a shim that this life has started waits for this"
        self.deadline = deadline
        self.released = True
        with suppress(OSError):  # it has just been killed: its records tell that nothing was executed
            self._link.send(repr(max(deadline - anyio.current_time(), 0.0)).encode())

    async def executed(self) -> bool:
        """Return whether the shim tells that the program was executed; to a later life it does not."""
        if self._link is None:
            return False
        heard = await self._heard() == STARTED
        self.hang_up()
        return heard

    def postponed(self) -> bool:
        """Return whether the deadline is later than it seemed: the shim may only just have been released.

        Blocks: call it in a worker thread.
        """
        started = self.place.started()
        if started is None or started.deadline <= self.deadline:
            return False
        self.deadline = started.deadline
        return True

    async def gone(self) -> None:
        """Wait until the shim has ended, its record written, if it could."""
        await anyio.wait_readable(self._control)

    def cancel(self) -> None:
        """Tell the shim to end the program."""
        with suppress(OSError):  # it is gone
            os.write(self._control, b"c")

    def kill(self) -> None:
        """Kill a shim that is deaf. Blocks: call it in a worker thread."""
        if self._process is not None:
            with suppress(OSError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)
            return
        started, origin = self.place.started(), self.place.origin()
        if started is not None and origin is not None and origin.namespace == remains.namespace():
            remains.kill_shim(started)

    def hang_up(self) -> None:
        """Close the link: a shim that was not released exits, and has executed nothing."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def close(self) -> None:
        """Give all descriptors back. The shim goes on, if it is still there."""
        self.hang_up()
        os.close(self._control)
        if self._process is not None:
            os.close(self._process)

    def _identify(self, pid: int) -> None:
        """Keep hold of the shim's process while it is there for sure: later, its number may be another's."""
        with suppress(OSError):
            self._process = os.pidfd_open(pid)

    async def _heard(self) -> bytes:
        """Return what the shim says on the link, nothing at its end."""
        assert self._link is not None, "only a shim that this life has started has a link"
        await anyio.wait_readable(self._link)
        try:
            return self._link.recv(MESSAGE_BYTES_MAX)
        except OSError:
            return b""
