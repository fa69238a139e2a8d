"""A real daemon that prunes, erases, runs out of room, and comes up from a backup."""

import shutil
from pathlib import Path

import pytest
from anyio import to_thread

from tests.system.plane import call, scripted_plane
from tests.system.sandbox import Life, Sandbox, sandbox
from tests.system.test_commands import control
from tests.system.test_fences import beside, new_history
from tests.system.watching import file_until
from tests.system.zygote import Zygote

pytestmark = pytest.mark.anyio

SOON = {"retention_days": 1e-5}
"""Not quite a second."""
WORD = "canary-of-a-run"


def held(folder: Path) -> bool:
    """Whether a file of the folder holds the word."""
    return any(WORD.encode() in file.read_bytes() for file in folder.iterdir() if file.is_file())


async def pruned(life: Life, count: int) -> None:
    """Return once the life has told of so many pruned commands."""
    await file_until(life.output, lambda: sum(line["commands"] for line in life.lines("pruned")) >= count)


async def test_what_was_pruned_is_retired_across_a_kill(zygote: Zygote) -> None:
    """Delivered again after its time a command executes nothing; the stream goes on over the gap."""
    async with scripted_plane() as plane, sandbox(zygote, plane, journal=SOON) as made:
        life = made.start()
        await plane.give(*(call(f"cmd-{n}", n=n) for n in range(5)))
        await plane.answered()
        first = await plane.receipt_of("cmd-0")
        await plane.acknowledge()
        await plane.give(call("cmd-9", n=9))
        await plane.answered()
        await pruned(life, 5)
        await plane.deliver("cmd-0")
        told = await plane.answer_to("cmd-0")
        assert {key: told[key] for key in ("type", "kind", "effect", "seq", "operation_id")} == {
            "type": "retired",
            "kind": "operation.succeeded",
            "effect": "occurred",
            "seq": first["seq"],
            "operation_id": first["operation_id"],
        }
        await life.kill()
        # a plane that has lost its newest memory is sent what is left, with a gap before it
        history = plane.history
        history.acked = 1
        life = made.start()
        await plane.connected()
        await plane.give(call("cmd-10", n=10))
        await plane.answered()
        await plane.deliver("cmd-1")
        assert (await plane.answer_to("cmd-1"))["type"] == "retired"
        assert await life.stop() == 0
        assert len(made.effects()) == 7
        assert "The journal is sound" in (await made.command("verify", "--deep")).text


async def test_an_erased_run_is_in_no_file(zygote: Zygote) -> None:
    """When the receipt is there its words are gone, from the `-wal` too; after a kill they stay gone."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        life = made.start()
        await plane.give(*(call(f"cmd-{n}", text=f"{WORD}-{n}") for n in range(3)))
        await plane.answered()
        await plane.acknowledge()
        await plane.give(call("cmd-9", run_id="run-2", n=9))
        await plane.answered()
        assert await to_thread.run_sync(held, made.state)
        await plane.give(control("erase", "run.erase"))
        receipt = await plane.receipt_of("erase")
        assert receipt["data"]["result"]["erased"] == 3
        await life.kill()
        assert not await to_thread.run_sync(held, made.state)
        life = made.start()
        await plane.connected()
        await plane.deliver("cmd-1")
        assert (await plane.answer_to("cmd-1"))["type"] == "retired"
        assert await life.stop() == 0
        assert len(made.effects()) == 4
        assert "The journal is sound" in (await made.command("verify", "--deep")).text


async def test_a_full_journal_takes_no_new_calls_and_settles_old_ones(zygote: Zygote) -> None:
    """`no_room` for what would start work; an outcome, an end and a verdict find the reserve."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        life = made.start()
        await plane.give(call("running", "counter/slow", seconds=60, heed_cancel=True))
        await made.effects_reach(1)
        await life.kill()
        made.configure(journal={"max_bytes": 300_000, "reserve_bytes": 290_000})
        life = made.start()
        await plane.connected()
        receipt = await plane.receipt_of("running")
        assert (receipt["kind"], receipt["data"]["reason"]) == ("operation.unknown", "crash_window")
        operation_id = receipt["operation_id"]
        await plane.give(call("new", n=2))
        assert (await plane.answer_to("new"))["code"] == "no_room"
        await says_that_it_is_full(made, life)
        await plane.give(control("end", "run.end", outcome="full"))
        assert (await plane.receipt_of("end"))["kind"] == "command.completed"
        status, told = await made.post(
            f"/v1/operations/{operation_id}/reconcile", {"effect": "none", "note": "looked"}
        )
        assert (status, told["effect"]) == (201, "none")
        assert await life.stop() == 0
        assert len(made.effects()) == 1


async def says_that_it_is_full(made: Sandbox, life: Life) -> None:
    """Whoever asks is told, and the log once: the process is up, and the work is not done."""
    assert not (await made.status())["journal"]["has_room"]
    assert len(await life.told("no_room")) == 1
    assert "no_room" in await beside(made, "doctor", code=2)
    assert "NO ROOM" in await beside(made, "status")


async def test_a_restored_backup_acts_on_nothing_before_somebody_agrees(zygote: Zygote) -> None:
    """It comes up fenced, life after life; the plane that knows its history agrees, and a new one begins."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        life = made.start()
        await plane.give(call("cmd-1", n=1))
        await plane.answered()
        await plane.acknowledge()
        target = made.root / "backup.db"
        assert "Backed up" in (await made.command("backup", str(target))).text
        await life.kill()
        shutil.rmtree(made.state)
        made.state.mkdir(mode=0o700)
        shutil.copy(target, made.state / "journal.db")
        plane.on_hello = lambda _hello, _history: None  # it thinks about it
        for _ in range(2):
            life = made.start()
            status = await made.status()
            assert (status["state"], status["fence"]) == ("fenced", "restored_backup")
            assert await life.stop() == 0
        plane.on_hello = None
        old = plane.history.journal_id
        life = made.start()
        await new_history(plane, old)
        await plane.give(call("cmd-2", n=2))
        await plane.answered()
        assert (await made.status())["fence"] is None
        assert await life.stop() == 0
        assert len(made.effects()) == 2
