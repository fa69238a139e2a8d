"""What is computed from measurements. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Latencies:
    """Durations in seconds, in any order."""

    seconds: Sequence[float]

    def percentile_ms(self, percent: float) -> float:
        """Return the smallest duration that `percent` of all do not exceed, in milliseconds."""
        ranked = sorted(self.seconds)
        rank = max(0, -(-len(ranked) * percent // 100) - 1)
        return ranked[int(rank)] * 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A stretch of time, in seconds since the epoch, and the calls that were answered in it."""

    began: float
    ended: float
    calls: int

    @property
    def rate(self) -> float:
        """Calls a second."""
        return self.calls / (self.ended - self.began)

    def count(self, moments: Sequence[float]) -> int:
        """Return how many of the moments lie in the window."""
        return sum(self.began <= moment <= self.ended for moment in moments)


def per_call(windows: Sequence[Window], moments: Sequence[float]) -> float:
    """Return how many of the moments there are for each call, in all windows together.

    Of what comes once in forty calls, each window alone has too much or too little.
    """
    return sum(window.count(moments) for window in windows) / sum(window.calls for window in windows)


def traced_syncs(log: str) -> list[float]:
    """Return the moment of each sync in a log of `strace -f -ttt`; a resumed call is not a second one."""
    found: list[float] = []
    for line in log.splitlines():
        _, moment, call = line.split(maxsplit=2)
        if call.startswith(("fsync(", "fdatasync(", "sync_file_range(", "msync(")):
            found.append(float(moment))
    return found
