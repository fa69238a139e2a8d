"""Intent held by the plane: nothing leaves before the plane has acknowledged that it may (protocol, 6)."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from tests.system.audit import must_hold
from tests.system.history import Json
from tests.system.plane import ScriptedPlane, call, scripted_plane
from tests.system.sandbox import sandbox
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.kill]

PATIENT = {"intent_ack": "required", "intent_ack_timeout_s": 300}
HASTY = {"intent_ack": "required", "intent_ack_timeout_s": 0.3}
EXPIRES_MS = 1_000


def started(plane: ScriptedPlane, command_id: str) -> Callable[[], bool]:
    """Whether the plane has seen the intent of a command."""
    return lambda: "operation.started" in plane.kinds(command_id)


async def why_not(plane: ScriptedPlane, command_id: str) -> str:
    """The reason of a receipt that says that nothing was sent."""
    receipt = await plane.receipt_of(command_id)
    assert receipt["kind"] == "operation.not_executed", receipt
    reason: str = receipt["data"]["reason"]
    return reason


async def test_a_call_leaves_once_its_intent_is_acknowledged(zygote: Zygote) -> None:
    """Before the ack nothing happens, however long that takes; after it, the call runs as ever."""
    async with scripted_plane() as plane, sandbox(zygote, plane, control=PATIENT) as made:
        plane.acks = False
        life = made.start()
        await plane.give(call("cmd-1", n=1))
        await plane.until(started(plane, "cmd-1"))
        await anyio.sleep(0.5)
        assert made.effects() == []
        await plane.acknowledge()
        assert (await plane.receipt_of("cmd-1"))["kind"] == "operation.succeeded"
        plane.acks = True
        assert await life.stop() == 0
        await must_hold(made)


async def test_without_an_acknowledgement_nothing_is_sent(zygote: Zygote) -> None:
    """Its time over, the call ends with the daemon's own proof that nothing happened."""
    async with scripted_plane() as plane, sandbox(zygote, plane, control=HASTY) as made:
        plane.acks = False
        life = made.start()
        await plane.give(call("cmd-1", n=1), call("cmd-2", n=2))
        assert await why_not(plane, "cmd-1") == "intent_not_acknowledged"
        assert await why_not(plane, "cmd-2") == "intent_not_acknowledged"
        assert made.effects() == []
        assert await life.stop() == 0
        await must_hold(made)


async def test_a_refusal_of_the_intent_is_no_acknowledgement(zygote: Zygote) -> None:
    """Acks are cumulative, and pass over what was refused: the refused intent stays one."""
    async with scripted_plane() as plane, sandbox(zygote, plane, control=PATIENT) as made:
        plane.on_nack = lambda event: (
            {"type": "nack", "seq": event["seq"], "code": "invalid", "message": "m"}
            if event["kind"] == "operation.started" and event["command_id"] == "cmd-1"
            else None
        )
        life = made.start()
        await plane.give(call("cmd-1", n=1))
        await plane.until(started(plane, "cmd-1"))
        await plane.give(call("cmd-2", n=2))
        assert await why_not(plane, "cmd-1") == "intent_not_acknowledged"
        assert (await plane.receipt_of("cmd-2"))["kind"] == "operation.succeeded"
        assert len(made.effects()) == 1
        assert await life.stop() == 0


async def test_a_later_welcome_acknowledges_too(zygote: Zygote) -> None:
    """The ack was lost with its connection; the plane's watermark in the next welcome says the same."""
    async with scripted_plane() as plane, sandbox(zygote, plane, control=PATIENT) as made:
        life = made.start()

        def cut(event: Json) -> Any:  # noqa: ANN401 - one of three words
            return "cut" if event["kind"] == "operation.started" and len(plane.hellos) == 1 else "take"

        plane.on_event = cut
        await plane.give(call("cmd-1", n=1))
        await plane.until(lambda: started(plane, "cmd-1")() and plane.link is None)
        plane.history.acked = plane.history.last_seq
        assert (await plane.receipt_of("cmd-1"))["kind"] == "operation.succeeded"
        assert len(plane.hellos) > 1
        assert await life.stop() == 0
        await must_hold(made)


async def held_until_it_expires(plane: ScriptedPlane) -> str:
    """Give a call that lives long enough on this machine for its intent to be sent; return its id."""
    expires_ms = EXPIRES_MS
    while True:
        command_id = f"expiring-{expires_ms}"
        await plane.give({**call(command_id, n=expires_ms), "expires_in_ms": expires_ms})
        await plane.until(lambda: plane.receipt(command_id) or started(plane, command_id)())  # noqa: B023
        if started(plane, command_id)():
            return command_id
        expires_ms *= 2


@pytest.mark.parametrize("how", ["cancel", "expiry", "drain", "fence"])
async def test_whatever_ends_the_wait_is_named(zygote: Zygote, how: str) -> None:
    """Who waits for the plane still hears a cancel, the expiry, a drain and a fence, and nothing is sent."""
    async with scripted_plane() as plane, sandbox(zygote, plane, control=PATIENT) as made:
        plane.acks = False
        life = made.start()
        held = await held_until_it_expires(plane) if how == "expiry" else "cmd-1"
        if how != "expiry":
            await plane.give(call(held, n=1))
        await plane.until(started(plane, held))
        reason = {"cancel": "cancelled", "expiry": "expired", "drain": "draining", "fence": "fenced"}[how]
        if how == "cancel":
            cancel = {"target_command_id": "cmd-1"}
            await plane.give({**call("cmd-2"), "kind": "command.cancel", "data": cancel})
        elif how == "fence":
            await plane.say(
                {"type": "nack", "seq": plane.history.last_seq, "code": "conflict", "message": "m"}
            )
            await made.events_until(
                lambda event: event["kind"] == "operation.not_executed" and event["data"]["reason"] == reason
            )
        if how == "drain":
            plane.acks = True
            assert await life.stop() == 0
        if how != "fence":
            assert await why_not(plane, held) == reason
        assert made.effects() == []
        if how != "drain":
            await life.kill()


async def test_many_calls_wait_together(zygote: Zygote) -> None:
    """Each runs with its own acknowledgement, in whatever batches those come."""
    async with scripted_plane() as plane, sandbox(zygote, plane, control=PATIENT) as made:
        plane.acks = False
        life = made.start()
        await plane.give(*(call(f"cmd-{number}", n=number) for number in range(40)))
        await plane.until(lambda: all(started(plane, f"cmd-{number}")() for number in range(40)))
        assert made.effects() == []
        await plane.acknowledge()
        plane.acks = True
        await plane.answered()
        assert await life.stop() == 0
        assert len(made.effects()) == 40
        await must_hold(made)


async def test_the_execution_has_its_whole_time_after_the_wait(zygote: Zygote) -> None:
    """`execution_s` counts from dispatch: a plane that takes longer than that costs the call nothing."""
    tool = {"execution_s": 2}
    async with (
        scripted_plane() as plane,
        sandbox(zygote, plane, control=PATIENT, providers__counter__tools__count=tool) as made,
    ):
        plane.acks = False
        life = made.start()
        await plane.give(call("cmd-1", n=1))
        await plane.until(started(plane, "cmd-1"))
        await anyio.sleep(2.5)
        await plane.acknowledge()
        plane.acks = True
        assert (await plane.receipt_of("cmd-1"))["kind"] == "operation.succeeded"
        assert await life.stop() == 0


@pytest.mark.parametrize(
    "boundary",
    ["dispatch.intent_committed", "dispatch.intent_held", "link.acknowledged", "dispatch.before_call"],
)
async def test_a_kill_at_any_step_of_the_wait_is_no_lie(zygote: Zygote, boundary: str) -> None:
    """A life that dies before, in or after the wait leaves `unknown`, and executes at most once."""
    async with scripted_plane() as plane, sandbox(zygote, plane, control=PATIENT) as made:
        life = made.start(kill_at=f"{boundary}:{3 if boundary.startswith('link') else 1}")
        await plane.give(call("cmd-1", n=1))
        assert await life.exit_code() == -9
        life = made.start()
        await plane.answered()
        assert await life.stop() == 0
        await must_hold(made)


async def test_negative_control_without_the_wait_the_call_leaves(zygote: Zygote) -> None:
    """With the wait taken away, the effect happens although the plane holds nothing."""
    async with scripted_plane() as plane, sandbox(zygote, plane, control=PATIENT) as made:
        plane.acks = False
        life = made.start(patch="no_hold")
        await plane.give(call("cmd-1", n=1))
        await made.effects_reach(1)
        assert await life.stop() == 0
