"""What else ends a call than its answer: a cancel, an expiry, a deadline, a dead provider, too much."""

import os
import signal

import pytest

from tests.system.audit import must_hold
from tests.system.history import Json
from tests.system.plane import call, scripted_plane
from tests.system.sandbox import sandbox
from tests.system.zygote import Zygote

pytestmark = pytest.mark.anyio

ONE_SLOT = {"max_inflight": 1}


def control(command_id: str, kind: str, **data: object) -> Json:
    """Return a command that is no call."""
    return {"type": "command", "command_id": command_id, "run_id": "run-1", "kind": kind, "data": data}


async def test_a_cancel_is_honest_about_what_had_started(zygote: Zygote) -> None:
    """What waits ends `not_executed/cancelled`, what runs `unknown/cancelled_after_dispatch`."""
    async with scripted_plane() as plane, sandbox(zygote, plane, driver=ONE_SLOT) as made:
        life = made.start()
        await plane.give(call("running", "counter/slow", seconds=60, heed_cancel=True), call("waiting", n=2))
        await plane.until(lambda: "waiting" in plane.history.accepted)
        await made.effects_reach(1)
        await plane.give(control("cancel-2", "command.cancel", target_command_id="waiting"))
        receipt = await plane.receipt_of("waiting")
        assert (receipt["kind"], receipt["data"]["reason"]) == ("operation.not_executed", "cancelled")
        await plane.give(control("cancel-1", "command.cancel", target_command_id="running"))
        receipt = await plane.receipt_of("running")
        assert (receipt["kind"], receipt["data"]["reason"]) == (
            "operation.unknown",
            "cancelled_after_dispatch",
        )
        assert (await plane.receipt_of("cancel-1"))["kind"] == "command.completed"
        assert await life.stop() == 0
        assert len(made.effects()) == 1


async def test_an_ended_run_gets_no_more_calls(zygote: Zygote) -> None:
    """After `run.end` a call of that run is a final refusal, after a kill too; another run goes on."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        life = made.start()
        await plane.give(call("cmd-1", n=1))
        await plane.answered()
        await plane.give(control("end", "run.end", outcome="done"))
        await plane.answered()
        await life.kill()
        life = made.start()
        await plane.give(call("cmd-2", n=2), call("cmd-3", run_id="run-2", n=3))
        assert (await plane.receipt_of("cmd-2"))["data"]["code"] == "run_ended"
        assert (await plane.receipt_of("cmd-3"))["kind"] == "operation.succeeded"
        assert await life.stop() == 0
        assert len(made.effects()) == 2


async def test_a_call_that_expires_while_it_waits_is_not_executed(zygote: Zygote) -> None:
    """`expires_in_ms` counts from receipt, across a kill: what was not dispatched by then never is."""
    async with scripted_plane() as plane, sandbox(zygote, plane, driver=ONE_SLOT) as made:
        life = made.start()
        expiring = {**call("expiring", n=2), "expires_in_ms": 100}
        kept = {**call("kept", n=3), "expires_in_ms": 60_000}
        await plane.give(call("running", "counter/slow", seconds=60), expiring, kept)
        await plane.until(lambda: "kept" in plane.history.accepted)
        await made.effects_reach(1)
        assert (await plane.receipt_of("expiring"))["data"]["reason"] == "expired"
        late = {**call("late", n=4), "expires_in_ms": 1}
        await plane.give(late)
        await plane.until(lambda: "late" in plane.history.accepted)
        await life.kill()
        life = made.start()
        assert (await plane.receipt_of("late"))["data"]["reason"] == "expired"
        assert (await plane.receipt_of("kept"))["kind"] == "operation.succeeded"
        assert await life.stop() == 0
        await must_hold(made)
        assert len(made.effects()) == 2


async def test_an_answer_after_the_deadline_is_a_late_result(zygote: Zygote) -> None:
    """The deadline makes it `unknown`, not `failed`; the answer that comes after all is kept beside that."""
    contract = {"execution_s": 2.0}
    async with (
        scripted_plane() as plane,
        sandbox(zygote, plane, providers__counter__tools__slow=contract) as made,
    ):
        gate = made.root / "gate"
        life = made.start()
        await plane.give(call("cmd-1", "counter/slow", until=str(gate)))
        receipt = await plane.receipt_of("cmd-1")
        assert (receipt["kind"], receipt["data"]["reason"]) == ("operation.unknown", "execution_timeout")
        gate.touch()
        await plane.until(lambda: "operation.late_result" in plane.kinds("cmd-1"))
        late = next(event for event in plane.history.events() if event["kind"] == "operation.late_result")
        assert late["terminal"] is False
        assert late["data"]["effect"] == "occurred"
        assert late["data"]["supersedes"] == receipt["seq"]
        await plane.redeliver("cmd-1")
        assert await life.stop() == 0
        await must_hold(made)


async def test_a_provider_that_dies_in_mid_call_leaves_an_unknown(zygote: Zygote) -> None:
    """A killed server takes its call with it, as `unknown`; the next call finds a fresh server."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        life = made.start()
        await plane.give(call("cmd-1", "counter/slow", seconds=60))
        await made.effects_reach(1)
        os.kill(made.effects()[0]["pid"], signal.SIGKILL)
        receipt = await plane.receipt_of("cmd-1")
        assert (receipt["kind"], receipt["data"]["reason"]) == ("operation.unknown", "connection_lost")
        await plane.give(call("cmd-2", n=2))
        assert (await plane.receipt_of("cmd-2"))["kind"] == "operation.succeeded"
        assert await life.stop() == 0
        await must_hold(made)


async def test_what_is_too_much_is_refused_and_can_come_again(zygote: Zygote) -> None:
    """I11: beyond `queue_max` a call is refused `overloaded` without a trace, and taken when it returns."""
    limits = {"max_inflight": 1, "queue_max": 2}
    async with scripted_plane() as plane, sandbox(zygote, plane, driver=limits) as made:
        gate = made.root / "gate"
        life = made.start()
        await plane.give(call("running", "counter/slow", until=str(gate)))
        await made.effects_reach(1)
        await plane.give(*(call(f"cmd-{number}", n=number) for number in range(3)))
        assert (await plane.answer_to("cmd-2"))["code"] == "overloaded"
        assert plane.kinds("cmd-2") == []
        gate.touch()
        await plane.receipt_of("cmd-1")
        await plane.deliver("cmd-2")
        assert (await plane.receipt_of("cmd-2"))["kind"] == "operation.succeeded"
        assert await life.stop() == 0
        await must_hold(made)
