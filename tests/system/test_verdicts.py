"""The way back from unknown, on real processes: what people say, and what a child run proves, is kept."""

from typing import Final

import anyio
import pytest

from tests.system.audit import key_of, must_hold
from tests.system.history import Json
from tests.system.plane import ScriptedPlane, call, scripted_plane
from tests.system.sandbox import Sandbox, sandbox
from tests.system.zygote import Zygote

pytestmark = pytest.mark.anyio

KILLED: Final = -9
LOST_AT: Final = "dispatch.answered"
"""A daemon that dies here has caused the effect, and does not know its outcome any more."""
KILLS: Final = ("intake.committed:1", "journal.before_commit:2", "journal.after_commit:2", "link.sent:1")
"""The first commit of a start is the daemon's own news."""


def command(command_id: str, kind: str, run_id: str = "desk", **data: object) -> Json:
    """Return a command that is no call, of a run of its own."""
    return {"type": "command", "command_id": command_id, "run_id": run_id, "kind": kind, "data": data}


def verdict(operation_id: str, command_id: str = "v-1", **data: object) -> Json:
    """Return an operator's verdict that comes over the plane."""
    order = command(command_id, "operation.reconcile", operation_id=operation_id)
    order["data"] |= {"effect": "occurred", "actor": "ann", "note": "it is in the ledger", **data}
    return order


def said(plane: ScriptedPlane, kind: str) -> list[Json]:
    """Return the events of one kind."""
    return [event for event in plane.history.events() if event["kind"] == kind]


async def lose(made: Sandbox, plane: ScriptedPlane, order: Json) -> str:
    """Have a call executed, and its outcome lost; return its operation."""
    await plane.give(order)
    assert await made.start(kill_at=LOST_AT).exit_code() == KILLED
    return key_of(order)


async def test_a_verdict_from_the_plane_settles_and_is_answered_alike_for_ever(zygote: Zygote) -> None:
    """It supersedes the receipt, executes nothing, and a redelivery gets the same bytes."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        operation_id = await lose(made, plane, call("cmd-1", n=1))
        life = made.start()
        receipt = await plane.receipt_of("cmd-1")
        assert receipt["data"]["reason"] == "crash_window"
        await plane.give(verdict(operation_id, actor="supervisor:rules"))
        assert (await plane.receipt_of("v-1"))["kind"] == "command.completed"
        (word,) = said(plane, "operation.reconciled")
        assert (word["terminal"], word["best_effort"], word["origin"]) == (False, False, "plane")
        assert word["data"]["actor"] == "operator:supervisor:rules"
        assert word["data"]["supersedes"] == receipt["seq"]
        (intent,) = said(plane, "operation.started")
        assert word["data"]["started_seq"] == intent["seq"]
        await plane.redeliver("v-1", "cmd-1")
        await plane.give(verdict(operation_id, "v-2", effect="none", note="no"))
        assert (await plane.receipt_of("v-2"))["data"]["code"] == "already_settled"
        assert len(said(plane, "operation.reconciled")) == 1
        found = await made.operation(operation_id)
        assert (found["state"], found["effect"], found["settled"]) == ("unknown", "occurred", True)
        assert await life.stop() == 0
        await must_hold(made)
        assert len(made.effects()) == 1


@pytest.mark.parametrize("kill_at", KILLS)
async def test_a_kill_around_a_verdict_neither_loses_nor_doubles_it(zygote: Zygote, kill_at: str) -> None:
    """Whatever of it was durable: after the restart there is one verdict, one annotation, a receipt each."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        operation_id = await lose(made, plane, call("cmd-1", n=1))
        life = made.start()
        await plane.receipt_of("cmd-1")
        assert await life.stop() == 0
        note = command("a-1", "operation.annotate", operation_id=operation_id, metadata={"id": "42"})
        await plane.give(verdict(operation_id), note)
        assert await made.start(kill_at=kill_at).exit_code() == KILLED
        life = made.start()
        for command_id in ("v-1", "a-1"):
            assert (await plane.receipt_of(command_id))["kind"] == "command.completed"
        assert len(said(plane, "operation.reconciled")) == len(said(plane, "operation.annotated")) == 1
        found = await made.operation(operation_id)
        assert (found["effect"], found["effect_by"], found["metadata"]) == (
            "occurred",
            "operator",
            {"id": "42"},
        )
        assert await life.stop() == 0
        await must_hold(made)


async def test_of_a_plane_and_people_on_the_machine_one_settles_and_all_others_are_told(
    zygote: Zygote,
) -> None:
    """They race for one operation: one verdict, whoever gave it, and nobody believes theirs was taken."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        operation_id = await lose(made, plane, call("cmd-1", n=1))
        life = made.start()
        await plane.receipt_of("cmd-1")
        await made.status()
        answers: list[int] = []

        async def settle(number: int) -> None:
            body = {"effect": ("none", "occurred")[number % 2], "note": f"person {number}"}
            answers.append((await made.post(f"/v1/operations/{operation_id}/reconcile", body))[0])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(plane.give, *(verdict(operation_id, f"v-{n}", note=f"{n}") for n in range(4)))
            for number in range(4):
                tasks.start_soon(settle, number)
        kinds = [(await plane.receipt_of(f"v-{n}"))["kind"] for n in range(4)]
        assert kinds.count("command.completed") + answers.count(201) == 1
        assert kinds.count("command.failed") + answers.count(409) == 7
        assert await life.stop() == 0
        assert len(said(plane, "operation.reconciled")) == 1
        await must_hold(made)


async def test_a_parent_is_judged_by_its_child_run_across_restarts(zygote: Zygote) -> None:
    """The parent's outcome is lost; what its child run did, once that has ended, says what happened."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        parent = await lose(made, plane, call("parent", n=1))
        life = made.start()
        lost = await plane.receipt_of("parent")
        assert "child_run_id" not in lost["data"]
        children = [call(f"child-{n}", run_id="child", n=10 + n) for n in range(2)]
        for child in children:
            child["data"]["parent_operation_id"] = parent
        await plane.give(*children)
        for n in range(2):
            await plane.receipt_of(f"child-{n}")
        found = await made.operation(parent)
        assert (found["effect"], found["child_run_id"], found["child_ops_total"]) == ("unknown", "child", 2)
        assert await life.stop() == 0
        await plane.give(command("end", "run.end", "child"))
        assert await made.start(kill_at="intake.committed").exit_code() == KILLED
        life = made.start()
        assert (await plane.receipt_of("end"))["kind"] == "command.completed"
        await plane.until(lambda: said(plane, "operation.reconciled"))  # it comes behind that receipt
        (word,) = said(plane, "operation.reconciled")
        assert (word["operation_id"], word["data"]["actor"]) == (parent, "daemon:delegation")
        assert (word["data"]["effect"], word["data"]["supersedes"]) == ("occurred", lost["seq"])
        found = await made.operation(parent)
        assert (found["effect_by"], found["child_ops_unresolved"], found["settled"]) == ("daemon", 0, True)
        assert await life.stop() == 0
        await must_hold(made)


async def test_a_parent_whose_child_run_did_nothing_did_nothing(zygote: Zygote) -> None:
    """Its receipt carries what is known of its children when it ends, and the verdict follows at once."""
    contract = {"execution_s": 60.0}
    async with (
        scripted_plane() as plane,
        sandbox(zygote, plane, providers__counter__tools__slow=contract) as made,
    ):
        life = made.start()
        parent = call("parent", "counter/slow", seconds=60, heed_cancel=True)
        await plane.give(parent)
        await made.effects_reach(1)
        child = call("child-1", "counter/nothing-of-that-name", run_id="child")
        child["data"] |= {"tool": "nobody/act", "parent_operation_id": key_of(parent)}
        await plane.give(child)
        assert (await plane.receipt_of("child-1"))["kind"] == "operation.not_executed"
        await plane.give(command("end", "run.end", "child"))
        await plane.receipt_of("end")
        await plane.give(command("cancel", "command.cancel", "run-1", target_command_id="parent"))
        receipt = await plane.receipt_of("parent")
        children = [
            receipt["data"][name] for name in ("child_run_id", "child_ops_total", "child_ops_unresolved")
        ]
        assert (receipt["kind"], children) == ("operation.unknown", ["child", 1, 0])
        await plane.until(lambda: said(plane, "operation.reconciled"))
        (word,) = said(plane, "operation.reconciled")
        assert (word["data"]["effect"], word["seq"]) == ("none", receipt["seq"] + 1)
        assert await life.stop() == 0
