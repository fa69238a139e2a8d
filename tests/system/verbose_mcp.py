"""An MCP server over stdio with one tool, `speak`, that answers with as many bytes as its argument says.

Run it as `python -I -S verbose_mcp.py BYTES`.
"""

import json
import sys
from typing import Any


def answer(message: dict[str, Any], size: int) -> dict[str, Any] | None:
    """Return the result of a request, or None where it is none."""
    match message.get("method"):
        case "initialize":
            return {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "verbose", "version": "1"},
            }
        case "tools/list":
            return {"tools": [{"name": "speak", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            return {"content": [{"type": "text", "text": "x" * size}]}
        case "ping":
            return {}
        case _:
            return None


def main() -> None:
    """Answer until stdin ends."""
    for line in sys.stdin.buffer:
        message = json.loads(line)
        result = answer(message, int(sys.argv[1]))
        if "id" not in message:
            continue
        unknown = {"error": {"code": -32601, "message": "Method not found"}}
        body = unknown if result is None else {"result": result}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
