"""Hostile words, bytes and lines to real daemons, and hostile servers under them. Part of `hostile`.

What the other parts of the lane say in one process by the ten thousand, a real daemon hears by the hundred:
from its plane through a relay that forges, on its sockets, from its tools. Afterwards it serves, its memory
is what it was, its log has no traceback, it stops politely, the journal is whole, and all adds up.
"""

import random
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Final

import anyio

from tests.faults.balance import Balance
from tests.faults.hostile.callers import call_in
from tests.faults.hostile.forger import Forger
from tests.faults.hostile.gullible import GulliblePlane
from tests.faults.hostile.relays import write_lines
from tests.faults.hostile.visits import Visit
from tests.faults.hostile.wire import handshake
from tests.faults.lane import BROKEN_MAX, ORPHANS
from tests.faults.network.cutter import cutter
from tests.faults.network.station import leaves, port_of
from tests.system.hostility import STDIO_CASES, Case
from tests.system.hostility_http import HTTP_CASES
from tests.system.plane import scripted_plane
from tests.system.sandbox import Life, Sandbox, sandbox
from tests.system.siege import Toll, siege
from tests.system.zygote import Zygote

WORDS: Final = 150
LINES: Final = 300
GARBAGE: Final = 6
HANDSHAKES: Final = 6
BESIDE: Final = 10_000_000
"""Where its numbers begin: beyond those of the other parts of the lane."""
CASES: Final = 10
GROWN_MAX_KB: Final = 65_536
"""How much more memory a daemon may have afterwards."""
RSS: Final = re.compile(r"VmRSS:\s+([0-9]+) kB")


def work(seed: int, until_s: float) -> Balance:
    """Visit one daemon after the other, for so long; one at least, and one that has hostile tools."""
    return anyio.run(_work, seed, monotonic() + until_s)


async def _work(seed: int, until: float) -> Balance:
    balance, chance, number = Balance(), random.Random(seed), 0
    zygote = Zygote()
    try:
        while not number or (monotonic() < until and len(balance.broken) < BROKEN_MAX):
            with _caught(balance, f"daemon {number}, seed {seed}"):
                await _visit(zygote, balance, seed, number)
            cases = chance.sample(STDIO_CASES, CASES) + chance.sample(HTTP_CASES, CASES // 3)
            with _caught(balance, f"servers {[case.name for case in cases]}"):
                await _besiege(zygote, balance, cases)
            number += 1
    finally:
        zygote.close()
    return balance


@contextmanager
def _caught(balance: Balance, what: str) -> Generator[None]:
    try:
        yield
    except* Exception as group:  # noqa: BLE001 - a daemon that falls over breaks a promise, too
        balance.broken.append(f"{what}: {'; '.join(leaves(group))[:3_000]}")


async def _visit(zygote: Zygote, balance: Balance, seed: int, number: int) -> None:
    plane = GulliblePlane()
    async with scripted_plane(plane=plane), sandbox(zygote, plane) as made:
        forger = Forger(("127.0.0.1", port_of(plane)), plane.look_again)
        with cutter(forger):
            made.configure(control={"url": f"ws://127.0.0.1:{forger.port}/driver"}, gateway={})
            life = made.start()
            await plane.connected()
            visit = Visit(
                balance=balance,
                seed=seed + number,
                plane=plane,
                forger=forger,
                connected=lambda: plane.is_connected,
                executed=lambda: [line["key"] for line in made.effects()],
                tool="counter/count",
            )
            await _provoke(visit, made, life)
        await _must_have_stood_it(visit, made, life)


async def _provoke(visit: Visit, made: Sandbox, life: Life) -> None:
    await visit.must_hold()
    before = _memory_kb(life)
    sockets = [made.runtime / name for name in ("inspect.sock", "operator.sock")]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call_in, visit.balance, sockets, visit.seed, range(LINES))
        gateway = made.runtime / "gateway.sock"
        tasks.start_soon(write_lines, visit.balance, gateway, visit.seed, range(LINES))
        await visit.words(range(BESIDE, BESIDE + WORDS))
        await visit.garbage(range(BESIDE, BESIDE + GARBAGE))
        for number in _soon_forgiven(visit.seed):
            await visit.handshakes(range(number, number + 1))
    await visit.must_hold()
    status = await made.status()
    assert status["state"] == "ready", status
    grown = _memory_kb(life) - before
    assert grown < GROWN_MAX_KB, f"it has {grown:,} kB more than before"
    most = "kB more memory, at most"
    visit.balance.reached[most] = max(visit.balance.reached[most], grown, 1)


def _soon_forgiven(seed: int) -> list[int]:
    """Return numbers of handshakes after which a daemon does not wait for half a minute."""
    patient = (b" 401", b" 403", b" 429")
    numbers = range(BESIDE, BESIDE + 3 * HANDSHAKES)
    return [n for n in numbers if not any(code in handshake(seed, n)[:20] for code in patient)][:HANDSHAKES]


async def _must_have_stood_it(visit: Visit, made: Sandbox, life: Life) -> None:
    assert await life.stop() == 0, life.text[-2_000:]
    assert "Traceback" not in life.text, life.text[-4_000:]
    assert not life.lines("gateway_connection_failed"), "a connection of the gateway failed"
    assert "handler for" not in life.text, "the gateway has no answer to something"
    verified = await made.command("verify", "--deep")
    assert verified.code == 0, verified.text
    try:
        await made.quiet()
    finally:
        visit.balance.figures[ORPHANS] += made.orphans
    events = [event for history in visit.plane.histories.values() for event in history.events()]
    started = {event["data"]["idempotency_key"] for event in events if event["kind"] == "operation.started"}
    executed = visit.executed()
    visit.balance.lives += 1
    visit.balance.reached["a real daemon stood it"] += 1
    assert set(executed) <= started, f"executed without an intent: {set(executed) - started}"


async def _besiege(zygote: Zygote, balance: Balance, cases: Sequence[Case]) -> None:
    async with siege(zygote, Toll(), cases=cases) as besieged:
        try:
            await besieged.end("nothing", politely=True)
        finally:
            # by the servers' own ledger, also where something else was found before
            balance.count_in(besieged.made, besieged.plane)
    balance.tried += len(cases)
    balance.fired["hostile servers, called by a real daemon"] += len(cases)


def _memory_kb(life: Life) -> int:
    found = RSS.search(Path(f"/proc/{life.pid}/status").read_text())
    assert found is not None, "there is no such process"
    return int(found[1])
