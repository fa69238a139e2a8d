"""How the daemon starts, stops, and shares its folder with nobody."""

import os
import signal

import anyio
import pytest

from tests.system.audit import must_hold
from tests.system.history import Json
from tests.system.plane import call, scripted_plane
from tests.system.sandbox import sandbox
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.kill]

DRAIN_S = 60
"""For what is looked at while a call holds the drain up, however slow the machine is."""


async def test_sigterm_lets_what_runs_finish(zygote: Zygote) -> None:
    """A drain waits for the running call, refuses new ones, and exits 0 with the outcome recorded."""
    async with scripted_plane() as plane, sandbox(zygote, plane, driver={"drain_s": DRAIN_S}) as made:
        gate = made.root / "gate"
        life = made.start()
        await plane.give(call("cmd-1", "counter/slow", until=str(gate)))
        await made.effects_reach(1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(life.stop)
            await made.events_until(lambda event: event["kind"] == "driver.stopping")
            await plane.give(call("cmd-2", n=2))
            assert (await plane.answer_to("cmd-2"))["code"] == "draining"
            gate.touch()
        assert life.code == 0
        # the last receipt goes out before the daemon does: nobody else is there to send it
        assert (await plane.receipt_of("cmd-1"))["kind"] == "operation.succeeded"
        life = made.start()
        assert (await plane.receipt_of("cmd-2"))["kind"] == "operation.succeeded"
        assert await life.stop() == 0
        await must_hold(made)


async def test_an_operator_can_drain_it(zygote: Zygote) -> None:
    """`POST /v1/drain` is a SIGTERM that needs no pid: once, whoever asks again, and with exit code 0."""
    async with scripted_plane() as plane, sandbox(zygote, plane, driver={"drain_s": DRAIN_S}) as made:
        gate = made.root / "gate"
        life = made.start()
        await plane.give(call("cmd-1", "counter/slow", until=str(gate)))
        await made.effects_reach(1)
        for _ in range(2):
            assert await made.post("/v1/drain", {}) == (202, {"state": "draining"})
        reasons: list[str] = []

        def stopping(event: Json) -> bool:
            if event["kind"] == "driver.stopping":
                reasons.append(event["data"]["reason"])
            return bool(reasons)

        await made.events_until(stopping)
        gate.touch()
        assert await life.exit_code() == 0
        assert reasons == [f"operator:{os.getuid()}"]
        life = made.start()
        assert (await plane.receipt_of("cmd-1"))["kind"] == "operation.succeeded"
        assert await life.stop() == 0
        await must_hold(made)


async def test_a_drain_has_an_end(zygote: Zygote) -> None:
    """What does not finish within `drain_s` is cancelled, and `unknown`; the exit code is still 0."""
    async with scripted_plane() as plane, sandbox(zygote, plane, driver={"drain_s": 0.2}) as made:
        life = made.start()
        await plane.give(call("cmd-1", "counter/slow", seconds=60, heed_cancel=True))
        await made.effects_reach(1)
        assert await life.stop() == 0
        life = made.start()
        receipt = await plane.receipt_of("cmd-1")
        assert receipt["kind"] == "operation.unknown"
        assert receipt["data"]["reason"] == "cancelled_after_dispatch"
        assert await life.stop() == 0
        await must_hold(made)


async def test_what_waits_at_a_drain_is_kept_for_the_next_life(zygote: Zygote) -> None:
    """An accepted call without a slot is neither lost nor refused by a drain: the next life runs it."""
    one_slot = {"max_inflight": 1, "drain_s": DRAIN_S}
    async with scripted_plane() as plane, sandbox(zygote, plane, driver=one_slot) as made:
        gate = made.root / "gate"
        life = made.start()
        await plane.give(call("cmd-1", "counter/slow", until=str(gate)), call("cmd-2", n=2))
        await plane.until(lambda: "cmd-2" in plane.history.accepted)
        await made.effects_reach(1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(life.stop)
            await made.events_until(lambda event: event["kind"] == "driver.stopping")
            gate.touch()
        assert plane.receipt("cmd-2") is None
        life = made.start()
        assert (await plane.receipt_of("cmd-2"))["kind"] == "operation.succeeded"
        assert await life.stop() == 0
        await must_hold(made)


async def test_undelivered_receipts_outlive_a_clean_stop(zygote: Zygote) -> None:
    """What the plane never acknowledged is delivered by the next life, in the same bytes."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        plane.acks = False
        life = made.start()
        await plane.give(*(call(f"cmd-{number}", n=number) for number in range(5)))
        await plane.answered()
        assert await life.stop() == 0
        known = plane.history.last_seq
        plane.acks = True
        life = made.start()
        await plane.until(lambda: plane.history.acked > known)
        assert plane.hellos[-1]["acked_seq"] == 0
        assert await life.stop() == 0
        assert not list(made.state.glob("*-wal")), "a clean stop leaves no -wal"
        await must_hold(made)


async def test_a_second_daemon_on_the_same_folder_exits_with_one_line(zygote: Zygote) -> None:
    """I10: the second one says who has the journal, exits 2, and does not disturb the first."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        life = made.start()
        await life.ready()
        for second in (made.start(), await made.execute()):
            assert await second.exit_code() == 2
            assert len(second.text.splitlines()) == 1
            assert str(life.pid) in second.text
        await plane.give(call("cmd-1", n=1))
        assert (await plane.receipt_of("cmd-1"))["kind"] == "operation.succeeded"
        assert len(plane.hellos) == 1
        assert await life.stop() == 0
        await must_hold(made)


async def test_alone_it_recovers_what_it_had_accepted(zygote: Zygote) -> None:
    """Without [control] nobody confirms the history: what had not started runs, what had is `unknown`."""
    async with scripted_plane() as plane, sandbox(zygote, plane, driver={"max_inflight": 1}) as made:
        life = made.start()
        await plane.give(call("cmd-1", "counter/slow", seconds=60), call("cmd-2", n=2))
        await plane.until(lambda: "cmd-2" in plane.history.accepted)
        await made.effects_reach(1)
        await life.kill()
        made.plane = None
        made.configure()
        life = made.start()
        await made.events_until(lambda event: event["kind"] == "operation.succeeded")
        status = await made.status()
        assert status["counts"]["unknown"] == 1
        assert status["counts"]["succeeded"] == 1
        assert status["link"]["connected"] is False
        assert await life.stop() == 0
        made.plane = plane
        made.configure()
        life = made.start()
        await plane.answered()
        assert await life.stop() == 0
        await must_hold(made)
        assert len(made.effects()) == 2


async def test_a_sigterm_in_the_middle_of_the_start_ends_in_a_clean_stop(zygote: Zygote) -> None:
    """From the moment that the journal is open a signal is heeded, and never just the end of the process."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        life = made.start()
        await life.logged("local_api_listening")
        life.send(signal.SIGTERM)
        assert await life.exit_code() == 0
        await must_hold(made)


async def test_a_terminal_that_closes_is_a_stop_unless_nobody_is_to_notice(zygote: Zygote) -> None:
    """SIGHUP drains as SIGTERM does: what runs has its receipt. Under `nohup` it means nothing."""
    async with scripted_plane() as plane, sandbox(zygote, plane, driver={"drain_s": DRAIN_S}) as made:
        gate = made.root / "gate"
        life = await made.execute("env", "--default-signal=HUP")  # whoever runs the tests may ignore it
        await plane.give(call("cmd-1", "counter/slow", until=str(gate)))
        await made.effects_reach(1)
        life.send(signal.SIGHUP)
        await made.events_until(lambda event: event["kind"] == "driver.stopping")
        gate.touch()
        assert await life.exit_code() == 0
        assert (await plane.receipt_of("cmd-1"))["kind"] == "operation.succeeded"
        life = await made.execute("nohup")
        await life.ready()
        life.send(signal.SIGHUP)
        await plane.give(call("cmd-2", "counter/count"))
        assert (await plane.receipt_of("cmd-2"))["kind"] == "operation.succeeded"
        assert await life.stop() == 0
        await must_hold(made)
