"""An MCP server over stdio that does everything wrong that a server can do, on demand.

Run it as `python -I -S hostile_mcp.py LEDGER [OPTION...]`. Its tool `act` misbehaves as its argument `mode`
says; it appends one fsynced line to LEDGER for each effect. See `MODES` for the modes, and the methods of
`Hostile` for the options, which spoil the start, the tool list or the end.

With the option `counts` each call but one of `dies-before` has one effect, before it misbehaves (`deaf`: when
it hears again), and nothing else stands in LEDGER: `{"key": "op_5d…", "mode": …, "pid": 4711}`. With
`deduplicates`, too, a call whose key stands there has no effect, and an honest answer.
"""

import fcntl
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]

POLL_S = 0.02
KEY_NAME = "dev.effectd/idempotency-key"
ANYTHING: Json = {"type": "object"}
STRICT: Json = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}


class Hostile:
    """One server: its ledger, its options, and what it sends."""

    def __init__(self, ledger: str, options: list[str]) -> None:
        self.path = ledger
        self.ledger = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.options = options
        self.tools: list[Json] = [
            {"name": "act", "inputSchema": ANYTHING},
            {"name": "strict", "inputSchema": ANYTHING, "outputSchema": STRICT},
        ]
        self.tasks: dict[str, Json] = {}
        self._key: str | None = None
        self._lock = threading.Lock()

    def serve(self) -> None:
        """Answer until stdin ends, and with `ignore-eof` beyond it."""
        if "banner" in self.options:
            self.raw(b"Welcome to the server!\nListening on stdio\n")
        if "stderr-flood" in self.options:
            threading.Thread(target=self._shout, args=(b"x" * 65_536,), daemon=True).start()
        if "stderr-lines" in self.options:
            threading.Thread(target=self._shout, args=(b"x\n" * 32_768,), daemon=True).start()
        if "ignore-eof" in self.options:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for line in sys.stdin.buffer:
            message: Json = json.loads(line)
            if message.get("method") == "tools/call":
                self._call(message["id"], message["params"])
            elif "method" in message:
                self.control(message)
            else:
                self.effect({"answer": message})
        while "ignore-eof" in self.options:
            time.sleep(60)

    def _call(self, request_id: Any, params: Json) -> None:  # noqa: ANN401 - JSON-RPC ids have no type
        arguments: Json = params["arguments"]
        name: str = arguments["mode"]
        meta: Json = params.get("_meta") or {}
        self._key = meta.get(KEY_NAME)
        if "deduplicates" in self.options and self._is_known():
            self.answer(request_id, text("done already"))
            return
        if "counts" in self.options and name not in WITH_EFFECT:
            self.effect(arguments)
        MODES[name](self, request_id, arguments)

    def control(self, message: Json) -> None:
        """Answer all but tool calls."""
        method: str = message["method"]
        params: Json = message.get("params") or {}
        if method == "server/discover" and "dies-on-discover" in self.options:
            os._exit(3)
        if "mute" in self.options:
            return
        if method == "initialize":
            hello: Json = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
            self.answer(message["id"], {**hello, "serverInfo": {"name": "hostile", "version": "1"}})
        elif method == "tools/list":
            self._list(message["id"], params)
        elif method == "ping":
            self.answer(message["id"], {})
        elif method.startswith("tasks/") and self.tasks:
            self._task(method, message["id"], params)
        elif method == "notifications/cancelled":
            self.effect({"cancelled": params["requestId"]})
        elif "id" in message:
            self.error(message["id"], -32601, "Method not found")

    def _task(self, method: str, request_id: Any, params: Json) -> None:  # noqa: ANN401 - as above
        task = self.tasks.get(params["taskId"])
        if task is None:
            self.error(request_id, -32602, "no such task")
        elif method == "tasks/cancel":
            self.effect({"cancelled": params["taskId"]})
            if not task.get("stubborn"):
                task["state"] = {"status": "cancelled"}
            self.answer(request_id, {**params, **task["state"]})
        elif method == "tasks/get":
            self.answer(request_id, {**params, "pollInterval": 1, **_progress(task)})
        elif "error" in task:
            self.error(request_id, task["error"], "its own words")
        else:
            self.answer(request_id, task.get("result", text("done")))

    def _list(self, request_id: Any, params: Json) -> None:  # noqa: ANN401 - JSON-RPC ids have no type
        if "no-list" in self.options:
            self.error(request_id, -32601, "Method not found")
        elif "fat-pages" in self.options:
            page = int(params.get("cursor", 0))
            tool: Json = {"name": f"page-{page}", "inputSchema": ANYTHING, "description": "x" * 900_000}
            self.answer(request_id, {"tools": [tool], "nextCursor": str(page + 1)})
        elif "pages" in self.options:
            page = int(params.get("cursor", 0))
            tools = [{"name": f"page-{page}", "inputSchema": ANYTHING}]
            self.answer(request_id, {"tools": tools, "nextCursor": str(page + 1)})
        elif "bad-schema" in self.options:
            broken = [{"name": "act", "inputSchema": {"type": "object", "required": "mode"}}]
            self.answer(request_id, {"tools": [*broken, {"inputSchema": {}}, "no tool", *self.tools]})
        else:
            self.answer(request_id, {"tools": self.tools})

    def _shout(self, words: bytes) -> None:
        while True:
            os.write(2, words)

    def effect(self, what: Json) -> None:
        """Let something happen in the world."""
        if "counts" in self.options:
            if "mode" not in what:
                return
            what = {"key": self._key, "mode": what["mode"]}
        fcntl.flock(self.ledger, fcntl.LOCK_EX)
        if "deduplicates" not in self.options or not self._is_known():
            os.write(self.ledger, json.dumps({**what, "pid": os.getpid()}).encode() + b"\n")
            os.fsync(self.ledger)
        fcntl.flock(self.ledger, fcntl.LOCK_UN)

    def _is_known(self) -> bool:
        """Whether any server has had an effect under the present call's key."""
        return f'"key": "{self._key}"' in Path(self.path).read_text()

    def answer(self, request_id: Any, result: Any) -> None:  # noqa: ANN401 - wrong types are the point
        """Answer a request."""
        self.send({"id": request_id, "result": result})

    def error(self, request_id: Any, code: Any, text: str) -> None:  # noqa: ANN401 - wrong types are the point
        """Refuse a request."""
        self.send({"id": request_id, "error": {"code": code, "message": text}})

    def send(self, message: Json) -> None:
        """Send a message."""
        self.raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def raw(self, data: bytes) -> None:
        """Send bytes."""
        with self._lock:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()


def text(words: str) -> Json:
    """A tool result of one line."""
    return {"content": [{"type": "text", "text": words}]}


def _wait(arguments: Json) -> None:
    """Return after `seconds`, or once the file `until` is there."""
    if "until" not in arguments:
        time.sleep(arguments.get("seconds", 3600))
        return
    while not Path(arguments["until"]).exists():
        time.sleep(POLL_S)


def _later(arguments: Json, say: Callable[..., None], *words: Any) -> None:  # noqa: ANN401
    """Say it after that wait, in a thread of its own."""

    def speak() -> None:
        _wait(arguments)
        say(*words)

    threading.Thread(target=speak, daemon=True).start()


def _progress(task: Json) -> Json:
    """What a task says of itself when it is asked, one question further."""
    task["asked"] = task.get("asked", 0) + 1
    if task["asked"] == task.get("dies"):
        os._exit(7)
    ended = Path(task["until"]).exists() if "until" in task else task["asked"] > task.get("after", 1)
    if ended and "status" not in task["state"]:
        task["state"] = {"status": "completed", **task.get("ends", {})}
    return {"status": "working", **task["state"]}


Mode = Callable[[Hostile, Any, Json], None]
MODES: dict[str, Mode] = {}


def mode(name: str) -> Callable[[Mode], Mode]:
    """Register what `act` does in a mode."""

    def register(function: Mode) -> Mode:
        MODES[name] = function
        return function

    return register


@mode("honest")
def _honest(server: Hostile, request_id: Any, arguments: Json) -> None:  # noqa: ANN401
    server.effect(arguments)
    server.answer(request_id, text("done"))


@mode("dies-before")
def _dies_before(_server: Hostile, _request_id: Any, _arguments: Json) -> None:  # noqa: ANN401
    os._exit(7)


@mode("dies-after")
def _dies_after(server: Hostile, _request_id: Any, arguments: Json) -> None:  # noqa: ANN401
    server.effect(arguments)
    os._exit(7)


@mode("half")
def _half(server: Hostile, request_id: Any, _arguments: Json) -> None:  # noqa: ANN401
    """Dies in the middle of a good answer."""
    line = json.dumps({"jsonrpc": "2.0", "id": request_id, "result": text("done")}).encode()
    server.raw(line[:-1])
    os._exit(7)


@mode("answers-and-dies")
def _answers_and_dies(server: Hostile, request_id: Any, _arguments: Json) -> None:  # noqa: ANN401
    server.answer(request_id, text("done"))
    os._exit(7)


@mode("closes")
def _closes(_server: Hostile, _request_id: Any, _arguments: Json) -> None:  # noqa: ANN401
    """Closes its output, and lives on."""
    os.close(1)


@mode("freezes")
def _freezes(_server: Hostile, _request_id: Any, _arguments: Json) -> None:  # noqa: ANN401
    os.kill(os.getpid(), signal.SIGSTOP)


@mode("deaf")
def _deaf(server: Hostile, request_id: Any, arguments: Json) -> None:  # noqa: ANN401
    """Hears nothing for `seconds`, or until the file `until` is there, then does it, and answers."""
    _wait(arguments)
    server.effect(arguments)
    server.answer(request_id, text("at last"))


@mode("silent")
def _silent(server: Hostile, _request_id: Any, arguments: Json) -> None:  # noqa: ANN401
    server.effect(arguments)


@mode("late")
def _late(server: Hostile, request_id: Any, arguments: Json) -> None:  # noqa: ANN401
    """Answers after `seconds`, or once the file `until` is there, and hears everything meanwhile."""
    server.effect(arguments)
    _later(arguments, server.answer, request_id, text("late"))


@mode("late-error")
def _late_error(server: Hostile, request_id: Any, arguments: Json) -> None:  # noqa: ANN401
    _later(arguments, server.error, request_id, arguments["code"], "cancelled")


@mode("garbage")
def _garbage(server: Hostile, request_id: Any, arguments: Json) -> None:  # noqa: ANN401
    """Answers `seconds` after the garbage, or once the file `until` is there."""
    server.raw(b"Traceback (most recent call last):\n")
    _later(arguments, server.answer, request_id, text("done"))


@mode("garbage-flood")
def _garbage_flood(server: Hostile, _request_id: Any, _arguments: Json) -> None:  # noqa: ANN401
    server.raw(b"?\n" * 1_000)


@mode("big")
def _big(server: Hostile, request_id: Any, arguments: Json) -> None:  # noqa: ANN401
    """One line of `bytes` bytes."""
    server.answer(request_id, text("x" * arguments["bytes"]))


@mode("endless")
def _endless(server: Hostile, _request_id: Any, _arguments: Json) -> None:  # noqa: ANN401
    while True:
        server.raw(b"x" * 65_536)


@mode("invalid-utf8")
def _invalid_utf8(server: Hostile, request_id: Any, _arguments: Json) -> None:  # noqa: ANN401
    line = json.dumps({"jsonrpc": "2.0", "id": request_id, "result": text("caf?")})
    server.raw(line.encode().replace(b"?", b"\xe9") + b"\n")


@mode("lone-surrogate")
def _lone_surrogate(server: Hostile, request_id: Any, _arguments: Json) -> None:  # noqa: ANN401
    server.answer(request_id, text("half \ud83d"))


@mode("deep")
def _deep(server: Hostile, request_id: Any, arguments: Json) -> None:  # noqa: ANN401
    levels = arguments["levels"]
    nested = "[" * levels + "]" * levels
    server.raw(f'{{"jsonrpc":"2.0","id":{request_id},"result":{{"content":{nested}}}}}\n'.encode())


@mode("verbatim")
def _verbatim(server: Hostile, request_id: Any, arguments: Json) -> None:  # noqa: ANN401
    """Sends `line`, `ID` in it replaced."""
    server.raw(arguments["line"].replace("ID", str(request_id)).encode() + b"\n")


@mode("bytes")
def _bytes(server: Hostile, request_id: Any, arguments: Json) -> None:  # noqa: ANN401
    """Sends `bytes`, each character one of them and `ID` replaced, as a line, and then an honest answer."""
    data = arguments["bytes"].encode("latin-1")
    server.raw(data.replace(b"ID", str(request_id).encode()) + b"\n")
    server.answer(request_id, text("honest"))


@mode("twice")
def _twice(server: Hostile, request_id: Any, _arguments: Json) -> None:  # noqa: ANN401
    server.answer(request_id, text("first"))
    server.answer(request_id, text("second"))


@mode("then-error")
def _then_error(server: Hostile, request_id: Any, _arguments: Json) -> None:  # noqa: ANN401
    """Answers, and takes it back."""
    server.answer(request_id, text("done"))
    server.error(request_id, -32603, "not done")


@mode("error-first")
def _error_first(server: Hostile, request_id: Any, _arguments: Json) -> None:  # noqa: ANN401
    """Refuses, and takes that back."""
    server.error(request_id, -32603, "not done")
    server.answer(request_id, text("done"))


@mode("error")
def _error(server: Hostile, request_id: Any, arguments: Json) -> None:  # noqa: ANN401
    server.error(request_id, arguments["code"], "its own words")


@mode("result")
def _result(server: Hostile, request_id: Any, arguments: Json) -> None:  # noqa: ANN401
    """Answers with `result` as it stands."""
    server.answer(request_id, arguments["result"])


@mode("vanish")
def _vanish(server: Hostile, request_id: Any, _arguments: Json) -> None:  # noqa: ANN401
    """The tool `strict` is gone from now on, and `fresh` is there."""
    server.tools = [server.tools[0], {"name": "fresh", "inputSchema": ANYTHING}]
    server.send({"method": "notifications/tools/list_changed"})
    server.answer(request_id, text("changed"))


@mode("vanish-quietly")
def _vanish_quietly(server: Hostile, request_id: Any, _arguments: Json) -> None:  # noqa: ANN401
    server.tools = [server.tools[0], {"name": "fresh", "inputSchema": ANYTHING}]
    server.answer(request_id, text("changed"))


@mode("asks")
def _asks(server: Hostile, request_id: Any, _arguments: Json) -> None:  # noqa: ANN401
    """Asks for a ping and for a model's words; the answers stand in the ledger."""
    server.send({"id": "p", "method": "ping"})
    params: Json = {"messages": [], "maxTokens": 1}
    server.send({"id": "s", "method": "sampling/createMessage", "params": params})
    server.send({"method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}})
    server.answer(request_id, text("done"))


@mode("asks-forever")
def _asks_forever(server: Hostile, _request_id: Any, _arguments: Json) -> None:  # noqa: ANN401
    """Floods us with requests and reads no answer."""
    for number in range(1_000_000):
        server.send({"id": f"p{number}", "method": "ping"})


@mode("chatters")
def _chatters(server: Hostile, _request_id: Any, _arguments: Json) -> None:  # noqa: ANN401
    """Says for ever what nobody asked for, each line a good message."""
    params: Json = {"level": "info", "data": "x"}
    line = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": params}).encode()
    while True:
        server.raw((line + b"\n") * 1_000)


@mode("answers-nobody")
def _answers_nobody(server: Hostile, _request_id: Any, _arguments: Json) -> None:  # noqa: ANN401
    """Answers for ever what nobody asked."""
    line = json.dumps({"jsonrpc": "2.0", "id": "nobody", "result": text("done")}).encode()
    while True:
        server.raw((line + b"\n") * 1_000)


@mode("bomb")
def _bomb(server: Hostile, request_id: Any, arguments: Json) -> None:  # noqa: ANN401
    """A line of `bytes` bytes that takes many times that once it is parsed."""
    parts = "[]," * (arguments.get("bytes", 8_000_000) // 3)
    server.raw(f'{{"jsonrpc":"2.0","id":{request_id},"result":{{"content":[{parts}[]]}}}}\n'.encode())


@mode("environment")
def _environment(server: Hostile, request_id: Any, _arguments: Json) -> None:  # noqa: ANN401
    server.answer(
        request_id, {**text("env"), "structuredContent": {"env": dict(os.environ), "cwd": str(Path.cwd())}}
    )


@mode("spawn")
def _spawn(server: Hostile, request_id: Any, arguments: Json) -> None:  # noqa: ANN401
    """Starts a grandchild that holds all pipes, and ends by itself after `seconds`: an hour by default."""
    child = os.posix_spawn("/bin/sleep", ["sleep", str(arguments.get("seconds", 3600))], os.environ)
    server.effect({**arguments, "child": child})
    server.answer(request_id, {**text("spawned"), "structuredContent": {"pid": os.getpid(), "child": child}})


@mode("task")
def _task(server: Hostile, request_id: Any, arguments: Json) -> None:  # noqa: ANN401
    """Gives a handle, and has ended when it was asked `after` times (1), or once the file `until` is there.

    `ends` is what it says of itself then, `result` or `error` what it answered, `stubborn` that it does not
    stop, `dies` the number of the question of which the server dies, and `flat` that the handle is of the
    newer era.
    """
    server.effect(arguments)
    name = f"task-{len(server.tasks) + 1}"
    server.tasks[name] = {**arguments, "state": {}}
    handle: Json = {"taskId": name, "status": "working", "pollInterval": 1}
    server.answer(request_id, {**handle, "resultType": "task"} if "flat" in arguments else {"task": handle})


WITH_EFFECT = {"honest", "dies-before", "dies-after", "deaf", "silent", "late", "spawn", "task"}
"""Modes that let something happen themselves, or never do."""


if __name__ == "__main__":
    Hostile(sys.argv[1], sys.argv[2:]).serve()
