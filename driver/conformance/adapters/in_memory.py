"""What most agent drivers are: a map of command ids in memory, a deadline, and what the tool said.

Part of `driver.conformance.adapters`. Nothing is written down, and nothing is tried again. An answer is
`succeeded`, an answer that is an error `failed`; a timeout and a lost server are `failed` as well, which is
what the exception says that a caller gets. A known id is the same command, whatever its arguments.
"""

from collections.abc import Mapping
from types import MappingProxyType

import anyio
from anyio.abc import TaskGroup

from driver.conformance.adapters.stdio import Client, Gone, ToolError
from driver.conformance.adapters.verbs import Command, Ends, Setting, Told, serve_with


class InMemory:
    """The driver."""

    name = "in-memory driver"
    version = "1"
    parts: Mapping[str, str] = MappingProxyType({})

    def __init__(self, setting: Setting, tasks: TaskGroup) -> None:
        self._deadline_s = setting.deadline_s
        self._client = Client(setting.server, tasks)
        self._tasks = tasks
        self._ends = Ends()

    async def deliver(self, command: Command) -> str | None:
        """Begin it, unless its id is known."""
        if command.command_id not in self._ends:
            self._ends.begin(command.command_id)
            self._tasks.start_soon(self._run, command)
        return None

    async def outcome(self, command_id: str, wait_s: float) -> Told:
        """Say how it ended."""
        return await self._ends.outcome(command_id, wait_s)

    async def _run(self, command: Command) -> None:
        try:
            await self._client.call(command.tool, command.arguments, self._deadline_s)
        except (Gone, ToolError, TimeoutError) as error:
            self._ends.end(command.command_id, Told(outcome="failed", detail=repr(error)))
        else:
            self._ends.end(command.command_id, Told(outcome="succeeded"))


if __name__ == "__main__":
    anyio.run(serve_with, InMemory)
