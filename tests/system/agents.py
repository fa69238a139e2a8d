"""Agents of the gateway's tests: the SDK's own client, over `effectd mcp` or HTTP, in either era."""

import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from tests.system.sandbox import Sandbox

Era = Literal["legacy", "auto"]
ERAS: Final[tuple[Era, Era]] = ("legacy", "auto")
"""How a client begins: with the handshake of the older era, or by asking for the newer one."""
EFFECTD: Final = str(Path(sys.executable).parent / "effectd")
OPERATION_ID: Final = "dev.effectd/operation-id"
OUTCOME: Final = "dev.effectd/outcome"
REPLAYED: Final = "dev.effectd/replayed"
CODE: Final = "dev.effectd/code"


@dataclass(frozen=True, slots=True)
class Told:
    """What an agent was told by one call."""

    result: CallToolResult

    @property
    def text(self) -> str:
        """All of its text."""
        return "\n".join(part.text for part in self.result.content if isinstance(part, TextContent))

    @property
    def meta(self) -> Mapping[str, Any]:
        """Its `_meta`."""
        return self.result.meta or {}

    @property
    def content(self) -> Mapping[str, Any]:
        """Its structured content."""
        found: Mapping[str, Any] = self.result.structured_content
        return found

    @property
    def outcome(self) -> str:
        """Our word for it."""
        return str(self.meta[OUTCOME])

    @property
    def operation_id(self) -> str:
        """The operation that it names."""
        return str(self.meta[OPERATION_ID])


@dataclass(frozen=True, slots=True)
class Agent:
    """A client that is connected."""

    client: Client

    async def call(self, tool: str, **arguments: Any) -> Told:  # noqa: ANN401 - JSON
        """Return what a call is answered with."""
        return Told(await self.client.call_tool(tool, arguments))

    async def tools(self) -> list[str]:
        """Return the names of all tools."""
        return [tool.name for tool in (await self.client.list_tools()).tools]


def command(made: Sandbox, run: str | None, *arguments: str) -> list[str]:
    """Return the command line of a relay."""
    named = [] if run is None else ["--run", run]
    return [EFFECTD, "mcp", "--config", str(made.config), *named, *arguments]


@asynccontextmanager
async def agent(
    made: Sandbox,
    run: str | None = "run-1",
    *arguments: str,
    era: Era = "legacy",
    program: tuple[str, ...] = (),
    **options: Any,  # noqa: ANN401 - of the SDK's client
) -> AsyncGenerator[Agent]:
    """Connect an agent over stdio. `program` stands for `effectd mcp`, where another one is to be tried."""
    first, *rest = command(made, run, *arguments)
    if program:
        first, *rest = [*program, *rest[1:]]
    # what a relay says on its standard error is for people
    with open(os.devnull, "w") as nowhere:  # noqa: ASYNC230, PTH123 - nothing is read from it
        server = stdio_client(StdioServerParameters(command=first, args=rest), errlog=nowhere)
        async with Client(server, mode=era, **options) as client:
            yield Agent(client)


@asynccontextmanager
async def http_agent(
    port: int,
    token: str,
    *,
    era: Era = "legacy",
    message_handler: Any = None,  # noqa: ANN401 - of the SDK's client
    **headers: str,
) -> AsyncGenerator[Agent]:
    """Connect an agent over HTTP."""
    shown = {"authorization": f"Bearer {token}", **{name.replace("_", "-"): v for name, v in headers.items()}}
    async with httpx2.AsyncClient(headers=shown, timeout=60) as http:
        url = f"http://127.0.0.1:{port}/mcp"
        server = streamable_http_client(url, http_client=http)
        async with Client(server, mode=era, message_handler=message_handler) as client:
            yield Agent(client)
