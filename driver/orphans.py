"""Buries processes that nobody waits for: what tools have started and left behind.

Part of `driver`; imports only what the shim knows of the kernel. In a container the daemon may be process 1,
which every orphan becomes a child of; elsewhere it asks for its own orphans (a child subreaper), because what
it was started by may be no better at this: an entry point's shell, an agent.

Theory of operation
-------------------
Reaping takes an exit status away from whoever waits for it, so an orphan must be told from a child of our
own. Each child of our own leads a session from before its program is executed (`start_new_session`, held by a
test over all that starts one). A dead child that leads none is an orphan, therefore, and is buried at once.
One that does is a child of our own, which a thread waits for, or an orphan that called setsid: it is buried
when it has lain there for `UNCLAIMED_S`, far longer than any waiting thread takes.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
import structlog

from driver.providers.command.shim import kernel

UNCLAIMED_S: Final = 30.0
"""How long the dead leader of a session lies there before it counts as nobody's."""
LOOKS_MIN: Final = 3
"""And how often it was seen: a machine that slept has not given anybody the time to wait for it."""
_ZOMBIE: Final = "Z"
_OURS: Final = Path("/proc/self/task")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Dead:
    """A dead child: its number, and when it was started, for numbers are used again."""

    pid: int
    started: int


@dataclass(slots=True)
class _Sight:
    since: float
    looks: int = 0


@dataclass(slots=True)
class Undertaker:
    """Remembers which dead children it has seen, and since when."""

    _seen: dict[_Dead, _Sight] = field(default_factory=dict[_Dead, _Sight])

    @property
    def waits(self) -> bool:
        """Whether there are dead children that may turn out to be nobody's."""
        return bool(self._seen)

    def look(self, now: float) -> int:
        """Bury the orphans that are dead at `now`, by a steady clock; return how many. Blocks."""
        buried = 0
        leaders: dict[_Dead, _Sight] = {}
        for dead, leads in _dead_children():
            if leads:
                sight = self._seen.get(dead, _Sight(now))
                sight.looks += 1
                if sight.looks < LOOKS_MIN or now - sight.since < UNCLAIMED_S:
                    leaders[dead] = sight
                    continue
            buried += _bury(dead.pid)
        self._seen = leaders
        return buried


async def bury() -> None:
    """Adopt the orphans among this process's descendants, and bury each when it dies, until cancelled."""
    kernel.reap_orphans()
    undertaker = Undertaker()
    with anyio.open_signal_receiver(signal.SIGCHLD) as deaths:
        while True:
            again = await looked(undertaker)
            with anyio.move_on_after(UNCLAIMED_S / LOOKS_MIN if again else None):
                await anext(deaths)


async def looked(undertaker: Undertaker) -> bool:
    """Look once; return whether to look again though nobody else dies."""
    try:
        buried = await anyio.to_thread.run_sync(undertaker.look, anyio.current_time())
    except OSError as error:  # no descriptor is left to look with: the dead can wait
        log.warning("orphans_not_buried", error=error.strerror)
        return True
    if buried:
        log.debug("orphans_buried", count=buried)
    return undertaker.waits


def _dead_children() -> Iterator[tuple[_Dead, bool]]:
    """Yield each dead child, and whether it leads a session."""
    for pid in _children():
        fields = kernel.stat_fields(pid)
        if fields and fields[0] == _ZOMBIE and int(fields[1]) == os.getpid():
            yield _Dead(pid, int(fields[19])), int(fields[3]) == pid


def _children() -> set[int]:
    """Return all children: a kernel that does not list those of a thread has all of /proc looked through."""
    found: set[int] = set()
    try:
        for thread in _OURS.iterdir():
            with suppress(ProcessLookupError):
                found.update(map(int, (thread / "children").read_text().split()))
    except FileNotFoundError:
        return set(kernel.descendants())
    return found


def _bury(pid: int) -> int:
    with suppress(ChildProcessError):
        return int(os.waitpid(pid, os.WNOHANG)[0] == pid)
    return 0
