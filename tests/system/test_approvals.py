"""Approvals on real processes: the plane and a person decide, and no kill turns one grant into two calls."""

import os
import subprocess
import sys
from typing import Final

import anyio
import pytest
from anyio import to_thread

from tests.system.campaign import KILLED
from tests.system.history import Json
from tests.system.plane import PATIENCE_S, ScriptedPlane, call, scripted_plane
from tests.system.sandbox import Sandbox, sandbox
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.kill, pytest.mark.lane]

ASKED: Final = {"approval": "required"}
REQUESTED: Final = "operation.approval_requested"


def decide(request: Json, verdict: str = "grant", command_id: str = "decision-1") -> Json:
    """The plane's word about a request."""
    data = {
        "operation_id": request["operation_id"],
        "approval_id": request["data"]["approval_id"],
        "decision": verdict,
        "approver": "somebody@example.org",
    }
    return {
        "type": "command",
        "command_id": command_id,
        "run_id": "run-1",
        "kind": "operation.approve",
        "data": data,
    }


def requests(plane: ScriptedPlane) -> list[Json]:
    """Everything that the plane was told somebody was asked."""
    return [event for event in plane.history.events() if event["kind"] == REQUESTED]


async def asked(plane: ScriptedPlane, count: int = 1) -> Json:
    """The newest request, once there are so many."""
    await plane.until(lambda: len(requests(plane)) >= count)
    return requests(plane)[-1]


async def effectd(made: Sandbox, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the sandbox's configuration, as a person does."""
    program = [sys.executable, "-c", "from driver.cli.main import main; main()"]
    line = [*program, *arguments, "--config", str(made.config)]
    return await to_thread.run_sync(
        lambda: subprocess.run(line, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    )


async def test_the_plane_grants_and_the_call_runs_once(zygote: Zygote) -> None:
    """Nothing runs before the grant; a redelivered grant grants nothing again."""
    async with (
        scripted_plane() as plane,
        sandbox(zygote, plane, providers__counter__tools__count=ASKED) as made,
    ):
        life = made.start()
        await plane.give(call("cmd-1", n=1))
        request = await asked(plane)
        assert request["data"]["arguments"] == {"n": 1}
        assert made.effects() == []
        await plane.give(decide(request))
        assert (await plane.receipt_of("cmd-1"))["kind"] == "operation.succeeded"
        await plane.redeliver("decision-1")
        await plane.give(decide(request, command_id="decision-2"))
        again = await plane.receipt_of("decision-2")
        assert (again["kind"], again["data"]["code"]) == ("command.failed", "not_awaiting_approval")
        assert await life.stop() == 0
        assert len(made.effects()) == 1


async def test_a_request_survives_a_kill_as_it_is(zygote: Zygote) -> None:
    """The same request can be decided after the restart; nobody is asked twice for nothing."""
    async with (
        scripted_plane() as plane,
        sandbox(zygote, plane, providers__counter__tools__count=ASKED) as made,
    ):
        life = made.start()
        await plane.give(call("cmd-1", n=1))
        request = await asked(plane)
        await life.kill()
        life = made.start()
        await plane.connected()
        await plane.give(decide(request))
        assert (await plane.receipt_of("cmd-1"))["kind"] == "operation.succeeded"
        assert await life.stop() == 0
        assert (len(requests(plane)), len(made.effects())) == (1, 1)


@pytest.mark.parametrize("kill_at", ["intake.committed:2", "dispatch.prepared:2"])
async def test_a_kill_between_grant_and_start_asks_again(zygote: Zygote, kill_at: str) -> None:
    """The grant is worth nothing after it, and the new request has a name of its own."""
    async with (
        scripted_plane() as plane,
        sandbox(zygote, plane, providers__counter__tools__count=ASKED) as made,
    ):
        life = made.start(kill_at=kill_at)
        await plane.give(call("cmd-1", n=1))
        first = await asked(plane)
        await plane.give(decide(first))
        assert await life.exit_code() == KILLED
        life = made.start()
        second = await asked(plane, 2)
        assert second["data"]["approval_id"] != first["data"]["approval_id"]
        assert made.effects() == []
        await plane.give(decide(second, command_id="decision-2"))
        assert (await plane.receipt_of("cmd-1"))["kind"] == "operation.succeeded"
        assert await life.stop() == 0
        assert len(made.effects()) == 1


@pytest.mark.parametrize(("kill_at", "effects"), [("dispatch.intent_committed", 0), ("dispatch.answered", 1)])
async def test_a_kill_after_the_start_uses_the_approval_up(
    zygote: Zygote, kill_at: str, effects: int
) -> None:
    """Nobody is asked again: the outcome is unknown, and has to be found out."""
    async with (
        scripted_plane() as plane,
        sandbox(zygote, plane, providers__counter__tools__count=ASKED) as made,
    ):
        life = made.start(kill_at=kill_at)
        await plane.give(call("cmd-1", n=1))
        await plane.give(decide(await asked(plane)))
        assert await life.exit_code() == KILLED
        life = made.start()
        receipt = await plane.receipt_of("cmd-1")
        assert (receipt["kind"], receipt["data"]["reason"]) == ("operation.unknown", "crash_window")
        assert await life.stop() == 0
        assert (len(requests(plane)), len(made.effects())) == (1, effects)


async def test_a_person_decides_on_this_machine_and_the_plane_hears_of_it(zygote: Zygote) -> None:
    """`effectd approve` and `deny`: their events say `local`, and name the uid."""
    async with (
        scripted_plane() as plane,
        sandbox(zygote, plane, providers__counter__tools__count=ASKED) as made,
    ):
        life = made.start()
        await plane.give(call("cmd-1", n=1))
        await asked(plane)
        done = await effectd(made, "approve", "cmd-1", "--reason", "looked at it")
        assert (done.returncode, done.stdout[:9]) == (0, "Approved:")
        assert (await plane.receipt_of("cmd-1"))["kind"] == "operation.succeeded"
        await plane.give(call("cmd-2", n=2))
        await asked(plane, 2)
        assert (await effectd(made, "deny", "cmd-2")).returncode == 0
        receipt = await plane.receipt_of("cmd-2")
        assert (receipt["kind"], receipt["data"]["reason"]) == ("operation.not_executed", "approval_denied")
        late = await effectd(made, "approve", "cmd-2")
        assert (late.returncode, "(not_awaiting_approval)" in late.stderr) == (1, True)
        assert await life.stop() == 0
        decided = [e for e in plane.history.events() if e["kind"] == "operation.approval_decided"]
        assert [event["data"]["approver"] for event in decided] == [f"operator:{os.geteuid()}"] * 2
        mine = [e for e in plane.history.events() if str(e["command_id"]).startswith("local:")]
        assert {event["origin"] for event in mine} == {"local"}
        assert len(made.effects()) == 1


async def test_stand_alone_nobody_else_has_to_confirm_anything(zygote: Zygote) -> None:
    """A daemon without a plane answers for its own journal: what it says of an unknown call is a 404."""
    async with sandbox(zygote, None, providers__counter__tools__count=ASKED) as made:
        life = made.start()
        await life.ready()
        with anyio.fail_after(PATIENCE_S):
            done = await effectd(made, "approve", f"op_{'0' * 32}")
        assert (done.returncode, "(operation_not_found)" in done.stderr) == (1, True)
        assert await life.stop() == 0
