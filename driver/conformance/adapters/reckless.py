"""The battery's own bad client: it forgets everything, tries everything three times, and is sure of itself.

Part of `driver.conformance.adapters`. Each try has another key; whatever is no answer is tried again, then
called `not_executed`; so is an error. A known id with other arguments is executed.
"""

import uuid

import anyio
from anyio.abc import TaskGroup

from driver.conformance.adapters.stdio import Client, Gone, ToolError
from driver.conformance.adapters.verbs import Command, Ends, Setting, Told, serve_with

TRIES = 3


class Reckless:
    """The client."""

    name = "reckless client"
    version = "1"

    def __init__(self, setting: Setting, tasks: TaskGroup) -> None:
        self._deadline_s = setting.deadline_s
        self._client = Client(setting.server, tasks)
        self._tasks = tasks
        self._ends = Ends()
        self._known: set[tuple[str, str]] = set()

    async def deliver(self, command: Command) -> str | None:
        """Begin it, unless its id is known with these arguments."""
        known = (command.command_id, str(command.arguments))
        if known not in self._known:
            self._known.add(known)
            self._ends.begin(command.command_id)
            self._tasks.start_soon(self._run, command)
        return None

    async def outcome(self, command_id: str, wait_s: float) -> Told:
        """Say how it ended."""
        return await self._ends.outcome(command_id, wait_s)

    async def _run(self, command: Command) -> None:
        told = Told(outcome="not_executed")
        for _ in range(TRIES):
            try:
                await self._client.call(command.tool, command.arguments, self._deadline_s, str(uuid.uuid4()))
            except ToolError as error:
                told = Told(outcome="not_executed", detail=repr(error))
                break
            except (Gone, TimeoutError):
                continue
            told = Told(outcome="succeeded")
            break
        self._ends.end(command.command_id, told)


if __name__ == "__main__":
    anyio.run(serve_with, Reckless)
