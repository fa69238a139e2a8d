"""A cgroup of its own for each command, where the daemon may make one: what is in it cannot get out.

Part of `driver.providers.command`; imports nothing of ours. Everything here blocks: call it in a worker
thread.

The shim alone ends all descendants without any cgroup. With one, that holds too when somebody kills the shim
itself, and for processes that belong to another user. It needs cgroup v2, and a cgroup that is delegated to
the daemon (`Delegate=yes` in its unit, without `ProtectControlGroups=`).
"""

import os
import select
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

END_S: Final = 2.0
"""How long the kernel may take over killing everything in a cgroup."""


def delegated() -> Path | None:
    """Return the daemon's own cgroup, if it can be told and it may make others below it."""
    try:
        own = next(
            line.removeprefix("0::").strip()
            for line in Path("/proc/self/cgroup").read_text().splitlines()
            if line.startswith("0::")
        )
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    except (OSError, StopIteration):
        return None
    for mount in mounts:
        before, _, behind = mount.partition(" - ")
        if behind.startswith("cgroup2 "):
            root, point = before.split()[3:5]
            folder = Path(point, own.removeprefix(root).lstrip("/"))
            return folder if ".." not in own and os.access(folder, os.W_OK) else None
    return None


def make(group: Path) -> Path | None:
    """Return the new cgroup, if it can be made and killed as a whole; None where the kernel forbids."""
    try:
        group.mkdir()
    except OSError:
        return None
    if (group / "cgroup.kill").exists():
        return group
    remove(group)
    return None


def end(group: Path) -> bool:
    """Kill all that is in `group`, and return whether nothing is left of it. The group itself goes too."""
    deadline = time.monotonic() + END_S
    try:
        events = os.open(group / "cgroup.events", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        changed = select.poll()
        changed.register(events, select.POLLPRI)
        while _populated(events):
            with suppress(OSError):
                (group / "cgroup.kill").write_text("1")
            if not changed.poll(max(deadline - time.monotonic(), 0) * 1000):
                break
        left = _populated(events)
    finally:
        os.close(events)
    remove(group)
    return not left


def remove(group: Path) -> None:
    """Remove an empty group."""
    with suppress(OSError):
        group.rmdir()


def _populated(events: int) -> bool:
    with suppress(OSError):
        return b"populated 1" in os.pread(events, 256, 0)
    return False
