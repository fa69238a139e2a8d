"""The battery's own bad client: every mistake that a case is about, made on purpose.

Part of `driver.conformance.adapters`. It forgets everything with its process, and a command until its end.
Whatever is no answer is tried again, three times in all, with a key that no other attempt of the command has,
and the attempts of other commands have as well. Then it asks the search, and what that does not show was
`not_executed`; so is what the tool called an error. An answer is taken for the oldest call that waits,
whichever it is to. A known id with other arguments is executed.
"""

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import anyio
from anyio.abc import TaskGroup

from driver.conformance.adapters.stdio import Client, Gone, Json, ToolError
from driver.conformance.adapters.verbs import Command, Remembering, Setting, Told, serve_with

TRIES = 3


class InOrder(Client):
    """Takes an answer for the oldest call that waits, or for the next one: it never looks to which it is."""

    def __init__(self, argv: Sequence[str], tasks: TaskGroup) -> None:
        super().__init__(argv, tasks)
        self._spare: list[Json] = []

    def _take(self, message: Json) -> None:
        waiting = [number for number, answered in self._waiting.items() if not answered.is_set()]
        if waiting:
            self._hand(min(waiting), message)
        else:
            self._spare.append(message)

    async def _send(self, message: Json) -> None:
        await super()._send(message)
        if self._spare and "id" in message:
            self._take(self._spare.pop(0))


class Reckless(Remembering):
    """The client."""

    name = "reckless client"
    version = "2"
    parts: Mapping[str, str] = MappingProxyType({})

    def __init__(self, setting: Setting, tasks: TaskGroup) -> None:
        super().__init__(tasks)
        self._setting = setting
        self._client = InOrder(setting.server, tasks)
        self._ended: set[tuple[str, str]] = set()

    async def deliver(self, command: Command) -> str | None:
        """Begin it, unless one with its id and its arguments has ended."""
        if (command.command_id, str(command.arguments)) not in self._ended:
            self._ends.begin(command.command_id)
            self._tasks.start_soon(self._run, command)
        return None

    async def _run(self, command: Command) -> None:
        told = await self._tried(command)
        self._ended.add((command.command_id, str(command.arguments)))
        self._ends.end(command.command_id, told)

    async def _tried(self, command: Command) -> Told:
        call, deadline_s = self._client.call, self._setting.deadline_s
        for attempt in range(TRIES):
            try:
                await call(command.tool, command.arguments, deadline_s, f"{os.getpid()}-{attempt}")
            except ToolError as error:
                return Told(outcome="not_executed", detail=repr(error))
            except (Gone, TimeoutError):
                continue
            return Told(outcome="succeeded")
        try:
            found = await call(self._setting.tools[command.tool]["search"], command.arguments, deadline_s)
        except (Gone, ToolError, TimeoutError) as error:
            return Told(outcome="not_executed", detail=repr(error))
        return Told(outcome="succeeded" if found["structuredContent"]["count"] else "not_executed")


if __name__ == "__main__":
    anyio.run(serve_with, Reckless)
