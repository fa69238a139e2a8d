"""How the daemon stands towards new effects: what every part of the engine looks at before it acts.

Part of `driver.engine`; imports only `store`. Held in memory because each of its facts is either about this
process life (draining, the history confirmed) or read back from the journal at start (the fence).
"""

from dataclasses import dataclass
from typing import Literal

import anyio

from store.records import Fence


@dataclass(slots=True)
class Posture:
    """Mutable, owned by the daemon; read by intake and dispatcher, between two awaits."""

    fence: Fence | None
    confirmed: bool
    """Whether the plane, in this boot, has confirmed that this journal is the history it knows."""
    alone: bool = False
    """Whether there is no plane that could confirm anything."""
    ready: bool = False
    draining: bool = False

    @property
    def state(self) -> Literal["starting", "ready", "draining", "fenced"]:
        """The word that `hello` and `status` use."""
        if self.fence is not None:
            return "fenced"
        if self.draining:
            return "draining"
        return "ready" if self.ready else "starting"

    @property
    def may_dispatch(self) -> bool:
        """Whether anything may be started at all."""
        return self.confirmed and not self.draining and self.fence is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of the engine (docs/configuration.md, `[driver]`)."""

    inflight_max: int
    queue_max: int
    approvals_max: int
    run_unsettled_max: int
    drain_s: float


class Slots:
    """The operations that may execute at once: taken before an intent is committed, given back at its end.

    Not a semaphore: intake takes what is free without waiting, because a commit that waited for a slot
    would hold up every other command.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._free = total
        self._all_free: anyio.Event | None = None
        """Set when none is held any more; there while somebody waits for that."""

    @property
    def in_use(self) -> int:
        """How many operations hold a slot."""
        return self._total - self._free

    def take(self, wanted: int) -> int:
        """Take up to `wanted` slots, and return how many were free."""
        taken = max(min(wanted, self._free), 0)
        if taken:
            self.hold(taken)
        return taken

    def hold(self, count: int = 1) -> None:
        """Count `count` that execute already, beyond the total if there are so many."""
        self._free -= count

    def give(self, count: int = 1) -> None:
        """Give `count` slots back."""
        self._free += count
        assert self._free <= self._total, "a slot was given back twice"
        if self._free == self._total and self._all_free is not None:
            self._all_free.set()
            self._all_free = None

    async def all_given_back(self) -> None:
        """Return once nothing holds a slot."""
        if self._free == self._total:
            return
        if self._all_free is None:
            self._all_free = anyio.Event()
        await self._all_free.wait()
