"""The unit file and its drop-in: what systemd thinks of them, and that they agree with the daemon."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from driver.config.models import DriverTable
from driver.config.sockets import OPERATOR_SOCKET
from driver.daemon import EXIT_JOURNAL_FAILED, EXIT_NO_ROOM_FOR_COPY, EXIT_REFUSED
from driver.engine.calling import CANCEL_DRAIN_S
from driver.local.server import OPERATOR_MODE

FOLDER: Final = Path(__file__).resolve().parents[1] / "systemd"
UNIT: Final = FOLDER / "effectd.service"
TEMPLATE: Final = FOLDER / "effectd@.service"
SOCKET: Final = FOLDER / "effectd.socket"
RELAXED: Final = FOLDER / "tools-relaxed.conf"
EXPOSURE_MAX: Final = 1.5
"""Of 10: what `systemd-analyze security` says of the strict unit."""


def _pairs(path: Path) -> list[tuple[str, str]]:
    text = path.read_text().replace("\\\n", " ")
    lines = (line for line in text.splitlines() if line and line[0] not in "#[")
    return [(key, value) for key, _, value in (line.partition("=") for line in lines)]


def _settings(path: Path = UNIT) -> dict[str, str]:
    pairs = [pair for pair in _pairs(path) if pair[0] != "SystemCallFilter"]  # which is a list, line by line
    assert len({key for key, _ in pairs}) == len(pairs), "a key stands twice"
    return dict(pairs)


def _analyze(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *words], capture_output=True, text=True, timeout=120, check=False
    )


def _copied(unit: Path, folder: Path, name: str) -> Path:
    """A unit whose program is one that exists here."""
    copy = folder / name
    copy.write_text(unit.read_text().replace("/opt/effectd/bin/effectd", sys.executable))
    return copy


needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None and "CI" not in os.environ, reason="systemd is not installed"
)


@needs_systemd
@pytest.mark.parametrize("relaxed", [False, True])
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path, *, relaxed: bool) -> None:
    """`systemd-analyze verify` is silent, with the drop-in and without it."""
    copy = _copied(UNIT, tmp_path, UNIT.name)
    if relaxed:
        folder = tmp_path / f"{UNIT.name}.d"
        folder.mkdir()
        shutil.copy(RELAXED, folder)
    done = _analyze("verify", copy)
    assert (done.stdout + done.stderr, done.returncode) == ("", 0)


@needs_systemd
def test_systemd_finds_nothing_wrong_with_the_socket_and_an_instance(tmp_path: Path) -> None:
    """The socket finds its service, and the template can be instantiated."""
    _copied(UNIT, tmp_path, UNIT.name)
    done = _analyze(
        "verify", _copied(SOCKET, tmp_path, SOCKET.name), _copied(TEMPLATE, tmp_path, "effectd@one.service")
    )
    assert (done.stdout + done.stderr, done.returncode) == ("", 0)


@needs_systemd
@pytest.mark.parametrize("unit", [UNIT, TEMPLATE])
def test_the_strict_units_expose_little(unit: Path, tmp_path: Path) -> None:
    """`systemd-analyze security` gives them at most the exposure that the project promises."""
    copy = _copied(unit, tmp_path, unit.name.replace("@", "@one"))
    threshold = str(round(EXPOSURE_MAX * 10))
    done = _analyze("security", "--offline=true", f"--threshold={threshold}", copy)
    assert done.returncode == 0, done.stdout


def test_an_instance_differs_in_its_paths_only() -> None:
    """The template says what the unit says, with the instance's name in each path."""
    renamed = {
        "Description": "effectd for %i: one intended effect happens once",
        "ExecStart": "/opt/effectd/bin/effectd run --config /etc/effectd/%i.toml",
        "StateDirectory": "effectd/%i",
        "RuntimeDirectory": "effectd/%i",
        "LoadCredential": "plane-token:/etc/effectd/%i.plane-token",
    }
    assert _pairs(TEMPLATE) == [(key, renamed.get(key, value)) for key, value in _pairs(UNIT)]


def test_the_socket_is_the_daemons_operator_socket() -> None:
    """It stands where the daemon would make it, with the mode and the owner that it would have."""
    found = _settings(SOCKET)
    assert Path(found["ListenStream"]) == DriverTable().runtime_dir / OPERATOR_SOCKET
    assert int(found["SocketMode"], 8) == OPERATOR_MODE
    assert found["SocketUser"] == _settings()["User"]


def test_a_restart_of_the_service_leaves_the_operator_socket() -> None:
    """Who asks while the daemon restarts waits: nothing ties the socket to what the service does."""
    tying = {"PartOf", "BindsTo", "Requires", "Requisite", "StopPropagatedFrom", "Conflicts"}
    assert not tying & set(_settings(SOCKET))
    assert not {key for key, value in _pairs(UNIT) if SOCKET.name in value and key in tying}


def test_the_unit_starts_without_a_token() -> None:
    """Stand-alone there is none: a credential that cannot be loaded has a default, which is no token."""
    for unit in (UNIT, TEMPLATE):
        found = _settings(unit)
        name, _, path = found["LoadCredential"].partition(":")
        assert path.startswith("/etc/effectd/")
        default, _, value = found["SetCredential"].partition(":")
        assert (default, value.encode().decode("unicode_escape").strip()) == (name, "")
        assert value, "systemd ignores a default without anything"


def test_the_unit_leaves_time_for_the_whole_drain() -> None:
    """TimeoutStopSec is above the default of drain_s and what a cancel may take after it."""
    drain_s = DriverTable().drain_s + 2 * CANCEL_DRAIN_S
    assert float(_settings()["TimeoutStopSec"]) > drain_s


def test_the_unit_restarts_after_a_failed_journal_and_not_after_a_refusal() -> None:
    """Only the exit code that a restart cannot change keeps systemd from one."""
    prevented = _settings()["RestartPreventExitStatus"].split()
    assert prevented == [str(EXIT_REFUSED)]
    assert str(EXIT_JOURNAL_FAILED) not in prevented
    assert str(EXIT_NO_ROOM_FOR_COPY) not in prevented


def test_the_units_folders_are_the_configurations_defaults() -> None:
    """StateDirectory and RuntimeDirectory are where the daemon looks without being told."""
    found = _settings()
    table = DriverTable()
    assert Path("/var/lib", found["StateDirectory"]) == table.state_dir
    assert Path("/run", found["RuntimeDirectory"]) == table.runtime_dir
    # the mark of a failed fsync lies there: it outlives a restart, and a reboot clears it
    assert found["RuntimeDirectoryPreserve"] == "yes"


def test_commands_outlive_the_daemon_and_nothing_outlives_a_stop() -> None:
    """A signal goes to the daemon alone; what is left is killed after a stop as asked, not after a crash."""
    found = _settings()
    assert found["KillMode"] == "process"
    script = found["ExecStopPost"].partition("-c ")[2].strip("'")
    assert script.startswith('test "$$SERVICE_RESULT" = success || exit 0;')
    assert "%" not in script, "systemd would replace it"
    checked = subprocess.run(["/bin/sh", "-n", "-c", script.replace("$$", "$")], check=False)
    assert checked.returncode == 0


def test_the_drop_in_relaxes_what_the_unit_forbids_and_says_what_that_gives_up() -> None:
    """Each of its lines changes a line of the unit, or adds what a cgroup for each command needs."""
    strict = dict(_pairs(UNIT))
    relaxed = dict(_pairs(RELAXED))
    assert relaxed.pop("Delegate") == "yes"
    assert all(strict[key] != value for key, value in relaxed.items())
    text = RELAXED.read_text().partition("[Service]")[2]
    assert text.count("Gives up:") == len(
        [line for line in text.splitlines() if _follows_comment(text, line)]
    )


def _follows_comment(text: str, line: str) -> bool:
    """Whether a setting stands right under its comment."""
    lines = text.splitlines()
    number = lines.index(line)
    return "=" in line and not line.startswith("#") and lines[number - 1].startswith("#")
