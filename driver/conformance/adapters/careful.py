"""The battery's own good client: it writes down what it is about to do, and says when it does not know.

Part of `driver.conformance.adapters`. One file for each command, fsynced before the call and after its end.
What a kill left without an end is `unknown`, and so is every silence; only a tool that deduplicates is tried
again, once, with the same key. A known id with other arguments is refused.
"""

import json
import os
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup

from driver.conformance.adapters.stdio import Client, Gone, ToolError
from driver.conformance.adapters.verbs import Command, Ends, Setting, Told, serve_with

Json = dict[str, Any]


class Careful:
    """The client."""

    name = "careful client"
    version = "1"

    def __init__(self, setting: Setting, tasks: TaskGroup) -> None:
        self._setting = setting
        self._client = Client(setting.server, tasks)
        self._tasks = tasks
        self._ends = Ends()
        for path in setting.state.glob("*.json"):
            record: Json = json.loads(path.read_text())
            self._ends.end(path.stem, Told(outcome=record["outcome"] or "unknown"))

    async def deliver(self, command: Command) -> str | None:
        """Write it down, then begin it; one that is known is the same, or is refused."""
        path = self._path(command.command_id)
        asked: Json = {"tool": command.tool, "arguments": dict(command.arguments)}
        if path.exists():
            known: Json = json.loads(path.read_text())
            return None if known["asked"] == asked else "conflict"
        _write(path, {"asked": asked, "outcome": None})
        self._ends.begin(command.command_id)
        self._tasks.start_soon(self._run, command, asked)
        return None

    async def outcome(self, command_id: str, wait_s: float) -> Told:
        """Say how it ended."""
        return await self._ends.outcome(command_id, wait_s)

    async def _run(self, command: Command, asked: Json) -> None:
        told = await self._tried(command)
        if told.outcome == "unknown" and self._setting.tools[command.tool]["idempotent"]:
            told = await self._tried(command)
        _write(self._path(command.command_id), {"asked": asked, "outcome": told.outcome})
        self._ends.end(command.command_id, told)

    async def _tried(self, command: Command) -> Told:
        try:
            await self._client.call(
                command.tool, command.arguments, self._setting.deadline_s, key=command.command_id
            )
        except ToolError as error:
            return Told(outcome="failed", detail=str(error))
        except (Gone, TimeoutError) as error:
            return Told(outcome="unknown", detail=repr(error))
        return Told(outcome="succeeded")

    def _path(self, command_id: str) -> Path:
        return self._setting.state / f"{command_id}.json"


def _write(path: Path, record: Json) -> None:
    """Replace a file; on the disk, and its name too, when this returns."""
    draft = path.with_suffix(".new")
    with draft.open("w") as file:
        json.dump(record, file)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


if __name__ == "__main__":
    anyio.run(serve_with, Careful)
