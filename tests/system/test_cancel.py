"""A cancelled call is told to stop, and heard out: what it had done by then is what its receipt says."""

from datetime import datetime, timedelta

import pytest

from tests.system.audit import must_hold
from tests.system.history import Json
from tests.system.plane import call, scripted_plane
from tests.system.sandbox import sandbox
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.kill, pytest.mark.lane]


def cancel(target: str) -> Json:
    """Return the command that cancels another one."""
    return {
        "type": "command",
        "command_id": f"cancel-{target}",
        "run_id": "run-1",
        "kind": "command.cancel",
        "data": {"target_command_id": target},
    }


async def test_a_tool_that_finishes_all_the_same_has_succeeded(zygote: Zygote) -> None:
    """The effect is there, the answer comes a moment after the cancel, and both are one outcome."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        life = made.start()
        gate = made.root / "gate"
        await plane.give(call("cmd-1", "counter/slow", until=str(gate)))
        await made.effects_reach(1)
        await plane.give(cancel("cmd-1"))
        await plane.receipt_of("cancel-cmd-1")
        gate.touch()
        assert (await plane.receipt_of("cmd-1"))["kind"] == "operation.succeeded"
        del plane.orders["cancel-cmd-1"]
        assert await life.stop() == 0
        await must_hold(made)


async def test_a_tool_that_says_nothing_is_waited_for_within_bounds(zygote: Zygote) -> None:
    """Five seconds, long before the command's own expiry; the next call is not held up by it."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        life = made.start()
        hanging = {**call("cmd-1", "counter/slow", seconds=60, heed_cancel=True), "expires_in_ms": 60_000}
        await plane.give(hanging)
        await made.effects_reach(1)
        await plane.give(cancel("cmd-1"))
        await plane.give(call("cmd-2", n=2))
        assert (await plane.receipt_of("cmd-2"))["kind"] == "operation.succeeded"
        assert plane.receipt("cmd-1") is None
        receipt = await plane.receipt_of("cmd-1")
        assert (receipt["kind"], receipt["data"]["reason"]) == (
            "operation.unknown",
            "cancelled_after_dispatch",
        )
        started = next(e for e in plane.history.events() if e["kind"] == "operation.started")
        left = datetime.fromisoformat(started["data"]["deadline_at"]) - datetime.fromisoformat(receipt["at"])
        assert left > timedelta(seconds=30)
        del plane.orders["cancel-cmd-1"]
        assert await life.stop() == 0
        await must_hold(made)
