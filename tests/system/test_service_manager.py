"""What a real daemon tells its service manager, over a real socket: ready, fed, stopping."""

from typing import Final

import anyio
import pytest

from tests.system.audit import key_of, must_hold
from tests.system.plane import call, scripted_plane
from tests.system.sandbox import Life, sandbox
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.kill]

FEED: Final = "WATCHDOG=1"
INTERVAL_S: Final = 0.4
PATIENCE_S: Final = 60.0


async def fed(life: Life, times: int) -> None:
    """Return once the watchdog was fed so often."""
    with anyio.fail_after(PATIENCE_S):
        while life.states.count(FEED) < times:
            await life.heard.wait()


async def test_it_is_ready_when_earlier_lives_are_accounted_for(zygote: Zygote) -> None:
    """READY comes after the recovery: what a killed life left is `unknown` by then."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        order = call("cmd-1", n=1)
        await plane.give(order)
        assert await made.start(kill_at="dispatch.answered").exit_code() == -9
        life = made.start()
        await life.ready()
        assert (await made.operation(key_of(order)))["state"] == "unknown"
        ready = life.states.index("READY=1")
        assert life.states[ready + 1].startswith("STATUS=ready: ")
        assert FEED not in life.states, "nobody watches it"
        await plane.answered()  # READY does not wait for the plane, whom the audit asks
        assert await life.stop() == 0
        await must_hold(made)


async def test_a_stop_asks_for_the_time_that_a_drain_may_take(zygote: Zygote) -> None:
    """STOPPING, and for how long, before anything is waited for."""
    async with scripted_plane() as plane, sandbox(zygote, plane, driver={"drain_s": 7}) as made:
        life = made.start()
        assert await life.stop() == 0
        told = life.states[life.states.index("STOPPING=1") :]
        (extended,) = [line for line in told if line.startswith("EXTEND_TIMEOUT_USEC=")]
        assert int(extended.partition("=")[2]) >= 7_000_000
        assert told[-1].startswith("STATUS=")
        assert "READY=1" not in told


async def test_a_disk_that_hangs_feeds_no_watchdog(zygote: Zygote) -> None:
    """For longer than the interval, so that systemd would end the daemon; when it goes on, so does it."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        stall = made.root / "stall"
        micros = str(round(INTERVAL_S * 1e6))
        life = made.start(patch="commits_hang", STALL=str(stall), WATCHDOG_USEC=micros)
        await life.ready()
        await fed(life, 3)
        stall.touch()
        with anyio.fail_after(PATIENCE_S):
            while True:  # what was said before it hung
                with anyio.move_on_after(INTERVAL_S * 5) as patience:
                    await life.heard.wait()
                if patience.cancelled_caught:
                    break
        before = life.states.count(FEED)
        code, problem = await made.healthy()
        assert (code, problem["code"]) == (503, "unhealthy")
        assert f" {INTERVAL_S:g} s: " in problem["detail"], "as long as the watchdog waits, and no longer"
        stall.unlink()
        await fed(life, before + 2)
        assert await life.stop() == 0
        await must_hold(made)
