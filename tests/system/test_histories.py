"""I9, I10: a journal that is not the history the plane knows acts on nothing, and asks before it acts."""

import pytest

from tests.system.audit import key_of, must_hold
from tests.system.plane import call, scripted_plane
from tests.system.sandbox import sandbox
from tests.system.snapshots import calls, restore, snapshot
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.kill]


async def test_a_rolled_back_journal_is_fenced_for_good(zygote: Zygote) -> None:
    """A restored snapshot learns at welcome that time went on without it, and acts no more, ever."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        await calls(made, plane, 1, 2)
        snapshot(made)
        await calls(made, plane, 3, 4)
        restore(made)
        effects = len(made.effects())
        for number, state in enumerate(("ready", "fenced"), start=1):
            life = made.start()
            await plane.give(call(f"cmd-{state}", n=5))
            assert (await plane.answer_to(f"cmd-{state}"))["code"] == "fenced"
            assert plane.hellos[-1]["state"] == state
            await plane.deliver("cmd-1")
            assert (await plane.answer_to("cmd-1", number))["code"] == "fenced"
            status = await made.status()
            assert status["state"] == "fenced"
            assert status["fence"]
            assert await life.stop() == 0
        await made.quiet()
        assert len(made.effects()) == effects
        assert plane.history.last_seq == plane.history.acked


async def test_a_snapshot_does_not_act_before_the_plane_has_confirmed_it(zygote: Zygote) -> None:
    """What a snapshot had accepted waits for welcome: it was executed by the life after the snapshot."""
    one_slot = {"max_inflight": 1}
    async with scripted_plane() as plane, sandbox(zygote, plane, driver=one_slot) as made:
        gate = made.root / "gate"
        life = made.start()
        await plane.give(call("cmd-1", "counter/slow", until=str(gate)), call("cmd-2", n=2))
        await plane.until(lambda: "cmd-2" in plane.history.accepted)
        await made.effects_reach(1)
        await life.kill()
        snapshot(made)
        life = made.start()
        assert (await plane.receipt_of("cmd-2"))["kind"] == "operation.succeeded"
        await life.stop()
        restore(made)
        plane.on_hello = lambda _hello, _history: None
        life = made.start()
        await life.ready()
        await plane.until(lambda: len(plane.hellos) == 3)
        status = await made.status()
        assert status["state"] == "ready"
        assert status["counts"]["accepted"] == 1
        plane.on_hello = None
        plane.cut()
        await made.events_until(lambda event: event["kind"] == "driver.fenced")
        await life.stop()
        await made.quiet()
        assert made.executions()[key_of(plane.orders["cmd-2"].command)] == 1


async def test_a_forked_journal_is_fenced(zygote: Zygote) -> None:
    """A snapshot that went on by itself has the plane's seq with another chain: a fork."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        await calls(made, plane, 1)
        snapshot(made)
        await calls(made, plane, 2)
        restore(made)
        plane.answer_status = 503
        for _ in range(4):
            life = made.start()
            await life.ready()
            assert await life.stop() == 0
        plane.answer_status = None
        life = made.start()
        await made.events_until(lambda event: event["kind"] == "driver.fenced")
        assert plane.hellos[-1]["last_seq"] >= plane.history.acked
        assert (await made.status())["fence"]
        assert await life.stop() == 0


async def test_a_superseded_life_is_fenced_and_stays_away(zygote: Zygote) -> None:
    """After a close with 4001 another life acts for this driver: this one is fenced, and stays away."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        life = made.start()
        await plane.connected()
        await plane.close(4001)
        await made.events_until(lambda event: event["kind"] == "driver.fenced")
        assert (await made.status())["state"] == "fenced"
        assert await life.stop() == 0
        life = made.start()
        await life.ready()
        assert (await made.status())["state"] == "fenced"
        assert await life.stop() == 0
        assert len(plane.hellos) == 1


async def test_a_lower_watermark_of_the_plane_wins(zygote: Zygote) -> None:
    """A plane that was restored asks for what it forgot, and gets it again in the same bytes."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        await calls(made, plane, 1, 2)
        known = plane.history.last_seq
        plane.history.acked = 1
        life = made.start()
        await plane.until(lambda: plane.history.acked > known)
        assert await life.stop() == 0
        await must_hold(made)
