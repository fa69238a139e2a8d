"""A program outlives the daemon that asked for it, and the next life tells how it ended.

`life.py` is the process life that is killed, with SIGKILL; this process is the next one.
"""

import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.streams.text import TextReceiveStream

from driver.core.attempts import NotSent, Phase, Report, Silence, ToolCall
from driver.core.classify import NotExecuted, Succeeded, Unknown
from driver.providers.command.spool import Place, Spool
from driver.providers.readoption import Finished, Lost, Running
from store.records import JsonObject, OperationId
from tests.driver.providers.command.stage import (
    DEADLINE_S,
    STOP,
    Gate,
    Stage,
    answer,
    asleep,
    ending,
    finished,
    grouped,
    mark,
    rewrite,
    settings,
    sh,
    staged,
)

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[4]
OPERATION = OperationId("op_" + "a" * 32)


class Life:
    """A process that has dispatched a call."""

    def __init__(self, process: anyio.abc.Process, folder: Path) -> None:
        self.process = process
        self.folder = folder
        assert process.stdout is not None
        self.said = TextReceiveStream(process.stdout)

    @property
    def place(self) -> Place:
        """The folder of its attempt."""
        return Spool(self.folder / "spool").place(OPERATION, 1)

    async def reached(self, phase: Phase) -> None:
        """Wait until it says that its call has got there."""
        heard = ""
        with anyio.fail_after(30):
            while phase.value not in heard:
                heard += await self.said.receive()

    async def kill(self) -> None:
        """Kill it as nothing can be caught."""
        self.process.kill()
        await self.process.wait()

    async def shim(self) -> int:
        """Return the process id of its shim."""
        started = await anyio.to_thread.run_sync(self.place.started)
        assert started is not None
        return started.pid


@asynccontextmanager
async def life(
    folder: Path,
    arguments: JsonObject,
    *,
    timeout_s: float = 30.0,
    group: bool = True,
    look: bool = False,
    wrapper: Sequence[str] = (),
) -> AsyncGenerator[Life]:
    """Let another process dispatch a call, or `look`; `wrapper` is a command that runs it."""
    command = [*wrapper, sys.executable, "-m", "tests.driver.providers.command.life"]
    asked = {
        "folder": str(folder),
        "operation_id": OPERATION,
        "arguments": arguments,
        "timeout_s": timeout_s,
        "group": group,
        "look": look,
    }
    async with await anyio.open_process(command, cwd=ROOT, stderr=None) as process:
        assert process.stdin is not None
        await process.stdin.send(json.dumps(asked).encode() + b"\n")
        try:
            yield Life(process, folder)
        finally:
            if process.returncode is None:
                process.kill()


async def readopted(stage: Stage) -> Finished | Lost:
    """Return what the next life learns of the attempt, at its end."""
    found = await stage.provider.readopt(OPERATION, 1)
    if isinstance(found, Finished | Lost):
        return found
    with anyio.fail_after(30):
        return await found.finish()


async def still_running(stage: Stage) -> Running:
    """Return the attempt, which must be under way."""
    found = await stage.provider.readopt(OPERATION, 1)
    assert not isinstance(found, Finished | Lost)
    return found


async def gone(pid: int) -> None:
    """Wait until a process has ended."""
    with anyio.fail_after(30):
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        await anyio.wait_readable(descriptor)
        os.close(descriptor)


@pytest.mark.parametrize("group", [True, False])
async def test_a_running_program_survives_the_daemon(tmp_path: Path, group: bool) -> None:
    """SIGKILL of the daemon: the program goes on, runs once, and its whole output reaches the next life."""
    gate = Gate(tmp_path)
    script = f"echo run >> {tmp_path}/runs; echo before; {STOP} echo after; exit 0"
    async with life(tmp_path, sh(script, *gate.paths), group=group) as first:
        await gate.reached()
        await first.kill()
    async with staged(settings(tmp_path), group=group) as stage:
        running = await still_running(stage)
        await gate.open()
        found = await running.finish()
    assert answer(found.report)["stdout"] == "before\nafter\n"
    assert isinstance(ending(found.report, found.phase), Succeeded)
    assert (tmp_path / "runs").read_text() == "run\n"


async def test_a_program_that_ended_meanwhile_is_answered(tmp_path: Path) -> None:
    """With no daemon there, the end of a program is kept until one comes, its exit code and its output."""
    gate = Gate(tmp_path)
    async with life(tmp_path, sh(f"{STOP} echo done; exit 3", *gate.paths)) as first:
        await gate.reached()
        shim = await first.shim()
        await first.kill()
    await gate.open()
    await gone(shim)
    async with staged(settings(tmp_path)) as stage:
        found = finished(await readopted(stage))
        again = finished(await readopted(stage))
    assert answer(found.report)["exit_code"] == 3
    assert answer(found.report)["stdout"] == "done\n"
    assert found.phase is Phase.ANSWERED
    assert again == found  # a crash before the outcome was committed: the next life learns the same


async def test_a_record_is_believed_after_a_reboot(tmp_path: Path) -> None:
    """What was durable before the machine went down is an answer for ever."""
    async with life(tmp_path, sh("echo done")) as first:
        await first.reached(Phase.ANSWERED)
        await first.kill()
        await anyio.to_thread.run_sync(lambda: rewrite(first.place, boot_id="another"))
    async with staged(settings(tmp_path)) as stage:
        assert answer(finished(await readopted(stage)).report)["stdout"] == "done\n"
        stage.provider.settled(OPERATION, 1)


@pytest.mark.parametrize("group", [True, False])
async def test_kill_of_both_is_lost(tmp_path: Path, group: bool) -> None:
    """Daemon and shim killed: nobody knows how the program ended, but it has, with all that it started."""
    gate, marked = Gate(tmp_path), mark()
    script = f"echo run >> {tmp_path}/runs; sleep {marked} & setsid sleep {marked} & {STOP} echo after"
    async with life(tmp_path, sh(script, *gate.paths), group=group) as first:
        await gate.reached()
        shim = await first.shim()
        await first.kill()
        os.kill(shim, signal.SIGKILL)
        await gone(shim)
    async with staged(settings(tmp_path), group=group) as stage:
        found = await readopted(stage)
        left = asleep(marked)
    assert isinstance(found, Lost)
    assert left == []
    assert (tmp_path / "runs").read_text() == "run\n"


async def test_a_reboot_is_lost(tmp_path: Path) -> None:
    """Where another boot began the attempt and left no record of an end, nobody can know."""
    gate = Gate(tmp_path)
    async with life(tmp_path, sh(STOP, *gate.paths)) as first:
        await gate.reached()
        shim = await first.shim()
        await first.kill()
        os.kill(shim, signal.SIGKILL)
        await gone(shim)
        await anyio.to_thread.run_sync(lambda: rewrite(first.place, boot_id="another"))
    async with staged(settings(tmp_path)) as stage:
        found = await readopted(stage)
        stage.provider.settled(OPERATION, 1)
    assert isinstance(found, Lost)
    assert "restarted" in found.message


async def test_an_unknown_attempt_is_lost(tmp_path: Path) -> None:
    """Without any record there is no proof of anything."""
    async with staged(settings(tmp_path)) as stage:
        assert isinstance(await readopted(stage), Lost)


async def test_a_shim_that_was_never_released_proves_it(tmp_path: Path) -> None:
    """The daemon died between the start of the shim and its release: nothing was executed, provably."""
    async with life(tmp_path, sh(f"touch {tmp_path}/effect")) as first:
        await first.reached(Phase.WRITING)
        await first.kill()
    async with staged(settings(tmp_path)) as stage:
        found = finished(await readopted(stage))
    if (tmp_path / "effect").exists():
        assert answer(found.report)["exit_code"] == 0  # the kill came after the release
    else:
        assert isinstance(ending(found.report, found.phase), NotExecuted)


async def test_without_a_start_record_nothing_was_executed(tmp_path: Path) -> None:
    """In the same boot, a folder without `started` and without a shim is proof; in another it is none."""
    async with staged(settings(tmp_path)) as stage:
        call = stage.call(sh("true"), timeout_s=0.0)
        await stage.dispatch(call)
        place = stage.place(call)
        found = finished(await stage.provider.readopt(call.operation_id, 1))
        await anyio.to_thread.run_sync(lambda: rewrite(place, boot_id="another"))
        rebooted = await stage.provider.readopt(call.operation_id, 1)
    assert isinstance(found.report, NotSent)
    assert isinstance(ending(found.report, found.phase), NotExecuted)
    assert isinstance(rebooted, Lost)


async def test_a_failed_exec_is_known_to_the_next_life(tmp_path: Path) -> None:
    """That a program could not be executed is recorded, too."""
    program = tmp_path / "work" / "tool"
    async with staged(settings(tmp_path)) as stage:
        await anyio.to_thread.run_sync(program.write_text, "no program")
        await anyio.to_thread.run_sync(program.chmod, 0o700)
        call = stage.call({"argv": ["./tool"]})
        report = await stage.dispatch(call)
        found = finished(await stage.provider.readopt(call.operation_id, 1))
    assert found == Finished(report=report, phase=Phase.CONNECTING)


async def test_the_shim_keeps_the_deadline_alone(tmp_path: Path) -> None:
    """A program whose daemon never comes back ends at its deadline all the same, and is recorded so."""
    gate, marked = Gate(tmp_path), mark()
    script = f"setsid sleep {marked} & {STOP} sleep {marked}"
    async with life(tmp_path, sh(script, *gate.paths), timeout_s=DEADLINE_S) as first:
        await gate.reached()
        shim = await first.shim()
        await first.kill()
    await gate.open()
    await gone(shim)
    assert asleep(marked) == []
    async with staged(settings(tmp_path)) as stage:
        found = finished(await readopted(stage))
    judged = ending(found.report, found.phase)
    assert isinstance(judged, Unknown)
    assert judged.reason == "execution_timeout"


async def test_the_deadline_goes_on_after_readoption(tmp_path: Path) -> None:
    """A readopted program has the rest of its time, and not a new budget."""
    gate = Gate(tmp_path)
    async with life(tmp_path, sh(f"{STOP} sleep 60", *gate.paths), timeout_s=DEADLINE_S) as first:
        await gate.reached()
        await first.kill()
    async with staged(settings(tmp_path)) as stage:
        with anyio.fail_after(30):
            found = finished(await readopted(stage))
    assert isinstance(found.report, Silence)
    assert found.report.cause == "deadline"


async def test_a_readopted_program_can_be_cancelled(tmp_path: Path) -> None:
    """Cancelling who waits for a readopted program ends it, as with any other."""
    gate, marked = Gate(tmp_path), mark()
    async with life(tmp_path, sh(f"sleep {marked} & {STOP} wait", *gate.paths)) as first:
        await gate.reached()
        await first.kill()
    async with staged(settings(tmp_path)) as stage:
        running = await still_running(stage)
        with anyio.move_on_after(0.2) as scope:
            await running.finish()
        left = asleep(marked)
    assert scope.cancelled_caught
    assert left == []


async def test_closing_ends_a_readopted_program(tmp_path: Path) -> None:
    """`close` does not tell which life started what it ends."""
    gate = Gate(tmp_path)
    found: list[Finished | Lost] = []
    async with life(tmp_path, sh(f"{STOP} sleep 60", *gate.paths)) as first:
        await gate.reached()
        await first.kill()
    async with staged(settings(tmp_path)) as stage, anyio.create_task_group() as tasks:
        begun = anyio.Event()

        async def wait() -> None:
            running = await still_running(stage)
            begun.set()
            found.append(await running.finish())

        tasks.start_soon(wait)
        await begun.wait()
        await anyio.lowlevel.checkpoint()
        await stage.provider.close()
    assert isinstance(finished(found[0]).report, Silence)


async def test_a_killed_shim_after_readoption_is_unknown(tmp_path: Path) -> None:
    """A readopted shim that is killed then leaves its outcome unknown, and nothing running."""
    gate, marked = Gate(tmp_path), mark()
    found: list[Finished | Lost] = []
    async with life(tmp_path, sh(f"sleep {marked} & {STOP} wait", *gate.paths)) as first:
        await gate.reached()
        shim = await first.shim()
        await first.kill()
    async with staged(settings(tmp_path)) as stage, anyio.create_task_group() as tasks:
        running = await still_running(stage)

        async def wait() -> None:
            found.append(await running.finish())

        tasks.start_soon(wait)
        os.kill(shim, signal.SIGKILL)
    report = finished(found[0]).report
    assert isinstance(report, Silence)
    assert report.cause == "connection_lost"
    assert asleep(marked) == []


async def test_a_process_number_used_again_fools_nobody(tmp_path: Path) -> None:
    """A record that names a living stranger as the program or its shim gets no stranger killed."""
    gate = Gate(tmp_path)
    async with life(tmp_path, sh(STOP, *gate.paths), group=False) as first:
        await gate.reached()
        shim = await first.shim()
        await first.kill()
        os.kill(shim, signal.SIGKILL)
        await gone(shim)
    async with await anyio.open_process(["sleep", "60"], start_new_session=True) as stranger:
        await anyio.to_thread.run_sync(lambda: _rename_program(first.place, stranger.pid))
        async with staged(settings(tmp_path), group=False) as stage:
            assert isinstance(await readopted(stage), Lost)
        with anyio.move_on_after(0.1) as lives:
            await stranger.wait()
        stranger.kill()
    assert lives.cancelled_caught


def _rename_program(place: Place, pid: int) -> None:
    record = place.folder / "started"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"pid": pid, "child": pid}))


@pytest.mark.parametrize("damage", ["", "{}", "null", "\0" * 300, '{"format": 2}'])
async def test_a_damaged_record_is_no_answer(tmp_path: Path, damage: str) -> None:
    """A record that does not say what it must is not guessed at."""
    async with staged(settings(tmp_path)) as stage:
        call = stage.call(sh("true"))
        await stage.dispatch(call)
        await anyio.to_thread.run_sync((stage.place(call).folder / "ended").write_text, damage)
        assert isinstance(await stage.provider.readopt(call.operation_id, 1), Lost)


async def test_another_attempts_record_is_no_answer(tmp_path: Path) -> None:
    """A record belongs to one operation and one attempt."""
    async with staged(settings(tmp_path)) as stage:
        call = stage.call(sh("true"))
        await stage.dispatch(call)
        folder = stage.place(call).folder
        await anyio.to_thread.run_sync(folder.rename, folder.with_name("2"))
        assert isinstance(await stage.provider.readopt(call.operation_id, 2), Lost)


async def test_output_that_is_gone_is_no_answer(tmp_path: Path) -> None:
    """An answer whose output was lost is not handed out without it."""
    async with staged(settings(tmp_path)) as stage:
        call = stage.call(sh("echo hello"))
        await stage.dispatch(call)
        await anyio.to_thread.run_sync((stage.place(call).folder / "stdout").unlink)
        assert isinstance(await stage.provider.readopt(call.operation_id, 1), Lost)


async def test_one_attempt_is_never_begun_twice(tmp_path: Path) -> None:
    """Whoever dispatches an attempt that was begun before executes nothing, and claims to know nothing."""
    async with staged(settings(tmp_path)) as stage:
        call = stage.call(sh(f"echo run >> {tmp_path}/runs"))
        await stage.dispatch(call)
        second = await stage.dispatch(call)
        judged = ending(second, stage.phases[-1])
    assert isinstance(judged, Unknown)
    assert (tmp_path / "runs").read_text() == "run\n"


async def test_a_cancelled_provider_leaves_programs_to_the_next_life(tmp_path: Path) -> None:
    """A daemon that gives up without an outcome ends nothing: the next one learns what came of it."""
    gate = Gate(tmp_path)
    calls: list[ToolCall] = []
    with anyio.CancelScope() as scope:
        async with staged(settings(tmp_path)) as stage, anyio.create_task_group() as tasks:
            calls.append(stage.call(sh(f"{STOP} echo done", *gate.paths)))
            tasks.start_soon(stage.dispatch, calls[0])
            await gate.reached()
            scope.cancel()
    found: list[Finished | Lost] = []
    async with staged(settings(tmp_path)) as stage:
        running = await stage.provider.readopt(calls[0].operation_id, 1)
        assert not isinstance(running, Finished | Lost)
        await gate.open()
        found.append(await running.finish())
    assert answer(finished(found[0]).report)["stdout"] == "done\n"


async def test_settled_attempts_leave_no_folder(tmp_path: Path) -> None:
    """Once the outcome is durable elsewhere, nothing of the attempt is kept; saying so twice is no error."""
    async with staged(settings(tmp_path)) as stage:
        call = stage.call(sh("echo hello"))
        await stage.dispatch(call)
        assert await anyio.to_thread.run_sync(stage.place(call).folder.exists)
        stage.provider.settled(call.operation_id, 1)
        stage.provider.settled(call.operation_id, 1)
    assert not list((tmp_path / "spool").iterdir())


async def test_tidying_keeps_what_is_open_and_what_lives(tmp_path: Path) -> None:
    """A start removes what a crash left of settled attempts, and nothing else."""
    gate = Gate(tmp_path)
    found: list[Report] = []
    async with staged(settings(tmp_path)) as stage:
        kept, settled, living = (stage.call(sh(script, *gate.paths)) for script in ("true", "true", STOP))
        await stage.dispatch(kept)
        await stage.dispatch(settled)

        async def dispatch() -> None:
            found.append(await stage.dispatch(living))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(dispatch)
            await gate.reached()
            spool = Spool(tmp_path / "spool")
            # a kill between the two folders that an attempt begins with
            await anyio.Path(spool.root, "op_" + "f" * 32).mkdir()
            await anyio.to_thread.run_sync(lambda: spool.tidy({(kept.operation_id, 1)}))
            left = await anyio.to_thread.run_sync(lambda: {folder.name for folder in spool.root.iterdir()})
            assert left == {kept.operation_id, living.operation_id}
            await gate.open()
    assert answer(found[0])["exit_code"] == 0


def test_this_machine_can_make_cgroups_or_says_so() -> None:
    """Which half of these tests has run stands in the report of the run."""
    if not grouped():
        pytest.skip("no cgroup can be made here: programs are contained by their shim alone")
