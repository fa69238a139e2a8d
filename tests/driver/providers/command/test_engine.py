"""The command provider under the real engine, with a real journal."""

import json
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import anyio
import pytest

from driver.core.contracts import ArgumentKey, Contract
from driver.providers.command.provider import CommandProvider
from driver.providers.command.settings import CommandSettings, Program
from driver.providers.command.spool import Spool
from store.events import AttemptEnded
from store.lifecycle import Effect, Source, State
from store.records import JsonObject, OperationId
from tests.driver.engine.rig import Rig, ScriptedProvider, call, command, engine, limits
from tests.driver.providers.command.stage import STOP, Gate, asleep, mark, sh
from tests.driver.providers.command.test_readoption import gone
from tests.store.compared import differences

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


async def result(rig: Rig, command_id: str = "cmd-1") -> JsonObject:
    """Return the stored result of a command's operation."""
    found = await rig.operation(command_id)
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
            assert settled.effect_by is Source.PROVIDER
            assert "source" not in await rig.last()
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


async def begun(folder: Path, script: str, *gates: Gate) -> None:
    """Let an engine begin a call of a script for each gate, and end without outcomes once all stand there."""
    with anyio.CancelScope() as crash:
        async with anyio.create_task_group() as tasks:
            commands = provider(folder)
            await tasks.start(commands.run)
            async with engine(folder, scripted(commands)) as rig:
                for number, gate in enumerate(gates, start=1):
                    arguments = sh(f"{STOP} {script}", *gate.paths, str(number))
                    await rig.intake.deliver([call(f"cmd-{number}", arguments=arguments)])
                    await gate.reached()
                crash.cancel()
                await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def later(
    folder: Path, *, confirmed: bool = True, inflight_max: int = 8, contract: Contract | None = None
) -> AsyncGenerator[Rig]:
    """Run the engine of the next life, with a provider of its own."""
    commands = provider(folder)
    bounds = limits(inflight_max=inflight_max)
    async with anyio.create_task_group() as tasks:
        await tasks.start(commands.run)
        async with engine(
            folder, scripted(commands), confirmed=confirmed, bounds=bounds, contract=contract
        ) as rig:
            yield rig
        await commands.close()


async def test_a_command_survives_the_engine(tmp_path: Path) -> None:
    """An engine that ends without an outcome leaves `started` behind, and the next one finds the answer.

    Nothing is dispatched for it, so no plane has to confirm the history first.
    """
    gate = Gate(tmp_path)
    await begun(tmp_path, f"echo run >> {tmp_path}/runs; echo done", gate)
    async with later(tmp_path, confirmed=False) as rig:
        assert (await rig.operation()).state is State.STARTED
        await gate.open()
        settled = await rig.settled()
        assert (settled.state, settled.effect) == (State.SUCCEEDED, Effect.OCCURRED)
        assert (settled.effect_by, (await rig.last())["source"]) == (Source.SHIM, "shim")
        assert (await result(rig))["stdout"] == "done\n"
        assert await rig.attempts() == [("succeeded", None)]
        assert await rig.journal.read(differences) == ()
    assert (tmp_path / "runs").read_text() == "run\n"
    assert not list((tmp_path / "state" / "spool").iterdir())


async def test_a_readopted_command_can_be_cancelled(tmp_path: Path) -> None:
    """It ends with its tree, and its outcome claims nothing."""
    gate, marked = Gate(tmp_path), mark()
    await begun(tmp_path, f"sleep {marked}", gate)
    async with later(tmp_path) as rig:
        await gate.open()
        await rig.intake.deliver([command("command.cancel", "cmd-2", target_command_id="cmd-1")])
        settled = await rig.settled()
        assert (settled.state, settled.reason) == (State.UNKNOWN, "cancelled_after_dispatch")
    assert asleep(marked) == []


async def test_a_command_whose_shim_was_killed_is_lost(tmp_path: Path) -> None:
    """Nobody can tell how far it got: `unknown/crash_window`, and why; the program is not left running."""
    gate, marked = Gate(tmp_path), mark()
    await begun(tmp_path, f"sleep {marked}", gate)
    (folder,) = (tmp_path / "state" / "spool").glob("*/*")
    place = Spool(tmp_path / "state" / "spool").place(OperationId(folder.parent.name), 1)
    started = await anyio.to_thread.run_sync(place.started)
    assert started is not None
    os.kill(started.pid, signal.SIGKILL)
    await gone(started.pid)  # the kernel takes its time, and a life that still finds it running would wait
    async with later(tmp_path) as rig:
        settled = await rig.settled()
        assert (settled.state, settled.reason) == (State.UNKNOWN, "crash_window")
        assert "the shim was killed" in str((await rig.last())["message"])
    assert asleep(marked) == []


async def test_more_commands_than_slots_are_readopted(tmp_path: Path) -> None:
    """A limit that was lowered holds nobody up who runs already, and what is new waits for them all."""
    gates = [Gate(tmp_path) for _ in range(3)]
    await begun(tmp_path, 'echo "$3"', *gates)
    async with later(tmp_path, inflight_max=1) as rig:
        assert rig.dispatcher.slots.in_use == 3
        await rig.intake.deliver([call("cmd-9", arguments=sh("true"))])
        for ended, gate in enumerate(gates, start=1):
            assert (await rig.operation("cmd-9")).state is State.ACCEPTED
            await gate.open()
            await rig.reaches("operation.succeeded", ended)
        assert (await rig.settled("cmd-9")).state is State.SUCCEEDED
        assert [(await result(rig, f"cmd-{n}"))["stdout"] for n in (1, 2, 3)] == ["1\n", "2\n", "3\n"]


async def test_nothing_is_tried_again_while_the_first_attempt_may_still_run(tmp_path: Path) -> None:
    """A contract that allows another attempt is asked after the first one has ended, and not at the start."""
    gate = Gate(tmp_path)
    await begun(tmp_path, "exit 3", gate)
    retried = Contract(
        declared=True,
        idempotent=True,
        dedupe_horizon_s=600,
        key_carrier=ArgumentKey("key"),
        retry="same-key",
        retry_backoff_s=0.01,
        error_means="none",
    )
    async with later(tmp_path, contract=retried) as rig:
        assert await rig.kinds() == ["command.accepted", "operation.started"]
        await gate.open()
        await rig.reaches(AttemptEnded.KIND)
        assert (await rig.attempts())[0] == ("failed", None)
        operation = await rig.operation()
        evidence = await rig.journal.read(lambda view: view.evidence(operation.operation_id))
        assert (evidence[0].effect, evidence[0].source) == (Effect.NONE, Source.SHIM)


async def test_a_command_whose_provider_is_gone_from_the_configuration_is_unknown(tmp_path: Path) -> None:
    """Nobody is left who could be asked: the start decides as for any other provider.

    What the program leaves when it has ended, a later start takes away.
    """
    gate = Gate(tmp_path)
    await begun(tmp_path, "true", gate)
    async with engine(tmp_path, ScriptedProvider()) as rig:
        settled = await rig.settled()
        assert (settled.state, settled.reason) == (State.UNKNOWN, "crash_window")
    (folder,) = (tmp_path / "state" / "spool").glob("*/*")
    spool = Spool(tmp_path / "state" / "spool")
    control = spool.place(OperationId(folder.parent.name), 1).open_control()
    assert control is not None
    await gate.open()
    with anyio.fail_after(60):
        await anyio.wait_readable(control)
    os.close(control)
    await anyio.to_thread.run_sync(spool.tidy, ())
    assert not folder.exists()
