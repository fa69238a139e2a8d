"""The demo as a whole: played once on real processes, interrupted, and with a wrong count."""

import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from rich.console import Console

from driver.demo.errors import MissingProgram
from driver.demo.leftovers import processes_in
from driver.demo.narrator import Narrator
from driver.demo.programme import Act, perform
from driver.demo.stage import Stage, installed
from driver.demo.tally import Count, Outcome, Row, exit_code

EFFECTD: Final = Path(sys.executable).parent / "effectd"
PATIENCE_S: Final = 300.0


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder for temporary files, short enough for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="effectd-"))
    yield folder
    shutil.rmtree(folder)


def _start(place: Path, *arguments: str, **env: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [str(EFFECTD), "demo", *arguments],
        env={**os.environ, "TMPDIR": str(place), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )


def _nothing_is_left(place: Path) -> bool:
    return not list(place.iterdir()) and not list(processes_in(place))


@pytest.mark.slow
@pytest.mark.lane
def test_the_whole_story_is_told_and_every_count_is_as_promised(place: Path) -> None:
    """One command is one commit through effectd, whatever dies, and two in the old way; nothing is left."""
    with _start(place) as demo:
        told, complaint = demo.communicate(timeout=PATIENCE_S)
    assert (demo.returncode, complaint) == (0, ""), told
    assert _nothing_is_left(place)
    history = told.partition("What really happened")[2]
    assert history.count("Fix the login timeout") == 1
    assert history.count("Raise the retry limit") == 2
    assert history.count("Speed up the search") == 1
    assert history.count("Ship the release") == 2, "the commit, and the one that takes it back"
    for line in (
        "command.accepted",
        "cmd-2: receipt delivered",
        "operation.started",
        "operation.unknown",
        "MAY HAVE HAPPENED",
        "in_doubt",
        "says a probe",
        "by supervisor, best effort",
        "says an operator",
        "operation.probed",
    ):
        assert line in told
    assert "counts are as promised" in told
    assert told.rstrip().endswith("by hand"), "where to go from here"
    assert "\x1b" not in told, "a pipe gets plain text"


@pytest.mark.slow
def test_ctrl_c_in_the_middle_leaves_nothing_behind(place: Path) -> None:
    """Interrupted while a plane, a daemon and a provider run, the demo ends them all, and its folder."""
    with _start(place) as demo:
        assert demo.stdout is not None
        told = ""
        while "is ready" not in told:
            line = demo.stdout.readline()
            assert line, f"the demo ended before anything was ready: {told}"
            told += line
        assert len(list(processes_in(place))) > 1
        demo.send_signal(signal.SIGINT)
        demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode == 128 + signal.SIGINT
    assert _nothing_is_left(place)


def test_without_git_one_line_says_what_to_install(place: Path) -> None:
    """A missing program is exit code 2, and nothing is started."""
    with _start(place, PATH=str(place)) as demo:
        told, complaint = demo.communicate(timeout=PATIENCE_S)
    assert (demo.returncode, told.count("==")) == (2, 0)
    assert complaint.splitlines() == [
        "Error: the demo needs git, which is not installed: apt-get install git, or your system's way"
    ]
    assert _nothing_is_left(place)


def test_without_the_mcp_server_one_line_says_what_to_install() -> None:
    """A provider that is not there is named with the extra that brings it."""
    with pytest.raises(
        MissingProgram, match=r"^the demo needs no-such-server, which is not installed: do this$"
    ):
        installed("no-such-server", "do this")


@pytest.mark.anyio
async def test_a_second_commit_makes_the_demo_fail() -> None:
    """Negative control: an act that commits twice for one command is found out in the repository."""

    async def play(stage: Stage) -> Outcome:
        for name in ("one", "two"):
            await stage.repository.stage(name, name)
            await stage.repository.commit("Twice")
        commits = Count(what="commits", expected=1, found=await stage.repository.count("Twice"))
        receipts = Count(what="receipts", expected=0, found=0)
        row = Row(act="x", driver="x", asked=1, commits=commits, receipts=receipts, known="succeeded")
        return Outcome(row=row)

    told = io.StringIO()
    played = await perform(Narrator(Console(file=told, width=100)), [Act(title="Twice", play=play)])
    assert exit_code(played.outcomes) == 1
    assert "WRONG: commits: 2, and must be 1" in told.getvalue()
