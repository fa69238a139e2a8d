"""Errors at chosen system calls of a process that runs as it does in production: seccomp's user notification.

The process asks, after its fork, that the kernel report its file calls to us; each waits until we have let it
go on, or have answered it with an error in the kernel's place. Nothing of it was done then. No privilege, no
tracer and no changed library is needed; but Linux 5.5 or newer, on x86-64 or aarch64.
"""

import ctypes
import errno
import fcntl
import os
import platform
import select
import signal
import socket
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Final


@dataclass(frozen=True, slots=True)
class _Machine:
    """The numbers of system calls on one kind of processor."""

    seccomp: int
    calls: Mapping[int, str]
    """By their number; calls that differ in how they name a file have one name."""
    by_path: Mapping[int, int]
    """Which argument names the file; of all others the first one is a descriptor."""


_MACHINES: Final[Mapping[str, _Machine]] = MappingProxyType(
    {
        "x86_64": _Machine(
            317,
            {
                0: "read", 1: "write", 5: "fstat", 17: "pread64", 18: "pwrite64", 72: "fcntl", 73: "flock",
                74: "fsync", 75: "fdatasync", 77: "ftruncate", 82: "rename", 83: "mkdir", 86: "link",
                87: "unlink", 137: "statfs", 138: "fstatfs", 257: "openat", 258: "mkdir", 262: "newfstatat",
                263: "unlink", 264: "rename", 265: "link", 316: "rename",
            },
            {82: 0, 83: 0, 86: 0, 87: 0, 137: 0, 257: 1, 258: 1, 262: 1, 263: 1, 264: 1, 265: 1, 316: 1},
        ),
        "aarch64": _Machine(
            277,
            {
                25: "fcntl", 32: "flock", 34: "mkdir", 35: "unlink", 37: "link", 38: "rename", 43: "statfs",
                44: "fstatfs", 46: "ftruncate", 56: "openat", 63: "read", 64: "write", 67: "pread64",
                68: "pwrite64", 79: "newfstatat", 80: "fstat", 82: "fsync", 83: "fdatasync", 276: "rename",
            },
            {34: 1, 35: 1, 37: 1, 38: 1, 43: 0, 56: 1, 79: 1, 276: 1},
        ),
    }
)  # fmt: skip
_HERE: Final = _MACHINES.get(platform.machine(), _MACHINES["x86_64"])
CALLS: Final = _HERE.calls
_LOCKING: Final = frozenset({6, 7, 37, 38})
_NO_NEW_PRIVS: Final = 38
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_PATH_BYTES_MAX: Final = 512


def lacking() -> str | None:
    """Say why this machine cannot do it, or None."""
    release = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2])
    if platform.machine() in _MACHINES and release >= (5, 5):
        return None
    return "the kernel of this machine cannot report system calls (Linux 5.5, x86-64 or aarch64)"


class _Instruction(ctypes.Structure):
    _fields_: ClassVar[Any] = [
        ("code", ctypes.c_ushort),
        ("jt", ctypes.c_ubyte),
        ("jf", ctypes.c_ubyte),
        ("k", ctypes.c_uint),
    ]


class _Program(ctypes.Structure):
    _fields_: ClassVar[Any] = [("len", ctypes.c_ushort), ("filter", ctypes.POINTER(_Instruction))]


def submit(channel: socket.socket, only: str = "") -> None:
    """Let the other end of `channel` decide about our file calls from now on; of all threads that come.

    `only` names the one kind of call that it is about: all others then cost nothing.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    numbers = [number for number, name in sorted(CALLS.items()) if only in ("", name)]
    words = [(0x20, 0, 0, 0)]  # load the number of the call
    words += [(0x15, len(numbers) - place, 0, number) for place, number in enumerate(numbers)]
    words += [(0x06, 0, 0, _ALLOW), (0x06, 0, 0, _NOTIFY)]
    program = _Program(len(words), (_Instruction * len(words))(*(_Instruction(*word) for word in words)))
    if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    listener = libc.syscall(_HERE.seccomp, 1, 8, ctypes.byref(program))
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    socket.send_fds(channel, [b"."], [listener])
    channel.close()
    os.close(listener)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A file call below the watched folder, by one of the process's own threads."""

    name: str
    path: str


KILL: Final = -1
Judge = Callable[[Call], int]
"""Returns 0, the number of the error to answer with, or `KILL`."""


@dataclass(slots=True)
class Supervisor:
    """Our side: decides about the calls of one process, in whatever thread runs `serve`."""

    pid: int
    listener: int
    root: str
    judge: Judge
    folders: tuple[str, ...] = ("state", "run")
    """Below `root`: what the journal and the daemon keep."""
    calls: list[Call] = field(default_factory=list[Call])
    _ours: dict[int, bool] = field(default_factory=dict[int, bool])

    def serve(self) -> None:
        """Decide until the process, and whatever it has started, is gone."""
        poll = select.poll()
        poll.register(self.listener, select.POLLIN)
        try:
            memory = os.open(f"/proc/{self.pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            # one that has ended has none: nobody asks any more
            is_asked = any(what & select.POLLIN for _, what in poll.poll())
            os.close(self.listener)
            if is_asked:
                raise
            return
        try:
            while True:
                ((_, what),) = poll.poll()
                if not what & select.POLLIN:
                    return
                with suppress(FileNotFoundError):
                    self._decide(memory)
        finally:
            os.close(memory)
            os.close(self.listener)

    def _decide(self, memory: int) -> None:
        notice = bytearray(80)
        fcntl.ioctl(self.listener, _RECEIVE, notice)
        number, thread, _, call, _, _, *arguments = struct.unpack_from("=QIIiIQ6Q", notice)
        problem = self._look(memory, thread, call, arguments)
        if problem == KILL:
            os.kill(self.pid, signal.SIGKILL)
            return
        answer = struct.pack("=QqiI", number, 0, -problem, 0 if problem else 1)
        fcntl.ioctl(self.listener, _SEND, answer)

    def _look(self, memory: int, thread: int, number: int, arguments: list[int]) -> int:
        name = CALLS[number]
        if name == "fcntl" and arguments[1] not in _LOCKING:
            return 0
        if thread not in self._ours:
            task = f"/proc/{self.pid}/task/{thread}"
            self._ours[thread] = os.path.exists(task)  # noqa: PTH110 - it is fast
        if not self._ours[thread]:
            return 0
        path = self._path(memory, thread, _HERE.by_path.get(number), arguments)
        if path is None or not path.startswith(self.root):
            return 0
        call = Call(name=name, path=path[len(self.root) :].lstrip("/"))
        if not call.path.startswith(self.folders):
            return 0
        self.calls.append(call)
        return self.judge(call)

    def _path(self, memory: int, thread: int, place: int | None, arguments: list[int]) -> str | None:
        try:
            if place is not None:
                raw = os.pread(memory, _PATH_BYTES_MAX, arguments[place])
                return os.fsdecode(raw.partition(b"\0")[0])
            return os.readlink(f"/proc/{thread}/fd/{arguments[0]}")  # noqa: PTH115 - it is fast
        except OSError:
            return None


ERRORS: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {
        "read": (errno.EIO,),
        "pread64": (errno.EIO,),
        "fstat": (errno.EIO,),
        "newfstatat": (errno.EIO, errno.EACCES),
        "write": (errno.EIO, errno.ENOSPC),
        "pwrite64": (errno.EIO, errno.ENOSPC),
        "ftruncate": (errno.EIO, errno.ENOSPC),
        "fsync": (errno.EIO, errno.ENOSPC),
        "fdatasync": (errno.EIO, errno.ENOSPC),
        "fcntl": (errno.ENOLCK, errno.EIO),
        "flock": (errno.ENOLCK,),
        "openat": (errno.EMFILE, errno.EIO, errno.ENOSPC),
        "rename": (errno.EIO, errno.ENOSPC),
        "unlink": (errno.EIO,),
        "link": (errno.EIO, errno.ENOSPC),
        "mkdir": (errno.ENOSPC, errno.EIO),
        "statfs": (errno.EIO,),
        "fstatfs": (errno.EIO,),
    }
)
"""What each call is answered with: by a failing disk, a full one, a process or a machine at its limits."""
