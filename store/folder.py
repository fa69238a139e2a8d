"""The state folder: who may use it, on which file system it lies, and the lock of its owner.

Part of `store`; imports its errors and `durable`. Everything here blocks, and runs in a worker thread while
the journal is opened.

The lock is `flock` on a file that is never deleted, opened without following links, and compared with its
path after locking: so that neither a link, nor a folder that was replaced meanwhile, nor the close of some
other descriptor can make two daemons both believe that they own the journal.
"""

import fcntl
import os
import re
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from store.durable import sync_folder
from store.errors import FolderInsecure, FolderUnusable, JournalBusy, NetworkFileSystem
from store.settings import JournalSettings

LOCK: Final = "lock"
"""Name of the lock file. Its content is the process id of the owner, for the error message only."""
LINGER_S: Final = 2.0
"""How long the lock of a killed owner may outlive it: a child that it had forked and that had not yet become
another program shares it. An ordinary `exec` takes milliseconds."""
LOOK_AGAIN_S: Final = 0.01
PRIVATE: Final = 0o700
NETWORK: Final = frozenset(
    [
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "gfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs3",
        "nfs4",
        "ocfs2",
        "orangefs",
        "prl_fs",
        "smb2",
        "smb3",
        "smbfs",
        "vboxsf",
        "virtiofs",
        "vmhgfs",
    ]
)
VOLATILE: Final = frozenset({"tmpfs", "ramfs"})
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A state folder that was checked and locked."""

    path: Path
    file_system: str
    volatile: bool
    """True on a memory file system: what is committed there does not survive a reboot."""


@contextmanager
def entered(settings: JournalSettings) -> Generator[Folder]:
    """Make the state folder if there is none, check it, and hold its lock until the block ends.

    Raises `FolderUnusable`, `FolderInsecure`, `NetworkFileSystem` or `JournalBusy`.
    """
    path = settings.state_dir
    try:
        _make(path)
        kind = file_system_of(path)
        if not settings.allow_network_fs and (kind in NETWORK or kind.startswith("fuse")):
            raise NetworkFileSystem(path, kind)
        descriptor = _lock(path / LOCK)
    except OSError as error:
        raise FolderUnusable(path, error) from error
    try:
        yield Folder(path=path, file_system=kind, volatile=kind in VOLATILE)
    finally:
        os.close(descriptor)


def _make(path: Path) -> None:
    """Make the folder 0700. One that exists must be ours, and writable by nobody else; it becomes 0700."""
    for folder in make_folder(path, PRIVATE):
        with suppress(PermissionError):  # a folder that we may enter and not read: it cannot be synced either
            sync_folder(folder.parent)
    if (weak := weak_ancestor(path)) is not None:
        raise FolderInsecure(
            weak.path,
            f"{weak.fault}: somebody else could put another folder in the place of {path}",
            "Close it, or choose a state folder below folders that are root's or effectd's.",
        )
    found = path.stat()
    if found.st_uid != os.geteuid():
        raise FolderInsecure(
            path,
            f"belongs to the user with id {found.st_uid}, and effectd runs as {os.geteuid()}",
            "Give the folder to effectd's user (chown), or start effectd as its owner.",
        )
    if found.st_mode & 0o022:
        raise FolderInsecure(
            path,
            f"can be written by others (mode {stat.S_IMODE(found.st_mode):04o})",
            "Look at what is in it, then close it: chmod 700.",
        )
    if stat.S_IMODE(found.st_mode) & 0o777 != PRIVATE:
        path.chmod(PRIVATE)


def make_folder(path: Path, mode: int) -> list[Path]:
    """Make the folder, and those above it, and return those that were made; none where it exists.

    Nobody else may write in what is above, whatever the umask is. Raises OSError.
    """
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(made[1:]):
        folder.mkdir(mode=0o755, exist_ok=True)
    path.mkdir(mode=mode, exist_ok=True)
    return made


@dataclass(frozen=True, slots=True)
class Weak:
    """A folder on the way to ours through which others could replace it."""

    path: Path
    fault: str


def weak_ancestor(path: Path) -> Weak | None:
    """Return the first folder above `path`, as the links in it lead, that others control; None where none is.

    It must belong to root or to us, and nobody else may rename what is in it: not everybody, and no group but
    our own, unless it is sticky, as /tmp is. Raises OSError.
    """
    for folder in path.resolve().parents:
        found = folder.stat()
        if found.st_uid not in (0, os.geteuid()):
            return Weak(folder, f"belongs to the user with id {found.st_uid}")
        others = 0o002 if found.st_gid == os.getegid() else 0o022
        if found.st_mode & others and not found.st_mode & stat.S_ISVTX:
            return Weak(folder, f"can be written by others (mode {stat.S_IMODE(found.st_mode):04o})")
    return None


def _lock(path: Path) -> int:
    patience = time.monotonic() + LINGER_S
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            check_file(path, os.fstat(descriptor))
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, descriptor):
                name = f"{os.getpid()}\n".encode("ascii")
                os.pwrite(descriptor, name, 0)  # over the last one's, for which a full disk has room
                os.ftruncate(descriptor, len(name))
                return descriptor
        except BlockingIOError:
            pid = _owner(descriptor)
            os.close(descriptor)
            if _lives(pid) or time.monotonic() >= patience:
                raise JournalBusy(path.parent, pid=pid) from None
            time.sleep(LOOK_AGAIN_S)
            continue
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether the locked file is still the one that the path leads to."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _lives(pid: int | None) -> bool:
    """Whether the process that took the lock is there; else a child of it holds the lock a moment longer."""
    if pid is None:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _owner(descriptor: int) -> int | None:
    text = os.pread(descriptor, 20, 0).strip()
    return int(text) if text.isdigit() else None


def check_file(path: Path, found: os.stat_result) -> None:
    """Raise `FolderInsecure` unless the file is a regular one, ours, and readable by nobody else."""
    if not stat.S_ISREG(found.st_mode):
        raise FolderInsecure(
            path,
            "is not a regular file",
            "Move it away: a link or a device has no place in the state folder.",
        )
    if found.st_uid != os.geteuid():
        raise FolderInsecure(
            path,
            f"belongs to the user with id {found.st_uid}, and effectd runs as {os.geteuid()}",
            "Give the file to effectd's user (chown), or start effectd as its owner.",
        )
    if found.st_mode & 0o077:
        raise FolderInsecure(
            path,
            f"is open to others (mode {stat.S_IMODE(found.st_mode):04o})",
            "Check who may have read or changed it, then close it: chmod 600.",
        )


def file_system_of(path: Path) -> str:
    """Return the type of the file system that `path` is on; an empty text where the system does not say."""
    target = path.resolve()
    try:
        lines = (
            Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        )
    except OSError:
        return ""
    best, kind = -1, ""
    for line in lines:
        left, _, right = line.partition(" - ")
        mounted = Path(_ESCAPED.sub(lambda match: chr(int(match[1], 8)), left.split()[4]))
        # the later of two mounts on one point covers the earlier
        if target.is_relative_to(mounted) and len(mounted.parts) >= best:
            best, kind = len(mounted.parts), right.split()[0]
    return kind
