"""Starts a shim: its folder, its cgroup, its descriptors.

Part of `driver.providers.command`; imports its `cgroup`, `launch`, `nameless`, `records`, `remains`, `shim`,
`spool`, `tether` and `zygote`. Everything here blocks: call it in a worker thread.
"""

import os
import socket
from contextlib import ExitStack
from pathlib import Path

from driver.core.attempts import ToolCall
from driver.providers.command import cgroup, remains
from driver.providers.command.errors import Refused
from driver.providers.command.launch import Launch
from driver.providers.command.nameless import memory
from driver.providers.command.records import Origin
from driver.providers.command.shim.words import SHIM, Descriptors, Plan
from driver.providers.command.spool import Place
from driver.providers.command.tether import Tether
from driver.providers.command.zygote import Zygote


def spawn(place: Place, launch: Launch, call: ToolCall, zygote: Zygote, parent: Path | None) -> Tether:
    """Return a shim that is about to be ready, with a new cgroup below `parent`, if there is one.

    Raises `AttemptExists`, and `Refused` where the machine cannot start it; nothing was executed then.
    """
    wanted = None if parent is None else parent / _group_name(place)
    group = None
    try:
        # the record names the cgroup before it is made: a crash must not leave one that nobody knows of
        place.create(
            Origin(
                format=1,
                boot_id=remains.boot_id(),
                namespace=remains.namespace(),
                cgroup=None if wanted is None else str(wanted),
            )
        )
        group = None if wanted is None else cgroup.make(wanted)
        return _start(place, _plan(launch, call), launch, zygote, group)
    except BaseException as error:
        if group is not None:
            cgroup.remove(group)
        if isinstance(error, OSError):
            raise Refused("spawn_failed", f"the shim cannot be started: {error}") from error
        raise


def _start(place: Place, plan: Plan, launch: Launch, zygote: Zygote, group: Path | None) -> Tether:
    """Hand everything down, and keep our ends: what is opened here for the shim is closed here."""
    with ExitStack() as ours_on_failure, ExitStack() as theirs:

        def opened(path: Path | str, flags: int, mode: int = 0o600) -> int:
            descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
            theirs.callback(os.close, descriptor)
            return descriptor

        link, their_link = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours_on_failure.callback(link.close)
        theirs.callback(their_link.close)
        their_control = opened(place.control, os.O_RDWR | os.O_NONBLOCK)
        control = place.open_control()
        assert control is not None, "it has been opened for reading just before"
        ours_on_failure.callback(os.close, control)
        handed = Descriptors(
            plan=memory("effectd-plan", plan.to_bytes(), theirs),
            link=their_link.fileno(),
            control=their_control,
            folder=opened(place.folder, os.O_RDONLY | os.O_DIRECTORY),
            cwd=launch.folder,
            stdin=opened(os.devnull, os.O_RDONLY)
            if launch.stdin is None
            else memory("effectd-stdin", launch.stdin, theirs),
            log=opened(place.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND),
            group=None if group is None else opened(group, os.O_RDONLY | os.O_DIRECTORY),
        )
        zygote.fork(SHIM, [descriptor for descriptor in handed if descriptor is not None])
        link.settimeout(0)
        ours_on_failure.pop_all()
    return Tether(place, control, link)


def _group_name(place: Place) -> str:
    """Return a name that no other daemon on this machine can come by, whatever it executes."""
    return f"effectd-{place.operation_id}-{place.attempt}-{os.urandom(4).hex()}"


def _plan(launch: Launch, call: ToolCall) -> Plan:
    return Plan(
        operation_id=call.operation_id,
        attempt=call.attempt,
        program=launch.path,
        argv=list(launch.argv),
        env=dict(launch.env),
        output_bytes_max=launch.program.output_bytes_max,
        ok_exit_codes=sorted(launch.program.ok_exit_codes),
    )
