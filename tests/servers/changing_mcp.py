"""An MCP server over stdio whose tools change: `grow` adds the tool `new`, and says so.

Run it as `python -I -S changing_mcp.py`. It speaks the older era of the protocol.
"""

import json
import sys
from typing import Any

EMPTY: dict[str, Any] = {"type": "object"}
TOOLS: list[dict[str, Any]] = [
    {
        "name": "grow",
        "title": "Grow",
        "description": "adds a tool",
        "inputSchema": EMPTY,
        "annotations": {"readOnlyHint": True, "title": "Grows"},
    }
]


def say(message: dict[str, Any]) -> None:
    """Write one message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(message: dict[str, Any]) -> None:
    """Answer one request."""
    method, result = message["method"], dict[str, Any]()
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        info = {"name": "changing", "version": "1"}
        tools = {"tools": {"listChanged": True}}
        result = {"protocolVersion": version, "capabilities": tools, "serverInfo": info}
    elif method == "tools/list":
        result = {"tools": TOOLS}
    elif method == "tools/call":
        TOOLS.append({"name": f"new{len(TOOLS)}", "inputSchema": EMPTY})
        say({"method": "notifications/tools/list_changed"})
        result = {"content": [{"type": "text", "text": "grown"}]}
    elif method != "ping":
        say({"id": message["id"], "error": {"code": -32601, "message": f"there is no {method}"}})
        return
    say({"id": message["id"], "result": result})


for line in sys.stdin:
    received = json.loads(line)
    if "id" in received and "method" in received:
        answer(received)
