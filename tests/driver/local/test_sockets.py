"""The two sockets' files: modes, take-over of stale ones, and everything that is left alone."""

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from driver.local.errors import (
    NotASocket,
    RuntimeDirUnsafe,
    SocketInUse,
    SocketPathTooLong,
    SocketUnavailable,
)
from driver.local.sockets import RUNTIME_DIR_MODE, bind, listen, prepare_runtime_dir


def mode_of(path: Path) -> int:
    """Return the permission bits of the file itself."""
    return stat.S_IMODE(path.lstat().st_mode)


def _link_to_nowhere(path: Path) -> None:
    path.symlink_to("/nowhere")


@pytest.fixture
def open_umask() -> Iterator[None]:
    """A umask that takes nothing away."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def strict_umask() -> Iterator[None]:
    """A umask that leaves the owner's bits only."""
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.parametrize("mode", [0o600, 0o660])
def test_a_socket_has_exactly_its_mode_under_a_strict_umask(
    tmp_path: Path, mode: int, strict_umask: None
) -> None:
    """The umask may take bits away at birth; they are given back."""
    listener = listen(tmp_path / "x.sock", mode)
    assert mode_of(listener.path) == mode
    listener.close()


def test_a_socket_is_never_open_wider_than_its_mode(tmp_path: Path, open_umask: None) -> None:
    """Between bind and chmod nobody else can connect, even under umask 0."""
    listener = bind(tmp_path / "x.sock", 0o600)
    assert mode_of(listener.path) == 0o600
    listener.close()


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    """A socket whose owner died is taken over."""
    path = tmp_path / "x.sock"
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    dead.bind(os.fspath(path))
    dead.close()
    listener = listen(path, 0o600)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(os.fspath(path))
    listener.close()
    assert not path.exists()


def test_a_live_socket_is_never_taken_over(tmp_path: Path) -> None:
    """Somebody answers there: the error says so, and theirs goes on."""
    path = tmp_path / "x.sock"
    first = listen(path, 0o600)
    with pytest.raises(SocketInUse, match="another process answers there"):
        listen(path, 0o600)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(os.fspath(path))
    first.close()


def test_a_socket_whose_backlog_is_full_is_live(tmp_path: Path) -> None:
    """An owner that is too busy to accept is an owner all the same."""
    path = tmp_path / "x.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as busy:
        busy.bind(os.fspath(path))
        busy.listen(0)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as waiting:
            waiting.connect(os.fspath(path))
            with pytest.raises(SocketInUse):
                listen(path, 0o600)


def test_a_socket_of_another_type_is_live(tmp_path: Path) -> None:
    """A datagram socket refuses our kind of connection, and belongs to somebody."""
    path = tmp_path / "x.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(os.fspath(path))
        with pytest.raises(SocketInUse):
            listen(path, 0o600)
        assert path.exists()


def test_a_bound_socket_that_does_not_listen_yet_is_not_robbed_by_its_own_close(tmp_path: Path) -> None:
    """Closing removes only our own file, not one that was put in its place."""
    path = tmp_path / "x.sock"
    listener = listen(path, 0o600)
    path.unlink()
    path.write_text("somebody else's")
    listener.close()
    assert path.read_text() == "somebody else's"


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (Path.touch, "a regular file"),
        (Path.mkdir, "a folder"),
        (_link_to_nowhere, "a symbolic link"),
        (os.mkfifo, "a FIFO"),
    ],
)
def test_what_is_no_socket_is_left_alone(tmp_path: Path, make: Callable[[Path], None], what: str) -> None:
    """A file, a folder, a link or a pipe at the path is an error, and survives it."""
    path = tmp_path / "x.sock"
    make(path)
    before = path.lstat()
    with pytest.raises(NotASocket, match=what):
        listen(path, 0o600)
    assert path.lstat() == before


def test_a_link_to_a_stale_socket_is_left_alone(tmp_path: Path) -> None:
    """The path itself must be the socket: a link may point into somebody else's folder."""
    target = tmp_path / "target.sock"
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    dead.bind(os.fspath(target))
    dead.close()
    path = tmp_path / "x.sock"
    path.symlink_to(target)
    with pytest.raises(NotASocket):
        listen(path, 0o600)
    assert target.exists()


def test_a_path_that_the_kernel_cannot_bind_is_named(tmp_path: Path) -> None:
    """The error says how long the path may be."""
    with pytest.raises(SocketPathTooLong, match="may have 107"):
        listen(tmp_path / ("x" * 110), 0o600)


def test_a_missing_runtime_dir_is_made(tmp_path: Path, open_umask: None) -> None:
    """It is made, parents included, so that only the owner may add to it."""
    path = tmp_path / "a" / "run"
    prepare_runtime_dir(path)
    assert mode_of(path) == RUNTIME_DIR_MODE
    prepare_runtime_dir(path)


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_a_runtime_dir_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    """Who may write there could put a socket of their own in the place of ours."""
    path = tmp_path / "run"
    path.mkdir()
    path.chmod(mode)
    with pytest.raises(RuntimeDirUnsafe, match="chmod go-w"):
        prepare_runtime_dir(path)


def test_a_runtime_dir_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    """A file at the folder's path is left alone."""
    path = tmp_path / "run"
    path.write_text("precious")
    with pytest.raises(RuntimeDirUnsafe, match="is not a folder"):
        prepare_runtime_dir(path)
    assert path.read_text() == "precious"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_runtime_dir_of_another_user_is_refused(tmp_path: Path) -> None:
    """Its owner could replace the sockets."""
    path = tmp_path / "run"
    path.mkdir()
    os.chown(path, 12_345, -1)
    with pytest.raises(RuntimeDirUnsafe, match="belongs to uid 12345"):
        prepare_runtime_dir(path)


def test_a_folder_that_cannot_be_made_is_an_error_with_the_cause(tmp_path: Path) -> None:
    """What the operating system said is kept."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SocketUnavailable, match="Not a directory"):
        prepare_runtime_dir(tmp_path / "file" / "run")


def _borrow(path: Path, *, then: str) -> subprocess.CompletedProcess[str]:
    """Run `then` in a process that was given a socket listening at `path`, as a service manager does it."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.bind(os.fspath(path))
    made.listen()
    launcher = (
        "import os, sys; os.dup2(int(sys.argv[1]), 3);"
        "os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()));"
        "os.execv(sys.executable, [sys.executable, '-c', sys.argv[2], sys.argv[3]])"
    )
    with made:
        return subprocess.run(
            [sys.executable, "-c", launcher, str(made.fileno()), then, str(path)],
            pass_fds=[made.fileno()],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


BORROWER = """
import sys
from pathlib import Path
from driver.local.sockets import listen
path = Path(sys.argv[1])
before = path.stat().st_ino
made = listen(path, 0o600)
print(made.lent, made.socket.getsockname() == str(path), made.socket.get_inheritable())
made.close()
print(path.stat().st_ino == before)
other = listen(path.with_name("other.sock"), 0o600)
print(other.lent)
other.close()
"""


def test_a_socket_that_the_service_manager_made_is_used_and_left(tmp_path: Path) -> None:
    """It is recognised by its path, hidden from children, and stays when the daemon stops."""
    done = _borrow(tmp_path / "operator.sock", then=BORROWER)
    assert done.stderr == ""
    assert done.stdout.split() == ["True", "True", "False", "True", "False"]


def test_a_socket_that_was_passed_to_somebody_else_is_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variables of a parent mean nothing: a live socket is refused as ever."""
    path = tmp_path / "operator.sock"
    monkeypatch.setenv("LISTEN_FDS", "1")
    monkeypatch.setenv("LISTEN_PID", str(os.getppid()))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        made.bind(os.fspath(path))
        made.listen()
        with pytest.raises(SocketInUse):
            listen(path, 0o600)
