"""Whoever hands something in may go away at any moment: what the journal took is carried out all the same."""

import threading
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, TypeVarTuple, Unpack

import anyio
import pytest
from anyio.lowlevel import checkpoint

from store.lifecycle import Source, State
from store.transaction import Transaction
from tests.driver.engine.rig import Rig, ScriptedProvider, call, command, engine
from tests.driver.engine.test_approvals import ASKED, asked, decision
from tests.driver.engine.test_probing import PROBED, READ, found, receipt, world

Args = TypeVarTuple("Args")

pytestmark = pytest.mark.anyio


async def leave(handing_in: Callable[[Unpack[Args]], Coroutine[Any, Any, object]], *args: *Args) -> None:
    """Hand something in, and go away while the journal is at it."""
    async with anyio.create_task_group() as asker:
        asker.start_soon(handing_in, *args)
        await checkpoint()  # begun
        await checkpoint()  # the journal's owner has it
        asker.cancel_scope.cancel()


def stand_still(_: Transaction, until: threading.Event) -> None:
    """Hold the journal up."""
    until.wait(30)


async def tell_of_the_end(rig: Rig, ended: threading.Event) -> None:
    """Set `ended` once nothing can be handed to the dispatcher any more."""
    while rig.dispatcher.runs:
        await checkpoint()
    ended.set()


async def test_a_grant_counts_though_the_approver_is_gone(tmp_path: Path) -> None:
    """The operation that was granted goes on: nobody could grant it a second time."""
    async with engine(tmp_path, provider := ScriptedProvider(), contract=ASKED) as rig:
        await rig.intake.deliver([call()])
        request, operation_id = await asked(rig)
        await leave(rig.intake.deliver, [decision(request, operation_id)])
        await rig.quiet()
        assert (await rig.operation()).state is State.SUCCEEDED
        assert len(provider.executed) == 1
        assert rig.dispatcher.unapproved == 0


async def test_an_errand_is_carried_out_though_nobody_waits_for_it(tmp_path: Path) -> None:
    """A probe that was accepted has its receipt in this life, not in the next one."""
    async with engine(tmp_path, world(found("a")), contract=PROBED, others=READ) as rig:
        await rig.intake.deliver([call()])
        operation = await rig.until(lambda record: record.effect_by is Source.PROBE)
        probe = command("operation.probe", "probe-1", operation_id=operation.operation_id)
        await leave(rig.intake.deliver, [probe])
        with anyio.fail_after(30):
            assert (await receipt(rig))["kind"] == "command.completed"


async def test_a_call_that_was_started_is_made_though_its_caller_is_gone(tmp_path: Path) -> None:
    """Its intent is committed: without the call it would have to pass for one that may have happened."""
    async with engine(tmp_path, provider := ScriptedProvider()) as rig:
        await leave(rig.intake.deliver, [call()])
        await rig.quiet()
        assert (await rig.operation()).state is State.SUCCEEDED
        assert len(provider.executed) == 1
        assert rig.dispatcher.slots.in_use == 0


async def test_a_fence_is_lifted_though_the_operator_is_gone(tmp_path: Path) -> None:
    """Journal and daemon are of one mind about it: what is accepted afterwards is carried out."""
    async with engine(tmp_path, ScriptedProvider()) as rig:
        await rig.desk.fence("superseded", "by another life")
        await leave(partial(rig.engine.fences.lift, accept_rollback=False, actor="operator:0"))
        await rig.quiet()
        assert await rig.journal.read(lambda view: view.fence) is None
        assert rig.posture.fence is None


async def test_a_fence_is_raised_though_the_link_is_gone(tmp_path: Path) -> None:
    """A call that waits for the plane to hold its intent looks at the fence at once."""
    async with engine(tmp_path, ScriptedProvider()) as rig:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(rig.dispatcher.intents.held, 1_000)
                await leave(rig.desk.fence, "superseded", "by another life")
        assert rig.posture.fence is not None


async def test_a_fence_that_is_raised_right_after_one_was_lifted_stands(tmp_path: Path) -> None:
    """Both in one commit: whoever lifted the first is told only after the second was recorded."""
    async with engine(tmp_path, ScriptedProvider()) as rig:
        await rig.desk.fence("superseded", "by another life")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(rig.engine.fences.lift, accept_rollback=False, actor="operator:0"))
            tasks.start_soon(rig.desk.fence, "forked", "it branched off")
        standing = await rig.journal.read(lambda view: view.fence)
        assert standing is not None
        assert standing.reason == "forked"
        assert rig.posture.fence == standing


async def test_what_is_accepted_while_the_engine_ends_is_for_the_next_life(tmp_path: Path) -> None:
    """There is nothing left to hand it to, and nothing breaks for that."""
    ended = threading.Event()
    async with anyio.create_task_group() as outside, engine(tmp_path, first := ScriptedProvider()) as rig:
        outside.start_soon(rig.journal.transact, partial(stand_still, until=ended))
        outside.start_soon(rig.intake.deliver, [call(), command("run.compensate", "walk-1")])
        await checkpoint()
        outside.start_soon(tell_of_the_end, rig, ended)
    assert first.executed == []
    async with engine(tmp_path, ScriptedProvider()) as rig:
        assert (await rig.settled()).state is State.UNKNOWN
        assert (await receipt(rig, "walk-1"))["kind"] == "command.completed"
