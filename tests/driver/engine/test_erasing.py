"""`run.erase`: what it answers, and what later commands about erased operations leave."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from anyio import Event, fail_after

from driver.core.attempts import Answered
from driver.core.frames import CommandFrame
from store.erasure import AT_ONCE
from store.records import CommandId, RunId, StoredEvent
from tests.driver.engine.rig import DECLARED, RUN, Rig, ScriptedProvider, call, command, engine

pytestmark = pytest.mark.anyio

WORD = "canary-word"


async def acknowledge(rig: Rig) -> None:
    """The plane has everything."""
    await rig.journal.transact(lambda tx: tx.acknowledge(tx.last_seq))


async def receipt(rig: Rig, command_id: str) -> dict[str, Any]:
    """What a command was answered."""
    (event,) = [e for e in await rig.events() if e.command_id == command_id and e.terminal]
    assert event.body is not None
    found: dict[str, Any] = json.loads(event.body)
    return found


def held(folder: Path) -> bool:
    """Whether a file of the journal holds the word."""
    return any(WORD.encode() in file.read_bytes() for file in (folder / "state").iterdir() if file.is_file())


async def test_the_answer_says_what_was_erased_and_what_was_kept(tmp_path: Path) -> None:
    """Unsettled ones are kept, and named; after a stop no file holds what was erased."""
    provider = ScriptedProvider(answer=Answered(result={"content": [WORD]}))
    async with engine(tmp_path, provider) as rig:
        await rig.intake.deliver([call(arguments={"text": WORD})])
        await rig.settled()
        provider.fails = RuntimeError("lost")
        await rig.intake.deliver([call("cmd-2", arguments={"n": 2})])
        unsettled = await rig.settled("cmd-2")
        await acknowledge(rig)
        await rig.intake.deliver([command("run.erase", "erase-1")])
        told = await receipt(rig, "erase-1")
        assert told["kind"] == "command.completed"
        assert told["data"]["result"] == {
            "run_id": RUN,
            "erased": 1,
            "kept": {
                "unsettled": 1,
                "unacknowledged": 0,
                "operation_ids": [unsettled.operation_id],
                "truncated": False,
            },
        }
    assert not held(tmp_path)


async def test_an_erased_command_is_retired(tmp_path: Path) -> None:
    """Delivered again it executes nothing, and is told how it ended."""
    provider = ScriptedProvider()
    async with engine(tmp_path, provider) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await acknowledge(rig)
        await rig.intake.deliver([command("run.erase", "erase-1")])
        (answer,) = await rig.intake.deliver([call()])
        assert '"type":"retired"' in getattr(answer, "frame", "")
        assert len(provider.executed) == 1


async def test_a_decision_about_an_erased_operation_comes_too_late(tmp_path: Path) -> None:
    """What was asked is gone, and the operation has ended: the decision fails, and nothing else does."""
    contract = replace(DECLARED, approval="required")
    async with engine(tmp_path, ScriptedProvider(), contract=contract) as rig:
        await rig.intake.deliver([call()])
        await rig.reaches("operation.approval_requested")
        asked = await rig.last()
        await rig.intake.deliver([command("command.cancel", "cancel-1", target_command_id="cmd-1")])
        ended = await rig.settled()
        await acknowledge(rig)
        await rig.intake.deliver([command("run.erase", "erase-1")])
        await receipt(rig, "erase-1")
        decision = command(
            "operation.approve",
            "approve-1",
            operation_id=ended.operation_id,
            approval_id=str(asked["approval_id"]),
            decision="grant",
            approver="operator:1",
        )
        await rig.intake.deliver([decision])
        told = await receipt(rig, "approve-1")
    assert (told["kind"], told["data"]["code"]) == ("command.failed", "not_awaiting_approval")


@pytest.mark.parametrize("recorded", [True, False])
async def test_what_another_run_said_is_not_kept(tmp_path: Path, *, recorded: bool) -> None:
    """A desk's verdicts are commands of a run of its own: their notes go with what they are about."""
    provider = ScriptedProvider(fails=RuntimeError("lost"))
    async with engine(tmp_path, provider) as rig:
        await rig.intake.deliver([call()])
        found = await rig.settled()
        said = {"operation_id": found.operation_id, "effect": "none", "actor": "ann"}
        for number, note in enumerate((WORD, "no") if recorded else ("no", WORD)):
            frame = CommandFrame(
                command_id=CommandId(f"verdict-{number}"),
                run_id=RunId("desk"),
                kind="operation.reconcile",
                data={**said, "note": note},
            )
            await rig.intake.deliver([frame])
        refused = await receipt(rig, "verdict-1")
        assert (refused["kind"], refused["data"]["code"]) == ("command.failed", "already_settled")
        await acknowledge(rig)
        await rig.intake.deliver([command("run.erase", "erase-1")])
        assert (await receipt(rig, "erase-1"))["data"]["result"]["erased"] == 1
    assert not held(tmp_path)


async def test_what_is_said_later_is_not_kept(tmp_path: Path) -> None:
    """A verdict moves the effect; its note, and the host's reference, leave nothing in any file."""
    provider = ScriptedProvider()
    async with engine(tmp_path, provider) as rig:
        await rig.intake.deliver([call()])
        found = await rig.settled()
        await acknowledge(rig)
        await rig.intake.deliver([command("run.erase", "erase-1")])
        frame = CommandFrame(
            command_id=CommandId("annotate-1"),
            run_id=RUN,
            kind="operation.annotate",
            data={"operation_id": found.operation_id, "metadata": {"title": WORD}},
        )
        await rig.intake.deliver([frame])
        assert (await receipt(rig, "annotate-1"))["kind"] == "command.completed"
    assert not held(tmp_path)


async def test_what_another_run_noted_is_not_kept(tmp_path: Path) -> None:
    """The host's reference stands in the operation's event, and in no receipt of another run."""
    async with engine(tmp_path, ScriptedProvider()) as rig:
        await rig.intake.deliver([call()])
        found = await rig.settled()
        frame = CommandFrame(
            command_id=CommandId("annotate-1"),
            run_id=RunId("desk"),
            kind="operation.annotate",
            data={"operation_id": found.operation_id, "metadata": {"title": WORD, "url": WORD}},
        )
        await rig.intake.deliver([frame])
        assert (await rig.operation()).metadata == {"title": WORD, "url": WORD}
        await acknowledge(rig)
        await rig.intake.deliver([command("run.erase", "erase-1")])
        assert (await receipt(rig, "erase-1"))["data"]["result"]["erased"] == 1
    assert not held(tmp_path)


async def test_a_run_that_nobody_knows_has_nothing_to_erase(tmp_path: Path) -> None:
    """It is answered all the same."""
    async with engine(tmp_path, ScriptedProvider()) as rig:
        await rig.intake.deliver([command("run.erase", "erase-1", run_id=RunId("run-9"))])
        assert (await receipt(rig, "erase-1"))["data"]["result"]["erased"] == 0


LARGE = AT_ONCE * 3
"""Calls of a run that is not gone with one commit."""


async def fill(rig: Rig) -> None:
    """Calls of one run with the word in them, all over and acknowledged."""
    for n in range(LARGE):
        await rig.intake.deliver([call(f"cmd-{n}", arguments={"text": WORD, "n": n})])
        await rig.settled(f"cmd-{n}")
    await acknowledge(rig)


async def answered(rig: Rig, command_id: str) -> dict[str, Any]:
    """What a command was answered, once it was."""
    told = Event()
    end = rig.journal.subscribe(lambda events: told.set() if _answers(events, command_id) else None)
    if not _answers(await rig.events(), command_id):
        with fail_after(30):
            await told.wait()
    end()
    return await receipt(rig, command_id)


def _answers(events: Sequence[StoredEvent], command_id: str) -> bool:
    return any(event.command_id == command_id and event.terminal for event in events)


async def test_a_large_run_has_its_receipt_when_it_is_gone(tmp_path: Path) -> None:
    """The receipt comes later than the acceptance; then no file holds a word of it."""
    provider = ScriptedProvider(answer=Answered(result={"content": [WORD]}))
    async with engine(tmp_path, provider) as rig:
        await fill(rig)
        await rig.intake.deliver([command("run.erase", "erase-1")])
        told = await answered(rig, "erase-1")
        assert told["data"]["result"]["erased"] == LARGE
        assert not held(tmp_path)
        assert (
            await rig.journal.read(lambda view: view.ledger.execute("walk", ("erase-1",)).fetchone()) is None
        )


async def test_an_erasure_goes_on_in_the_next_life(tmp_path: Path) -> None:
    """It is taken up where it was, though no plane has confirmed the history; each operation counts once."""
    async with engine(tmp_path, ScriptedProvider(answer=Answered(result={"content": [WORD]}))) as rig:
        await fill(rig)
        # a life that ends with the commit that accepts it
        errands = rig.engine.errands
        vars(errands)["_tasks"] = None
        await rig.intake.deliver([command("run.erase", "erase-1")])
        assert not any(e.command_id == "erase-1" and e.terminal for e in await rig.events())
    async with engine(tmp_path, ScriptedProvider(), confirmed=False) as rig:
        told = await answered(rig, "erase-1")
        assert told["data"]["result"]["erased"] == LARGE
    assert not held(tmp_path)
