"""Kills at any moment of a call: whatever the next life claims, the program's own ledger agrees."""

import os
import signal
from pathlib import Path

import anyio
import pytest

from driver.core.attempts import Phase
from driver.core.classify import NotExecuted, Succeeded
from driver.providers.readoption import Finished, Lost
from tests.driver.providers.command.stage import ending, settings, sh, staged
from tests.driver.providers.command.test_readoption import OPERATION, Life, gone, life

pytestmark = pytest.mark.anyio

PHASES = [Phase.CONNECTING, Phase.WRITING, Phase.WRITTEN, Phase.ANSWERED]


async def kill_shim(first: Life) -> None:
    """Kill the shim as well, if there is one."""
    started = await anyio.to_thread.run_sync(first.place.started)
    if started is not None:
        try:
            os.kill(started.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        await gone(started.pid)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("both", [False, True], ids=["daemon", "both"])
@pytest.mark.parametrize("group", [False, True], ids=["subreaper", "cgroup"])
async def test_what_is_claimed_is_what_happened(
    tmp_path: Path, phase: Phase, both: bool, group: bool
) -> None:
    """`not_executed` means no run, an answer means one, and nothing ever means two."""
    runs = tmp_path / "runs"
    async with life(
        tmp_path, sh(f"echo run >> {runs}; read line < /dev/null; echo done"), group=group
    ) as first:
        await first.reached(phase)
        await first.kill()
        if both:
            await kill_shim(first)
    async with staged(settings(tmp_path), group=group) as stage:
        found = await stage.provider.readopt(OPERATION, 1)
        if not isinstance(found, Finished | Lost):
            with anyio.fail_after(30):
                found = await found.finish()
    ran = len(runs.read_text().splitlines()) if runs.exists() else 0
    if isinstance(found, Lost):
        assert ran <= 1
        return
    judged = ending(found.report, found.phase)
    if isinstance(judged, NotExecuted):
        assert ran == 0
    elif isinstance(judged, Succeeded):
        assert (ran, judged.result["stdout"]) == (1, "done\n")
    else:
        assert ran <= 1
