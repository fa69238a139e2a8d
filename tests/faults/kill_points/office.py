"""An MCP server over Streamable HTTP, at the shop's address, with the shop's memory. Part of `kill points`.

Its tools: `file` does it and answers; `tell` does it and answers as a stream of events; `lose` does it, and
hangs up.
"""

from collections import Counter
from typing import Final

from anyio.abc import AnyByteStream

from store.records import JsonObject, JsonValue
from tests.driver.providers.http.site import Request
from tests.driver.providers.mcp import web

PATH: Final = "/mcp"
KEY: Final = "dev.effectd/idempotency-key"
TOOLS: Final = ("file", "tell", "lose")
CACHED: Final[JsonObject] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


async def answer(stream: AnyByteStream, request: Request, effects: Counter[str]) -> None:
    """Answer one request; what is done is counted by its key."""
    body = request.json
    assert isinstance(body, dict), "the daemon sends objects"
    asked = web.Request(request.method, dict(request.headers), body)
    if "id" not in body:
        await stream.send(web.http(202, b""))
    elif asked.rpc == "tools/call":
        await _call(stream, asked, effects)
    else:
        await stream.send(web.rpc(asked, _listing(asked.rpc)))


def _listing(method: str) -> JsonObject:
    if method == "server/discover":
        return {"result": {"supportedVersions": [web.MODERN], "capabilities": {"tools": {}}, **CACHED}}
    if method == "tools/list":
        tools: list[JsonValue] = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
        return {"result": {"tools": tools, **CACHED}}
    return {"error": {"code": -32601, "message": "Method not found"}}


async def _call(stream: AnyByteStream, asked: web.Request, effects: Counter[str]) -> None:
    params = asked.body["params"]
    assert isinstance(params, dict), "a call has some"
    meta = params["_meta"]
    assert isinstance(meta, dict), "the daemon says what it is"
    effects[str(meta[KEY])] += 1
    match params["name"]:
        case "lose":
            await stream.aclose()
        case "tell":
            await stream.send(web.STREAM + web.event(web.message(asked, web.done())))
            await stream.aclose()
        case _:
            await stream.send(web.rpc(asked, web.done()))
