"""Lines on `gateway.sock` that no relay should write. Part of `hostile`.

Whoever writes them hears JSON-RPC, one object a line, whatever it was; and behind them a request that is good
is answered, or the connection has ended, within `HANG_S`. The tools that are called are those that look,
and some that there are not: nothing is executed.
"""

import json
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from random import Random
from time import monotonic
from typing import Final

import anyio
from anyio.abc import SocketStream

from driver.gateway.wire import read
from tests.faults.balance import HANG_S, Balance
from tests.faults.hostile.words import Json, bent

BESIDE: Final = "lines on gateway.sock"
ANSWERED: Final = "a relay whose last request was answered"
REFUSED: Final = "a relay that was refused"
LAST: Final = "the-last-one"
NEWER: Final = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "liar", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
TOOLS: Final = (
    "effectd__operations",
    "effectd__operation",
    "effectd__probe",
    "nobody__nothing",
    "counter__nothing",
)


def greeting(seed: int, number: int) -> str:
    """Return the first line of one connection; most are good."""
    chance = _chance(seed, number)
    said: Json = {
        "effectd": "gateway",
        "version": 1,
        "instance": f"liar-{number}",
        "run_id": f"run-{number % 3}",
        "resumes": [],
        "place": "0123456789ab",
    }
    if chance.random() < 0.5:
        del said["place"]
    return bent(chance, said) if chance.random() < 0.2 else json.dumps(said)


def lines(seed: int, number: int) -> list[str]:
    """Return what follows it."""
    chance = _chance(seed, number)
    chance.random()
    newer = chance.random() < 0.5
    return [bent(chance, _message(chance, at, newer=newer)) for at in range(chance.choice((1, 2, 5)))]


def _chance(seed: int, number: int) -> Random:
    return Random(seed * 1_000_000_041 + number)


def _message(chance: Random, at: int, *, newer: bool) -> Json:
    asked: Json = {
        "dev.effectd/command-id": f"gateway:{at:032x}",
        "dev.effectd/asked-at": chance.choice((0, 1.5, 1_790_000_000)),
        "dev.effectd/journal-id": "0" * 32,
        **(deepcopy(NEWER) if newer else {}),
    }
    method, params = chance.choice(_methods(chance))
    message: Json = {"jsonrpc": "2.0", "id": at, "method": method, "params": {**params, "_meta": asked}}
    if method.startswith("notifications/"):
        del message["id"]
    return message if chance.random() < 0.95 else {"jsonrpc": "2.0", "id": at, "result": params}


def _methods(chance: Random) -> tuple[tuple[str, Json], ...]:
    call: Json = {
        "name": chance.choice(TOOLS),
        "arguments": {"operation_id": "op_" + "0" * 32, "limit": 1, "unsettled": True},
    }
    client: Json = {"name": "liar", "version": "1"}
    return (
        ("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}),
        ("server/discover", {}),
        ("ping", {}),
        ("tools/list", {"cursor": "x"}),
        ("tools/call", call),
        ("tools/call", {**call, "requestState": "x", "inputResponses": {"approval": {"action": "accept"}}}),
        ("resources/read", {"uri": "file:///etc/passwd"}),
        ("prompts/get", {"name": "nobody__nothing", "arguments": {"a": "b"}}),
        ("subscriptions/listen", {"toolsListChanged": True}),
        ("notifications/initialized", {}),
        ("notifications/cancelled", {"requestId": 0, "reason": "x"}),
        ("notifications/progress", {"progressToken": 1, "progress": 1}),
        ("notifications/dev.effectd/delivered", {"commandId": "gateway:" + "0" * 32}),
    )


async def write_lines(balance: Balance, place: Path, seed: int, numbers: range) -> None:
    """Be one relay after the other. What is wrong is noted in `broken`."""
    for number in numbers:
        began = monotonic()
        wrong = await _relay(balance, place, seed, number)
        balance.took(began)
        balance.tried += 1
        balance.fired[BESIDE] += 1
        if wrong is not None:
            said = "\n".join(lines(seed, number))[:600]
            balance.broken.append(f"{place.name}, seed {seed}, lines {number}: {wrong}: {said!r}")


async def _relay(balance: Balance, place: Path, seed: int, number: int) -> str | None:
    last = json.dumps({"jsonrpc": "2.0", "id": LAST, "method": "ping", "params": {"_meta": NEWER}})
    text = "\n".join([greeting(seed, number), *lines(seed, number), last, ""])
    with anyio.move_on_after(2 * HANG_S):
        async with await anyio.connect_unix(place) as stream:
            # where it is over already, what was said before is there all the same
            with suppress(anyio.BrokenResourceError, OSError):
                await stream.send(text.encode("utf-8", "surrogatepass"))
            return await _heard(balance, stream)
    return "no answer, and no end"


async def _heard(balance: Balance, stream: SocketStream) -> str | None:
    """Return what is wrong with what comes, up to the answer to the last request, or the end."""
    rest = b""
    while True:
        while b"\n" in rest:
            line, _, rest = rest.partition(b"\n")
            said = read(line)
            if said is None or ("jsonrpc" not in said and said.get("effectd") != "gateway"):
                return f"no message: {line[:200]!r}"
            balance.reached[REFUSED] += "refused" in said
            if said.get("id") == LAST:
                balance.reached[ANSWERED] += 1
                return None
        try:
            rest += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return f"half a message: {rest[:200]!r}" if rest else None
