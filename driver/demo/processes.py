"""The processes of the demo: started as a person would start them, ended for certain.

Part of `driver.demo`; imports its errors. Each has a session of its own, so that Ctrl-C at the terminal
reaches the demo alone, and the demo ends the others in order.
"""

import contextlib
import os
import subprocess
from collections import deque
from collections.abc import AsyncGenerator, Callable, Container, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from driver.demo.errors import ProcessEnded, TooSlow

PATIENCE_S: Final = 60.0
"""How long one step may take: many times what it takes, for a machine that does other things as well."""
STOP_S: Final = 5.0
"""How long a process has between SIGTERM and SIGKILL."""
SILENCE_S: Final = 2.0
"""How long its last lines may take after its end."""
TAIL_LINES: Final = 20
"""What is kept of a process's output, to be shown where the story breaks."""
COLUMNS: Final = 160
"""The width that the commands shown are told to write for."""

Heard = Callable[[str], None]


def _unheard(line: str) -> None:
    """Nobody wants the lines as they come."""
    del line


@dataclass(slots=True, kw_only=True)
class Player:
    """A running process, and its name in the story. Made by `player`."""

    name: str
    process: Process
    heard: Heard
    lines: deque[str] = field(default_factory=lambda: deque[str](maxlen=TAIL_LINES))
    silent: anyio.Event = field(default_factory=anyio.Event)
    """Set once it has written its last line."""

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def tail(self) -> str:
        """The end of what it wrote."""
        return "\n".join(self.lines)

    async def listen(self) -> None:
        """Take its output, line by line, to the end."""
        assert self.process.stdout is not None, "its output is a pipe"
        rest = ""
        async for text in TextReceiveStream(self.process.stdout, errors="replace"):
            *lines, rest = (rest + text).split("\n")
            for line in lines:
                self.lines.append(line)
                self.heard(line)
        self.silent.set()

    async def ended(self) -> int:
        """Return its exit code once it has ended, minus the signal where one ended it. Raises `TooSlow`."""
        with anyio.move_on_after(PATIENCE_S):
            code = await self.process.wait()
            with anyio.move_on_after(SILENCE_S):  # an orphan of it may hold the pipe open
                await self.silent.wait()
            return code
        raise TooSlow(self.name, "ended", PATIENCE_S, self.tail)

    async def until(self, event: anyio.Event, what: str) -> None:
        """Return once `event` is set. Raises `ProcessEnded` where the process ends first, and `TooSlow`."""
        code: int | None = None
        with anyio.move_on_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:

                async def watch() -> None:
                    nonlocal code
                    code = await self.ended()
                    tasks.cancel_scope.cancel()

                tasks.start_soon(watch)
                await event.wait()
                tasks.cancel_scope.cancel()
        if event.is_set():
            return
        raise TooSlow(self.name, what, PATIENCE_S, self.tail) if code is None else self.premature(code)

    def premature(self, code: int) -> ProcessEnded:
        """Return the error of a process that ended when, or as, it should not have."""
        return ProcessEnded(self.name, code, self.tail)

    async def stop(self) -> int:
        """Ask it to stop, and make sure that it does. Returns its exit code."""
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        with anyio.move_on_after(STOP_S):
            return await self.process.wait()
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        return await self.process.wait()


@asynccontextmanager
async def player(
    name: str, command: Sequence[str], *, heard: Heard = _unheard, env: Mapping[str, str] | None = None
) -> AsyncGenerator[Player]:
    """Start `command`, yield it, and stop it, whatever happened meanwhile. `heard` gets each of its lines."""
    process = await anyio.open_process(
        command,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        env={**os.environ, **(env or {})},
        start_new_session=True,
    )
    made = Player(name=name, process=process, heard=heard)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.listen)
        try:
            yield made
        finally:
            with anyio.CancelScope(shield=True):
                await made.stop()
            tasks.cancel_scope.cancel()
    await process.aclose()


async def answer(command: Sequence[str], *, good: Container[int] = (0,)) -> str:
    """Run a short command to its end, and return what it printed.

    Raises `ProcessEnded` where its exit code is none of `good`. Cancelled, it ends the command.
    """
    lines: list[str] = []
    async with player(
        f"'{' '.join(command)}'", command, heard=lines.append, env={"COLUMNS": str(COLUMNS)}
    ) as running:
        code = await running.ended()
    if code not in good:
        raise running.premature(code)
    return "\n".join(lines)
