"""The adapter's side of the three verbs: what a program needs to be one.

Part of `driver.conformance.adapters`; imports nothing of ours.
"""

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a runtime is started with."""

    state: Path
    """Its own folder; the same after a kill."""
    deadline_s: float
    """For each call."""
    server: tuple[str, ...]
    """The command of the MCP server."""
    tools: Mapping[str, Mapping[str, Any]]
    """By name: `effect` ("read" or "write"), `idempotent`, whether it deduplicates by key, and of a write
    `search`, the read that shows how many effects there are of the same arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What a caller wants done."""

    command_id: str
    run_id: str
    tool: str
    arguments: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a caller is told."""

    outcome: str
    detail: str | None = None


class Runtime(Protocol):
    """A runtime behind an adapter."""

    name: str
    version: str
    parts: Mapping[str, str]
    """What else it is made of, with versions."""

    async def deliver(self, command: Command) -> str | None:
        """Take a command; return None, or why it is not taken."""
        ...

    async def outcome(self, command_id: str, wait_s: float) -> Told:
        """Return what is known at its end, or after `wait_s`."""
        ...


Start = Callable[[Setting], Awaitable[Runtime]]


async def serve(start: Start) -> None:
    """Answer the battery's lines until they end."""
    runtime: Runtime | None = None
    while line := await to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
        asked: Json = json.loads(line)
        if asked["verb"] == "start":
            runtime = await start(_setting(asked))
            _say({"runtime": runtime.name, "version": runtime.version, "parts": dict(runtime.parts)})
            continue
        assert runtime is not None, "the battery starts before it asks"
        if asked["verb"] == "deliver":
            command = Command(
                command_id=asked["command_id"],
                run_id=asked["run_id"],
                tool=asked["tool"],
                arguments=asked["arguments"],
            )
            refused = await runtime.deliver(command)
            _say({"accepted": refused is None, "reason": refused})
        else:
            told = await runtime.outcome(asked["command_id"], asked["wait_s"])
            _say({"outcome": told.outcome, "detail": told.detail})


async def serve_with(make: Callable[[Setting, TaskGroup], Runtime]) -> None:
    """Answer the battery's lines until they end, for a runtime whose calls run in tasks of this process."""
    async with anyio.create_task_group() as tasks:

        async def start(setting: Setting) -> Runtime:
            return make(setting, tasks)

        await serve(start)
        tasks.cancel_scope.cancel()


def _setting(asked: Json) -> Setting:
    return Setting(
        state=Path(asked["state"]),
        deadline_s=asked["deadline_s"],
        server=tuple(asked["server"]["argv"]),
        tools=asked["tools"],
    )


def _say(answer: Json) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


class Ends:
    """The commands that a runtime has in its memory, and how each ended."""

    def __init__(self) -> None:
        self._told: dict[str, Told] = {}
        self._ended: dict[str, anyio.Event] = {}

    def begin(self, command_id: str) -> None:
        """A command is under way."""
        self._ended[command_id] = anyio.Event()

    def end(self, command_id: str, told: Told) -> None:
        """A command has ended."""
        self._told[command_id] = told
        self._ended.setdefault(command_id, anyio.Event()).set()

    def __contains__(self, command_id: str) -> bool:
        return command_id in self._ended

    async def outcome(self, command_id: str, wait_s: float) -> Told:
        """Return how it ended, as soon as it has."""
        if command_id not in self._ended:
            return Told(outcome="unheard")
        with anyio.move_on_after(wait_s):
            await self._ended[command_id].wait()
        return self._told.get(command_id, Told(outcome="running"))


class Remembering:
    """A runtime that has its commands in its memory, each under its id."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._ends = Ends()

    async def outcome(self, command_id: str, wait_s: float) -> Told:
        """Say how it ended."""
        return await self._ends.outcome(command_id, wait_s)


class ById(Remembering, ABC):
    """One that knows a command by its id alone, whatever its arguments."""

    async def deliver(self, command: Command) -> str | None:
        """Begin it, unless its id is known."""
        if command.command_id not in self._ends:
            self._ends.begin(command.command_id)
            self._tasks.start_soon(self._run, command)
        return None

    async def _run(self, command: Command) -> None:
        self._ends.end(command.command_id, await self._told(command))

    @abstractmethod
    async def _told(self, command: Command) -> Told:
        """Carry it out; return how it ended."""
