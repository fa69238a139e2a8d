"""What a shim that was killed itself has left running, where no cgroup tells: found in /proc, and ended.

Part of `driver.providers.command`; imports its `records`. Everything here blocks: call it in a worker thread.

The kernel kills the program with its shim. What the program had started is known by its session, and by the
pipes that it writes its output to; a process that has left the one and closed the other is not found. A
process number that is in use again is told apart by the time of its start, and a signal goes to a process
descriptor, never to a number.
"""

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from driver.providers.command.records import Started

END_S: Final = 2.0
"""How long the kernel may take over killing them."""
_ZOMBIE: Final = "Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    pid: int
    session: int
    started: int
    """In clock ticks since the boot."""
    ended: bool


def boot_id() -> str:
    """Return what this boot of the machine is called; empty where the kernel does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def namespace() -> str:
    """Return what tells the numbers of processes here from those in another container, or in its last life.

    The kernel gives a namespace's own number away again; the start of its first process comes only once.
    """
    first = _look(1)
    try:
        return f"{Path('/proc/self/ns/pid').readlink()} {first.started if first else None}"
    except OSError:
        return ""


def kill_shim(started: Started) -> None:
    """Kill a shim that does not heed its control any more."""
    _kill(_Process(pid=started.pid, session=0, started=started.pid_started, ended=False))


def end_program(started: Started) -> bool:
    """Kill what is left of a program whose shim is gone, and return whether nothing is."""
    deadline = time.monotonic() + END_S
    while victims := list(_left(started)):
        with ExitStack() as stack:
            waiting = select.poll()
            for victim in victims:
                descriptor = _kill(victim)
                if descriptor is not None:
                    stack.callback(os.close, descriptor)
                    waiting.register(descriptor, select.POLLIN)
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            waiting.poll(left_s * 1000)
    return True


def _left(started: Started) -> Iterator[_Process]:
    """Yield what lives of the program's session, and whatever holds one of its pipes."""
    pipes = {f"pipe:[{started.stdout_pipe}]", f"pipe:[{started.stderr_pipe}]"}
    leader = _look(started.child)
    reused = leader is not None and leader.started != started.child_started
    for name in os.listdir("/proc"):  # noqa: PTH208 names are all that is wanted, of many processes
        process = _look(int(name)) if name.isdigit() else None
        if process is None or process.ended or process.started < started.child_started:
            continue
        of_session = process.session == started.child and not reused
        if of_session or _outputs(process.pid) & pipes:
            yield process


def _outputs(pid: int) -> set[str]:
    found: set[str] = set()
    for descriptor in (1, 2):
        with suppress(OSError):
            found.add(str(Path(f"/proc/{pid}/fd/{descriptor}").readlink()))
    return found


def _look(pid: int) -> _Process | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return _Process(pid=pid, session=int(fields[3]), started=int(fields[19]), ended=fields[0] == _ZOMBIE)


def _kill(wanted: _Process) -> int | None:
    """Kill a process, and return a descriptor that turns readable when it has ended, if there is one."""
    try:
        descriptor = os.pidfd_open(wanted.pid)
    except OSError:
        return None
    found = _look(wanted.pid)
    if found is None or found.started != wanted.started:
        os.close(descriptor)
        return None
    with suppress(OSError):
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    return descriptor
