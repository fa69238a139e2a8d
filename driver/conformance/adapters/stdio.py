"""The smallest MCP client over stdio: one server, started when it is needed, and calls with a deadline.

Part of `driver.conformance.adapters`: for the battery's own clients and the driver that remembers in memory.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
from anyio.abc import Process, TaskGroup
from anyio.streams.buffered import BufferedByteReceiveStream

KEY_NAME = "dev.effectd/idempotency-key"
LINE_MAX = 1_048_576
Json = dict[str, Any]


class Gone(Exception):
    """The server ended, or never answered: nobody knows what it did."""


class ToolError(Exception):
    """The server answered that the call failed."""


class Client:
    """One server. Its calls may run side by side."""

    def __init__(self, argv: Sequence[str], tasks: TaskGroup) -> None:
        self._argv = argv
        self._tasks = tasks
        self._ids = itertools.count(1)
        self._process: Process | None = None
        self._answers: dict[int, Json] = {}
        self._waiting: dict[int, anyio.Event] = {}
        self._starting = anyio.Lock()

    async def call(
        self, tool: str, arguments: Mapping[str, str], deadline_s: float, key: str | None = None
    ) -> Json:
        """Return a call's result. Raises `Gone`, `ToolError`, and `TimeoutError` at its deadline."""
        await self._connect()
        params: Json = {"name": tool, "arguments": dict(arguments)}
        if key is not None:
            params["_meta"] = {KEY_NAME: key}
        with anyio.fail_after(deadline_s):
            result = await self._request("tools/call", params)
        if result.get("isError"):
            raise ToolError(json.dumps(result))
        return result

    async def _connect(self) -> None:
        async with self._starting:
            if self._process is not None and self._process.returncode is None:
                return
            self._process = await anyio.open_process(self._argv, stderr=None)
            self._tasks.start_soon(self._read, self._process)
            hello: Json = {"name": "conformance", "version": "1"}
            await self._request(
                "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": hello}
            )
            await self._send({"method": "notifications/initialized"})

    async def _request(self, method: str, params: Json) -> Json:
        number = next(self._ids)
        event = self._waiting[number] = anyio.Event()
        try:
            await self._send({"id": number, "method": method, "params": params})
            await event.wait()
        finally:
            del self._waiting[number]
        answer = self._answers.pop(number, None)
        if answer is None:
            raise Gone
        if "error" in answer:
            raise ToolError(json.dumps(answer["error"]))
        result: Json = answer["result"]
        return result

    async def _send(self, message: Json) -> None:
        assert self._process is not None, "connected first"
        assert self._process.stdin is not None, "its input is a pipe"
        try:
            await self._process.stdin.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise Gone from error

    def _take(self, message: Json) -> None:
        """Give a message to the call that it answers; the second answer to a call is nobody's."""
        if message.get("id") in self._waiting:
            self._hand(message["id"], message)

    def _hand(self, number: int, message: Json) -> None:
        self._answers[number] = message
        self._waiting[number].set()

    async def _read(self, process: Process) -> None:
        assert process.stdout is not None, "its output is a pipe"
        lines = BufferedByteReceiveStream(process.stdout)
        try:
            while True:
                self._take(json.loads(await lines.receive_until(b"\n", LINE_MAX)))
        except (
            anyio.EndOfStream,
            anyio.IncompleteRead,
            anyio.BrokenResourceError,
            anyio.ClosedResourceError,
        ):
            await process.wait()
            for event in self._waiting.values():
                event.set()
