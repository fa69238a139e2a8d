"""What becomes of commands that come again after their time, and the loop that prunes."""

import json
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from driver.core.answers import Answer, Reply
from driver.core.contracts import Contract
from driver.engine.pruning import prune
from store.records import RunId
from store.retention import RetentionSettings
from tests.driver.engine.rig import Clock, Rig, ScriptedProvider, call, command, engine

pytestmark = pytest.mark.anyio

SETTINGS = RetentionSettings()


async def pruned(rig: Rig, count: int) -> None:
    """Let the plane acknowledge everything and a month pass; return once so many operations are gone."""
    await rig.journal.transact(lambda tx: tx.acknowledge(tx.last_seq))
    rig.clock.ahead += timedelta(days=31)
    await rig.intake.deliver([command("run.cancel", f"cancel-{rig.clock.ahead.days}", run_id=RunId("other"))])
    before = await left(rig)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(prune, rig.journal, SETTINGS)
        with anyio.fail_after(60):
            while await left(rig) > before - count:
                await rig.quiet()
        tasks.cancel_scope.cancel()


async def left(rig: Rig) -> int:
    """How many operations the journal has."""
    return sum((await rig.journal.read(lambda view: view.counts())).values())


def said(answer: Answer) -> dict[str, object]:
    """The frame that stands beside the stream."""
    assert isinstance(answer, Reply)
    frame: dict[str, object] = json.loads(answer.frame)
    return frame


async def test_a_pruned_command_is_retired_and_never_executed(tmp_path: Path) -> None:
    """Delivered again after its time, it is told how it ended; with other content it is a conflict."""
    provider = ScriptedProvider()
    async with engine(tmp_path, provider, clock=Clock()) as rig:
        await rig.intake.deliver([call()])
        receipt = await rig.settled()
        await pruned(rig, 1)
        (again,) = await rig.intake.deliver([call()])
        assert said(again) == {
            "type": "retired",
            "command_id": "cmd-1",
            "operation_id": receipt.operation_id,
            "kind": "operation.succeeded",
            "effect": "occurred",
            "journal_id": await rig.journal.read(lambda view: view.journal_id),
            "seq": 3,
        }
        (other,) = await rig.intake.deliver([call(arguments={"n": 2})])
        assert said(other)["code"] == "conflict"
    async with engine(tmp_path, provider, clock=rig.clock) as rig:
        (again,) = await rig.intake.deliver([call()])
        assert said(again)["type"] == "retired"
        assert len(provider.executed) == 1


async def test_once_per_run_outlives_the_twin(tmp_path: Path) -> None:
    """What a tombstone says of it is enough to refuse a second one, also in a run that resumes the first."""
    provider = ScriptedProvider()
    once = Contract(declared=True, identical="once-per-run")
    async with engine(tmp_path, provider, contract=once, clock=Clock()) as rig:
        await rig.intake.deliver([call()])
        first = await rig.settled()
        await pruned(rig, 1)
        await rig.intake.deliver([call("cmd-2")])
        event = (await rig.events())[-1]
        assert event.body is not None
        data = json.loads(event.body)["data"]
        assert (data["code"], data["twin_operation_id"]) == ("duplicate_completed", first.operation_id)
        assert len(provider.executed) == 1


async def test_an_unsettled_operation_is_never_pruned(tmp_path: Path) -> None:
    """However old: it is listed until somebody knows."""
    provider = ScriptedProvider(fails=RuntimeError("lost"))
    async with engine(tmp_path, provider, clock=Clock()) as rig:
        await rig.intake.deliver([call()])
        assert not (await rig.settled()).settled
        provider.fails = None
        await rig.intake.deliver([call("cmd-2", arguments={"n": 2})])
        await rig.settled("cmd-2")
        await pruned(rig, 1)
        assert (await rig.operation()).effect == "unknown"


async def test_a_run_that_was_ended_stays_ended(tmp_path: Path) -> None:
    """Its tombstones keep it known."""
    provider = ScriptedProvider()
    async with engine(tmp_path, provider, clock=Clock()) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await rig.intake.deliver([command("run.end", "end-1", outcome="done")])
        await pruned(rig, 1)
        await rig.intake.deliver([call("cmd-2")])
        event = (await rig.events())[-1]
        assert event.body is not None
        assert json.loads(event.body)["data"]["code"] == "run_ended"
