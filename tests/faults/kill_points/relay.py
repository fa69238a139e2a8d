"""What a relay of the gateway does, from one life of the daemon to the next: it asks again.

Part of `kill points`. Each call has an id of its own, under which each life is asked about it, after it was
answered, too. What was told is held against what really happened.
"""

import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream

from driver.gateway.wire import ASKED_AT, COMMAND_ID, COMMAND_PREFIX, DELIVERED, JOURNAL_ID, Greeting, line
from tests.system.agents import OPERATION_ID, OUTCOME
from tests.system.history import Json

RUN: Final = "agents"
LINE_BYTES_MAX: Final = 1_000_000
_GONE: Final = (anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)
GREETING: Final = Greeting(instance="a-relay", run_id=RUN)
HANDSHAKE: Final[Json] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "an agent", "version": "1"},
}
HAPPENED: Final[Mapping[str, tuple[int, ...]]] = {
    "succeeded": (1,),
    "failed": (0, 1),
    "unknown": (0, 1),
    "not_executed": (0,),
    "refused": (0,),
}
"""How often what an agent was told may have happened."""


@dataclass(slots=True, kw_only=True)
class Asked:
    """A call, and what became of it."""

    tool: str
    arguments: Json
    asked_at: float | None = None
    journal_id: str = ""
    told: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Each answer: which operation it was, and its outcome."""


@dataclass(slots=True)
class Relay:
    """The one of a stage."""

    calls: dict[str, Asked] = field(default_factory=dict[str, Asked])
    """By their command ids."""
    again: int = 0
    """How many questions a later life was asked again."""

    def call(self, tool: str, **arguments: object) -> None:
        """Want a call, once: the same again is the same."""
        command_id = f"{COMMAND_PREFIX}{len(self.calls):032x}"
        if not any((each.tool, each.arguments) == (tool, arguments) for each in self.calls.values()):
            self.calls[command_id] = Asked(tool=tool, arguments=arguments)

    async def ask(self, path: Path) -> None:
        """Ask for every call, those that are answered included, and return once each is answered.

        Raises ConnectionResetError where the daemon has gone.
        """
        is_gone = False
        try:
            async with _session(path) as (session, journal_id), anyio.create_task_group() as tasks:
                for command_id, asked in self.calls.items():
                    self.again += asked.asked_at is not None
                    tasks.start_soon(session.call, command_id, asked, journal_id)
        except* _GONE:
            is_gone = True
        if is_gone:
            raise ConnectionResetError(f"{path}: nobody is there any more")

    def lies(self, effects: Counter[str]) -> Iterator[str]:
        """Return what was told and is not so, or was told differently before."""
        for command_id, asked in self.calls.items():
            if len({operation_id for operation_id, _ in asked.told}) > 1:
                yield f"{command_id} is several operations: {asked.told}"
            for operation_id, outcome in asked.told:
                if effects[operation_id] not in HAPPENED.get(outcome, ()):
                    count = effects[operation_id]
                    yield f"{command_id} happened {count} times, and its agent heard {outcome}"


class _Session:
    """An opened session; answers go to whoever asked."""

    def __init__(self, stream: anyio.abc.ByteStream) -> None:
        self._stream = stream
        self._reader = BufferedByteReceiveStream(stream)
        self._answers: dict[int, Json] = {}
        self._news = anyio.Event()

    async def write(self, message: Json) -> None:
        await self._stream.send(line({"jsonrpc": "2.0", **message}))

    async def read(self) -> Json:
        found: Json = json.loads(await self._reader.receive_until(b"\n", LINE_BYTES_MAX))
        return found

    async def listen(self) -> None:
        while True:
            heard = await self.read()
            if "method" not in heard:
                self._answers[heard["id"]] = heard
                self._news.set()
                self._news = anyio.Event()

    async def request(self, number: int, method: str, params: Json) -> Json:
        await self.write({"id": number, "method": method, "params": params})
        while number not in self._answers:
            await self._news.wait()
        found: Json = self._answers[number]["result"]
        return found

    async def call(self, command_id: str, asked: Asked, journal_id: str) -> None:
        ours: Json = {COMMAND_ID: command_id}
        if asked.asked_at is not None:
            ours |= {ASKED_AT: asked.asked_at, JOURNAL_ID: asked.journal_id}
        else:
            asked.asked_at, asked.journal_id = time.time(), journal_id
        params = {"name": asked.tool, "arguments": asked.arguments, "_meta": ours}
        meta = (await self.request(int(command_id[-32:], 16) + 1, "tools/call", params))["_meta"]
        asked.told.append((meta.get(OPERATION_ID, ""), meta[OUTCOME]))
        await self.write({"method": DELIVERED, "params": {"commandId": command_id}})


@asynccontextmanager
async def _session(path: Path) -> AsyncGenerator[tuple[_Session, str]]:
    async with await anyio.connect_unix(path) as stream, anyio.create_task_group() as tasks:
        session = _Session(stream)
        await stream.send(GREETING.line())
        greeted = await session.read()
        tasks.start_soon(session.listen)
        await session.request(0, "initialize", HANDSHAKE)
        await session.write({"method": "notifications/initialized"})
        yield session, greeted["journal_id"]
        tasks.cancel_scope.cancel()
