"""A program as a triage model: JSON on its standard input, its answer on its standard output.

Part of `supervisor.models`; imports `supervisor.prompt` and its siblings.

The program gets one object: `prompt_version`, `system`, `messages` (`role` and `content`, the wall in the
first of them) and `answer_schema`. It prints the answer and exits 0, within `timeout_s`. It runs in a session
of its own, which is killed as a whole at the end, and gets no environment but a path, a home and the like.
Its exit ends the answer, whoever else holds its output open: what still comes is read for `LINGER_S`. A child
that began a session of its own is not known here, and may outlive it; nobody listens to it any more.
"""

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import Process

from store.records import JsonObject
from supervisor.models.model import ANSWER_BYTES_MAX, ModelFailed
from supervisor.prompt import ANSWER_SCHEMA, PROMPT_VERSION, Question
from supervisor.quoting import dumps

NAME: Final = "command"
PASSED_ON: Final = ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "USER")
"""Variables that a program may need to run at all; others could hold a secret."""
LINGER_S: Final = 0.5
"""How long the output of a program that has exited is read where a child of it keeps that open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What is started, and how long it may take."""

    argv: tuple[str, ...]
    cwd: Path
    timeout_s: float


class CommandChat:
    """Implements `Chat`."""

    def __init__(self, program: Program, environment: Mapping[str, str]) -> None:
        self._program = program
        self._environment = {name: environment[name] for name in PASSED_ON if name in environment}

    @property
    def name(self) -> str:
        """`command`."""
        return NAME

    async def ask(self, question: Question) -> str:
        """Return what the program prints. Raises `ModelFailed`. Cancelled, it kills the program."""
        try:
            process = await anyio.open_process(
                self._program.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=self._program.cwd,
                env=self._environment,
                start_new_session=True,
            )
        except OSError as error:
            raise ModelFailed(NAME, f"cannot be started ({error.strerror})") from None
        try:
            with anyio.fail_after(self._program.timeout_s):
                return await _converse(process, _spoken(question))
        except TimeoutError:
            raise ModelFailed(NAME, f"did not answer within {self._program.timeout_s:g} s") from None
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process)


def _spoken(question: Question) -> bytes:
    messages: list[JsonObject] = [{"role": turn.role, "content": turn.text} for turn in question.turns]
    spoken: JsonObject = {
        "prompt_version": PROMPT_VERSION,
        "system": question.system,
        "messages": [*messages],
        "answer_schema": ANSWER_SCHEMA,
    }
    return dumps(spoken).encode("ascii")


async def _converse(process: Process, spoken: bytes) -> str:
    found = bytearray()

    async def write() -> None:
        assert process.stdin is not None, "it was asked for"
        # a program that does not read all of it may answer all the same
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await process.stdin.send(spoken)
        with suppress(anyio.BrokenResourceError, OSError):
            await process.stdin.aclose()

    async def read() -> None:
        assert process.stdout is not None, "it was asked for"
        async for chunk in process.stdout:
            found.extend(chunk)
            if len(found) > ANSWER_BYTES_MAX:
                return

    async def linger() -> None:
        await process.wait()
        await anyio.sleep(LINGER_S)
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        tasks.start_soon(linger)
        await read()
        if len(found) <= ANSWER_BYTES_MAX:
            await process.wait()
        tasks.cancel_scope.cancel()
    if len(found) > ANSWER_BYTES_MAX:
        raise ModelFailed(NAME, f"answered more than {ANSWER_BYTES_MAX:,} bytes")
    code = await process.wait()
    if code != 0:
        raise ModelFailed(NAME, f"exited with code {code}" if code > 0 else f"was killed by signal {-code}")
    return found.decode("utf-8", errors="replace")


async def _end(process: Process) -> None:
    """Kill whatever is left of the program, its children included, and reap it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        process.kill()
    await process.aclose()
