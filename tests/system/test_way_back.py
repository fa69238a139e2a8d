"""Retry and compensation on real processes: whatever dies, nothing is done twice, and each is answered."""

from collections.abc import Mapping
from typing import Any, Final

import anyio
import pytest

from tests.system.audit import audit, key_of, must_hold
from tests.system.campaign import KILLED
from tests.system.plane import ScriptedPlane, call, scripted_plane
from tests.system.sandbox import Sandbox, sandbox
from tests.system.test_verdicts import command, verdict
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.kill]

BOUNDARIES: Final = (
    "intake.committed",
    "errand.taken",
    "dispatch.prepared",
    "dispatch.intent_committed",
    "dispatch.before_call",
    "dispatch.answered",
    "dispatch.outcome_committed",
    "errand.done",
    "journal.before_commit:2",
    "journal.after_commit:2",
    "journal.before_commit:3",
    "journal.after_commit:3",
    "journal.before_commit:4",
    "journal.after_commit:4",
    "link.sent",
)
"""The first commit of a start is the daemon's own news."""
HURRIED_S: Final = 2.0
"""What a call is not answered within, on purpose: time for its first byte on a slow machine, too."""
UNDO: Final[Mapping[str, Any]] = {
    "providers__counter__tools__count__compensate": {"tool": "slow"},
    "providers__counter__tools__count__compensate__arguments": {"seconds": 0.01, "label": "=key"},
}
"""What takes a `count` back; the ledger shows it under its own key."""


def undo_key(operation_id: str, run_id: str = "run-1") -> str:
    """Return the key of an operation's compensation."""
    return key_of({"run_id": run_id, "command_id": f"compensate:{operation_id}"})


async def cleared(made: Sandbox, plane: ScriptedPlane) -> str:
    """Have a call that was lost before it left, and an operator say so; return its operation."""
    order = call("cmd-1", n=1)
    await plane.give(order)
    assert await made.start(kill_at="dispatch.before_call").exit_code() == KILLED
    operation_id = key_of(order)
    life = made.start()
    assert (await plane.receipt_of("cmd-1"))["data"]["reason"] == "crash_window"
    await plane.give(verdict(operation_id, effect="none", note="it is not in the ledger"))
    await plane.receipt_of("v-1")
    assert await life.stop() == 0
    return operation_id


async def kill_and_recover(made: Sandbox, kill_at: str) -> None:
    """Die there, and once more in the recovery."""
    assert await made.start(kill_at=kill_at).exit_code() == KILLED
    assert await made.start(kill_at="recovery.before").exit_code() == KILLED


@pytest.mark.lane
@pytest.mark.parametrize("kill_at", BOUNDARIES)
async def test_a_retry_that_is_killed_anywhere_is_begun_once(zygote: Zygote, kill_at: str) -> None:
    """Two attempts at most, one effect at most, and a receipt that says what came of it."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        operation_id = await cleared(made, plane)
        await plane.give(command("retry-1", "operation.retry", operation_id=operation_id))
        await kill_and_recover(made, kill_at)
        life = made.start()
        receipt = await plane.receipt_of("retry-1")
        told = receipt["data"]["result"]
        story = await made.operation(operation_id)
        assert await life.stop() == 0
        assert await (await made.command("verify", "--deep")).exit_code() == 0
        await must_hold(made)
        effects = made.executions()[operation_id]
    assert receipt["kind"] == "command.completed"
    assert (told["attempt"], story["attempt_count"]) == (2, 2)
    assert told["outcome"] in ("succeeded", "unknown")
    assert effects == 1 if told["outcome"] == "succeeded" else effects <= 1
    assert story["settled"] == (told["outcome"] == "succeeded")


@pytest.mark.lane
@pytest.mark.parametrize("kill_at", BOUNDARIES)
@pytest.mark.parametrize("kind", ["operation.compensate", "run.compensate"])
async def test_a_compensation_that_is_killed_anywhere_is_made_once(
    zygote: Zygote, kill_at: str, kind: str
) -> None:
    """One intent, one effect at most; the forward operation is told what came of it, once."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        made.configure(**UNDO)
        order = call("cmd-1", n=1)
        await plane.give(order)
        life = made.start()
        await plane.receipt_of("cmd-1")
        assert await life.stop() == 0
        operation_id = key_of(order)
        data = {"operation_id": operation_id} if kind == "operation.compensate" else {}
        await plane.give(command("undo-1", kind, run_id="run-1", **data))
        await kill_and_recover(made, kill_at)
        life = made.start()
        receipt = await plane.receipt_of("undo-1")
        await plane.give(command("undo-2", "operation.compensate", operation_id=operation_id))
        again = (await plane.receipt_of("undo-2"))["data"]["result"]
        forward = await made.operation(operation_id)
        undo = await made.operation(undo_key(operation_id))
        assert await life.stop() == 0
        assert await (await made.command("verify", "--deep")).exit_code() == 0
        await must_hold(made)
        effects = made.executions()[undo_key(operation_id)]
        events = plane.history.events()
        told = [event for event in events if event["kind"] == "operation.compensated"]
    assert receipt["kind"] == "command.completed"
    assert (again["state"], again["effect"]) == (undo["state"], undo["effect"])
    assert undo["attempt_count"] == 1
    assert undo["state"] in ("succeeded", "unknown")
    assert effects == 1 if undo["state"] == "succeeded" else effects <= 1
    assert [event["data"]["effect"] for event in told] == [undo["effect"]]
    assert forward["compensation"]["operation_id"] == undo["operation_id"]
    if kind == "run.compensate":
        assert receipt["data"]["result"]["complete"] == (undo["state"] == "succeeded")


async def test_rule_r_is_asked_over_the_plane_and_the_local_socket_alike(zygote: Zygote) -> None:
    """What may have happened is refused, with the part of the rule; what is proven runs with the same key."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        order = call("cmd-1", n=1)
        await plane.give(order)
        assert await made.start(kill_at="dispatch.before_call").exit_code() == KILLED
        operation_id = key_of(order)
        life = made.start()
        await plane.receipt_of("cmd-1")
        status, problem = await made.post(f"/v1/operations/{operation_id}/retry", {})
        assert (status, problem["code"]) == (409, "not_proven_none")
        await plane.give(command("retry-1", "operation.retry", operation_id=operation_id))
        refused = await plane.receipt_of("retry-1")
        assert (refused["kind"], refused["data"]["code"]) == ("command.failed", "not_proven_none")
        await plane.give(verdict(operation_id, effect="none", note="it is not in the ledger"))
        await plane.receipt_of("v-1")
        status, answer = await made.post(f"/v1/operations/{operation_id}/retry", {})
        assert status == 202
        receipt = await plane.receipt_of(answer["command_id"])
        assert receipt["data"]["result"]["outcome"] == "succeeded"
        started = [event["data"] for event in plane.history.events() if event["kind"] == "operation.started"]
        assert [(data["attempt"], data["idempotency_key"]) for data in started] == [
            (1, operation_id),
            (2, operation_id),
        ]
        assert await life.stop() == 0
        await must_hold(made)
        assert made.executions()[operation_id] == 1


async def test_without_the_look_at_what_may_land_an_effect_happens_twice(zygote: Zygote) -> None:
    """Control of I2: a call that was given up, and is retried while it can still land, lands as well."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        gate = made.root / "gate"
        made.configure(providers__counter__tools__slow={"execution_s": HURRIED_S})
        life = made.start(patch="nothing_lands")
        order = call("cmd-1", "counter/slow", until=str(gate), when="before")
        await plane.give(order)
        assert (await plane.receipt_of("cmd-1"))["data"]["reason"] == "execution_timeout"
        await plane.give(verdict(key_of(order), effect="none", note="it is not in the ledger"))
        await plane.receipt_of("v-1")
        await plane.give(command("retry-1", "operation.retry", operation_id=key_of(order)))
        await plane.until(
            lambda: [event["data"].get("attempt") for event in plane.history.events()].count(2) > 0
        )
        gate.touch()
        await plane.receipt_of("retry-1")
        await made.effects_reach(2)
        await life.kill()
        await made.quiet()
        found = audit(plane, made.executions())
    assert "cmd-1 was executed 2 times" in found


async def test_what_may_still_land_is_not_retried(zygote: Zygote) -> None:
    """The same with the look: refused until its window is over."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        gate = made.root / "gate"
        made.configure(providers__counter__tools__slow={"execution_s": HURRIED_S})
        life = made.start()
        order = call("cmd-1", "counter/slow", until=str(gate), when="before")
        await plane.give(order)
        await plane.receipt_of("cmd-1")
        await plane.give(verdict(key_of(order), effect="none", note="it is not in the ledger"))
        await plane.receipt_of("v-1")
        await plane.give(command("retry-1", "operation.retry", operation_id=key_of(order)))
        assert (await plane.receipt_of("retry-1"))["data"]["code"] == "may_still_land"
        gate.touch()
        await made.effects_reach(1)
        assert await life.stop() == 0
        await must_hold(made)
        assert made.executions()[key_of(order)] == 1


@pytest.mark.parametrize(("patch", "times"), [(None, 1), ("nobody_parts", 2)])
async def test_what_a_server_is_at_beyond_the_late_window_ends_before_a_retry(
    zygote: Zygote, patch: str | None, times: int
) -> None:
    """It answers pings, and nobody listens any more: its process goes first, or the effect happens twice."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        gate = made.root / "gate"
        made.configure(
            providers__counter={"late_result_s": 0.2},
            providers__counter__tools__slow={"execution_s": HURRIED_S},
        )
        life = made.start(patch=patch)
        order = call("cmd-1", "counter/slow", until=str(gate), when="before")
        await plane.give(order)
        assert (await plane.receipt_of("cmd-1"))["data"]["reason"] == "execution_timeout"
        await plane.give(verdict(key_of(order), effect="none", note="it is not in the ledger"))
        await plane.receipt_of("v-1")
        with anyio.fail_after(60):
            while "retry" not in (await made.operation(key_of(order)))["allowed"]:  # noqa: ASYNC110
                await anyio.sleep(0.05)
        await plane.give(command("retry-1", "operation.retry", operation_id=key_of(order)))
        await plane.until(
            lambda: [event["data"].get("attempt") for event in plane.history.events()].count(2) > 0
        )
        gate.touch()
        await plane.receipt_of("retry-1")
        await made.effects_reach(times)
        await life.kill()
        await made.quiet()
        assert made.executions()[key_of(order)] == times
