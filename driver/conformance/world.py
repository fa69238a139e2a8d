"""The world of the battery: an MCP server over stdio whose tools do exactly what the battery wants.

Run as `python -I -S world.py FOLDER`; it imports nothing but the standard library. How a call goes stands in
FOLDER/script.json, `{"charge": "silent", …}`, read at each call; a tool that is not in it is honest. Every
call is one line of FOLDER/ledger.jsonl, fsynced before anything is answered, and every answer another one,
just before it leaves: who has heard it may kill the server at once. What could not leave is taken back, by a
line with the negative count.

    {"call": "5d…", "tool": "charge", "item": "a", "key": "op_1", "way": "twice", "effect": true,
     "answer": "success"}
    {"said": "5d…", "times": 2}

So the ledger has each fault where it happened: what was only asked for is not in it.

Tools:

charge        a write; each call is an effect
charge_once   a write that deduplicates: a call whose idempotency key stands in the ledger is no effect, and
              gets the answer that the first one got, or would have got. The key is taken from `_meta` or from
              the argument `idempotency_key`
find_charge   a read: how many charges of an item there are

Ways of a write (`first-…`: the first call that the ledger has of this tool; the later ones are honest):

honest        the effect, then the answer
silent        the effect, and no answer, ever
error         the effect, then an answer that is an error
twice         the effect, then the answer, two times
late          the effect, and the answer after LATE_S
first-dies-before   the process ends without an effect
first-silent        the effect, and no answer, ever

Ways of the read: honest, error.
"""

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

LATE_S = 4.0
"""Later than the deadline that the battery gives to every call."""
SCRIPT = "script.json"
LEDGER = "ledger.jsonl"
SEARCH = "find_charge"
KEY_ARGUMENT = "idempotency_key"
KEY_SUFFIX = "idempotency-key"
"""How the name of the `_meta` member ends that carries a key, whatever its prefix."""

Json = dict[str, Any]

_ITEM: Json = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
_KEYED: Json = {**_ITEM, "properties": {**_ITEM["properties"], KEY_ARGUMENT: {"type": "string"}}}
TOOLS: list[Json] = [
    {"name": "charge", "description": "Charge an item. Not idempotent.", "inputSchema": _ITEM},
    {"name": "charge_once", "description": "Charge an item, once for each key.", "inputSchema": _KEYED},
    {
        "name": SEARCH,
        "description": "How many charges of an item there are.",
        "inputSchema": _ITEM,
        "annotations": {"readOnlyHint": True},
    },
]


class World:
    """One server: its folder, and its standard output."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger = os.open(folder / LEDGER, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._writing = threading.Lock()

    def serve(self) -> None:
        """Answer until standard input ends; an answer that is on its way then is still written down."""
        for line in sys.stdin.buffer:
            message: Json = json.loads(line)
            method = message.get("method")
            if method == "tools/call":
                threading.Thread(target=self._call, args=(message,), daemon=True).start()
            elif method is not None and "id" in message:
                self._control(method, message)
        self._writing.acquire()

    def _control(self, method: str, message: Json) -> None:
        if method == "initialize":
            version = message["params"]["protocolVersion"]
            about: Json = {"name": "conformance-world", "version": "1"}
            self._send(
                message, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
            )
        elif method == "tools/list":
            self._send(message, {"tools": TOOLS})
        elif method == "ping":
            self._send(message, {})
        else:
            self._write({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})

    def _call(self, message: Json) -> None:
        params: Json = message["params"]
        tool: str = params["name"]
        arguments: Json = params.get("arguments") or {}
        if tool == SEARCH:
            self._find(message, arguments)
            return
        entries = entries_of(self.folder)
        key = _key(params.get("_meta") or {}, arguments)
        way = self._way(tool)
        if way.startswith("first-"):
            seen = any(entry["tool"] == tool for entry in entries)
            way = "honest" if seen else way.removeprefix("first-")
        known = (
            tool == "charge_once"
            and key is not None
            and any(entry["key"] == key and entry["effect"] for entry in entries)
        )
        if way == "dies-before":
            self._enter(tool, arguments, key=key, way=way, effect=False, answer="none")
            os._exit(1)
        said = {"honest": "success", "twice": "success", "late": "late", "error": "error"}.get(way, "none")
        call = self._enter(tool, arguments, key=key, way=way, effect=not known, answer=said)
        if way == "late":
            threading.Event().wait(LATE_S)
        text = _text(f"charged {arguments.get('item')}", is_error=way == "error")
        self._send(message, text, call=call, times={"silent": 0, "twice": 2}.get(way, 1))

    def _find(self, message: Json, arguments: Json) -> None:
        way = self._way(SEARCH)
        item = arguments.get("item")
        count = sum(entry["effect"] and entry["item"] == item for entry in entries_of(self.folder))
        found = {**_text(str(count)), "structuredContent": {"count": count}}
        failed = way == "error"
        call = self._enter(
            SEARCH, arguments, key=None, way=way, effect=False, answer="error" if failed else "success"
        )
        self._send(
            message, _text("the search is not available", is_error=True) if failed else found, call=call
        )

    def _way(self, tool: str) -> str:
        script: dict[str, str] = json.loads((self.folder / SCRIPT).read_text())
        return script.get(tool, "honest")

    def _enter(self, tool: str, arguments: Json, **entry: object) -> str:
        call = os.urandom(8).hex()
        self._note({"call": call, "tool": tool, "item": arguments.get("item"), **entry})
        return call

    def _note(self, line: Json) -> None:
        os.write(self.ledger, json.dumps(line).encode() + b"\n")
        os.fsync(self.ledger)

    def _send(self, message: Json, result: Json, *, call: str | None = None, times: int = 1) -> None:
        """Write a result, `times` times at one go, and note that before, where it is the answer to a call."""
        if not times:
            return
        self._write({"id": message["id"], "result": result}, call=call, times=times)

    def _write(self, message: Json, *, call: str | None = None, times: int = 1) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        with self._writing:
            if call is not None:
                self._note({"said": call, "times": times})
            try:
                sys.stdout.buffer.write(line * times)
                sys.stdout.buffer.flush()
            except OSError:  # nobody listens any more
                if call is not None:
                    self._note({"said": call, "times": -times})
                os._exit(1)


def entries_of(folder: Path) -> list[Json]:
    """Return the calls in the ledger in `folder`, oldest first; `said`: how many answers set out."""
    try:
        lines = (folder / LEDGER).read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    calls: dict[str, Json] = {}
    for line in map(json.loads, lines):
        if "call" in line:
            calls[line["call"]] = {**line, "said": 0}
        else:
            calls[line["said"]]["said"] += line["times"]
    return list(calls.values())


def _key(meta: Json, arguments: Json) -> str | None:
    carried = [str(value) for name, value in meta.items() if name.endswith(KEY_SUFFIX)]
    argument = arguments.get(KEY_ARGUMENT)
    return carried[0] if carried else argument


def _text(text: str, *, is_error: bool = False) -> Json:
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


if __name__ == "__main__":
    World(Path(sys.argv[1])).serve()
