"""Processes that the demo caused and does not own: the provider of a killed daemon, and what it started.

Part of `driver.demo`; imports nothing of ours. They are known by the scratch folder, whose name nobody else
has: it stands in their command line, or they work in it.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread

GRACE_S: Final = 5.0
"""How long they have to notice that their daemon is gone: a server on stdio sees its input end at once."""


def processes_in(folder: Path) -> Iterator[int]:
    """Yield the id of every other process that has to do with `folder`. Blocks."""
    needle = os.fsencode(folder)
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid() and _belongs(process, needle):
            yield int(process.name)


def _belongs(process: Path, needle: bytes) -> bool:
    with contextlib.suppress(OSError):
        if needle in (process / "cmdline").read_bytes():
            return True
    with contextlib.suppress(OSError):
        place = os.fsencode(os.readlink(process / "cwd"))  # noqa: PTH115 - the link's text, not a path of ours
        return place == needle or place.startswith(needle + b"/")
    return False


async def gone(folder: Path, grace_s: float = GRACE_S) -> None:
    """Return once no process has to do with `folder` any more: they end by themselves, or are ended."""
    for pid in await to_thread.run_sync(lambda: list(processes_in(folder))):
        with contextlib.suppress(ProcessLookupError):
            await _end(os.pidfd_open(pid), grace_s)


async def _end(descriptor: int, grace_s: float) -> None:
    try:
        with anyio.move_on_after(grace_s):
            await anyio.wait_readable(descriptor)
            return
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        await anyio.wait_readable(descriptor)
    finally:
        os.close(descriptor)
