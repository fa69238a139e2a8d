"""I11: what one provider does costs bounded memory, and nobody else's time: measured within each run.

Beside a hostile server stands an honest one, whose calls are timed before and meanwhile. What is compared is
compared within the run, because machines differ and are busy.
"""

import json
import re
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Final

import anyio
import pytest
from anyio.abc import SocketStream

from tests.driver.providers.mcp.web import LEGACY, STREAM, Answer, Request, Web, event, web
from tests.peers import from_pypi
from tests.servers import hostile_mcp
from tests.system.audit import must_hold
from tests.system.history import Json
from tests.system.plane import PATIENCE_S, ScriptedPlane, call, scripted_plane
from tests.system.sandbox import Life, Sandbox, sandbox
from tests.system.test_peers import SDK_HTTP, free_port, listening
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.lane]

MEMORY_BYTES_MAX: Final = 64_000_000
LARGEST_BYTES_MAX: Final = 96_000_000
"""For an answer of 8 MB that is kept: the daemon has it in several forms at a time."""
CALLS: Final = 40
HURRIED_S: Final = 2.0
SLOWER_MAX: Final = 4.0
"""How many times as long the usual call may take meanwhile, and `SLACK_S`. A flood that is not held back
makes it ten times."""
SLACK_S: Final = 0.05
"""For what else the machine does."""
WORST_S_MAX: Final = 1.5
"""What no call may take meanwhile, where a message of 8 MB is read in `READ_S`; it takes a third of that at
worst. One that is not cut to pieces could hold everything up for longer."""
READ_S: Final = 0.03
LARGEST: Final = json.dumps({"content": ["x" * 99] * 80_000})
ATTEMPTS: Final = 3
"""What else the machine does can only make it slower: the times of one attempt of so many must be right."""
AT_ONCE: Final = 32


@dataclass(slots=True)
class Probe:
    """Times calls to the honest provider."""

    plane: ScriptedPlane
    given: int = 0

    async def call_s(self) -> float:
        """Return how long one call takes, from its command to its receipt."""
        self.given += 1
        began = monotonic()
        await self.plane.give(call(f"probe-{self.given}", n=self.given))
        await self.plane.receipt_of(f"probe-{self.given}")
        return monotonic() - began

    async def until(self, reached: Callable[[], object]) -> list[float]:
        """Return how long calls take, one after the other, until this is reached; some at least."""
        taken: list[float] = []
        while len(taken) < CALLS or not reached():
            taken.append(await self.call_s())
        return taken


def slowness() -> float:
    """Return how many times as long as usual this machine takes to read the largest message, at its best."""
    taken: list[float] = []
    for _ in range(5):
        began = monotonic()
        json.loads(LARGEST)
        taken.append(monotonic() - began)
    return max(1.0, min(taken) / READ_S)


def peak_bytes(life: Life) -> int:
    """Return the most memory that a process has had since `forget_peak`."""
    found = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{life.pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def forget_peak(life: Life) -> int:
    """Let the peak be what the process has now, and return that."""
    Path(f"/proc/{life.pid}/clear_refs").write_text("5")
    return peak_bytes(life)


@asynccontextmanager
async def beside(zygote: Zygote, hostile: Json) -> AsyncGenerator[tuple[Sandbox, ScriptedPlane]]:
    """A daemon with an honest provider, and with a hostile one, both of them called once."""
    tools = {"execution_s": HURRIED_S}
    tables: dict[str, Json] = {"providers__hostile": hostile, "providers__hostile__tools__act": tools}
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        if "argv" in hostile:
            hostile["argv"] = [*hostile["argv"], str(made.ledger), "counts", *hostile.pop("options", ())]
        made.configure(**tables)
        made.start()
        await plane.give(call("warm-up", n=0))
        await plane.answered()
        yield made, plane


async def unharmed(
    made: Sandbox, plane: ScriptedPlane, provoke: Json, measure: Callable[[str], None], name: str
) -> None:
    """Give the command that provokes it; the honest provider's calls and the memory must not suffer."""
    probe, life = Probe(plane), made.lives[-1]
    slow = [await delay(probe, life, {**provoke, "command_id": "provoke-0"}, measure, name)]
    while slow[-1] and len(slow) < ATTEMPTS:
        slow.append(
            await delay(probe, life, {**provoke, "command_id": f"provoke-{len(slow)}"}, measure, name)
        )
    assert not slow[-1], slow
    await life.kill()
    await must_hold(made)


async def delay(probe: Probe, life: Life, provoke: Json, measure: Callable[[str], None], name: str) -> str:
    """Provoke it once: the memory must hold. Returns how the other calls were delayed, or nothing."""
    plane, command_id = probe.plane, str(provoke["command_id"])
    before = await probe.until(lambda: True)
    resident = forget_peak(life)
    await plane.give(provoke)
    meanwhile = await probe.until(lambda: plane.receipt(command_id))
    grown = peak_bytes(life) - resident
    receipt = await plane.receipt_of(command_id)
    measure(
        f"{name}: {grown / 1e6:.0f} MB more at most; another provider's call took "
        f"{median(meanwhile) * 1e3:.0f} ms instead of {median(before) * 1e3:.0f}, "
        f"at worst {max(meanwhile) * 1e3:.0f} instead of {max(before) * 1e3:.0f}"
    )
    assert receipt["kind"] in ("operation.unknown", "operation.succeeded"), receipt
    kept = receipt["kind"] == "operation.succeeded"
    assert grown < (LARGEST_BYTES_MAX if kept else MEMORY_BYTES_MAX)
    if median(meanwhile) >= SLOWER_MAX * median(before) + SLACK_S:
        return f"usually {median(meanwhile):.3f} s instead of {median(before):.3f}"
    return f"{max(meanwhile):.3f} s at worst" if max(meanwhile) >= WORST_S_MAX * slowness() else ""


@pytest.mark.parametrize(
    ("mode", "options", "arguments"),
    [
        ("big", (), {"bytes": 64_000_000}),
        ("endless", (), {}),
        ("bomb", (), {"bytes": 8_000_000}),
        ("big", (), {"bytes": 8_000_000}),
        ("chatters", (), {}),
        ("answers-nobody", (), {}),
        ("asks-forever", (), {}),
        ("honest", ("stderr-lines",), {}),
    ],
    ids=[
        "a line of 64 MB",
        "a line without an end",
        "8 MB of empty lists",
        "the largest answer",
        "endless messages",
        "endless answers to nobody",
        "endless requests",
        "endless lines on stderr",
    ],
)
async def test_a_server_over_stdio_harms_no_other(
    zygote: Zygote,
    measure: Callable[[str], None],
    request: pytest.FixtureRequest,
    mode: str,
    options: tuple[str, ...],
    arguments: Json,
) -> None:
    """Whatever comes out of it, the daemon stays small, and others are served meanwhile."""
    argv = [sys.executable, "-I", "-S", hostile_mcp.__file__]
    hostile: Json = {"kind": "mcp", "argv": argv, "options": options}
    provoke = call("provoke", "hostile/act", run_id="run-2", mode=mode, **arguments)
    async with beside(zygote, hostile) as (made, plane):
        await unharmed(made, plane, provoke, measure, request.node.callspec.id)


async def endless_body(_server: Web, stream: SocketStream, _request: Request) -> None:
    """Answer with JSON that never ends."""
    head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n"
    await stream.send(head.encode() + b'{"x":"')
    while True:
        await stream.send(b"x" * 65_536)


async def endless_event(_server: Web, stream: SocketStream, _request: Request) -> None:
    """Answer with an event that never ends."""
    await stream.send(STREAM + b"data: ")
    while True:
        await stream.send(b"x" * 65_536)


async def endless_events(_server: Web, stream: SocketStream, _request: Request) -> None:
    """Answer with messages that nobody asked for."""
    await stream.send(STREAM)
    one = event(b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"x"}}')
    while True:
        await stream.send(one * 500)


@pytest.mark.parametrize("answer", [endless_body, endless_event, endless_events])
async def test_a_server_over_http_harms_no_other(
    zygote: Zygote, measure: Callable[[str], None], answer: Answer
) -> None:
    """The same of what comes over a socket."""
    name = f"{answer.__name__.replace('_', ' ')} over HTTP"
    async with web(era=LEGACY, answer=answer) as server:
        hostile: Json = {"kind": "mcp", "url": f"http://127.0.0.1:{server.port}/mcp"}
        async with beside(zygote, hostile) as (made, plane):
            provoke = call("provoke", "hostile/act", run_id="run-2")
            await unharmed(made, plane, provoke, measure, name)


# ------------------------------------------------------------------ many at once


async def test_32_calls_at_once_on_one_stdio_server(zygote: Zygote, measure: Callable[[str], None]) -> None:
    """All are under way together in one process, and each is answered as itself, once."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        gate = made.root / "gate"
        life = made.start()
        began = monotonic()
        for n in range(AT_ONCE):
            await plane.give(call(f"cmd-{n}", "counter/slow", n=n, until=str(gate)))
        await made.effects_reach(AT_ONCE)
        assert not plane.history.receipts
        gate.touch()
        await plane.answered()
        took_s = monotonic() - began
        assert len({line["pid"] for line in made.effects()}) == 1
        for n in range(AT_ONCE):
            receipt = await plane.receipt_of(f"cmd-{n}")
            assert receipt["data"]["result"]["structuredContent"]["key"] == receipt["operation_id"]
        assert await life.stop() == 0
        await must_hold(made)
    measure(f"{AT_ONCE} calls at once on one stdio server, its start included: {took_s:.2f} s")


async def test_32_calls_at_once_on_one_http_server(zygote: Zygote, measure: Callable[[str], None]) -> None:
    """The same over HTTP, with the official SDK's server."""
    port = free_port()
    hostile: Json = {"kind": "mcp", "url": f"http://127.0.0.1:{port}/mcp"}
    async with scripted_plane() as plane, sandbox(zygote, plane, providers__sdk=hostile) as made:
        gate, ledger = made.root / "gate", made.root / "sdk-ledger"
        async with listening(
            [from_pypi("python"), str(SDK_HTTP), str(port), str(ledger)], b"Uvicorn running"
        ):
            ledger.touch()
            life = made.start()
            began = monotonic()
            for n in range(AT_ONCE):
                await plane.give(call(f"cmd-{n}", "sdk/hold", n=n, until=str(gate)))
            with anyio.fail_after(PATIENCE_S):
                while ledger.read_text().count("\n") < AT_ONCE:  # noqa: ASYNC110 - the kernel tells nobody
                    await anyio.sleep(0.01)
            assert not plane.history.receipts
            gate.touch()
            await plane.answered()
            took_s = monotonic() - began
            for n in range(AT_ONCE):
                receipt = await plane.receipt_of(f"cmd-{n}")
                assert receipt["data"]["result"]["structuredContent"] == {"result": n}
            assert await life.stop() == 0
        assert sorted(map(int, ledger.read_text().split())) == list(range(AT_ONCE))
    measure(f"{AT_ONCE} calls at once on one HTTP server, connecting included: {took_s:.2f} s")
