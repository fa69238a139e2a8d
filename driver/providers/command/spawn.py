"""Starts a shim: its folder, its cgroup, its descriptors, its interpreter.

Part of `driver.providers.command`; imports its `cgroup`, `launch`, `records`, `shim`, `spool` and `tether`.
Everything here blocks: call it in a worker thread.

The interpreter is started without `site` and without looking at the environment, and the shim's compiled code
is handed to it in memory. So it starts in the time of a bare interpreter, and it is always the code that this
daemon was started with, whatever an upgrade has done to the files meanwhile.
"""

import importlib.util
import marshal
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Final

from driver.core.attempts import ToolCall
from driver.providers.command import cgroup, remains, shim
from driver.providers.command.errors import Refused
from driver.providers.command.launch import Launch
from driver.providers.command.records import Origin
from driver.providers.command.spool import Place
from driver.providers.command.tether import Tether

_PYC_HEADER: Final = importlib.util.MAGIC_NUMBER + bytes(12)
"""What stands before the code in a compiled file that belongs to no source file."""
_ENVIRONMENT: Final[Mapping[str, str]] = {"LC_ALL": "C.UTF-8"}
"""What the shim itself gets: only what keeps its interpreter from looking for a locale."""


@cache
def code() -> int:
    """Return a descriptor of the shim's compiled code, kept open for the daemon's whole life."""
    source = Path(shim.__file__).read_bytes()
    compiled = marshal.dumps(compile(source, "shim.py", "exec", dont_inherit=True, optimize=2))
    return _memory("effectd-shim", _PYC_HEADER + compiled)


def spawn(place: Place, launch: Launch, call: ToolCall, parent: Path | None) -> Tether:
    """Return a shim that is about to be ready, in a new cgroup below `parent`, if there is one.

    Raises `AttemptExists`, and `Refused` where the machine cannot start it; nothing was executed then.
    """
    group = cgroup.make(parent, f"effectd-{place.operation_id}-{place.attempt}") if parent else None
    try:
        place.create(
            Origin(
                format=1,
                boot_id=remains.boot_id(),
                namespace=remains.namespace(),
                cgroup=str(group) if group else None,
            )
        )
        tether, pid = _start(place, launch, call)
    except BaseException as error:
        if group is not None:
            cgroup.remove(group)
        if isinstance(error, OSError):
            raise Refused("spawn_failed", f"the shim cannot be started: {error}") from error
        raise
    if group is not None:
        cgroup.enter(group, pid)  # while its interpreter starts: the kernel takes some milliseconds
    return tether


def _start(place: Place, launch: Launch, call: ToolCall) -> tuple[Tether, int]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(0)
    reading = os.open(place.control, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    control = place.open_control()
    assert control is not None, "it has been opened for reading just before"
    with ExitStack() as only_theirs:
        only_theirs.callback(theirs.close)
        try:
            descriptors = [
                _memory("effectd-plan", _plan(launch, call)),
                theirs.fileno(),
                reading,
                os.open(place.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC),
                launch.folder,
                _stdin(launch.stdin),
            ]
            for descriptor in (descriptors[0], *descriptors[2:4], descriptors[5]):
                only_theirs.callback(os.close, descriptor)
            process = _popen(place, descriptors)
        except BaseException:
            ours.close()
            os.close(control)
            raise
    return Tether(place, control, process=process, link=ours), process.pid


def _popen(place: Place, descriptors: list[int]) -> subprocess.Popen[bytes]:
    program = f"/proc/self/fd/{code()}"
    with place.log.open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-E", program, *map(str, descriptors), place.operation_id],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=_ENVIRONMENT,
            cwd="/",
            pass_fds=(code(), *descriptors),
            start_new_session=True,
        )


def _plan(launch: Launch, call: ToolCall) -> bytes:
    """Return what `shim.Plan` reads. It goes through memory: nobody sees it in /proc."""
    return marshal.dumps(
        {
            "operation_id": call.operation_id,
            "attempt": call.attempt,
            "program": launch.path,
            "argv": list(launch.argv),
            "env": dict(launch.env),
            "output_bytes_max": launch.program.output_bytes_max,
            "ok_exit_codes": sorted(launch.program.ok_exit_codes),
        }
    )


def _stdin(data: bytes | None) -> int:
    if data is None:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    return _memory("effectd-stdin", data)


def _memory(name: str, data: bytes) -> int:
    """Return a descriptor of a nameless file in memory that holds `data`, to be read from its start."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
