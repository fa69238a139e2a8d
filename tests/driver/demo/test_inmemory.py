"""The in-memory driver of the demo is an honest one: it fails for want of a memory, not for want of care."""

import json
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketStream
from mcp import Client
from mcp.server.mcpserver import MCPServer

from driver.demo.inmemory import EXIT_UNDELIVERED, RECEIPT_TRIES, InMemoryDriver

COMMAND: dict[str, object] = {"command_id": "cmd-1", "tool": "count", "arguments": {}}


@pytest.mark.anyio
async def test_a_living_driver_runs_a_redelivered_command_once(tmp_path: Path) -> None:
    """The plane gives the same command twice to one process: its memory is enough for that."""
    socket = str(tmp_path / "plane.sock")
    server, executed = _server()
    receipts: list[str] = []

    async def plane(stream: SocketStream) -> None:
        async with stream:
            message = json.loads(await stream.receive())
            if "ready" in message:
                await stream.send(json.dumps(COMMAND).encode() + b"\n")
                return
            receipts.append(message["text"])
            await stream.send(b'{"ack": "cmd-1"}\n')
            if len(receipts) == 2:
                tasks.cancel_scope.cancel()

    async with (
        Client(server) as client,
        await anyio.create_unix_listener(socket) as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, plane)
        await InMemoryDriver(socket, client).run()
    assert executed == [1]
    assert receipts == ["effect 1", "effect 1"]


@pytest.mark.anyio
async def test_a_receipt_that_is_lost_three_times_ends_the_driver(tmp_path: Path) -> None:
    """It says that it could not deliver, with its exit code, and swallows nothing."""
    socket = str(tmp_path / "plane.sock")
    server, executed = _server()
    lost: list[bytes] = []
    codes: list[int] = []

    async def plane(stream: SocketStream) -> None:
        async with stream:
            message = await stream.receive()
            if b"ready" in message:
                await stream.send(json.dumps(COMMAND).encode() + b"\n")
            else:
                lost.append(message)

    async with (
        Client(server) as client,
        await anyio.create_unix_listener(socket) as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, plane)
        codes.append(await InMemoryDriver(socket, client).run())
        tasks.cancel_scope.cancel()
    assert codes == [EXIT_UNDELIVERED]
    assert len(lost) == RECEIPT_TRIES
    assert executed == [1]


def _server() -> tuple[MCPServer, list[int]]:
    """A server in this process, and what it did."""
    executed: list[int] = []
    server = MCPServer("counter")

    @server.tool(structured_output=False)
    def count() -> str:
        executed.append(len(executed) + 1)
        return f"effect {len(executed)}"

    return server, executed
