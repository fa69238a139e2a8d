"""docs/first-steps.md, typed as it is printed: every command of the page does what the page says."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.system.test_peers import free_port

pytestmark = pytest.mark.lane

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "first-steps.md"
PORT: Final = "8930"
DEADLINE_S: Final = 900

WAITS: Final = {
    # what a person does without noticing: look again until it is so, before going on
    "effectd plane --db": "grep -q listening plane.log",
    "effectd run": "effectd status | grep -q connected",
    "EFFECTD_FAULT": "effectd status | grep -q connected",
    "effectd ops --unsettled": "effectd show cmd-2 | grep -q 'says a probe'",
    "effectd ops --state": "effectd ops --state awaiting_approval | grep -q op_",
    "effectd approve": "effectd show cmd-2 | grep -q 'undone by .*succeeded'",
}
"""Behind the line that begins so."""

TOLD: Final = (
    *("is valid: 1 provider, 3 tools declared", "is ready", "cmd-1: succeeded, effect occurred"),
    *(
        "cmd-1: succeeded, effect occurred",
        " hello\n",
        "passed",
        "Draining",
        "cmd-2: unknown, effect unknown",
    ),
    *("happened, says a probe", "already_occurred", " lost\n", "Asked", "awaiting_approval", "Approved"),
    *("undone by", "Taken back", "run-2", "driver.started", '"items"', "effectd_operations_unsettled 0"),
    *("Backed up", "fault drills are switched on", "The journal is sound"),
)
"""What a person reads, in this order."""


def script(page: str, port: int) -> str:
    """Return the page's commands but for its installation, in the order in which they are typed."""
    blocks = re.findall(r"^```sh\n(.+?)^```", page, flags=re.MULTILINE | re.DOTALL)[1:]
    lines = [f"export EFFECTD_PLANE_URL=http://127.0.0.1:{port}"]
    for line in "".join(blocks).splitlines():
        if line.startswith("curl") and shutil.which("curl") is None:
            lines.append("""echo '"items"'""")
            continue
        lines.append(line.replace("plane --db", f"plane --listen 127.0.0.1:{port} --db"))
        lines += [
            f"until {wait}; do sleep 0.2; done" for start, wait in WAITS.items() if line.startswith(start)
        ]
    return "\n".join(lines)


def test_the_page_works_as_it_is_printed(tmp_path: Path) -> None:
    """Who types it reads what it promises, and one line is left of two."""
    page, port = PAGE.read_text(), free_port()
    toml = re.search(r"^```toml\n(.+?)^```", page, flags=re.MULTILINE | re.DOTALL)
    assert toml is not None
    assert PORT in toml[1]
    (tmp_path / "effectd.toml").write_text(toml[1].replace(PORT, str(port)))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with subprocess.Popen(
        ["bash", "-c", script(page, port)],
        cwd=tmp_path,
        env={"PATH": path, "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            text, _ = shell.communicate(timeout=DEADLINE_S)
        finally:
            _end(shell)
    place = 0
    for phrase in TOLD:
        place = text.find(phrase, place) + 1
        assert place, f"{phrase!r} is missing:\n{text}"
    (kept,) = (tmp_path / "notes.txt").read_text().splitlines()
    assert kept.endswith(" hello")


def _end(shell: "subprocess.Popen[str]") -> None:
    """End whatever the script has left behind."""
    try:
        os.killpg(shell.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
