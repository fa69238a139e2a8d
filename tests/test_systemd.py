"""The unit file and its drop-in: what systemd thinks of them, and that they agree with the daemon."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from driver.config.models import DriverTable
from driver.daemon import EXIT_JOURNAL_FAILED, EXIT_NO_ROOM_FOR_COPY, EXIT_REFUSED
from driver.engine.dispatcher import CANCEL_DRAIN_S

UNIT: Final = Path(__file__).resolve().parents[1] / "systemd" / "effectd.service"
RELAXED: Final = UNIT.with_name("tools-relaxed.conf")


def _settings(path: Path = UNIT) -> dict[str, str]:
    text = path.read_text().replace("\\\n", " ")
    lines = (line for line in text.splitlines() if line and line[0] not in "#[")
    pairs = [line.partition("=") for line in lines]
    assert len({key for key, _, _ in pairs}) == len(pairs), "a key stands twice"
    return {key: value for key, _, value in pairs}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("relaxed", [False, True])
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path, *, relaxed: bool) -> None:
    """`systemd-analyze verify` is silent, with the drop-in and without it; the program is one that exists."""
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/effectd/bin/effectd", sys.executable))
    if relaxed:
        folder = tmp_path / f"{UNIT.name}.d"
        folder.mkdir()
        shutil.copy(RELAXED, folder)
    done = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.stdout + done.stderr, done.returncode) == ("", 0)


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


def test_the_drop_in_relaxes_what_cgroups_need_and_nothing_else() -> None:
    """The unit forbids a cgroup for each command, and the drop-in says of each line what it gives up."""
    assert _settings(RELAXED) == {"Delegate": "yes", "ProtectControlGroups": "no"}
    assert _settings()["ProtectControlGroups"] == "yes"
    lines = RELAXED.read_text().splitlines()
    for number, line in enumerate(lines):
        if "=" in line and not line.startswith("#"):
            assert lines[number - 1].startswith("#"), f"{line} does not say what it gives up"
