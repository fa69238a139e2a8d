"""The unit file: what systemd thinks of it, and that it agrees with the daemon."""

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


def _settings() -> dict[str, str]:
    lines = (line for line in UNIT.read_text().splitlines() if line and line[0] not in "#[")
    pairs = [line.partition("=") for line in lines]
    assert len({key for key, _, _ in pairs}) == len(pairs), "a key stands twice"
    return {key: value for key, _, value in pairs}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    """`systemd-analyze verify` is silent, once the program is one that exists here."""
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/effectd/bin/effectd", sys.executable))
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
