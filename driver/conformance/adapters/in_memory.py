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
from driver.conformance.adapters.verbs import ById, Command, Setting, Told, serve_with


class InMemory(ById):
    """The driver."""

    name = "in-memory driver"
    version = "1"
    parts: Mapping[str, str] = MappingProxyType({})

    def __init__(self, setting: Setting, tasks: TaskGroup) -> None:
        super().__init__(tasks)
        self._deadline_s = setting.deadline_s
        self._client = Client(setting.server, tasks)

    async def _told(self, command: Command) -> Told:
        try:
            await self._client.call(command.tool, command.arguments, self._deadline_s)
        except (Gone, ToolError, TimeoutError) as error:
            return Told(outcome="failed", detail=repr(error))
        return Told(outcome="succeeded")


if __name__ == "__main__":
    anyio.run(serve_with, InMemory)
