"""What the product is for: one effect for one command and an honest word about it, whatever is lost."""

import shutil
from pathlib import Path

import pytest

from tests.system.audit import key_of, must_hold
from tests.system.history import Json
from tests.system.plane import Fate, ScriptedPlane, call, scripted_plane
from tests.system.sandbox import Sandbox, sandbox
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.kill]

KILLED = -9


def gated(command_id: str, gate: Path, n: int = 0) -> Json:
    """Return a call that does its effect at once, and answers when the file `gate` is there."""
    return call(command_id, "counter/slow", until=str(gate), n=n)


async def lose_the_outcome(made: Sandbox, plane: ScriptedPlane, command: Json) -> None:
    """Let a daemon die after the effect of `command`, before anybody wrote down that it happened."""
    life = made.start(kill_at="dispatch.answered")
    await plane.give(command)
    assert await life.exit_code() == KILLED


async def test_an_effect_without_a_recorded_outcome_is_unknown_and_never_repeated(
    zygote: Zygote,
) -> None:
    """I2, I3: killed between the answer and its record, a call is `unknown`, and not made again."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        await lose_the_outcome(made, plane, call("cmd-1", n=1))
        assert plane.receipt("cmd-1") is None
        life = made.start()
        receipt = await plane.receipt_of("cmd-1")
        assert receipt["kind"] == "operation.unknown"
        assert receipt["data"]["reason"] == "crash_window"
        assert receipt["data"]["effect"] == "unknown"
        await plane.redeliver("cmd-1")
        await life.stop()
        await must_hold(made)
        assert made.executions() == {key_of(plane.orders["cmd-1"].command): 1}


async def test_a_receipt_that_was_dropped_three_times_and_outlived_a_kill_is_delivered(
    zygote: Zygote,
) -> None:
    """I4: a recorded receipt reaches the plane at last, each time in the same bytes, with one effect."""
    dropped: list[Json] = []

    def drop(event: Json) -> Fate:
        if not event["terminal"] or len(dropped) == 3:
            return "take"
        dropped.append(event)
        return "lose"

    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        plane.on_event = drop
        life = made.start()
        await plane.give(call("cmd-1", n=1))
        await plane.until(lambda: len(dropped) == 3)
        await life.kill()
        life = made.start()
        receipt = await plane.receipt_of("cmd-1")
        assert receipt["kind"] == "operation.succeeded"
        assert dropped == [receipt] * 3
        await plane.redeliver("cmd-1")
        assert await life.stop() == 0
        await must_hold(made)
        assert len(made.effects()) == 1


async def test_the_same_id_with_other_content_is_a_conflict(zygote: Zygote) -> None:
    """A known command id with other content is refused plainly, and the original goes on to its receipt."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        gate = made.root / "gate"
        life = made.start()
        await plane.give(gated("cmd-1", gate, n=1))
        await made.effects_reach(1)
        await plane.say(call("cmd-1", n=2))
        assert (await plane.answer_to("cmd-1"))["code"] == "conflict"
        gate.touch()
        assert (await plane.receipt_of("cmd-1"))["kind"] == "operation.succeeded"
        await plane.say(call("cmd-1", n=2))
        assert (await plane.answer_to("cmd-1", 2))["code"] == "conflict"
        assert await life.stop() == 0
        await must_hold(made)
        assert [line["arguments"]["n"] for line in made.effects()] == [1]


async def test_a_lookalike_of_an_unsettled_write_is_refused_unless_it_is_meant(zygote: Zygote) -> None:
    """Equal arguments beside an unsettled twin are refused, and the twin is named; `repeat: true` passes."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        await lose_the_outcome(made, plane, call("cmd-1", n=1))
        life = made.start()
        await plane.receipt_of("cmd-1")
        await plane.give(call("cmd-2", n=1))
        refusal = await plane.receipt_of("cmd-2")
        assert refusal["kind"] == "command.refused"
        assert refusal["data"]["code"] == "lookalike_unsettled"
        assert refusal["data"]["twin_operation_id"] == key_of(plane.orders["cmd-1"].command)
        await plane.redeliver("cmd-2")
        meant = call("cmd-3", n=1)
        meant["data"]["repeat"] = True
        await plane.give(meant)
        assert (await plane.receipt_of("cmd-3"))["kind"] == "operation.succeeded"
        await plane.give(call("cmd-4", "reader/count", n=1))
        assert (await plane.receipt_of("cmd-4"))["kind"] == "operation.succeeded"
        assert await life.stop() == 0
        await must_hold(made)


async def test_a_lookalike_of_a_running_write_is_refused(zygote: Zygote) -> None:
    """What still runs guards too."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        gate = made.root / "gate"
        life = made.start()
        await plane.give(gated("cmd-1", gate), gated("cmd-2", gate))
        assert (await plane.receipt_of("cmd-2"))["data"]["code"] == "lookalike_unsettled"
        gate.touch()
        await plane.answered()
        await plane.give(gated("cmd-3", gate))
        assert (await plane.receipt_of("cmd-3"))["kind"] == "operation.succeeded"
        assert await life.stop() == 0
        await must_hold(made)


async def test_a_lost_journal_never_becomes_a_second_effect(zygote: Zygote) -> None:
    """In a new journal, a command that an old one may have executed ends `unknown/journal_lost`."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        await lose_the_outcome(made, plane, call("cmd-1", n=1))
        shutil.rmtree(made.state)
        life = made.start()
        receipt = await plane.receipt_of("cmd-1")
        assert receipt["kind"] == "operation.unknown"
        assert receipt["data"]["reason"] == "journal_lost"
        assert len(plane.histories) == 2
        await plane.redeliver("cmd-1")
        await plane.give(call("cmd-2", n=2))
        assert (await plane.receipt_of("cmd-2"))["kind"] == "operation.succeeded"
        assert await life.stop() == 0
        await must_hold(made)
        assert [line["arguments"]["n"] for line in made.effects()] == [1, 2]


async def test_a_cut_in_mid_call_changes_nothing_about_the_call(zygote: Zygote) -> None:
    """The socket breaks while a tool runs: it runs on, and its receipt comes after the reconnect."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        gate = made.root / "gate"
        life = made.start()
        await plane.give(gated("cmd-1", gate))
        await made.effects_reach(1)
        plane.cut()
        gate.touch()
        assert (await plane.receipt_of("cmd-1"))["kind"] == "operation.succeeded"
        assert len(plane.hellos) == 2
        assert plane.hellos[0]["boot_id"] == plane.hellos[1]["boot_id"]
        assert await life.stop() == 0
        await must_hold(made)


async def test_a_long_outage_costs_nothing_but_time(zygote: Zygote) -> None:
    """What was accepted before the plane went away is executed; the receipts come later, in order."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        gate = made.root / "gate"
        life = made.start()
        await plane.give(*(gated(f"cmd-{number}", gate, n=number) for number in range(100)))
        await plane.until(lambda: len(plane.history.accepted) == 100)
        plane.answer_status = 503
        plane.cut()
        await plane.until(lambda: plane.refused_connections)
        gate.touch()
        ended: set[str] = set()

        def all_ended(event: Json) -> bool:
            if event["terminal"]:
                ended.add(event["command_id"])
            return len(ended) == 100

        await made.events_until(all_ended)
        assert len(plane.unanswered()) == 100
        plane.answer_status = None
        await plane.answered()
        assert await life.stop() == 0
        await must_hold(made)
        assert len(made.effects()) == 100


async def test_the_executable_tells_the_same_story(zygote: Zygote) -> None:
    """What users start behaves as the forked lives do: killed after the effect, it ends `unknown`, once."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        life = await made.execute(kill_at="dispatch.answered")
        await plane.give(call("cmd-1", n=1))
        assert await life.exit_code() == KILLED
        life = await made.execute()
        assert (await plane.receipt_of("cmd-1"))["data"]["reason"] == "crash_window"
        await life.ready()
        assert await life.stop() == 0
        await must_hold(made)
        assert len(made.effects()) == 1
