"""Stands between a client and a server over stdio: `python -I -S between.py [OPTION…] -- COMMAND…`.

--record FILE   every line that the server says is appended to FILE, as it came
--older         the server never hears of protocol 2026-07-28: what asks for it is refused here
--claims JSON   `initialize` tells the server of these capabilities, whatever the client has
--progress      each call asks for progress
"""

import argparse
import json
import os
import subprocess
import sys
import threading
from typing import IO, Any


def relay(server: "subprocess.Popen[bytes]", record: IO[bytes] | None) -> None:
    """Pass on what the server says until it ends, and end with it."""
    assert server.stdout is not None
    for line in server.stdout:
        if record is not None:
            record.write(line)
        say(line)
    os._exit(server.wait())


def say(line: bytes) -> None:
    """Say something to the client."""
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def passed_on(line: bytes, options: argparse.Namespace) -> bytes | None:
    """Return what the server hears in place of `line`; None where that is nothing."""
    message: dict[str, Any] = json.loads(line)
    method = message.get("method")
    if options.older and method == "server/discover":
        error = {"code": -32601, "message": "Method not found"}
        say(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode() + b"\n")
        return None
    if options.claims is not None and method == "initialize":
        message["params"]["capabilities"] = json.loads(options.claims)
    elif options.progress and method == "tools/call":
        message["params"].setdefault("_meta", {})["progressToken"] = message["id"]
    else:
        return line
    return json.dumps(message).encode() + b"\n"


def main() -> None:
    """Start the server, and pass messages on both ways."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--record")
    parser.add_argument("--older", action="store_true")
    parser.add_argument("--claims")
    parser.add_argument("--progress", action="store_true")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    record = None if options.record is None else open(options.record, "ab", buffering=0)  # noqa: PTH123, SIM115 - one for a life
    server = subprocess.Popen(options.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None
    threading.Thread(target=relay, args=(server, record), daemon=True).start()
    for line in sys.stdin.buffer:
        heard = passed_on(line, options)
        if heard is not None:
            server.stdin.write(heard)
            server.stdin.flush()
    server.stdin.close()
    threading.Event().wait()


if __name__ == "__main__":
    main()
