"""The old way, as a program of its own: a driver that remembers in memory what it has done.

Part of `driver.demo`; imports only anyio and the MCP SDK, as such drivers do. Run as
`python -m driver.demo.inmemory SOCKET PROGRAM [ARGUMENT ...]`, PROGRAM being an MCP server on stdio.

It is no straw man. It knows each command that it has run, and never runs one twice while it lives; it gives
its receipt three tries; what it cannot deliver, it does not swallow: it ends with an error, and is started
again. What it lacks is a memory that survives that.

The plane speaks first, one JSON object a line: `{"command_id": …, "tool": …, "arguments": {…}}`. The driver
answers `{"command_id": …, "ok": …, "text": …}` and takes `{"ack": COMMAND_ID}` for delivered.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, cast

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp import Client, StdioServerParameters
from mcp.types import TextContent

RECEIPT_TRIES: Final = 3
LINE_BYTES_MAX: Final = 65_536
EXIT_UNDELIVERED: Final = 1
DELIVERED: Final = "receipt delivered"
"""The end of the line that tells of it."""

JsonObject: TypeAlias = dict[str, object]


class InMemoryDriver:
    """Takes commands from the plane, runs each once, and delivers what came of it."""

    def __init__(self, socket: str, server: Client) -> None:
        self._socket = socket
        self._server = server
        self._done: dict[str, JsonObject] = {}
        """Every command that was run, and its receipt. Gone with the process."""

    async def run(self) -> int:
        """Serve the plane until a receipt cannot be delivered. Returns the exit code."""
        while True:
            command = await self._next_command()
            receipt = await self._once(command)
            if not await self._deliver(receipt):
                say(f"{receipt['command_id']}: no receipt delivered; giving up")
                return EXIT_UNDELIVERED

    async def _next_command(self) -> JsonObject:
        async with await anyio.connect_unix(self._socket) as plane:
            await plane.send(b'{"ready": true}\n')
            return await _receive(BufferedByteReceiveStream(plane))

    async def _once(self, command: Mapping[str, object]) -> JsonObject:
        """Run a command that is not known yet, and return its receipt; a known one's is kept."""
        command_id = str(command["command_id"])
        if command_id in self._done:
            say(f"{command_id}: known already, not run again")
            return self._done[command_id]
        arguments = cast("JsonObject", command["arguments"])
        answer = await self._server.call_tool(str(command["tool"]), arguments)
        text = " ".join(part.text for part in answer.content if isinstance(part, TextContent))
        say(f"{command_id}: ran it: {text}")
        self._done[command_id] = {"command_id": command_id, "ok": not answer.is_error, "text": text}
        return self._done[command_id]

    async def _deliver(self, receipt: JsonObject) -> bool:
        command_id = str(receipt["command_id"])
        for attempt in range(1, RECEIPT_TRIES + 1):
            try:
                async with await anyio.connect_unix(self._socket) as plane:
                    await plane.send(json.dumps(receipt).encode() + b"\n")
                    acknowledged = await _receive(BufferedByteReceiveStream(plane))
            except (OSError, anyio.BrokenResourceError, anyio.EndOfStream, anyio.IncompleteRead):
                say(f"{command_id}: receipt, try {attempt} of {RECEIPT_TRIES}: the connection broke")
            else:
                say(f"{command_id}: {DELIVERED}")
                return acknowledged["ack"] == command_id
        return False


def say(line: str) -> None:
    """Tell whoever started this process, one line at a time."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def _receive(stream: BufferedByteReceiveStream) -> JsonObject:
    found: JsonObject = json.loads(await stream.receive_until(b"\n", LINE_BYTES_MAX))
    return found


async def main(arguments: Sequence[str]) -> int:
    """Run the driver. Returns the exit code."""
    socket, program, *rest = arguments
    async with Client(StdioServerParameters(command=program, args=rest)) as server:
        return await InMemoryDriver(socket, server).run()


if __name__ == "__main__":
    sys.exit(anyio.run(main, sys.argv[1:]))
