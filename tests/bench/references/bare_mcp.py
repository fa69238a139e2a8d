"""A bare driver in front of a stdio MCP server: WebSocket in, the SDK's call, WebSocket out, and no journal.

Run as `python -m tests.bench.references.bare_mcp FOLDER URL`.
"""

import json
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup
from mcp import ClientSession, StdioServerParameters, stdio_client
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.bench.plane import SUBPROTOCOL
from tests.bench.subjects.daemon import server_argv


async def _serve(socket: ClientConnection, session: ClientSession, tasks: TaskGroup) -> None:
    seqs = count(1)

    async def call(frame: dict[str, Any]) -> None:
        provider, _, tool = frame["data"]["tool"].partition("/")
        assert provider == "bench"
        result = await session.call_tool(tool, frame["data"]["arguments"])
        receipt = {
            "type": "event",
            "seq": next(seqs),
            "kind": "operation.succeeded",
            "terminal": True,
            "command_id": frame["command_id"],
            "data": {"result": result.model_dump(mode="json", by_alias=True)},
        }
        await socket.send(json.dumps(receipt))

    await socket.send(json.dumps({"type": "hello", "acked_seq": 0}))
    with suppress(ConnectionClosed):
        async for text in socket:
            frame = json.loads(text)
            if frame["type"] == "command":
                tasks.start_soon(call, frame)


async def _main(folder: Path, url: str) -> None:
    program, *arguments = server_argv(folder)
    async with (
        stdio_client(StdioServerParameters(command=program, args=arguments)) as (reader, writer),
        ClientSession(reader, writer) as session,
        connect(url, subprotocols=[SUBPROTOCOL], compression=None, proxy=None) as socket,
        anyio.create_task_group() as tasks,
    ):
        await session.initialize()
        await session.list_tools()
        await _serve(socket, session, tasks)


if __name__ == "__main__":
    anyio.run(_main, Path(sys.argv[1]), sys.argv[2])
