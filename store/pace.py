"""How much is pruned or erased with one commit: so much that whoever waits for that commit hardly notices.

Part of `store`, pure: imports nothing of ours.

Theory of operation
-------------------
A commit that also removes something is held up three times: while rows are looked for, while pages are
overwritten and go to the `-wal`, and by their fsync. The first is bounded by time, the second by bytes; how
long the third takes is the disk's business. So the time of each such commit is told: one that took too long
halves the share of both bounds that the next ones get, and each that did not gives a quarter back.
"""

import time
from collections.abc import Callable
from typing import Final

STEP_S: Final = 0.002
"""Nothing new is begun after this."""
STEP_BYTES: Final = 262_144
"""What is overwritten with one commit, unless one row alone is longer."""
COMMIT_S: Final = 0.01
"""A commit that removed something, and took longer than this, was too long: half of the 20 ms for which
retention may hold a commit up."""
SHARE_MIN: Final = 1 / 4
_BACK: Final = 1.25


class Budget:
    """What one step may use: says when it is enough."""

    def __init__(self, share: float, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until = clock() + STEP_S * share
        self._bytes = round(STEP_BYTES * share)

    @property
    def spent(self) -> bool:
        """Whether nothing more is to be begun."""
        return self.full or self._clock() >= self._until

    @property
    def full(self) -> bool:
        """Whether so much was overwritten that nothing more is to be begun, however fast it went."""
        return self._bytes <= 0

    def take(self, count: int) -> None:
        """Count bytes that are overwritten."""
        self._bytes -= count


class Pace:
    """The share of the bounds that steps get at present. One for each open journal."""

    def __init__(self) -> None:
        self.share = 1.0
        self._used = False

    def budget(self, clock: Callable[[], float] = time.monotonic) -> Budget:
        """Return what the step that begins now may use."""
        return Budget(self.share, clock)

    def used(self) -> None:
        """Note that the present commit removes something."""
        self._used = True

    def told(self, seconds: float) -> None:
        """Hear how long the present commit took, from its beginning to the end of its fsync."""
        if not self._used:
            return
        self._used = False
        self.share = max(self.share / 2, SHARE_MIN) if seconds > COMMIT_S else min(self.share * _BACK, 1.0)
