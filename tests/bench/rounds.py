"""The rounds: every subject and every reference is started once, and then they take turns.

What is compared stands side by side in each round, so that what else the machine does meets both.
"""

import gc
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from tests.bench.book import Book
from tests.bench.plane import LoadPlane, load_plane
from tests.bench.plans import Plan
from tests.bench.processes import alive_until, cpu_s, running
from tests.bench.references.disk import measure_disk
from tests.bench.references.echo import echo_server, measure_echo
from tests.bench.references.floor import Rows, measure_floor, rows_of
from tests.bench.references.peer import peer
from tests.bench.subjects import listener
from tests.bench.subjects.daemon import Level, ProviderName, subject
from tests.bench.subjects.journal import measure_journal

Slice = Callable[[Path], Awaitable[Mapping[str, float]]]
"""One turn of one subject, with a folder for its files that no other turn has."""


async def run_rounds(folder: Path, plan: Plan, book: Book, tell: Callable[[str], None]) -> None:
    """Start everything, let all take turns, and note what they measure."""
    rows = await rows_of(folder / "rows", plan.operations)
    async with AsyncExitStack() as stack:
        slices = [slice_ async for slice_ in _slices(folder, plan, rows, stack)]
        gc.collect()
        gc.freeze()
        for number in range(plan.rounds + 1):
            for place, slice_ in enumerate(slices):
                values = await slice_(folder / f"turn-{number}-{place}")
                if number:  # the first round only warms up
                    book.note(values)
            tell(f"round {number} of {plan.rounds}")


async def _slices(folder: Path, plan: Plan, rows: Rows, stack: AsyncExitStack) -> AsyncGenerator[Slice]:
    enter, seconds = stack.enter_async_context, plan.seconds
    noop = await enter(_daemon(folder / "noop", "no-op", "warning"))
    bare = await enter(_bare(folder / "bare", "bare"))
    echo = await enter(echo_server())
    yield _disk(seconds)
    for callers in (256, 64, 8):
        yield _journal(plan.operations, callers)
        yield _floor(rows, callers, plan.operations)
    yield _calls("bare", bare, 64, seconds)
    yield _calls("noop", noop, 64, seconds)
    loud = await enter(_loud(folder / "loud"))
    yield _calls("loud", loud, 64, seconds)
    yield _echo(echo, seconds / 2)
    yield _calls("noop", noop, 1, seconds)
    yield _calls("bare", bare, 1, seconds)
    yield _floor(rows, 1, 256)
    bare_mcp = await enter(_bare(folder / "bare-mcp", "bare_mcp"))
    mcp = await enter(_daemon(folder / "mcp", "MCP", "warning"))
    yield _calls("mcp", mcp, 16, seconds)
    yield _calls("bare-mcp", bare_mcp, 16, seconds)
    if plan.peers:
        for mode in ("installed", "durable"):
            dbos = await enter(peer("dbos_transact", mode, folder / f"dbos-{mode}"))
            yield _peer(f"dbos-{mode}", dbos.measure, 1, seconds)
            yield _peer(f"dbos-{mode}", dbos.measure, 64, seconds)
        for name in ("huey", "persist-queue"):
            queue = await enter(peer("queues", name, folder / name))
            yield _peer(name, queue.measure, 1, seconds / 2)


@dataclass(frozen=True, slots=True)
class _Driven:
    """A plane, and the process that it drives."""

    plane: LoadPlane
    pid: int


@asynccontextmanager
async def _daemon(folder: Path, provider: ProviderName, level: Level) -> AsyncGenerator[_Driven]:
    async with load_plane() as plane, subject(folder, plane.url, provider=provider, level=level) as daemon:
        await daemon.connected(plane.connected)
        yield _Driven(plane, daemon.pid)


@asynccontextmanager
async def _loud(folder: Path) -> AsyncGenerator[_Driven]:
    """A daemon that logs, and that somebody listens to."""
    async with load_plane() as plane, subject(folder, plane.url, level="info") as daemon:
        await daemon.connected(plane.connected)
        async with running(sys.executable, "-I", "-S", listener.__file__, str(daemon.inspect_socket)):
            yield _Driven(plane, daemon.pid)


@asynccontextmanager
async def _bare(folder: Path, module: str) -> AsyncGenerator[_Driven]:
    await anyio.Path(folder).mkdir()
    argv = (sys.executable, "-m", f"tests.bench.references.{module}", str(folder))
    async with load_plane() as plane, running(*argv, plane.url) as process:
        await alive_until(plane.connected, process)
        yield _Driven(plane, process.pid)


def _disk(seconds: float) -> Slice:
    async def turn(folder: Path) -> Mapping[str, float]:
        appends, overwrites = measure_disk(folder.parent, seconds)
        return {"disk.append": appends, "disk.overwrite": overwrites}

    return turn


def _journal(operations: int, callers: int) -> Slice:
    async def turn(folder: Path) -> Mapping[str, float]:
        return {f"journal.rate@{callers}": await measure_journal(folder, operations, callers)}

    return turn


def _floor(rows: Rows, group: int, operations: int) -> Slice:
    async def turn(folder: Path) -> Mapping[str, float]:
        return {f"floor.rate@{group}": measure_floor(folder, rows, group, operations)}

    return turn


def _calls(name: str, driven: _Driven, in_flight: int, seconds: float) -> Slice:
    async def turn(_: Path) -> Mapping[str, float]:
        before = cpu_s(driven.pid)
        window, latencies = await driven.plane.measure(in_flight, seconds)
        return {
            f"{name}.rate@{in_flight}": window.rate,
            f"{name}.cpu@{in_flight}": (cpu_s(driven.pid) - before) / window.calls,
            f"{name}.p50@{in_flight}": latencies.percentile_ms(50),
            f"{name}.p99@{in_flight}": latencies.percentile_ms(99),
        }

    return turn


def _echo(url: str, seconds: float) -> Slice:
    async def turn(_: Path) -> Mapping[str, float]:
        rate, cpu = await measure_echo(url, seconds)
        return {"echo.rate": rate, "echo.cpu": cpu}

    return turn


def _peer(
    name: str, measure: Callable[[int, float], Awaitable[float]], in_flight: int, seconds: float
) -> Slice:
    async def turn(_: Path) -> Mapping[str, float]:
        return {f"{name}.rate@{in_flight}": await measure(in_flight, seconds)}

    return turn
