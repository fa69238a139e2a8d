"""What a shim asks of Linux beyond what `os` offers: its descendants, their reaper, a child within a cgroup.

Part of `driver.providers.command.shim`; imports the standard library only.
"""

import ctypes
import os
import signal
from contextlib import suppress
from typing import Final

OUTLIVED: Final = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
"""Sent to everything by who stops a service: who keeps a program sees it to its end all the same."""
_LIBC: Final = ctypes.PyDLL(None)  # which keeps the interpreter locked: a forked child goes on with it
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_CHILD_SUBREAPER: Final = 36
_SYS_CLONE3: Final = 435  # on every architecture
_CLONE_INTO_CGROUP: Final = 0x2_0000_0000


class KernelRefuses(Exception):
    """An option that every supported kernel has is refused."""

    def __init__(self, option: int) -> None:
        super().__init__(f"the kernel refuses prctl option {option}: is it older than 3.4?")


class _CloneArguments(ctypes.Structure):
    """`struct clone_args` of linux/sched.h."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("pidfd", ctypes.c_uint64),
        ("child_tid", ctypes.c_uint64),
        ("parent_tid", ctypes.c_uint64),
        ("exit_signal", ctypes.c_uint64),
        ("stack", ctypes.c_uint64),
        ("stack_size", ctypes.c_uint64),
        ("tls", ctypes.c_uint64),
        ("set_tid", ctypes.c_uint64),
        ("set_tid_size", ctypes.c_uint64),
        ("cgroup", ctypes.c_uint64),
    )


def hide() -> None:
    """Show this process's memory and descriptors to no other process of the same user."""
    _prctl(_PR_SET_DUMPABLE, 0)


def reap_orphans() -> None:
    """Become the parent of every descendant whose own parent has ended."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent has ended. It stays so beyond `execve`."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def fork(group: int | None) -> int:
    """Fork into a cgroup, where that is asked for and possible, else without: see `os.fork`.

    To be born in it costs nothing; to be moved there afterwards holds up every fork of the machine.
    """
    if group is not None:
        arguments = _CloneArguments(flags=_CLONE_INTO_CGROUP, exit_signal=signal.SIGCHLD, cgroup=group)
        pid = int(_LIBC.syscall(_SYS_CLONE3, ctypes.byref(arguments), ctypes.sizeof(arguments)))
        if pid >= 0:
            return pid
    return os.fork()


def wake_on_signals() -> int:
    """Return a descriptor that a child's end makes readable, and a signal that is outlived."""
    wake, wake_end = os.pipe()
    os.set_blocking(wake_end, False)
    signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, *OUTLIVED):
        signal.signal(number, lambda _number, _frame: None)
    return wake


def default_signals() -> None:
    """Undo what this interpreter, or the daemon, ignores or handles: a program expects the defaults."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with suppress(OSError, ValueError):  # libc keeps a few for itself
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def descendants() -> list[int]:
    """Return every process below this one, by one look at /proc."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 names are all that is wanted
        if name.isdigit() and (fields := stat_fields(int(name))):
            children.setdefault(int(fields[1]), []).append(int(name))
    found = list(children.get(os.getpid(), ()))
    for pid in found:  # grows while it is walked
        found += children.get(pid, ())
    return found


def signal_descendants(number: signal.Signals) -> int:
    """Send a signal to every descendant, and return to how many."""
    reached = 0
    for pid in descendants():
        with suppress(OSError):  # it has just ended, or belongs to another user
            os.kill(pid, number)
            reached += 1
    return reached


def kill_group(group: int) -> None:
    """Kill everything in a cgroup, whoever it belongs to."""
    with suppress(OSError):
        switch = os.open("cgroup.kill", os.O_WRONLY | os.O_CLOEXEC, dir_fd=group)
        try:
            os.write(switch, b"1")
        finally:
            os.close(switch)


def start_ticks(pid: int) -> int:
    """Return when a process was started, in clock ticks: with it, a number in use again is told apart."""
    return int(stat_fields(pid)[19])


def stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat behind the name, the state first; none where it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 of many processes, at once
            return file.read().rpartition(b")")[2].decode().split()
    except OSError:
        return []


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, ctypes.c_ulong(value), 0, 0, 0):
        raise KernelRefuses(option)
