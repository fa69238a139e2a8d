"""The subject's process: started, asked by its three verbs, killed, and started again on the same state.

Part of `driver.conformance`. An adapter is a program that reads one JSON object a line from standard input,
and writes one line for each to standard output; its standard error is free.

start    {"verb": "start", "state": FOLDER, "deadline_s": 2.0, "server": {"argv": […]},
          "tools": {"charge": {"effect": "write", "idempotent": false, "search": "find_charge"}, …}}
         → {"runtime": NAME, "version": VERSION, "parts": {NAME: VERSION, …}}
         FOLDER is the subject's own, and the same after a kill. The server speaks MCP over stdio. `search` is
         the read that shows how many effects there are of the same arguments. `parts` may be left out: what
         else the runtime is made of.
deliver  {"verb": "deliver", "command_id": ID, "run_id": RUN, "tool": NAME, "arguments": {…}}
         → {"accepted": true}, or {"accepted": false, "reason": …}
         answered when the runtime has taken the command, and before its end.
outcome  {"verb": "outcome", "command_id": ID, "wait_s": SECONDS}
         → {"outcome": one of verdict.Outcome, "detail": TEXT or null}
         answered at its end, or `running` after `wait_s`.

The process and all that stay in its session are killed together, with SIGKILL.
"""

import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from pydantic import TypeAdapter, ValidationError

from driver.conformance import world
from driver.conformance.errors import AdapterEnded, AdapterGarbled, AdapterSilent
from driver.conformance.verdict import Outcome

START_S: Final = 60.0
"""For the answer to `start`: a runtime may take its time, and a machine be busy."""
PATIENCE_S: Final = 30.0
"""For any other answer, beyond what the verb itself waits for."""
WORLD: Final = str(Path(world.__file__).resolve())
LINE_MAX: Final = 1_048_576
TAIL_MAX: Final = 2_000
"""Bytes of its standard error, for the error that may need them."""
DEADLINE_S: Final = 2.0
"""That every call is given: under `world.LATE_S`."""

TOOLS: Final[Mapping[str, Mapping[str, object]]] = {
    "charge": {"effect": "write", "idempotent": False, "search": world.SEARCH},
    "charge_once": {"effect": "write", "idempotent": True, "search": world.SEARCH},
    world.SEARCH: {"effect": "read", "idempotent": True},
}
"""What the subject is told of the world's tools; it does with it what it can."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What runs behind the adapter."""

    runtime: str
    version: str
    parts: dict[str, str] = field(default_factory=dict[str, str])
    """What it is made of, with versions."""


_ABOUT: Final = TypeAdapter(About)


@dataclass(slots=True, kw_only=True)
class Subject:
    """A running adapter. Made by `subject`."""

    process: Process
    about: About = About(runtime="unknown", version="unknown")
    _lines: BufferedByteReceiveStream
    _said: IO[bytes]
    _asking: anyio.Lock = field(default_factory=anyio.Lock)

    async def start(self, state: Path, folder: Path) -> None:
        """Have the runtime started on its own folder `state`, with the world in `folder` as its tool."""
        argv = [sys.executable, "-I", "-S", WORLD, str(folder)]
        asked = {"state": str(state), "deadline_s": DEADLINE_S, "server": {"argv": argv}, "tools": TOOLS}
        said = await self._ask("start", asked, START_S)
        self.about = _about(said)

    @property
    def lives(self) -> bool:
        """Whether its process has not ended."""
        return self.process.returncode is None

    async def deliver(self, command_id: str, item: str, tool: str = "charge", run_id: str = "run-1") -> bool:
        """Give a command, and return whether it was taken."""
        asked = {"command_id": command_id, "run_id": run_id, "tool": tool, "arguments": {"item": item}}
        said = await self._ask("deliver", asked, PATIENCE_S)
        accepted = said.get("accepted")
        if not isinstance(accepted, bool):
            raise AdapterGarbled("deliver", json.dumps(said), "`accepted` is neither true nor false")
        return accepted

    async def outcome(self, command_id: str, seconds: float) -> Outcome:
        """Return what a caller is told of a command, at its end or after `seconds`."""
        asked = {"command_id": command_id, "wait_s": seconds}
        said = await self._ask("outcome", asked, seconds + PATIENCE_S)
        try:
            return Outcome(str(said.get("outcome")))
        except ValueError:
            known = ", ".join(Outcome)
            raise AdapterGarbled("outcome", json.dumps(said), f"`outcome` is none of {known}") from None

    async def kill(self) -> None:
        """Kill the process, and whatever stayed in its session, with SIGKILL; returns when it is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()

    async def _ask(self, verb: str, asked: Mapping[str, object], seconds: float) -> Json:
        assert self.process.stdin is not None, "its input is a pipe"
        line = b""
        async with self._asking:
            try:
                with anyio.fail_after(seconds):
                    await self.process.stdin.send(json.dumps({"verb": verb, **asked}).encode() + b"\n")
                    line = await self._lines.receive_until(b"\n", LINE_MAX)
            except TimeoutError:
                raise AdapterSilent(verb, seconds, self._tail()) from None
            except (
                anyio.EndOfStream,
                anyio.IncompleteRead,
                anyio.BrokenResourceError,
                anyio.ClosedResourceError,
            ):
                raise AdapterEnded(verb, self.process.returncode, self._tail()) from None
        return _answer(verb, line)

    def _tail(self) -> str:
        """Return the end of its standard error."""
        size = self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, size - TAIL_MAX))
        return self._said.read().decode(errors="replace").strip()


def _about(said: Json) -> About:
    try:
        return _ABOUT.validate_python(said)
    except ValidationError as error:
        raise AdapterGarbled("start", json.dumps(said), f"it does not say what it is: {error}") from None


def _answer(verb: str, line: bytes) -> Json:
    text = line.decode(errors="replace")
    try:
        said = json.loads(text)
    except ValueError as error:
        raise AdapterGarbled(verb, text, f"standard output is for answers alone: {error}") from None
    if not isinstance(said, dict):
        raise AdapterGarbled(verb, text, "it is no JSON object")
    if "error" in said:
        raise AdapterGarbled(verb, text, "the adapter says that it failed")
    return said  # pyright: ignore[reportUnknownVariableType] - JSON's objects have string keys


@asynccontextmanager
async def subject(argv: Sequence[str]) -> AsyncGenerator[Subject]:
    """Start an adapter in a session of its own, yield it, and kill what is left of it."""
    with tempfile.TemporaryFile() as said:
        process = await anyio.open_process(argv, stderr=said, start_new_session=True)
        assert process.stdout is not None, "its output is a pipe"
        made = Subject(process=process, _lines=BufferedByteReceiveStream(process.stdout), _said=said)
        try:
            yield made
        finally:
            with anyio.CancelScope(shield=True):
                await made.kill()
                await process.aclose()
