"""What the relay says by itself while there is no daemon: enough for a client to begin, and no call executed.

Part of `driver.gateway`; imports its `wire`, `ledger` and `instructions` alone. A test holds this against
what the SDK's own server says in each era.
"""

from importlib.metadata import version
from typing import Final

from driver.gateway.instructions import INSTRUCTIONS
from driver.gateway.ledger import CALL, Entry
from driver.gateway.wire import NAME, OURS, Json, Message, member

HANDSHAKES: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The versions of the older era, the newest last."""
MODERN: Final = ("2026-07-28",)
INTERNAL_ERROR: Final = -32_603
_VERSION: Final = version(NAME)
SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"

_LISTS: Final[dict[str, str]] = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}


def answer(entry: Entry, where: str, start: str) -> Message:
    """Return the response to a request of which nothing was sent.

    `where` says what the relay looked for, `start` what starts that.
    """
    result = _result(entry, where, start)
    if result is None:
        message = f"the effectd daemon cannot be reached ({where}), and nothing was done"
        return {"jsonrpc": "2.0", "id": entry.id, "error": {"code": INTERNAL_ERROR, "message": message}}
    return response(entry, result)


def given_up(entry: Entry, away_s: float, where: str) -> Message:
    """Return the response to a call that a daemon may have got which has been away since."""
    text = (
        f"unknown: this call may have happened. The effectd daemon may have got it, and has been away for "
        f"{away_s:.0f} s ({where}). Do not repeat the call: it could be done twice. Its outcome is in the "
        f"daemon's journal, under command {entry.command_id}; effectd__operations shows it once the daemon "
        "is back. Tell the user."
    )
    return response(entry, tool_error(text, "unknown"))


def refused(entry: Entry, code: str, text: str) -> Message:
    """Return the response to a request that is not passed on at all."""
    if entry.method == CALL:
        return response(entry, tool_error(f"refused ({code}): nothing was executed. {text}", "refused"))
    return {"jsonrpc": "2.0", "id": entry.id, "error": {"code": INTERNAL_ERROR, "message": text}}


def tool_error(text: str, outcome: str) -> Message:
    """Return a tool result that is a sentence of ours, and no success."""
    meta: Message = {OURS + "outcome": outcome}
    return {"content": [{"type": "text", "text": text}], "isError": True, "_meta": meta}


def response(entry: Entry, result: Message) -> Message:
    """Return a result as the response, in the words of the request's era."""
    if entry.modern:
        meta: Message = {SERVER_INFO: _info(), **member(result, "_meta")}
        result = {"resultType": "complete", **result, "_meta": meta}
    return {"jsonrpc": "2.0", "id": entry.id, "result": result}


def _result(entry: Entry, where: str, start: str) -> Message | None:
    match entry.method:
        case "initialize":
            return _handshake(member(entry.message, "params").get("protocolVersion"))
        case "server/discover":
            return {
                "supportedVersions": list(MODERN),
                "capabilities": capabilities(subscribe=True),
                "instructions": INSTRUCTIONS,
                "ttlMs": 0,
                "cacheScope": "private",
            }
        case "ping":
            return {}
        case "tools/call":
            text = (
                f"refused (down): nothing was executed. The effectd daemon cannot be reached ({where}), and "
                f"this call was not handed to it. Tell the user that it has to be started: {start}"
            )
            return tool_error(text, "refused")
        case method if method in _LISTS:
            listed: Message = {_LISTS[method]: []}
            return {**listed, "ttlMs": 0, "cacheScope": "private"} if entry.modern else listed
        case _:
            return None


def _handshake(wanted: Json) -> Message:
    return {
        "protocolVersion": wanted if wanted in HANDSHAKES else HANDSHAKES[-1],
        "capabilities": capabilities(subscribe=False),
        "serverInfo": _info(),
        "instructions": INSTRUCTIONS,
    }


def capabilities(*, subscribe: bool) -> Message:
    """Return what the gateway can do."""
    return {
        "prompts": {"listChanged": True},
        "resources": {"subscribe": subscribe, "listChanged": True},
        "tools": {"listChanged": True},
    }


def _info() -> Message:
    return {"name": NAME, "title": "effectd: tools with a journal", "version": _VERSION}
