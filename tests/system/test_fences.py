"""The ways out of every fence, on real daemons: what an operator says, and what the plane hears then."""

import shutil

import pytest
from anyio import to_thread

from tests.system.audit import key_of, must_hold
from tests.system.history import History, Json
from tests.system.plane import ScriptedPlane, call, scripted_plane
from tests.system.sandbox import Life, Sandbox, sandbox
from tests.system.snapshots import calls, restore, snapshot
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.kill]


async def fenced(made: Sandbox, reason: str, life: Life) -> None:
    """The daemon says why it is fenced: in `status`, as an event, and in its log."""
    await made.events_until(lambda event: event["kind"] == "driver.fenced")
    status = await made.status()
    assert (status["state"], status["fence"]) == ("fenced", reason)
    assert [line["reason"] for line in await life.told("fenced")] == [reason]
    assert f'effectd_fence{{reason="{reason}"}} 1' in await beside(made, "metrics")


async def unfence(made: Sandbox, *options: str, code: int = 0) -> str:
    """Run `effectd unfence` beside the daemon, and return what it wrote."""
    return await beside(made, "unfence", *options, code=code)


async def beside(made: Sandbox, *arguments: str, code: int = 0) -> str:
    """Run another command beside the daemon, which stays the newest life."""
    daemon = made.lives[-1]
    asked = await made.command(*arguments)
    made.lives.remove(daemon)
    made.lives.append(daemon)
    assert asked.code == code, asked.text
    return asked.text


async def new_history(plane: ScriptedPlane, old: str) -> History:
    """Return the history that begins after an accepted rollback, once the plane has some of it."""
    await plane.until(lambda: plane.history.journal_id != old and plane.history.last_seq > 0)
    return plane.history


def told(history: History) -> list[tuple[str | None, str]]:
    """Which commands the events of a history are about, and what they are."""
    return [(event["command_id"], event["kind"]) for event in history.events()]


async def test_after_a_takeover_an_operator_lets_the_stream_go_on(zygote: Zygote) -> None:
    """4001, and `effectd unfence`: the same journal, its next event, and new calls run."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        life = made.start()
        await plane.connected()
        journal_id = plane.history.journal_id
        await plane.close(4001)
        await fenced(made, "superseded", life)
        assert "superseded" in await unfence(made)
        await plane.until(lambda: len(plane.hellos) == 2)
        await plane.give(call("cmd-1", n=1))
        assert (await plane.receipt_of("cmd-1"))["kind"] == "operation.succeeded"
        assert plane.hellos[-1]["state"] == "ready"
        assert plane.history.journal_id == journal_id
        (event,) = [event for event in plane.history.events() if event["kind"] == "driver.unfenced"]
        assert event["data"]["actor"].startswith("operator:")
        assert await life.told("unfenced")
        assert "not_fenced" in await unfence(made, code=1)
        assert await life.stop() == 0


async def rolled_back(made: Sandbox, plane: ScriptedPlane, patience: Json) -> Life:
    """A snapshot with an open call and one that was answered, restored after life went on without it."""
    life = made.start()
    await plane.give(call("cmd-1", n=1), patience)
    await plane.until(lambda: "cmd-1" in plane.history.receipts and "cmd-2" in plane.history.accepted)
    await made.effects_reach(2)
    await life.kill()
    snapshot(made)
    await calls(made, plane, 3)
    restore(made)
    return made.start()


async def test_an_accepted_rollback_begins_another_history(zygote: Zygote) -> None:
    """The first event names the old one; what was open is unknown; nothing of the old history runs again."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        gate = made.root / "gate"
        life = await rolled_back(made, plane, call("cmd-2", "counter/slow", until=str(gate)))
        old = plane.history.journal_id
        await fenced(made, "rolled_back", life)
        assert "--accept-rollback" in await unfence(made, code=1)
        assert "unknown" in await unfence(made, "--accept-rollback")
        history = await new_history(plane, old)
        await plane.give(call("cmd-4", n=4))
        await plane.answered()
        first = next(history.events())
        assert (first["kind"], first["seq"]) == ("driver.unfenced", 1)
        assert first["data"]["previous_journal_id"] == old
        assert first["data"]["previous_chain"]
        for number in (1, 2, 3):  # known, known, and unheard of in this history
            await plane.deliver(f"cmd-{number}")
        await plane.until(lambda: ("cmd-3", "operation.unknown") in told(history))
        lost = history.event(history.receipts["cmd-3"])
        assert lost["data"]["reason"] == "journal_lost"
        gate.touch()
        assert await life.stop() == 0
        await made.quiet()
        assert max(made.executions().values()) == 1
        assert set(made.executions()) == {key_of(plane.orders[f"cmd-{n}"].command) for n in (1, 2, 3, 4)}
        for _ in range(2):
            again = made.start()
            await plane.connected()
            assert plane.hellos[-1]["journal_id"] == history.journal_id
            assert (await made.status())["fence"] is None
            assert await again.stop() == 0
        verified = await made.command("verify", "--deep")
        assert verified.code == 0, verified.text


async def test_receipts_that_the_plane_never_had_are_told_in_the_new_history(zygote: Zygote) -> None:
    """A fork: what both lives made of a command stays known, and reaches the plane once for each journal."""
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
        await fenced(made, "forked", life)
        old = plane.history.journal_id
        await unfence(made, "--accept-rollback")
        history = await new_history(plane, old)
        await plane.give(call("cmd-3", n=3))
        await plane.answered()
        assert told(history)[0] == (None, "driver.unfenced")
        assert "cmd-3" in history.receipts
        assert await life.stop() == 0


async def test_a_conflict_ends_with_another_history(zygote: Zygote) -> None:
    """The receipt that the plane refused as a conflict is recorded again, and taken."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        life = made.start()
        await plane.give(call("cmd-1", n=1))
        await plane.answered()
        plane.on_nack = lambda event: (
            {"type": "nack", "seq": event["seq"], "code": "conflict", "message": "m"}
            if event["command_id"] == "cmd-2" and event["terminal"]
            else None
        )
        await plane.give(call("cmd-2", n=2))
        await fenced(made, "conflict", life)
        old = plane.history.journal_id
        plane.on_nack = lambda _event: None
        await unfence(made, code=1)
        await unfence(made, "--accept-rollback")
        history = await new_history(plane, old)
        await plane.until(lambda: "cmd-2" in history.receipts)
        assert history.event(history.receipts["cmd-2"])["kind"] == "operation.succeeded"
        assert told(history)[1] == ("cmd-2", "command.accepted")
        assert await life.stop() == 0
        await made.quiet()
        assert max(made.executions().values()) == 1


async def test_a_takeover_under_another_fence_is_heeded_after_a_restart(zygote: Zygote) -> None:
    """A rolled-back life that was superseded does not come back to supersede the one that has taken over."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        await calls(made, plane, 1)
        snapshot(made)
        await calls(made, plane, 2)
        restore(made)
        life = made.start()
        await fenced(made, "rolled_back", life)
        await plane.close(4001)
        await life.logged("link_superseded")
        hellos = len(plane.hellos)
        assert await life.stop() == 0
        life = made.start()
        await life.logged("link_superseded")
        assert (await made.status())["fence"] == "rolled_back"
        assert len(plane.hellos) == hellos
        await unfence(made, "--accept-rollback")
        await plane.until(lambda: len(plane.hellos) == hellos + 1)
        assert await life.stop() == 0


async def test_a_lost_journal_executes_nothing_again(zygote: Zygote) -> None:
    """A fresh journal is no fence: what was given to the lost one is unknown, and all else runs."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        gate = made.root / "gate"
        life = made.start()
        await plane.give(call("cmd-1", "counter/slow", until=str(gate)))
        await made.effects_reach(1)
        await life.kill()
        await to_thread.run_sync(shutil.rmtree, made.state)
        gate.touch()
        life = made.start()
        receipt = await plane.receipt_of("cmd-1")
        assert (receipt["kind"], receipt["data"]["reason"]) == ("operation.unknown", "journal_lost")
        await plane.give(call("cmd-2", n=2))
        assert (await plane.receipt_of("cmd-2"))["kind"] == "operation.succeeded"
        status = await made.status()
        assert (status["state"], status["fence"], status["unsettled"]) == ("ready", None, 1)
        assert await life.stop() == 0
        await must_hold(made)


@pytest.mark.parametrize("death", ["dies_before_it_is_unfenced", "dies_unfenced"])
async def test_a_kill_while_a_rollback_is_accepted_leaves_one_history(zygote: Zygote, death: str) -> None:
    """Before the commit the daemon is still fenced, and may be asked again; after it, the new one stands."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        await calls(made, plane, 1)
        snapshot(made)
        await calls(made, plane, 2)
        restore(made)
        life = made.start()
        await fenced(made, "rolled_back", life)
        assert await life.stop() == 0
        life = made.start(patch=death)
        await life.ready()
        old = plane.history.journal_id
        asked = await made.command("unfence", "--accept-rollback")
        assert asked.code != 0
        assert await life.exit_code() == -9
        life = made.start()
        await life.ready()
        if death == "dies_before_it_is_unfenced":
            assert (await made.status())["fence"] == "rolled_back"
            await unfence(made, "--accept-rollback")
        else:
            assert (await made.status())["fence"] is None
        history = await new_history(plane, old)
        await plane.give(call("cmd-3", n=3))
        await plane.answered()
        assert told(history)[0] == (None, "driver.unfenced")
        assert await life.stop() == 0
        verified = await made.command("verify", "--deep")
        assert verified.code == 0, verified.text
