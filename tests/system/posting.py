"""A client over HTTP that posts what it likes: bodies as bytes, in a session of the older era."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpx2

HANDSHAKE: Final[dict[str, Any]] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


@dataclass(frozen=True, slots=True)
class Posting:
    """A session that is open."""

    client: httpx2.AsyncClient
    url: str

    async def post(self, body: str | bytes) -> httpx2.Response:
        """Return what a body is answered with."""
        headers = {"content-type": "application/json"}
        return await self.client.post(self.url, content=body, headers=headers)

    async def ask(self, number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the JSON-RPC response to a request."""
        return heard(await self.post(request(number, method, params)))

    async def call(self, number: int, tool: str, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """Return the JSON-RPC response to a call."""
        return await self.ask(number, "tools/call", {"name": tool, "arguments": arguments})

    async def notify(self, method: str, **params: Any) -> None:  # noqa: ANN401 - JSON
        """Say something that has no answer."""
        await self.post(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}))


@asynccontextmanager
async def posting(port: int, token: str, run: str | None = "mine") -> AsyncGenerator[Posting]:
    """Open a session, for a run or for none that has a name."""
    headers = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
    if run is not None:
        headers["effectd-run"] = run
    async with httpx2.AsyncClient(headers=headers, timeout=60) as client:
        made = Posting(client, f"http://127.0.0.1:{port}/mcp")
        opened = await made.post(request(0, "initialize", HANDSHAKE))
        client.headers["mcp-session-id"] = opened.headers["mcp-session-id"]
        await made.notify("notifications/initialized")
        yield made


def request(number: int, method: str, params: dict[str, Any]) -> str:
    """Return a request as a body."""
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


def heard(answer: httpx2.Response) -> dict[str, Any]:
    """Return the JSON-RPC response in an answer, be it a stream or not."""
    said = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
    found: dict[str, Any] = json.loads(said[-1] if said else answer.text)
    return found
