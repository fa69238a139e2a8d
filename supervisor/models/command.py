"""A program as a triage model: JSON on its standard input, its answer on its standard output.

Part of `supervisor.models`; imports `supervisor.prompt` and its siblings.

The program gets one object: `prompt_version`, `system`, `messages` (`role` and `content`, the wall in the
first of them) and `answer_schema`. It prints the answer and exits 0, within `timeout_s`. It gets no
environment but a path, a home and the like. How it is started is the driver's business (`Start`): its exit
ends the answer, whoever else holds its output open, and nothing that it has started outlives it, or the
daemon.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import anyio

from store.records import JsonObject
from supervisor.models.model import ANSWER_BYTES_MAX, ModelFailed
from supervisor.prompt import ANSWER_SCHEMA, PROMPT_VERSION, Question
from supervisor.quoting import dumps

NAME: Final = "command"
PASSED_ON: Final = ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "USER")
"""Variables that a program may need to run at all; others could hold a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What is started, and how long it may take."""

    argv: tuple[str, ...]
    cwd: Path
    timeout_s: float


class Running(Protocol):
    """A program that was started."""

    def output(self) -> AsyncIterator[bytes]:
        """Yield what it prints on its standard output, until nothing of it is left that could."""
        ...

    async def ended(self) -> int:
        """Return its exit code, or -N for signal N. Raises `OSError` where it was not executed."""
        ...


class Start(Protocol):
    """Starts a program, and ends it, and all that it has started, with the block, and with the daemon."""

    def __call__(
        self, program: Program, env: Mapping[str, str], stdin: bytes
    ) -> AbstractAsyncContextManager[Running]:
        """Raises `OSError`, on entering, where it cannot be started."""
        ...


class CommandChat:
    """Implements `Chat`."""

    def __init__(self, program: Program, environment: Mapping[str, str], start: Start) -> None:
        self._program = program
        self._environment = {name: environment[name] for name in PASSED_ON if name in environment}
        self._start = start

    @property
    def name(self) -> str:
        """`command`."""
        return NAME

    async def ask(self, question: Question) -> str:
        """Return what the program prints. Raises `ModelFailed`. Cancelled, it kills the program."""
        started = self._start(self._program, self._environment, _spoken(question))
        try:
            async with started as running:
                with anyio.fail_after(self._program.timeout_s):
                    return await _answer(running)
        except TimeoutError:
            raise ModelFailed(NAME, f"did not answer within {self._program.timeout_s:g} s") from None
        except OSError as error:
            raise ModelFailed(NAME, f"cannot be started ({error.strerror})") from None


def _spoken(question: Question) -> bytes:
    messages: list[JsonObject] = [{"role": turn.role, "content": turn.text} for turn in question.turns]
    spoken: JsonObject = {
        "prompt_version": PROMPT_VERSION,
        "system": question.system,
        "messages": [*messages],
        "answer_schema": ANSWER_SCHEMA,
    }
    return dumps(spoken).encode("ascii")


async def _answer(running: Running) -> str:
    found = bytearray()
    async for chunk in running.output():
        found += chunk
        if len(found) > ANSWER_BYTES_MAX:
            raise ModelFailed(NAME, f"answered more than {ANSWER_BYTES_MAX:,} bytes")
    code = await running.ended()
    if code != 0:
        raise ModelFailed(NAME, f"exited with code {code}" if code > 0 else f"was killed by signal {-code}")
    return found.decode("utf-8", errors="replace")
