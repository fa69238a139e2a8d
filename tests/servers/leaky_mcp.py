"""An MCP server over stdio that repeats what it is told, and what it knows, wherever it can.

Run it as `python -I -S leaky_mcp.py LEDGER`. Its tools answer as their argument `mode` says: each answer
quotes all arguments, and those of `leak` and `look` a person's address that no argument holds. What it is
called with, and what its environment holds, goes to stderr too. It appends one line to LEDGER for each call.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]

EMAIL: Final = "canary-of-a-result@example.com"
TOOLS: Final[list[Json]] = [
    {
        "name": name,
        "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    }
    for name in ("leak", "look", "echo")
]


def main() -> None:
    """Answer until stdin ends."""
    _tell(json.dumps(dict(os.environ)))
    for line in sys.stdin.buffer:
        message: Json = json.loads(line)
        if message.get("method") == "tools/call":
            _tell(line.decode())
            _call(message["id"], **message["params"])
        elif "id" in message:
            _control(message)


def _control(message: Json) -> None:
    if message["method"] == "initialize":
        version = message["params"]["protocolVersion"]
        info = {"name": "leaky", "version": "1"}
        hello: Json = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        _send({"id": message["id"], "result": hello})
    elif message["method"] == "tools/list":
        _send({"id": message["id"], "result": {"tools": TOOLS}})
    elif message["method"] == "ping":
        _send({"id": message["id"], "result": {}})
    else:
        _send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})


def _call(request_id: Any, name: str, arguments: Json, **_more: Json) -> None:  # noqa: ANN401 - any JSON-RPC id
    with Path(sys.argv[1]).open("a") as ledger:
        ledger.write(json.dumps({"key": None, "arguments": arguments}) + "\n")
    email = "nobody" if name == "echo" else EMAIL
    quoted = f"called with {arguments!r}, that is {json.dumps(arguments)}, for {email}"
    content = [{"type": "text", "text": quoted}, {"type": "resource", "resource": {"text": quoted}}]
    people = [{"name": "a name", "email": email}]
    result = {"content": content, "structuredContent": {"people": people}, "_meta": {"ref": quoted}}
    match arguments.get("mode"):
        case "tool error":
            _send({"id": request_id, "result": {**result, "isError": True}})
        case "protocol error":
            _send({"id": request_id, "error": {"code": -32602, "message": quoted, "data": arguments}})
        case "death":
            sys.exit(quoted)
        case "large":
            _send({"id": request_id, "result": {**result, "more": [quoted] * 2_000}})
        case "garbage":
            sys.stdout.write(quoted + "\n")
            sys.stdout.flush()
        case _:
            _send({"id": request_id, "result": result})


def _tell(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _send(message: Json) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
