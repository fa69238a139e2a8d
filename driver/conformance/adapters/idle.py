"""The battery's own idle client: it takes every command, does nothing, and says that nobody knows.

Part of `driver.conformance.adapters`. Who does nothing does no harm, and must not pass for that.
"""

from collections.abc import Mapping
from types import MappingProxyType

import anyio
from anyio.abc import TaskGroup

from driver.conformance.adapters.verbs import Command, Setting, Told, serve_with


class Idle:
    """The client."""

    name = "idle client"
    version = "1"
    parts: Mapping[str, str] = MappingProxyType({})

    def __init__(self, setting: Setting, tasks: TaskGroup) -> None:
        del setting, tasks

    async def deliver(self, command: Command) -> str | None:
        """Take it, and forget it."""
        del command
        return None

    async def outcome(self, command_id: str, wait_s: float) -> Told:
        """Say that nobody knows."""
        del command_id, wait_s
        return Told(outcome="unknown")


if __name__ == "__main__":
    anyio.run(serve_with, Idle)
