"""What the daemon and its shims say to each other.

Part of `driver.providers.command.shim`; imports the standard library only. The daemon imports this, too.
"""

import json
import os
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple, Self

FORMAT: Final = 1
"""Of all that is recorded."""
HELLO: Final = b"effectd-zygote 2"
"""What a zygote says first. One that says another number, after an upgrade, is refused."""
SHIM: Final = b"shim"
"""Has a shim forked, which is handed `Descriptors`."""
LEASH: Final = b"leash"
"""Has a leash forked, which is handed `Leashed`."""
READY: Final = b"ready "
"""What a shim says when it can execute its program at once, with its process id behind it; a leash, too."""
STARTED: Final = b"started"
"""What a shim says when the program was executed."""
FAILED: Final = b"failed "
"""What a leash says where its program was not executed, with the reason behind it."""
ENDED: Final = b"ended "
"""What a leash says when nothing of its program is left, with the exit code behind it, or -N for signal N."""
MESSAGE_BYTES_MAX: Final = 64
"""Of a message on a socket."""

TERM_S: Final = 2.0
"""From SIGTERM until SIGKILL, at a deadline or a cancel."""
LINGER_S: Final = 0.5
"""How long what the program started may outlive it: the end of a pipeline, a `tee` with its last line."""
LINGER_TERM_S: Final = 0.5
"""From SIGTERM until SIGKILL for what lingers on."""
KILL_S: Final = 2.0
"""From SIGKILL until it is given up: then it hangs in the kernel, or belongs to another user."""


class Descriptors(NamedTuple):
    """What a shim is handed, in this order. `group` is left out where the program has no cgroup."""

    plan: int
    link: int
    control: int
    folder: int
    cwd: int
    stdin: int
    log: int
    group: int | None = None


class Leashed(NamedTuple):
    """What a leash is handed, in this order."""

    command: int
    link: int
    cwd: int
    stdin: int
    stdout: int
    stderr: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What to execute. It goes through a nameless file in memory: nobody sees it in /proc."""

    program: str
    argv: list[str]
    env: dict[str, str]

    def to_bytes(self) -> bytes:
        """Return it as it travels."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def read(cls, descriptor: int) -> Self:
        """Return what a descriptor leads to."""
        return cls(**json.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Command):
    """What a shim executes, and keeps of it."""

    operation_id: str
    attempt: int
    output_bytes_max: int
    ok_exit_codes: list[int]
