"""The tests can fail: with a mechanism taken away, the checks that the other tests make must report it."""

import pytest

from tests.system.audit import audit, key_of
from tests.system.campaign import KILLED
from tests.system.plane import ScriptedPlane, call, scripted_plane
from tests.system.sandbox import Sandbox, sandbox
from tests.system.snapshots import restore, snapshot
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.kill]


async def findings(made: Sandbox, plane: ScriptedPlane) -> list[str]:
    """Return what the audit of the kill tests finds, and forget it."""
    for life in made.lives:
        await life.kill()
    await made.quiet()
    found = audit(plane, made.executions())
    plane.violations.clear()
    for history in plane.histories.values():
        history.violations.clear()
    return found


async def test_without_the_intent_an_effect_happens_twice(zygote: Zygote) -> None:
    """Control of I1: a call that leaves before its intent is durable is made again after a kill."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        made.start(kill_at="dispatch.answered", patch="no_intent_commit")
        await plane.give(call("cmd-1", n=1))
        assert await made.lives[0].exit_code() == KILLED
        made.start()
        await plane.answered()
        found = await findings(made, plane)
    assert "cmd-1 was executed 2 times" in found


async def test_without_the_dedupe_an_effect_happens_twice(zygote: Zygote) -> None:
    """Control of I2: a daemon that does not recognise a redelivery executes it."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        made.start(patch="no_dedupe")
        await plane.give(call("cmd-1", n=1))
        await plane.answered()
        await plane.deliver("cmd-1")
        await made.effects_reach(2)
        found = await findings(made, plane)
        key = key_of(plane.orders["cmd-1"].command)
        assert made.executions() == {key: 2}
    assert "cmd-1 was executed 2 times" in found


async def test_without_the_fsync_the_daemon_does_not_start(zygote: Zygote) -> None:
    """Control of I5: a journal whose commits are not fsynced is refused, because the setting is read back."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        life = made.start(patch="no_fsync")
        assert await life.exit_code() == 2
        assert "synchronous" in life.text
        assert plane.hellos == []


async def test_what_is_told_before_it_is_durable_is_found_out(zygote: Zygote) -> None:
    """Control of I5: a daemon that reports each commit too early forgets, once killed, what it said."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        made.start(patch="told_before_commit")
        await plane.give(call("cmd-1", n=1))
        await plane.answered()
        await made.lives[0].kill()
        made.start()
        await made.events_until(lambda event: event["kind"] == "driver.fenced")
        await plane.give(call("cmd-2", n=2))
        assert (await plane.answer_to("cmd-2"))["code"] == "fenced"
        found = await findings(made, plane)
    assert "cmd-2 has no receipt" in found


async def test_without_the_plane_s_word_a_restored_snapshot_acts_again(zygote: Zygote) -> None:
    """Control of I9: a snapshot that does not wait for welcome executes what its later life had executed."""
    one_slot = {"max_inflight": 1}
    async with scripted_plane() as plane, sandbox(zygote, plane, driver=one_slot) as made:
        gate = made.root / "gate"
        made.start()
        await plane.give(call("cmd-1", "counter/slow", until=str(gate)), call("cmd-2", n=2))
        await plane.until(lambda: "cmd-2" in plane.history.accepted)
        await made.effects_reach(1)
        await made.lives[0].kill()
        snapshot(made)
        made.start()
        await plane.receipt_of("cmd-2")
        await made.lives[1].kill()
        restore(made)
        plane.on_hello = lambda _hello, _history: None
        effects = len(made.effects())
        made.start(patch="no_confirmation")
        await made.effects_reach(effects + 1)
        found = await findings(made, plane)
    assert "cmd-2 was executed 2 times" in found


async def test_a_lie_about_a_lost_outcome_is_found_out(zygote: Zygote) -> None:
    """Control of I3: `not_executed` for a call that did happen does not pass the audit."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        made.start(kill_at="dispatch.answered")
        await plane.give(call("cmd-1", n=1))
        assert await made.lives[0].exit_code() == KILLED
        made.start(patch="lost_is_not_executed")
        await plane.answered()
        found = await findings(made, plane)
    assert "cmd-1 was executed 1 times: operation.not_executed" in found
