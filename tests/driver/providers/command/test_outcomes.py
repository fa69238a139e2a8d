"""Each row of the classification table that a program can get to, with a program that behaves so."""

import os
import select
import signal
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from driver.core.attempts import Answered, NotSent, Phase, Report, Silence
from driver.core.classify import Failed, NotExecuted, Succeeded, Unknown
from driver.core.contracts import ArgumentKey, Contract, ErrorMeans
from driver.core.expressions import Expression
from driver.providers.command.settings import Program
from store.lifecycle import Effect
from store.records import JsonValue
from tests.driver.providers.command.stage import DEADLINE_S, STOP, Gate, answer, ending, settings, sh, staged

pytestmark = pytest.mark.anyio


async def test_exit_code_0_is_success_with_both_outputs(tmp_path: Path) -> None:
    """A program that ends with 0 succeeded; its answer is its exit code and what it wrote."""
    async with staged(settings(tmp_path)) as stage:
        report = await stage.run(sh("echo out; echo err >&2"))
    result = answer(report)
    assert result["exit_code"] == 0
    assert result["signal"] is None
    assert (result["stdout"], result["stderr"]) == ("out\n", "err\n")
    assert (result["stdout_truncated"], result["stderr_truncated"]) == (False, False)
    assert isinstance(ending(report, Phase.ANSWERED), Succeeded)


async def test_phases_come_in_order(tmp_path: Path) -> None:
    """The shim is started before the point of no return, and the program after it."""
    async with staged(settings(tmp_path)) as stage:
        await stage.run(sh("true"))
        assert stage.phases == [Phase.CONNECTING, Phase.WRITING, Phase.WRITTEN, Phase.ANSWERED]


@pytest.mark.parametrize(
    ("means", "effect"),
    [("reported", Effect.UNKNOWN), ("none", Effect.NONE), ("unsettled", Effect.UNKNOWN)],
)
async def test_other_exit_codes_are_failures(tmp_path: Path, means: ErrorMeans, effect: Effect) -> None:
    """A non-zero exit is the program's own word that it failed; the contract says what that means."""
    async with staged(settings(tmp_path)) as stage:
        judged = await stage.judged(sh("echo why >&2; exit 3"), Contract(error_means=means))
    assert isinstance(judged, Failed)
    assert judged.effect is effect
    assert judged.result["exit_code"] == 3
    assert judged.result["stderr"] == "why\n"
    assert judged.error == ("exit_3", "why")


async def test_declared_exit_codes_are_success(tmp_path: Path) -> None:
    """`ok_exit_codes` says which codes are success; where 0 is not listed, 0 is none."""
    searching = Program.declared("=arguments.argv", ok_exit_codes=[1])
    async with staged(settings(tmp_path, {"search": searching})) as stage:
        found = await stage.run(sh("exit 1"), tool="search")
        nothing = await stage.run(sh("exit 0"), tool="search")
    assert isinstance(found, Answered)
    assert not found.is_error
    assert isinstance(nothing, Answered)
    assert nothing.is_error


async def test_a_signal_has_its_name_and_is_a_failure(tmp_path: Path) -> None:
    """A program that a signal ended has no exit code, and says which signal it was."""
    async with staged(settings(tmp_path)) as stage:
        report = await stage.run(sh("kill -SEGV $$"))
    assert isinstance(report, Answered)
    assert report.is_error
    assert (report.result["exit_code"], report.result["signal"]) == (None, "SIGSEGV")
    assert (report.code, report.interrupted) == ("SIGSEGV", True)


async def test_exit_code_127_is_the_programs_own(tmp_path: Path) -> None:
    """A program may end with the code that a shell has for a missing one: it was executed all the same."""
    async with staged(settings(tmp_path)) as stage:
        assert answer(await stage.run(sh("exit 127")))["exit_code"] == 127


async def test_missing_program_is_not_executed(tmp_path: Path) -> None:
    """What is not there is known before a shim is started."""
    async with staged(settings(tmp_path)) as stage:
        judged = await stage.judged({"argv": ["no-such-program"]})
        assert stage.phases == [Phase.CONNECTING]
    assert isinstance(judged, NotExecuted)
    assert judged.reason == "spawn_failed"
    assert not list((tmp_path / "spool").glob("*"))


async def test_program_without_permission_is_not_executed(tmp_path: Path) -> None:
    """A file that may not be executed is no program."""
    program = tmp_path / "work" / "tool"
    async with staged(settings(tmp_path)) as stage:
        program.write_text("#!/bin/sh\necho hello\n")
        judged = await stage.judged({"argv": ["./tool"]})
    assert isinstance(judged, NotExecuted)
    assert judged.reason == "spawn_failed"


@pytest.mark.parametrize("content", ["#!/no/such/interpreter\n", "neither script nor binary"])
async def test_failed_exec_is_not_executed(tmp_path: Path, content: str) -> None:
    """What the kernel refuses at the last moment was never executed, and the phase is taken back."""
    program = tmp_path / "work" / "tool"
    async with staged(settings(tmp_path)) as stage:
        program.write_text(content)
        program.chmod(0o700)
        judged = await stage.judged({"argv": ["./tool"]})
        assert stage.phases == [Phase.CONNECTING, Phase.WRITING, Phase.CONNECTING]
    assert isinstance(judged, NotExecuted)
    assert judged.reason == "spawn_failed"
    assert "could not be executed" in judged.message


async def test_argument_list_beyond_the_kernels_limit_is_not_executed(tmp_path: Path) -> None:
    """A word that is longer than the kernel takes is refused by `execve`, and proven so."""
    async with staged(settings(tmp_path)) as stage:
        judged = await stage.judged({"argv": ["true", "x" * 200_000]})
    assert isinstance(judged, NotExecuted)
    assert "list too long" in judged.message


async def test_unknown_tool_is_not_executed(tmp_path: Path) -> None:
    """Only declared programs can be called."""
    async with staged(settings(tmp_path)) as stage:
        report = await stage.run({}, tool="rm")
        assert not stage.provider.ready(stage.call({}, tool="rm"))
        assert isinstance(await stage.provider.prepare(stage.call({}, tool="rm")), NotSent)
    assert isinstance(report, NotSent)
    assert report.reason == "unknown_tool"


@pytest.mark.parametrize(
    "argv",
    [
        "echo hello",
        [],
        [""],
        ["echo", 1],
        ["echo", None],
        ["echo", ["nested"]],
        ["echo", "a\0b"],
        {"0": "echo"},
        None,
    ],
)
async def test_argv_is_a_list_of_strings(tmp_path: Path, argv: JsonValue) -> None:
    """Nothing else is turned into a command line, a shell string least of all."""
    async with staged(settings(tmp_path)) as stage:
        call = stage.call({"argv": argv})
        refusal = await stage.provider.prepare(call)
        assert await stage.dispatch(call) == refusal
        assert not stage.provider.ready(call)
    assert isinstance(refusal, NotSent)
    assert refusal.reason == "invalid_arguments"


async def test_words_are_filled_in_one_by_one(tmp_path: Path) -> None:
    """A value stays one word, whatever a shell would make of it."""
    echo = Program.declared(["printf", "%s|", "=arguments.text", "=key", "=operation_id", "=literal", "x=y"])
    async with staged(settings(tmp_path, {"echo": echo})) as stage:
        call = stage.call({"text": "a b; $(id) `id` 'x' \"y\" *"}, tool="echo")
        refused = await stage.dispatch(call)
        assert isinstance(refused, NotSent)  # nothing is called `literal`: null is no word
        assert "is null, as where an argument of the call is missing" in refused.message
    words = Program.declared(["printf", "%s|", "=arguments.text", "=key", "=operation_id", "x=y"])
    async with staged(settings(tmp_path, {"echo": words})) as stage:
        call = stage.call({"text": "a b; $(id) `id` 'x' \"y\" *"}, tool="echo")
        written = answer(await stage.dispatch(call))["stdout"]
    assert written == f"a b; $(id) `id` 'x' \"y\" *|op_key|{call.operation_id}|x=y|"


async def test_key_travels_as_argument(tmp_path: Path) -> None:
    """`key = "argument:NAME"` gives expressions the key under that name; who has a key may not supply it."""
    chosen = settings(
        tmp_path, {"pay": Program.declared(["echo", "=arguments.request"])}, key=ArgumentKey("request")
    )
    async with staged(chosen) as stage:
        assert answer(await stage.run({}, tool="pay"))["stdout"] == "op_key\n"
        forged = await stage.run({"request": "mine"}, tool="pay")
        keyless = replace(stage.call({"request": "its own"}, tool="pay"), key=None)
        assert answer(await stage.dispatch(keyless))["stdout"] == "its own\n"
    assert isinstance(forged, NotSent)
    assert forged.reason == "invalid_arguments"


async def test_ready_and_prepare_send_nothing(tmp_path: Path) -> None:
    """Only `dispatch` executes."""
    async with staged(settings(tmp_path)) as stage:
        call = stage.call(sh(f"touch {tmp_path}/effect"))
        assert await stage.provider.prepare(call) is None
        assert stage.provider.ready(call)
    assert not (tmp_path / "effect").exists()


async def test_deadline_before_the_start_is_not_executed(tmp_path: Path) -> None:
    """A call whose time is over before its shim is ready executes nothing."""
    async with staged(settings(tmp_path)) as stage:
        report = await stage.run(sh(f"touch {tmp_path}/effect"), timeout_s=0.0)
        assert not any(phase.may_have_left for phase in stage.phases)
    assert isinstance(report, NotSent)
    assert report.reason == "deadline"
    assert not (tmp_path / "effect").exists()


async def test_deadline_while_it_runs_is_unknown(tmp_path: Path) -> None:
    """A program that we ended ourselves gave no answer, whatever it did on SIGTERM."""
    async with staged(settings(tmp_path)) as stage:
        report = await stage.run(sh("trap 'echo bye; exit 0' TERM; sleep 60 & wait"), timeout_s=DEADLINE_S)
        judged = ending(report, stage.phases[-1])
    assert isinstance(judged, Unknown)
    assert judged.reason == "execution_timeout"


async def test_cancel_before_the_start_is_not_executed(tmp_path: Path) -> None:
    """A call that is cancelled before its shim is released executes nothing."""
    reached: list[Phase] = []
    async with staged(settings(tmp_path)) as stage:
        with anyio.CancelScope() as scope:

            def cancel(phase: Phase) -> None:
                reached.append(phase)
                scope.cancel()

            await stage.provider.dispatch(stage.call(sh(f"touch {tmp_path}/effect")), cancel)
        assert scope.cancelled_caught
    assert reached == [Phase.CONNECTING]
    assert not (tmp_path / "effect").exists()


async def test_cancel_while_it_runs_raises(tmp_path: Path) -> None:
    """A program that is cancelled is ended, and its caller learns that it may have done something."""
    gate = Gate(tmp_path)
    async with staged(settings(tmp_path)) as stage:
        call = stage.call(sh(f"{STOP} touch {tmp_path}/effect", *gate.paths))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.dispatch, call)
            await gate.reached()
            tasks.cancel_scope.cancel()
        assert stage.phases[-1].may_have_left
        assert (await stage.ended(call)).cause == "cancelled"
    assert not (tmp_path / "effect").exists()


async def test_an_answer_before_the_cancel_is_kept(tmp_path: Path) -> None:
    """A program that had ended by itself when the cancel came has given an answer: it is returned."""
    gate = Gate(tmp_path)
    found: list[Report] = []
    async with staged(settings(tmp_path)) as stage:
        call = stage.call(sh(f"{STOP} echo done", *gate.paths))
        scope = anyio.CancelScope()

        async def dispatch() -> None:
            with scope:
                found.append(await stage.dispatch(call))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(dispatch)
            await gate.reached()
            started = await stage.started(call)
            os.kill(started.pid, signal.SIGSTOP)
            await gate.open()
            await anyio.to_thread.run_sync(_exited, started.child)
            scope.cancel()
            os.kill(started.pid, signal.SIGCONT)
        assert answer(found[0])["stdout"] == "done\n"
        assert stage.phases[-1] is Phase.ANSWERED


def _exited(pid: int) -> None:
    with os.fdopen(os.pidfd_open(pid)) as process:
        select.select([process], [], [], 10)


async def test_killed_shim_is_unknown(tmp_path: Path) -> None:
    """Nobody saw how a program ended whose shim was killed."""
    gate = Gate(tmp_path)
    found: list[Report] = []
    async with staged(settings(tmp_path)) as stage, anyio.create_task_group() as tasks:
        call = stage.call(sh(f"echo begun; {STOP} echo done", *gate.paths))

        async def dispatch() -> None:
            found.append(await stage.dispatch(call))

        tasks.start_soon(dispatch)
        await gate.reached()
        os.kill((await stage.started(call)).pid, signal.SIGKILL)
    assert isinstance(found[0], Silence)
    judged = ending(found[0], stage.phases[-1])
    assert isinstance(judged, Unknown)
    assert judged.reason == "connection_lost"


async def test_receipt_is_found_in_the_result(tmp_path: Path) -> None:
    """A contract's `receipt` sees the result as it is documented."""
    contract = Contract(receipt=Expression("result.stdout"))
    async with staged(settings(tmp_path)) as stage:
        judged = await stage.judged(sh("printf id-7"), contract)
    assert isinstance(judged, Succeeded)
    assert judged.receipt == "id-7"
