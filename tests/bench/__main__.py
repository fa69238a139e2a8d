"""Runs the benchmark and prints its table."""

import platform
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final

import anyio
from rich.console import Console
from rich.table import Table

from tests.bench.disk import DiskRate, measure_disk
from tests.bench.journal import lines, measure_journal
from tests.bench.numbers import Latencies, Window, traced_syncs
from tests.bench.plane import load_plane
from tests.bench.subject import START_S, ProviderName, can_trace, subject

MEASURE_S: Final = 3.0
TRACE_S: Final = 1.5
WARM_S: Final = 0.5
DISK_S: Final = 2.0
IN_FLIGHT: Final = (1, 64)
PROVIDERS: Final[tuple[ProviderName, ...]] = ("no-op", "MCP")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One line of the table."""

    provider: ProviderName
    in_flight: int
    window: Window
    latencies: Latencies
    cpu_s: float
    rss_mb: float
    syncs: float | None
    """For each call; None where nobody could count."""

    @property
    def rate(self) -> float:
        """Calls a second."""
        return self.window.calls / (self.window.ended - self.window.began)


async def measure(folder: Path) -> list[Measured]:
    """Measure every combination. Each has two daemons: one that is timed, and one whose syncs are counted."""
    found: list[Measured] = []
    for number, (provider, in_flight) in enumerate(product(PROVIDERS, IN_FLIGHT)):
        syncs = None
        if can_trace():
            window, _, _, _, syncs_log = await _run(
                folder / f"traced-{number}", provider, in_flight, traced=True
            )
            syncs = window.count(traced_syncs(syncs_log)) / window.calls
        window, latencies, cpu_s, rss_mb, _ = await _run(
            folder / f"{number}", provider, in_flight, traced=False
        )
        found.append(
            Measured(
                provider=provider,
                in_flight=in_flight,
                window=window,
                latencies=latencies,
                cpu_s=cpu_s,
                rss_mb=rss_mb,
                syncs=syncs,
            )
        )
    return found


async def _run(
    folder: Path, provider: ProviderName, in_flight: int, *, traced: bool
) -> tuple[Window, Latencies, float, float, str]:
    async with load_plane() as plane:
        async with subject(folder, provider, plane.url, traced=traced) as daemon:
            with anyio.fail_after(START_S):
                await plane.connected.wait()
            await plane.measure(in_flight, WARM_S)
            before = daemon.cpu_s()
            window, latencies = await plane.measure(in_flight, TRACE_S if traced else MEASURE_S)
            cpu_s, rss_mb = daemon.cpu_s() - before, daemon.rss_mb()
        return window, latencies, cpu_s, rss_mb, daemon.trace() if traced else ""


def report(disk: DiskRate, found: list[Measured]) -> Iterator[str | Table]:
    """Yield what is printed."""
    yield (
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {platform.system()} "
        f"{platform.release()}; measured now, on this machine and disk"
    )
    yield (
        f"the disk alone: {disk.rate:,.0f} appends of 4 KiB a second, each with fdatasync "
        f"(p50 {disk.latencies.percentile_ms(50):.2f} ms, p99 {disk.latencies.percentile_ms(99):.2f} ms)"
    )
    table = Table(title="from the command's frame to the receipt's, at the plane")
    for heading in (
        "provider",
        "in flight",
        "calls/s",
        "p50 ms",
        "p99 ms",
        "fsyncs/call",
        "CPU ms/call",
        "RSS MB",
    ):
        table.add_column(heading, justify="left" if heading == "provider" else "right", no_wrap=True)
    for line in found:
        table.add_row(
            line.provider,
            str(line.in_flight),
            f"{line.rate:,.0f}",
            f"{line.latencies.percentile_ms(50):.2f}",
            f"{line.latencies.percentile_ms(99):.2f}",
            "-" if line.syncs is None else f"{line.syncs:.3f}",
            f"{line.cpu_s / line.window.calls * 1_000:.2f}",
            f"{line.rss_mb:.0f}",
        )
    yield table
    yield "no-op: a provider within the daemon that answers at once; MCP: tests/servers/counter_mcp.py."
    yield "CPU and RSS: the daemon's own, without the provider's and the plane's."
    if can_trace():
        yield "fsyncs: of all its threads, checkpoints included, counted by strace in runs of their own."
    else:
        yield "fsyncs were not counted: strace is not installed."


def main() -> None:
    """Run the benchmark."""
    # in the working directory: a folder for temporary files is often in memory, where an fsync costs nothing
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path.cwd()) as name:
        disk = measure_disk(Path(name), DISK_S)
        found = anyio.run(measure, Path(name))
        journal = measure_journal(Path(name))
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    for part in (*report(disk, found), *lines(journal)):
        console.print(part)


if __name__ == "__main__":
    main()
