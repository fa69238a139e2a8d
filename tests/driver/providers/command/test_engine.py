"""The command provider under the real engine, with a real journal."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import cast
from uuid import uuid4

import anyio
import pytest

from driver.core.classify import Succeeded
from driver.providers.command.provider import CommandProvider
from driver.providers.command.settings import CommandSettings, Program
from driver.providers.readoption import Finished, Lost
from store.events import Draft, OperationSucceeded
from store.journal import Journal, open_journal
from store.lifecycle import Effect, State
from store.records import JsonObject, OperationRecord
from store.settings import JournalSettings
from store.transaction import Transaction
from tests.driver.engine.rig import Rig, ScriptedProvider, call, command, engine
from tests.driver.providers.command.stage import STOP, Gate, asleep, ending, mark, sh

pytestmark = pytest.mark.anyio


def provider(folder: Path) -> CommandProvider:
    """Return the provider behind the rig's tool."""
    folder.joinpath("work").mkdir(exist_ok=True)
    return CommandProvider(
        CommandSettings(
            name="tools",
            programs={"act": Program.declared("=arguments.argv")},
            spool=folder / "state" / "spool",
            cwd=folder / "work",
            roots=(folder / "work",),
        )
    )


def scripted(commands: CommandProvider) -> ScriptedProvider:
    """Pass it to the rig, which knows only the protocol of what it is given."""
    return cast("ScriptedProvider", commands)


async def result(rig: Rig) -> JsonObject:
    """Return the stored result of the rig's operation."""
    found = await rig.operation()
    stored = await rig.journal.read(lambda view: view.result(found.operation_id))
    assert stored is not None
    whole: JsonObject = json.loads(stored)
    return whole


async def test_a_command_is_an_operation_like_any_other(tmp_path: Path) -> None:
    """Acceptance and intent share a commit, and the program's answer is the operation's result."""
    commands = provider(tmp_path)
    async with anyio.create_task_group() as tasks:
        await tasks.start(commands.run)
        async with engine(tmp_path, scripted(commands)) as rig:
            await rig.intake.deliver([call(arguments=sh("echo hello"))])
            settled = await rig.settled()
            assert settled.state is State.SUCCEEDED
            assert await rig.kinds() == ["command.accepted", "operation.started", "operation.succeeded"]
            assert (await result(rig))["stdout"] == "hello\n"
        await commands.close()


async def test_a_cancelled_command_is_unknown_and_gone(tmp_path: Path) -> None:
    """`command.cancel` ends the whole tree before its outcome is told, and the outcome claims nothing."""
    commands, gate, marked = provider(tmp_path), Gate(tmp_path), mark()
    async with anyio.create_task_group() as tasks:
        await tasks.start(commands.run)
        async with engine(tmp_path, scripted(commands)) as rig:
            await rig.intake.deliver([call(arguments=sh(f"sleep {marked} & {STOP} wait", *gate.paths))])
            await gate.reached()
            await rig.intake.deliver([command("command.cancel", "cmd-2", target_command_id="cmd-1")])
            settled = await rig.settled()
            assert asleep(marked) == []
            assert settled.state is State.UNKNOWN
        await commands.close()


async def test_a_command_survives_the_engine(tmp_path: Path) -> None:
    """An engine that ends without an outcome leaves `started` behind, and the next finds the answer."""
    gate = Gate(tmp_path)
    with anyio.CancelScope() as crash:
        async with anyio.create_task_group() as tasks:
            first = provider(tmp_path)
            await tasks.start(first.run)
            async with engine(tmp_path, scripted(first)) as rig:
                script = f"echo run >> {tmp_path}/runs; {STOP} echo done"
                await rig.intake.deliver([call(arguments=sh(script, *gate.paths))])
                await gate.reached()
                crash.cancel()
                await anyio.lowlevel.checkpoint()
    await gate.open()
    async with reopened(tmp_path) as journal, anyio.create_task_group() as tasks:
        second = provider(tmp_path)
        await tasks.start(second.run)
        (record,) = await journal.read(lambda view: view.open_operations(0, 10))
        assert record.state is State.STARTED
        await readopt(journal, second, record)
        settled = await journal.read(lambda view: view.operation(record.operation_id))
        assert settled is not None
        assert (settled.state, settled.effect) == (State.SUCCEEDED, Effect.OCCURRED)
        await second.close()
    assert (tmp_path / "runs").read_text() == "run\n"
    assert not list((tmp_path / "state" / "spool").iterdir())


@asynccontextmanager
async def reopened(folder: Path) -> AsyncGenerator[Journal]:
    """Open the journal that the engine has left."""
    settings = JournalSettings(state_dir=folder / "state", runtime_dir=folder / "run")
    async with open_journal(settings, clock=lambda: datetime.now(UTC), new_id=lambda: uuid4().hex) as journal:
        yield journal


async def readopt(journal: Journal, commands: CommandProvider, record: OperationRecord) -> None:
    """Do what a start does with one operation that was under way, once its attempt has ended."""
    found = await commands.readopt(record.operation_id, record.attempt_count)
    assert not isinstance(found, Lost)
    finished = found if isinstance(found, Finished) else await found.finish()
    judged = ending(finished.report, finished.phase)
    assert isinstance(judged, Succeeded)

    def commit(tx: Transaction) -> None:
        data = OperationSucceeded(
            result=judged.result,
            receipt=judged.receipt,
            attempts=record.attempt_count,
            duration_ms=0,
            phase=finished.phase,
        )
        tx.append(
            Draft(
                data=data,
                run_id=record.run_id,
                command_id=record.command_id,
                operation_id=record.operation_id,
                origin=record.origin,
            )
        )

    await journal.transact(commit)
    commands.settled(record.operation_id, record.attempt_count)
