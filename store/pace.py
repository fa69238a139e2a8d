"""How much is pruned or erased with one commit: so much that whoever waits for that commit hardly notices.

Part of `store`, pure: imports nothing of ours.

Theory of operation
-------------------
A commit that also removes something is held up three times: while rows are looked for, while pages are
overwritten and go to the `-wal`, and by their fsync. The first is bounded by time, the second by bytes; how
long the third takes is the disk's business. Whatever removes something in one commit (retention, what was
demanded, what is due, pieces of what was long) draws on that commit's one budget.

Later those pages are copied into the file, all over which they lie. So the `-wal` is checkpointed as soon as
it holds some hundred of them, however few others there are (`due`); but not in the same breath as a removal,
if somebody waited for that.

How long such a commit took is told, and such a checkpoint: one that took too long halves the share of all
bounds that the next steps get, and each that did not gives a quarter back.
"""

import time
from collections.abc import Callable
from typing import Final, Self

STEP_S: Final = 0.002
"""Nothing new is begun after this."""
STEP_BYTES: Final = 262_144
"""What is overwritten with one commit, unless one row alone is longer."""
STEP_PAGES: Final = 256
"""Pages left in the `-wal` by commits which removed something, before all are copied into the file."""
COMMIT_S: Final = 0.01
"""A commit that removed something, and took longer than this, was too long: half of the 20 ms for which
retention may hold a commit up. So was the checkpoint of its pages."""
SHARE_MIN: Final = 1 / 4
_BACK: Final = 1.25


class Budget:
    """What one commit may use: says when it is enough."""

    def __init__(self, share: float, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left_s = STEP_S * share
        self._until = 0.0
        self._bytes_max = round(STEP_BYTES * share)
        self.taken = 0
        """Bytes that this commit has overwritten."""
        self.walked = 0
        """Commands that this commit has looked at for those who wait for an answer."""

    @property
    def spent(self) -> bool:
        """Whether nothing more is to be begun."""
        return self.full or self._clock() >= self._until

    @property
    def full(self) -> bool:
        """Whether so much was overwritten that nothing more is to be begun, however fast it went."""
        return self.taken >= self._bytes_max

    def has_room(self, count: int) -> bool:
        """Whether so many bytes may be overwritten now: something always may, where nothing was so far."""
        return not self.taken or self.taken + count <= self._bytes_max

    def take(self, count: int) -> None:
        """Count bytes that are overwritten."""
        self.taken += count

    def __enter__(self) -> Self:
        """Let time count from here on."""
        self._until = self._clock() + self._left_s
        return self

    def __exit__(self, *_: object) -> None:
        """Let time stand still: others have their turn."""
        self._left_s = self._until - self._clock()


class Pace:
    """The share of the bounds that steps get at present. One for each open journal."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.share = 1.0
        self.pages = 0
        """Those in the `-wal` that commits left there which removed something."""
        self._budget: Budget | None = None
        self._used = self._scatters = False
        self.has_removed = False
        """Whether the last commit has."""

    def step(self) -> Budget:
        """Return what is left of the present commit's budget. Its time counts within a `with` block."""
        if self._budget is None:
            self._budget = Budget(self.share, self.clock)
        return self._budget

    def used(self, *, scatters: bool) -> None:
        """Note that the present commit removes something; `scatters`: in pages that lie far apart."""
        self._used = True
        self._scatters |= scatters

    def told(self, seconds: float, pages: int) -> None:
        """Hear how long the present commit took, from its beginning to the end of its fsync.

        `pages` are those that it left in the `-wal`. What follows is another commit.
        """
        if self._scatters:
            self.pages += pages
        if self._used:
            self._judge(seconds)
        self._budget, self.has_removed = None, self._used
        self._used = self._scatters = False

    def copied(self, seconds: float) -> None:
        """Hear that the `-wal` was checkpointed, and how long that took."""
        if self.pages:
            self._judge(seconds)
        self.pages = 0

    @property
    def due(self) -> bool:
        """Whether a checkpoint is, because of what was removed."""
        return self.pages >= STEP_PAGES

    def _judge(self, seconds: float) -> None:
        self.share = max(self.share / 2, SHARE_MIN) if seconds > COMMIT_S else min(self.share * _BACK, 1.0)
