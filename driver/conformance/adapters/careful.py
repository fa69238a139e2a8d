"""The battery's own good client: it writes down what it is about to do, and says when it does not know.

Part of `driver.conformance.adapters`. One file for each command, fsynced before the call and after its end.
After silence, a tool that deduplicates is tried again, once, with the same key; of any other the search is
asked, and where that does not show the effect, the end is `unknown`. What a kill left without an end is dealt
with in the same way. A known id with other arguments is refused.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import anyio
from anyio.abc import TaskGroup

from driver.conformance.adapters.stdio import Client, Gone, ToolError
from driver.conformance.adapters.verbs import Command, Remembering, Setting, Told, serve_with

Json = dict[str, Any]


class Careful(Remembering):
    """The client."""

    name = "careful client"
    version = "2"
    parts: Mapping[str, str] = MappingProxyType({})

    def __init__(self, setting: Setting, tasks: TaskGroup) -> None:
        super().__init__(tasks)
        self._setting = setting
        self._client = Client(setting.server, tasks)
        for path in setting.state.glob("*.json"):
            record: Json = json.loads(path.read_text())
            if record["outcome"] is not None:
                self._ends.end(path.stem, Told(outcome=record["outcome"]))
            else:
                self._ends.begin(path.stem)
                tasks.start_soon(self._after_silence, path.stem, record["asked"])

    async def deliver(self, command: Command) -> str | None:
        """Write it down, then begin it; one that is known is the same, or is refused."""
        path = self._path(command.command_id)
        asked: Json = {"tool": command.tool, "arguments": dict(command.arguments)}
        if path.exists():
            known: Json = json.loads(path.read_text())
            return None if known["asked"] == asked else "conflict"
        _write(path, {"asked": asked, "outcome": None})
        self._ends.begin(command.command_id)
        self._tasks.start_soon(self._run, command.command_id, asked)
        return None

    async def _run(self, command_id: str, asked: Json) -> None:
        told = await self._tried(command_id, asked)
        if told.outcome == "unknown":
            await self._after_silence(command_id, asked)
        else:
            self._end(command_id, asked, told)

    async def _after_silence(self, command_id: str, asked: Json) -> None:
        """Find out what became of a call that nobody answered, as far as anybody can."""
        if self._setting.tools[asked["tool"]]["idempotent"]:
            self._end(command_id, asked, await self._tried(command_id, asked))
        else:
            self._end(command_id, asked, await self._searched(asked))

    async def _tried(self, command_id: str, asked: Json) -> Told:
        try:
            await self._client.call(
                asked["tool"], asked["arguments"], self._setting.deadline_s, key=command_id
            )
        except ToolError as error:
            return Told(outcome="failed", detail=str(error))
        except (Gone, TimeoutError) as error:
            return Told(outcome="unknown", detail=repr(error))
        return Told(outcome="succeeded")

    async def _searched(self, asked: Json) -> Told:
        search: str = self._setting.tools[asked["tool"]]["search"]
        try:
            found = await self._client.call(search, asked["arguments"], self._setting.deadline_s)
        except (Gone, ToolError, TimeoutError) as error:
            return Told(outcome="unknown", detail=repr(error))
        return Told(outcome="succeeded" if found["structuredContent"]["count"] else "unknown")

    def _end(self, command_id: str, asked: Json, told: Told) -> None:
        _write(self._path(command_id), {"asked": asked, "outcome": told.outcome})
        self._ends.end(command_id, told)

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
