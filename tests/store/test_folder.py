"""The state folder: its modes, its lock, its file system."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

import store.folder as folder  # noqa: PLR0402 - for pyright, `store` alone would be the folder of these tests
from store.durable import write_durably
from store.errors import FolderInsecure, FolderUnusable, JournalBusy, NetworkFileSystem
from store.settings import JournalSettings

HOLDER = """
import sys
from pathlib import Path
from store.folder import entered
from store.settings import JournalSettings
with entered(JournalSettings(state_dir=Path(sys.argv[1]), runtime_dir=Path(sys.argv[2]))):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(settings: JournalSettings) -> Generator[subprocess.Popen[str]]:
    """Another process that owns the state folder."""
    command = [sys.executable, "-c", HOLDER, str(settings.state_dir), str(settings.runtime_dir)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process
        process.kill()


def mode(path: Path) -> int:
    """Its permission bits."""
    return path.stat().st_mode & 0o7777


def test_the_folder_is_made_private(settings: JournalSettings) -> None:
    """0700 whatever the umask, its parents as needed, and the lock file 0600."""
    previous = os.umask(0)
    try:
        deep = replace(settings, state_dir=settings.state_dir / "a" / "b")
        with folder.entered(deep) as entered:
            assert mode(entered.path) == 0o700
            assert mode(entered.path / folder.LOCK) == 0o600
    finally:
        os.umask(previous)


def test_a_folder_that_others_could_only_read_is_closed(settings: JournalSettings) -> None:
    """One that was made by mkdir beforehand is ours to close."""
    settings.state_dir.mkdir(mode=0o755)
    with folder.entered(settings):
        assert mode(settings.state_dir) == 0o700


@pytest.mark.parametrize("bits", [0o777, 0o770, 0o722, 0o702])
def test_a_folder_that_others_can_write_is_refused(settings: JournalSettings, bits: int) -> None:
    """What lies in it may be theirs: it is for a person to look at, and is left as it is."""
    settings.state_dir.mkdir()
    settings.state_dir.chmod(bits)
    with pytest.raises(FolderInsecure, match="chmod 700"), folder.entered(settings):
        pass
    assert mode(settings.state_dir) == bits


@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can give a folder away; the check itself has a test below"
)
def test_a_folder_of_somebody_else_is_refused(settings: JournalSettings) -> None:
    """Its owner can replace whatever is in it."""
    settings.state_dir.mkdir(mode=0o700)
    os.chown(settings.state_dir, 12_345, 12_345)
    with pytest.raises(FolderInsecure, match="12345"), folder.entered(settings):
        pass


def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """The same for each file that the journal rests on."""
    (tmp_path / "x").touch(mode=0o600)
    found = list((tmp_path / "x").stat())
    found[4] = os.geteuid() + 1
    with pytest.raises(FolderInsecure, match="chown"):
        folder.check_file(tmp_path / "x", os.stat_result(found))


def test_a_file_in_place_of_the_folder_is_refused(settings: JournalSettings) -> None:
    """The system's own words, and what to do."""
    settings.state_dir.write_text("")
    with pytest.raises(FolderUnusable, match="cannot be used: File exists"), folder.entered(settings):
        pass


def test_a_file_that_cannot_be_used_is_named(settings: JournalSettings) -> None:
    """The folder is as it should be, so that nobody has to look for what is wrong with it."""
    (settings.state_dir / "lock").mkdir(parents=True)
    with pytest.raises(FolderUnusable) as refused, folder.entered(settings):
        pass
    said = f"{settings.state_dir}/lock: cannot be used: Is a directory. Make it a file of this user"
    assert str(refused.value).startswith(said)


def test_a_second_daemon_is_told_who_was_first(
    settings: JournalSettings, holder: subprocess.Popen[str]
) -> None:
    """One owner: the second one exits with the other's process id, and changes nothing."""
    with pytest.raises(JournalBusy, match=f"process {holder.pid}") as raised, folder.entered(settings):
        pass
    assert raised.value.pid == holder.pid
    assert raised.value.exit_code == 2


def test_a_killed_owner_leaves_no_lock(settings: JournalSettings, holder: subprocess.Popen[str]) -> None:
    """The lock is the kernel's: after SIGKILL the next start goes on, past the stale process id."""
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (settings.state_dir / folder.LOCK).read_text() == f"{holder.pid}\n"
    with folder.entered(settings):
        assert (settings.state_dir / folder.LOCK).read_text() == f"{os.getpid()}\n"


def test_the_lock_file_is_never_deleted(settings: JournalSettings) -> None:
    """Deleting it would let one daemon lock the old file, and another the new one."""
    with folder.entered(settings):
        inode = (settings.state_dir / folder.LOCK).stat().st_ino
    with folder.entered(settings):
        assert (settings.state_dir / folder.LOCK).stat().st_ino == inode


def test_a_lock_on_a_file_that_was_replaced_is_no_lock(
    settings: JournalSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inode is compared after locking; where it differs, the file that is there now is locked."""
    lock = settings.state_dir / folder.LOCK
    real, replaced = fcntl.flock, list[int]()

    def flock(descriptor: int, operation: int) -> None:
        real(descriptor, operation)
        if not replaced:
            replaced.append(lock.stat().st_ino)
            shutil.copy(lock, lock.with_name("new"))
            lock.with_name("new").replace(lock)

    monkeypatch.setattr(fcntl, "flock", flock)
    with folder.entered(settings):
        assert lock.stat().st_ino != replaced[0]
        with pytest.raises(JournalBusy), folder.entered(settings):
            pass


def test_a_link_in_place_of_the_lock_is_not_followed(settings: JournalSettings, tmp_path: Path) -> None:
    """It would let somebody choose what is created or locked."""
    settings.state_dir.mkdir(mode=0o700)
    (settings.state_dir / folder.LOCK).symlink_to(tmp_path / "target")
    with pytest.raises(FolderUnusable), folder.entered(settings):
        pass
    assert not (tmp_path / "target").exists()


def test_children_do_not_inherit_the_lock(settings: JournalSettings) -> None:
    """A provider that outlives the daemon must not keep the journal locked."""
    with folder.entered(settings):
        child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        with folder.entered(settings):
            pass
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p", "fuse.sshfs", "fuse", "virtiofs"])
def test_network_file_systems_are_refused(
    settings: JournalSettings, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Unless the operator says that their locks and fsync can be relied on."""
    monkeypatch.setattr(folder, "file_system_of", {settings.state_dir: kind}.get)
    with pytest.raises(NetworkFileSystem, match="allow_network_fs") as raised, folder.entered(settings):
        pass
    assert raised.value.kind == kind
    with folder.entered(replace(settings, allow_network_fs=True)) as entered:
        assert entered.file_system == kind


def test_a_memory_file_system_is_accepted_and_said(
    settings: JournalSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon warns: what is committed there is gone after a reboot."""
    monkeypatch.setattr(folder, "file_system_of", {settings.state_dir: "tmpfs"}.get)
    with folder.entered(settings) as entered:
        assert entered.volatile


def test_the_file_system_is_that_of_the_longest_mount_point() -> None:
    """/proc is of type proc, and /proc/self/fd, which is no mount of its own, as well."""
    assert folder.file_system_of(Path("/proc/self/net")) == "proc"
    assert folder.file_system_of(Path("/")) not in ("", "proc")


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """Content, mode and name change together; a leftover of an earlier try is no obstacle."""
    path = tmp_path / "CURRENT"
    path.with_name("CURRENT.tmp").write_text("half")
    write_durably(path, b"one")
    write_durably(path, b"two")
    assert path.read_bytes() == b"two"
    assert mode(path) == 0o600
    assert [item.name for item in tmp_path.iterdir()] == ["CURRENT"]


@pytest.mark.parametrize(("mode", "fault"), [(0o777, "can be written by others"), (0o757, "mode 0757")])
def test_a_folder_above_that_others_can_write_is_refused(tmp_path: Path, mode: int, fault: str) -> None:
    """Whoever can rename the state folder can put another one in its place."""
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(mode)
    settings = JournalSettings(state_dir=above / "state", runtime_dir=tmp_path)
    with pytest.raises(FolderInsecure, match=fault), folder.entered(settings):
        raise AssertionError("entered")


def test_a_folder_above_that_belongs_to_somebody_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner could replace what is in it."""
    (tmp_path / "state").mkdir()
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    weak = folder.weak_ancestor(tmp_path / "state" / "deeper")
    mine = tmp_path.stat().st_uid
    assert (weak is None) == (mine == 0), "root's folders are everybody's way"


@pytest.mark.parametrize("mode", [0o1777, 0o755, 0o700, 0o775])
def test_ordinary_folders_above_are_fine(tmp_path: Path, mode: int) -> None:
    """A sticky one is, and one that our own group may write."""
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(mode)
    assert folder.weak_ancestor(above / "state") is None


def test_links_above_are_followed_to_where_they_lead(tmp_path: Path) -> None:
    """A link in a safe place to an unsafe one is as unsafe as that."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path / "open")
    weak = folder.weak_ancestor(tmp_path / "link" / "state")
    assert weak is not None
    assert weak.path.name == "open"


KILLED_WHILE_IT_FORKED = """
import os, sys, time
from pathlib import Path
from store.folder import entered
from store.settings import JournalSettings
with entered(JournalSettings(state_dir=Path(sys.argv[1]), runtime_dir=Path(sys.argv[2]))):
    if os.fork() == 0:  # it shares the lock, as a child does until it has become another program
        os.close(1)
        sys.stdin.read()
        os._exit(0)
    os._exit(0)
"""


@pytest.mark.parametrize("patience_s", [60.0, 0.05])
def test_the_lock_of_a_killed_owner_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience_s: float
) -> None:
    """A child that was just forked holds it a moment longer; whoever waits too little is refused."""
    monkeypatch.setattr(folder, "LINGER_S", patience_s)
    settings = JournalSettings(state_dir=tmp_path / "state", runtime_dir=tmp_path)
    looks = 0

    def look(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 3 and patience_s > 1:
            assert killed.stdin is not None
            killed.stdin.close()  # the child ends, and with it the lock

    monkeypatch.setattr("store.folder.time.sleep", look)
    command = [sys.executable, "-c", KILLED_WHILE_IT_FORKED, str(tmp_path / "state"), str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        killed.stdout.read()
        assert killed.wait() == 0
        if patience_s > 1:
            with folder.entered(settings):
                assert looks >= 3
        else:
            with pytest.raises(JournalBusy), folder.entered(settings):
                raise AssertionError("entered")
