"""Lives of a journal on a disk that is really full, and one after that, with room. Part of the lane `errors`.

The disk is a file system in memory, of as many bytes as were drawn, in a mount namespace of this process:
nobody else sees it, and it goes with the process. Where this machine lets nobody mount, a limit of how large
a file may become (RLIMIT_FSIZE) takes its place: the kernel then refuses the write, as a full disk does.
"""

import ctypes
import os
import random
import resource
import shutil
import signal
from pathlib import Path
from time import monotonic
from typing import Final

from tests.faults.journal_errors import BROKEN_MAX, SLOW_S, Tally, Trap, Worker, judged, life
from tests.faults.lane import Time
from tests.faults.promises import lines

WANTED: Final = "full: exit code 70"
MOUNTED: Final = "a full disk"
LIMITED: Final = "a file at its limit"
SLACK_BYTES: Final = 400_000
"""How much more than the journal has at most fits on the disk."""
ROOM_BYTES: Final = 64_000_000
LEAST_BYTES: Final = 65_536
"""A disk with less room than this is full."""
_NEW_NAMESPACE, _NEW_USER = 0x00020000, 0x10000000
_PRIVATE: Final = (1 << 18) | (1 << 14)
_REMOUNT: Final = 32


def work(folder: Path, seed: int, time: Time, target: int) -> Tally:
    """Let lives meet a full disk until the time is over, or until so many have."""
    folder.mkdir(mode=0o700)
    worker = Worker(folder, seed)
    worker.prepare()
    disk = folder / "disk"
    disk.mkdir(mode=0o700)
    is_mounted = _mount(disk, ROOM_BYTES)
    chance = random.Random(seed)
    tally = worker.tally
    while tally.injected < target and len(tally.broken) < BROKEN_MAX:
        if not time.is_left(is_missing=not tally.reached[WANTED]):
            break
        start = chance.choice(("new", "used", "killed"))
        room, number = chance.randrange(SLACK_BYTES), chance.randrange(1 << 30)
        _one(worker, disk, start, room, number, is_mounted=is_mounted)
    return tally


def _one(worker: Worker, disk: Path, start: str, room: int, seed: int, *, is_mounted: bool) -> None:
    began, tally, root = monotonic(), worker.tally, disk / "root"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(worker.templates[start], root)
    size = sum(path.stat().st_blocks * 512 for path in root.rglob("*"))
    if is_mounted:
        _mount(disk, size + room, again=True)
        ended = life(root, "plain", seed, Trap(None))
        is_full = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize < LEAST_BYTES
        _mount(disk, ROOM_BYTES, again=True)
    else:
        largest = max((path.stat().st_size for path in root.rglob("*.db*")), default=0)
        with _limited(largest + room // 4):
            ended = life(root, "plain", seed, Trap(None))
        is_full = True
    tally.tried += 1
    tally.lives += 1
    tally.hung += ended.took_s > SLOW_S
    if ended.code and is_full:
        tally.fired["once"] += 1
        tally.fired[MOUNTED if is_mounted else LIMITED] += 1
        tally.reached[f"full: exit code {ended.code}"] += 1
    told = lines(ended.said.splitlines(), worker.promises[start])
    wrong = judged(ended, Trap(None)) + told.broken(worker.looker.look_at(root))
    tally.slowest_s = max(tally.slowest_s, monotonic() - began)
    if wrong:
        tally.broken.append(
            f"full disk, {start} journal, life {seed}, {room} bytes of room: {'; '.join(wrong)[:900]}"
        )


class _limited:  # noqa: N801 - it is used as a function is
    """Files may not become larger than this, for whoever is forked meanwhile."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._usual = resource.getrlimit(resource.RLIMIT_FSIZE)

    def __enter__(self) -> None:
        self._handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self._size, self._usual[1]))

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._usual)
        signal.signal(signal.SIGXFSZ, self._handler)


def _mount(place: Path, size: int, *, again: bool = False) -> bool:
    """Mount a file system of this size there, for this process and its children; return whether it could."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not again:
        if libc.unshare(_NEW_NAMESPACE) != 0 and not _as_its_own_root(libc):
            return False
        libc.mount(None, b"/", None, ctypes.c_ulong(_PRIVATE), None)
    flags = ctypes.c_ulong(_REMOUNT if again else 0)
    options = f"size={size},mode=0700".encode()
    return bool(libc.mount(b"tmpfs", os.fsencode(place), b"tmpfs", flags, options) == 0)


def _as_its_own_root(libc: ctypes.CDLL) -> bool:
    user, group = os.getuid(), os.getgid()
    if libc.unshare(_NEW_NAMESPACE | _NEW_USER) != 0:
        return False
    for name, text in (
        ("uid_map", f"{user} {user} 1"),
        ("setgroups", "deny"),
        ("gid_map", f"{group} {group} 1"),
    ):
        Path("/proc/self", name).write_text(text, encoding="ascii")
    return True
