"""A well-behaved MCP server over stdio that counts its own effects in a file.

Run it as `python -I -S counter_mcp.py FILE [--modern] [--no-fsync] [--deduplicate]`. Every execution of a
tool appends one line to FILE, in one `write` and fsynced before the answer leaves: a test can count what
happened, whatever died meanwhile.

    {"tool": "count", "key": "op_5d…", "arguments": {"n": 1}, "pid": 4711}

`key` is the idempotency key that the call carried in `_meta`, or as SEP-3182 proposed (null where there was
none). Tools:

count  does the effect and answers `{"count": N, "key": …}`, N being the number of lines this process wrote.
slow   the same, and waits as well: `seconds` (default 1), or until a file named `until` exists; `when` is
       "after" (default) the effect or "before" it; with `heed_cancel` a cancelled call stops waiting and
       never answers.
fail   does the effect and answers `isError: true`.

It deduplicates nothing: a repeated key is another line; unless `--deduplicate` lets a key that the file has
already be answered as its first call would have been. Calls run in threads of their own. `--modern` speaks
protocol 2026-07-28 (`server/discover`) in place of the `initialize` handshake.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

KEY_NAME = "dev.effectd/idempotency-key"
POLL_S = 0.01
MODERN = "2026-07-28"

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "label": {"type": "string"}},
}
_SLOW_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        **_SCHEMA["properties"],
        "seconds": {"type": "number"},
        "until": {"type": "string"},
        "when": {"enum": ["before", "after"]},
        "heed_cancel": {"type": "boolean"},
    },
}
_OUTPUT: dict[str, Any] = {
    "type": "object",
    "properties": {"count": {"type": "integer"}, "key": {"type": ["string", "null"]}},
    "required": ["count", "key"],
}
TOOLS: list[dict[str, Any]] = [
    {"name": "count", "description": "one effect", "inputSchema": _SCHEMA, "outputSchema": _OUTPUT},
    {
        "name": "slow",
        "description": "one effect, slowly",
        "inputSchema": _SLOW_SCHEMA,
        "outputSchema": _OUTPUT,
    },
    {"name": "fail", "description": "one effect, and an error", "inputSchema": _SCHEMA},
]


class Counter:
    """One server: its ledger, its answers, and which calls were cancelled."""

    def __init__(self, ledger: str, *, modern: bool, fsync: bool, deduplicate: bool) -> None:
        self._path = Path(ledger)
        self._deduplicate = deduplicate
        self._ledger = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._modern = modern
        self._fsync = fsync
        self._written = 0
        self._lock = threading.Lock()
        self._cancelled: set[Any] = set()

    def serve(self) -> None:
        """Answer until stdin ends; calls that still run are left behind."""
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if message.get("method") == "tools/call":
                threading.Thread(target=self._call, args=(message,), daemon=True).start()
            else:
                self._control(message)

    def _control(self, message: dict[str, Any]) -> None:
        method: str | None = message.get("method")
        params: dict[str, Any] = message.get("params") or {}
        if method == "notifications/cancelled":
            self._cancelled.add(params.get("requestId"))
        if "id" not in message:
            return
        if method == "initialize" and not self._modern:
            self._answer(message["id"], self._hello(params.get("protocolVersion", "2025-11-25")))
        elif method == "server/discover" and self._modern:
            self._answer(message["id"], self._discover())
        elif method == "ping" and not self._modern:
            self._answer(message["id"], {})
        elif method == "tools/list":
            cached = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if self._modern else {}
            self._answer(message["id"], {"tools": TOOLS, **cached})
        else:
            self._send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})

    def _hello(self, version: str) -> dict[str, Any]:
        info = {"name": "counter", "version": "1"}
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}

    def _discover(self) -> dict[str, Any]:
        cached = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        return {"supportedVersions": [MODERN], "capabilities": {"tools": {}}, **cached}

    def _call(self, message: dict[str, Any]) -> None:
        params: dict[str, Any] = message["params"]
        name: str = params["name"]
        arguments: dict[str, Any] = params.get("arguments") or {}
        meta: dict[str, Any] = params.get("_meta") or {}
        key: str | None = meta.get(KEY_NAME, params.get("idempotencyKey"))
        if name not in {"count", "slow", "fail"}:
            self._send({"id": message["id"], "error": {"code": -32602, "message": f"Unknown tool: {name}"}})
            return
        before = arguments.get("when") == "before"
        if name == "slow" and before and not self._wait(message["id"], arguments):
            return
        count = self._effect(name, key, arguments)
        if name == "slow" and not before and not self._wait(message["id"], arguments):
            return
        self._answer(message["id"], _result(name, count, key, modern=self._modern))

    def _effect(self, name: str, key: str | None, arguments: dict[str, Any]) -> int:
        line = {"tool": name, "key": key, "arguments": arguments, "pid": os.getpid()}
        with self._lock:
            if self._deduplicate and key in self._known_keys():
                return self._written
            os.write(self._ledger, json.dumps(line).encode() + b"\n")
            if self._fsync:
                os.fsync(self._ledger)
            self._written += 1
            return self._written

    def _known_keys(self) -> set[str | None]:
        return {json.loads(line)["key"] for line in self._path.read_text().splitlines()}

    def _wait(self, request_id: Any, arguments: dict[str, Any]) -> bool:  # noqa: ANN401 - JSON-RPC ids have no type
        """False: the call was cancelled meanwhile, and heeds it."""
        until = Path(arguments["until"]) if "until" in arguments else None
        end = time.monotonic() + arguments.get("seconds", 60 if until else 1)
        while time.monotonic() < end and not (until and until.exists()):
            if arguments.get("heed_cancel") and request_id in self._cancelled:
                return False
            time.sleep(min(POLL_S, max(0.0, end - time.monotonic())))
        return True

    def _answer(self, request_id: Any, result: dict[str, Any]) -> None:  # noqa: ANN401 - JSON-RPC ids have no type
        self._send({"id": request_id, "result": result})

    def _send(self, message: dict[str, Any]) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        with self._lock:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()


def _result(name: str, count: int, key: str | None, *, modern: bool) -> dict[str, Any]:
    tag = {"resultType": "complete"} if modern else {}
    if name == "fail":
        return {"content": [{"type": "text", "text": "it went wrong"}], "isError": True, **tag}
    content = {"count": count, "key": key}
    return {"content": [{"type": "text", "text": json.dumps(content)}], "structuredContent": content, **tag}


if __name__ == "__main__":
    options = sys.argv[2:]
    Counter(
        sys.argv[1],
        modern="--modern" in options,
        fsync="--no-fsync" not in options,
        deduplicate="--deduplicate" in options,
    ).serve()
