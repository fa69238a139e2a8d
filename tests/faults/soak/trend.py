"""Is a series of looks flat: the same phase, early and late, within one run. Pure. Part of `soak`.

The looks are taken when all that was asked is answered. The first sixth of them is left out: caches fill,
pools and threads come into being on demand. Of the others, the median of the first third is held against that
of the last third, so that a single odd look, or a busy machine, decides nothing.

What may lie between the two medians, and why:

descriptors  8: connections to a provider that are kept for the next call come and go
threads      6: worker threads are made on demand, up to a limit, and end when they are idle
memory       6 MB and a tenth: an allocator keeps what it once needed, in arenas that fill unevenly. What is
             leaked with each call is seen from about 7 kB a call in a run of two minutes, and from some 300
             bytes in one of 45
processes    2: a server that was killed may not have been needed again yet
-wal         4 MB: what the daemon lets it grow to before it checkpoints
journal      2 MB and a half: pruning goes in steps, and freed pages are used again before new ones
files        2, and records of programs 4: one that is being made
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import median
from typing import Final

from tests.faults.soak.gauge import Sample

SAMPLES_MIN: Final = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Slack:
    """What may lie between early and late."""

    more: int
    share: float = 0.0

    def allows(self, early: float, late: float) -> bool:
        """Whether the growth is none."""
        return late <= early * (1 + self.share) + self.more


SLACKS: Final[Mapping[str, Slack]] = {
    "descriptors": Slack(more=8),
    "threads": Slack(more=6),
    "memory_kb": Slack(more=6_144, share=0.1),
    "processes": Slack(more=2),
    "wal_kb": Slack(more=4_096),
    "journal_kb": Slack(more=2_048, share=0.5),
    "files": Slack(more=2),
    "records": Slack(more=4),
}


def thirds(samples: Sequence[Sample]) -> dict[str, tuple[float, float]]:
    """Return the medians of the first and the last third, of each figure; empty where there are too few."""
    if len(samples) < SAMPLES_MIN:
        return {}
    warm = samples[len(samples) // 6 :]
    third = max(1, len(warm) // 3)
    return {
        field.name: (
            median(getattr(sample, field.name) for sample in warm[:third]),
            median(getattr(sample, field.name) for sample in warm[-third:]),
        )
        for field in fields(Sample)
    }


def growing(samples: Sequence[Sample]) -> list[str]:
    """Return what is not flat, in words."""
    return [
        f"{name} grew from {early:g} to {late:g} in {len(samples)} looks"
        for name, (early, late) in thirds(samples).items()
        if not SLACKS[name].allows(early, late)
    ]
