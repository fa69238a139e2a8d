"""A backup that is put back: whoever agrees to it, another history begins, and nothing happens twice."""

import shutil
from collections.abc import Awaitable, Callable

import pytest
from anyio import to_thread

from store.files import FIRST
from tests.system.audit import audit, key_of
from tests.system.campaign import KILLED
from tests.system.history import Json
from tests.system.plane import ScriptedPlane, call, scripted_plane
from tests.system.sandbox import Life, Sandbox, sandbox
from tests.system.snapshots import calls
from tests.system.test_fences import beside, new_history, told, unfence
from tests.system.test_verdicts import command
from tests.system.test_way_back import UNDO, undo_key
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.kill]

ONE_SLOT = {"max_inflight": 1}


async def backup(made: Sandbox) -> None:
    """Make a backup, with no daemon running."""
    done = await made.command("backup", str(made.root / "backup.db"))
    assert done.code == 0, done.text


def restore_backup(made: Sandbox) -> None:
    """Do what the operations guide says."""
    shutil.rmtree(made.state)
    made.state.mkdir(mode=0o700)
    shutil.copyfile(made.root / "backup.db", made.state / FIRST)
    (made.state / FIRST).chmod(0o600)


async def go_on_unheard(made: Sandbox, plane: ScriptedPlane) -> None:
    """A backup with one call running and one waiting; both are executed after it, and a third that came then.

    The plane hears of nothing that is done after the backup, and so acknowledges none of it.
    """
    gate = made.root / "gate"
    life = made.start()
    await plane.give(call("cmd-1", "counter/slow", until=str(gate)), call("cmd-2", n=2))
    await plane.until(lambda: "cmd-2" in plane.history.accepted)
    await made.effects_reach(1)
    plane.on_event = lambda _event: "lose"
    await beside(made, "backup", str(made.root / "backup.db"))
    await plane.give(call("cmd-3", n=3))
    gate.touch()
    await made.effects_reach(3)
    await life.kill()
    await made.quiet()
    await to_thread.run_sync(restore_backup, made)
    plane.on_event = lambda _event: "take"


Agreement = Callable[[Sandbox, ScriptedPlane], Awaitable[Life]]


async def the_plane(made: Sandbox, plane: ScriptedPlane) -> Life:
    """The plane is there, and knows nothing that the backup does not."""
    life = made.start()
    await plane.connected()
    return life


async def an_operator(made: Sandbox, plane: ScriptedPlane) -> Life:
    """The plane is away, and somebody says `effectd unfence`."""
    plane.answer_status = 503
    life = made.start()
    await life.ready()
    assert "unknown now" in await unfence(made)
    plane.answer_status = None
    return life


@pytest.mark.parametrize("agreement", [the_plane, an_operator])
async def test_what_was_done_after_the_backup_is_not_done_again(zygote: Zygote, agreement: Agreement) -> None:
    """What waited in the backup is unknown, and so is what it never heard of; a new command runs."""
    async with scripted_plane() as plane, sandbox(zygote, plane, driver=ONE_SLOT) as made:
        await go_on_unheard(made, plane)
        old = plane.history.journal_id
        life = await agreement(made, plane)
        history = await new_history(plane, old)
        await plane.answered()
        receipts = {name: history.event(seq) for name, seq in history.receipts.items()}
        assert {name: receipt["data"]["reason"] for name, receipt in receipts.items()} == {
            "cmd-1": "rolled_back",
            "cmd-2": "rolled_back",
            "cmd-3": "journal_lost",
        }
        await plane.give(call("cmd-4", n=4))
        assert (await plane.receipt_of("cmd-4"))["kind"] == "operation.succeeded"
        assert await life.stop() == 0
        await made.quiet()
        assert made.executions() == {key_of(plane.orders[f"cmd-{n}"].command): 1 for n in (1, 2, 3, 4)}
        verified = await made.command("verify", "--deep")
        assert verified.code == 0, verified.text


async def test_in_the_old_history_it_would_be_done_again(zygote: Zygote) -> None:
    """Control: a restored backup that goes on under its old name executes both for a second time."""
    async with scripted_plane() as plane, sandbox(zygote, plane, driver=ONE_SLOT) as made:
        await go_on_unheard(made, plane)
        life = made.start(patch="a_backup_goes_on")
        await plane.answered()
        await life.kill()
        await made.quiet()
        found = audit(plane, made.executions())
        assert "cmd-2 was executed 2 times" in found
        assert "cmd-3 was executed 2 times" in found


async def test_the_plane_agrees_to_a_restored_backup(zygote: Zygote) -> None:
    """It comes up fenced, says so in hello, and the next hello names a new history, which says who agreed."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        await calls(made, plane, 1)
        await backup(made)
        old = plane.history.journal_id
        await to_thread.run_sync(restore_backup, made)
        life = made.start()
        history = await new_history(plane, old)
        await plane.give(call("cmd-2", n=2))
        assert (await plane.receipt_of("cmd-2"))["kind"] == "operation.succeeded"
        assert [(hello["state"], hello["journal_id"]) for hello in plane.hellos[-2:]] == [
            ("fenced", old),
            ("ready", history.journal_id),
        ]
        assert [line["reason"] for line in await life.told("fenced")] == ["restored_backup"]
        first = next(history.events())
        assert (first["kind"], first["seq"]) == ("driver.unfenced", 1)
        assert (first["data"]["reason"], first["data"]["actor"]) == ("restored_backup", "plane")
        assert first["data"]["previous_journal_id"] == old
        assert await life.stop() == 0


async def test_receipts_that_nobody_acknowledged_are_told_in_the_new_history(zygote: Zygote) -> None:
    """The backup has the receipt and the plane has not: it comes from the new history, and nothing runs."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        life = made.start()
        await plane.connected()
        plane.on_event = lambda event: "lose" if event["command_id"] else "take"
        await plane.give(call("cmd-1", n=1))
        await made.effects_reach(1)
        await made.events_until(lambda event: event["kind"] == "operation.succeeded")
        assert await life.stop() == 0
        await backup(made)
        old = plane.history.journal_id
        await to_thread.run_sync(restore_backup, made)
        plane.on_event = lambda _event: "take"
        life = made.start()
        history = await new_history(plane, old)
        assert (await plane.receipt_of("cmd-1"))["kind"] == "operation.succeeded"
        assert told(history)[:3] == [
            (None, "driver.unfenced"),
            ("cmd-1", "command.accepted"),
            ("cmd-1", "operation.succeeded"),
        ]
        assert await life.stop() == 0
        await made.quiet()
        assert max(made.executions().values()) == 1


async def test_an_operator_agrees_to_a_restored_backup(zygote: Zygote) -> None:
    """Without a plane nobody else can: it stays fenced over restarts until somebody does."""
    async with sandbox(zygote, None) as made:
        life = made.start()
        assert await life.stop() == 0
        await backup(made)
        await to_thread.run_sync(restore_backup, made)
        names: set[str] = set()
        for _ in range(2):
            life = made.start()
            status = await made.status()
            names.add(status["journal_id"])
            assert (status["state"], status["fence"]) == ("fenced", "restored_backup")
            assert 'effectd_fence{reason="restored_backup"} 1' in await beside(made, "metrics")
            assert await life.stop() == 0
        life = made.start()
        await life.ready()
        await unfence(made)
        for _ in range(2):
            status = await made.status()
            assert (status["state"], status["fence"]) == ("ready", None)
            names.add(status["journal_id"])
            assert await life.stop() == 0
            life = made.start()
            await life.ready()
        assert len(names) == 2
        assert await life.stop() == 0


async def test_a_backup_that_is_too_old_needs_an_accepted_rollback(zygote: Zygote) -> None:
    """The plane has seen more than the backup holds: what it says outweighs an operator's mere agreement."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        await calls(made, plane, 1)
        await backup(made)
        await calls(made, plane, 2)
        await to_thread.run_sync(restore_backup, made)
        life = made.start()
        await made.events_until(
            lambda event: event["kind"] == "driver.fenced" and event["data"]["reason"] == "rolled_back"
        )
        old = plane.history.journal_id
        await unfence(made, code=1)
        await unfence(made, "--accept-rollback")
        assert (await new_history(plane, old)).journal_id != old
        assert await life.stop() == 0


@pytest.mark.parametrize("death", ["dies_before_it_is_unfenced", "dies_unfenced"])
async def test_a_kill_while_the_plane_agrees_leaves_one_history(zygote: Zygote, death: str) -> None:
    """Before the commit it is fenced, and the plane agrees anew; after it, the new history stands."""
    async with scripted_plane() as plane, sandbox(zygote, plane, driver=ONE_SLOT) as made:
        await go_on_unheard(made, plane)
        old = plane.history.journal_id
        plane.on_hello, hellos = silent, len(plane.hellos)
        life = made.start()  # the first start tells of the fence, and of what was lost
        await plane.until(lambda: len(plane.hellos) > hellos)
        assert await life.stop() == 0
        plane.on_hello = None
        assert await made.start(patch=death).exit_code() == KILLED
        life = made.start()
        history = await new_history(plane, old)
        await plane.answered()
        assert plane.hellos[-1]["state"] == "ready"
        begun = [event for event in history.events() if event["kind"] == "driver.unfenced"]
        assert [(event["seq"], event["data"]["previous_journal_id"]) for event in begun] == [(1, old)]
        assert set(plane.histories) == {old, history.journal_id}
        assert await life.stop() == 0
        await made.quiet()
        assert max(made.executions().values()) == 1
        verified = await made.command("verify", "--deep")
        assert verified.code == 0, verified.text


def silent(_hello: Json, _history: object) -> None:
    """Let a daemon wait for its welcome."""


@pytest.mark.parametrize("agreement", [the_plane, an_operator])
async def test_what_was_taken_back_after_the_backup_is_not_taken_back_again(
    zygote: Zygote, agreement: Agreement
) -> None:
    """Whoever asks, and for whatever: it is unknown, until somebody finds out that it was not."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        made.configure(**UNDO)
        await calls(made, plane, 1)
        await backup(made)
        operation_id = key_of(plane.orders["cmd-1"].command)
        plane.on_event = lambda _event: "lose"
        life = made.start()
        await plane.give(command("undo-1", "operation.compensate", operation_id=operation_id))
        await made.effects_reach(2)
        await life.kill()
        await made.quiet()
        await to_thread.run_sync(restore_backup, made)
        plane.on_event = lambda _event: "take"
        old = plane.history.journal_id
        life = await agreement(made, plane)
        await new_history(plane, old)
        await plane.give(command("undo-2", "operation.compensate", operation_id=operation_id))
        await plane.give(command("undo-3", "run.compensate", "run-1"))
        again = (await plane.receipt_of("undo-2"))["data"]["result"]
        walked = (await plane.receipt_of("undo-3"))["data"]["result"]
        assert (again["state"], again["reason"]) == ("unknown", "rolled_back")
        assert walked["stopped_at"]["code"] == "compensation_not_certain"
        assert "rolled_back" in await beside(made, "show", undo_key(operation_id))
        assert await life.stop() == 0
        await made.quiet()
        assert made.executions() == {operation_id: 1, undo_key(operation_id): 1}
        verified = await made.command("verify", "--deep")
        assert verified.code == 0, verified.text


@pytest.mark.parametrize("agreement", [the_plane, an_operator])
async def test_a_retry_that_the_plane_has_not_heard_of_is_told_in_the_new_history(
    zygote: Zygote, agreement: Agreement
) -> None:
    """The receipt there is what the last attempt came to; the first word would deny it."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        order = call("cmd-1", n=1)
        plane.on_event = lambda _event: "lose"
        await plane.give(order)
        assert await made.start(kill_at="dispatch.before_call").exit_code() == KILLED
        life = made.start()
        operation_id = key_of(order)
        await made.events_until(lambda event: event["kind"] == "operation.unknown")
        await beside(made, "reconcile", operation_id, "--effect", "none", "--note", "it is not in the ledger")
        await beside(made, "retry", operation_id)
        await made.effects_reach(1)
        await made.events_until(lambda event: event["kind"] == "operation.succeeded")
        await beside(made, "backup", str(made.root / "backup.db"))
        await life.kill()
        await to_thread.run_sync(restore_backup, made)
        plane.on_event = lambda _event: "take"
        old = plane.history.journal_id
        life = await agreement(made, plane)
        history = await new_history(plane, old)
        await plane.answered()
        receipt = history.event(history.receipts["cmd-1"])
        assert (receipt["kind"], receipt["data"]["attempts"]) == ("operation.succeeded", 2)
        assert await life.stop() == 0
        assert made.executions() == {operation_id: 1}
        verified = await made.command("verify", "--deep")
        assert verified.code == 0, verified.text
