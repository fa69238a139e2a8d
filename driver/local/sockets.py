"""The two listening Unix sockets, and the folder that they stand in.

Part of `driver.local`; imports its own errors, a limit of `driver.config` and a check of `store`. Everything
here blocks, briefly: call it in a worker thread.

The daemon holds the lock on its state folder before it comes here, so no second daemon of the same journal
can be in between our look at the path and our bind. A daemon with another state folder and the same runtime
folder can: it is found by connecting.
"""

import errno
import os
import socket
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from driver.config.sockets import SOCKET_PATH_BYTES_MAX
from driver.local.errors import (
    NotASocket,
    RuntimeDirUnsafe,
    SocketInUse,
    SocketPathTooLong,
    SocketUnavailable,
)
from store.folder import make_folder, weak_ancestor

RUNTIME_DIR_MODE: Final = 0o750
"""The group may pass through to `inspect.sock`; only the owner may add or replace."""

BACKLOG: Final = 128
"""Connections that the kernel keeps for us while the loop is busy."""

_PROBE_S: Final = 1.0
_FIRST_LENT: Final = 3
"""The first descriptor that a service manager passes (sd_listen_fds(3))."""

_KINDS: Final = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISREG, "a regular file"),
    (stat.S_ISFIFO, "a FIFO"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A bound, listening socket. `device` and `inode` tell our file from one that was put in its place."""

    path: Path
    socket: socket.socket
    device: int
    inode: int
    lent: bool = False
    """Whether the service manager made it, and keeps it when this process ends."""

    def close(self) -> None:
        """Stop listening and remove the file, unless it is not, or no longer, ours. Safe to call twice."""
        self.socket.close()
        if self.lent:
            return
        with suppress(OSError):
            found = self.path.lstat()
            if (found.st_dev, found.st_ino) == (self.device, self.inode):
                self.path.unlink()


def prepare_runtime_dir(path: Path) -> None:
    """Make the runtime folder when it is missing; otherwise see that nobody else can replace what is in it.

    Raises `RuntimeDirUnsafe`, or `SocketUnavailable` where the operating system refuses.
    """
    with _refusals_of(path):
        if path.exists():
            _check_runtime_dir(path)
        else:
            make_folder(path, RUNTIME_DIR_MODE)
            path.chmod(RUNTIME_DIR_MODE)  # whatever the umask made of it
        if (weak := weak_ancestor(path)) is not None:
            raise RuntimeDirUnsafe(
                path, f"is below {weak.path}, which {weak.fault}", "Close that, or choose another one"
            )


def _check_runtime_dir(path: Path) -> None:
    found = path.stat()
    if not stat.S_ISDIR(found.st_mode):
        raise RuntimeDirUnsafe(path, "is not a folder", "Move it away, or choose another one")
    if found.st_uid not in (os.geteuid(), 0):
        raise RuntimeDirUnsafe(path, f"belongs to uid {found.st_uid}", "Choose a folder of this user's own")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise RuntimeDirUnsafe(
            path,
            f"has mode {stat.S_IMODE(found.st_mode):04o}",
            f"Run 'chmod go-w {path}', or choose another one",
        )


def lent(path: Path) -> Listener | None:
    """Return the listening socket that the service manager made for `path`; None where it made none.

    It stands in this process from its start (sd_listen_fds(3)). Whatever mode its file has is the service
    manager's decision.
    """
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    for descriptor in range(_FIRST_LENT, _FIRST_LENT + int(os.environ.get("LISTEN_FDS", "0"))):
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - foreign
        made = socket.socket(fileno=os.dup(descriptor))
        if made.family is socket.AF_UNIX and made.getsockname() == os.fspath(path):
            found = path.lstat()
            made.settimeout(0)
            return Listener(path=path, socket=made, device=found.st_dev, inode=found.st_ino, lent=True)
        made.close()
    return None


def listen(path: Path, mode: int) -> Listener:
    """Return a listening socket at `path`, whose file has exactly `mode`, unless it was lent to us.

    A stale socket (nobody answers) is replaced. Raises `SocketInUse` for a live one, `NotASocket` for
    anything else at the path, `SocketPathTooLong`, or `SocketUnavailable`.
    """
    size = len(os.fsencode(path))
    if size > SOCKET_PATH_BYTES_MAX:
        raise SocketPathTooLong(path, size)
    with _refusals_of(path):
        if (made := lent(path)) is not None:
            return made
        _clear(path)
        listener = bind(path, mode)
        try:
            path.chmod(mode)  # the umask may have taken bits away
            listener.socket.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
        return listener


def bind(path: Path, mode: int) -> Listener:
    """Return a socket bound to `path`, whose file never had a bit more than `mode`, whatever the umask.

    Linux gives the file the mode of the unbound socket, less the umask. Setting that mode first needs no
    change of the umask, which belongs to the whole process, other threads included.
    """
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        os.fchmod(made.fileno(), mode)
        made.bind(os.fspath(path))
        made.settimeout(0)
        found = path.lstat()
    except OSError:
        made.close()
        raise
    return Listener(path=path, socket=made, device=found.st_dev, inode=found.st_ino)


def _clear(path: Path) -> None:
    """Remove a stale socket at `path`, and nothing else."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(found.st_mode)), "a special file")
        raise NotASocket(path, kind)
    if _is_live(path):
        raise SocketInUse(path)
    path.unlink(missing_ok=True)


def _is_live(path: Path) -> bool:
    """Whether somebody holds the socket: only a refused connection shows that nobody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
        probe.settimeout(_PROBE_S)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            return False
        except FileNotFoundError:
            return False
        except TimeoutError:
            return True
        except OSError as error:
            # a full backlog, or a socket of another type: held by somebody all the same
            if error.errno in (errno.EAGAIN, errno.EPROTOTYPE):
                return True
            raise
        return True


@contextmanager
def _refusals_of(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise SocketUnavailable(path, error) from error
