"""The goals: of what each is computed, what it must be, and what it aims at. Pure.

The one place where these numbers stand.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tests.bench.book import Book, Sample


class Gate(Enum):
    """How much of `must` the short form holds a goal to."""

    EXACT = 1.0
    """A count, a size, a plan: the machine's noise does not move it."""
    COUNT = 1.05
    """A count in a window of time, into which one checkpoint more or less may fall."""
    FLAT = 1.5
    """What the noise moves a little: processor times, and a stall that would be longer by far."""
    RATE = 3.0
    """A rate: machines are noisy by 2 to 3 times."""
    NONE = 0.0
    """The short form does not measure it; or it says more of the disk than of the code, as what is counted
    for each raw fdatasync: one that flushes in a tenth of the time divides that by ten."""


def ratio(value: float, reference: float) -> float:
    """Return how many times the reference it is."""
    return value / reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One number that is held against two limits."""

    title: str
    must: float
    aim: float
    metrics: Sequence[str]
    of: Callable[..., float] = ratio
    """What is made of the metrics' values, round by round."""
    at_most: bool = False
    """Whether the limits are upper ones."""
    gate: Gate = Gate.RATE
    so_far: float | None = None
    """What the short form holds it to in place of `must`, which it has not reached yet: the least median of
    the bench's runs on otherwise idle machines, since the journal writes its rows together."""
    unit: str = ""

    def measured(self, book: Book) -> Sample | None:
        """Return the goal's values in each round; None where the run did not measure them."""
        return book.combined(self.of, *self.metrics) if book.has(*self.metrics) else None

    @property
    def sign(self) -> str:
        """How a value is compared with the limits."""
        return "≤" if self.at_most else "≥"

    def word(self, value: float) -> str:
        """Say what a value reaches."""
        return "aim" if self.meets(value, self.aim) else "must" if self.meets(value, self.must) else "missed"

    @property
    def gate_limit(self) -> float | None:
        """What the short form holds the goal to; None where it does not."""
        if self.gate is Gate.NONE:
            return None
        margin: float = self.gate.value
        level = self.must if self.so_far is None else self.so_far
        return level * margin if self.at_most else level / margin

    def passes_gate(self, value: float) -> bool:
        """Whether the short form lets the value pass."""
        return self.gate_limit is None or self.meets(value, self.gate_limit)

    def meets(self, value: float, limit: float) -> bool:
        """Whether `value` keeps to the limit."""
        return value <= limit if self.at_most else value >= limit


def identity(value: float) -> float:
    """Return the value."""
    return value


def _alone(call: float, commits: float, echo: float) -> float:
    return call * (1 / commits + 1 / echo)


def _best(rate: float, *others: float) -> float:
    return rate / max(others)


GOALS: Final[Sequence[Goal]] = (
    Goal(
        title="journal alone, 64 callers, of (b)",
        must=0.7, aim=0.85, so_far=0.287, metrics=("journal.rate@64", "floor.rate@64"),
    ),
    Goal(
        title="journal alone, 256 callers, of (b)",
        must=0.7, aim=0.85, so_far=0.22, metrics=("journal.rate@256", "floor.rate@256"),
    ),
    Goal(
        title="durable operations per raw fdatasync, 8 callers",
        must=1.8, aim=2.5, gate=Gate.NONE, metrics=("journal.rate@8", "disk.append"),
    ),
    Goal(
        title="durable operations per raw fdatasync, 64 callers",
        must=7, aim=10, gate=Gate.NONE, metrics=("journal.rate@64", "disk.append"),
    ),
    Goal(
        title="durable operations per raw fdatasync, 256 callers",
        must=12, aim=18, gate=Gate.NONE, metrics=("journal.rate@256", "disk.append"),
    ),
    Goal(
        title="end to end, no-op provider, 64 in flight, of (c)",
        must=0.5, aim=0.7, so_far=0.117, metrics=("noop.rate@64", "bare.rate@64"),
    ),
    Goal(
        title="the same, calls a second per raw fdatasync a second",
        must=0.7, aim=1.2, gate=Gate.NONE, metrics=("noop.rate@64", "disk.append"),
    ),
    Goal(
        title="the same, of DBOS in its best mode",
        must=25, aim=45, of=_best, gate=Gate.NONE,
        metrics=(
            "noop.rate@64", "dbos-installed.rate@1", "dbos-installed.rate@64", "dbos-durable.rate@1",
            "dbos-durable.rate@64",
        ),
    ),
    Goal(
        title="one call at a time, of two SQLite commits and one echo",
        must=0.35, aim=0.6, so_far=0.266, of=_alone, metrics=("noop.rate@1", "floor.rate@1", "echo.rate"),
    ),
    Goal(
        title="one call at a time, of DBOS as installed",
        must=3, aim=5, gate=Gate.NONE, metrics=("noop.rate@1", "dbos-installed.rate@1"),
    ),
    Goal(
        title="one call at a time, of DBOS with WAL and FULL",
        must=2, aim=3.5, gate=Gate.NONE, metrics=("noop.rate@1", "dbos-durable.rate@1"),
    ),
    Goal(
        title="fdatasyncs a call, alone",
        must=2.1, aim=2.0, at_most=True, of=identity, gate=Gate.COUNT, metrics=("syncs@1",),
    ),
    Goal(
        title="fdatasyncs a call, 64 in flight",
        must=0.2, aim=0.1, at_most=True, of=identity, gate=Gate.COUNT, metrics=("syncs@64",),
    ),
    Goal(
        title="CPU a call in the daemon, in echoes' client CPU, alone",
        must=14, aim=9, so_far=36.5, at_most=True, gate=Gate.FLAT, metrics=("noop.cpu@1", "echo.cpu"),
    ),
    Goal(
        title="CPU a call in the daemon, in echoes' client CPU, 64 in flight",
        must=10, aim=6, at_most=True, gate=Gate.FLAT, metrics=("noop.cpu@64", "echo.cpu"),
    ),
    Goal(
        title="stdio MCP provider, 16 in flight, of a bare driver of the same shape",
        must=0.5, aim=0.7, metrics=("mcp.rate@16", "bare-mcp.rate@16"),
    ),
    Goal(
        title="throughput kept with logs at info, events streamed, metrics on",
        must=0.75, aim=0.85, metrics=("loud.rate@64", "noop.rate@64"),
    ),
    Goal(
        title="event loop: longest stall, with fsync delays of 200 ms injected",
        must=100, aim=50, at_most=True, of=identity, gate=Gate.FLAT, unit=" ms", metrics=("stall_ms",),
    ),
    Goal(
        title="very many settled operations of few: rate",
        must=1.5, aim=1.2, at_most=True, metrics=("journal-of-few.rate@64", "journal-of-many.rate@64"),
    ),
    Goal(
        title="the same: listing of what is unsettled",
        must=1.5, aim=1.2, at_most=True, gate=Gate.FLAT, metrics=("listing.many", "listing.few"),
    ),
    Goal(
        title="the same: start, its processor time",
        must=1.5, aim=1.2, at_most=True, gate=Gate.FLAT, metrics=("start-cpu.many", "start-cpu.few"),
    ),
    Goal(
        title="the same: statements whose plan scans or sorts",
        must=0, aim=0, at_most=True, of=identity, gate=Gate.EXACT, metrics=("plans.bad",),
    ),
    Goal(
        title="memory after all calls, of after a fifth of them",
        must=1.1, aim=1.05, at_most=True, gate=Gate.EXACT, metrics=("memory.end", "memory.warm"),
    ),
    Goal(
        title="journal a call, small arguments",
        must=4_096, aim=4_096, at_most=True, of=identity, gate=Gate.EXACT, unit=" bytes",
        metrics=("bytes.call",),
    ),
    Goal(
        title="journal a tombstone",
        must=400, aim=400, at_most=True, of=identity, gate=Gate.EXACT, unit=" bytes",
        metrics=("bytes.tombstone",),
    ),
    Goal(
        title="backlog of unacknowledged events drains, of the WebSocket's own message rate",
        must=0.5, aim=0.7, metrics=("backlog.rate", "stream.rate"),
    ),
    Goal(
        title="the same: memory at the end of a round, of the first round's",
        must=1.2, aim=1.1, at_most=True, of=identity, gate=Gate.EXACT, metrics=("backlog.memory",),
    ),
)  # fmt: skip
