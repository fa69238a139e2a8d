"""Who speaks, for which run, and that only one does at a time.

Part of `driver.gateway`; imports anyio and the store's values.
"""

from dataclasses import dataclass, field

import anyio

from store.records import RunId


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """Whoever is at the other end. `holder` is the same for all connections of one relay or session."""

    holder: str
    run_id: RunId
    resumes: tuple[RunId, ...] = ()
    uid: int
    """Of the process behind the calls."""
    relayed: bool
    """Whether a relay speaks, which mints command ids, and says what was delivered."""
    closed: bool = False
    """Whether nothing more will be asked for."""


class Claims:
    """Which holder has which run. A run that two agents share unknowingly is nobody's history."""

    def __init__(self) -> None:
        self._held: dict[RunId, _Claim] = {}
        self._given = anyio.Event()

    def holds(self, run_id: RunId) -> bool:
        """Whether somebody has the run."""
        return run_id in self._held

    def attends(self, run_id: RunId) -> bool:
        """Whether somebody has the run who may ask for more: until then nobody else continues it."""
        claim = self._held.get(run_id)
        return claim is not None and not claim.closed

    def close(self, speaker: Speaker) -> None:
        """Take note that a speaker asks for nothing more, and waits at most for answers."""
        claim = self._held.get(speaker.run_id)
        if claim is not None and claim.holder == speaker.holder:
            claim.closed = True

    async def wait_and_take(self, speaker: Speaker, patience_s: float) -> bool:
        """Take the run as `take` does; where another one has it, wait a moment until that one has gone.

        A client that starts its server anew does not always wait for the end of the one before.
        """
        if self.take(speaker):
            return True
        with anyio.move_on_after(patience_s):
            while not self.take(speaker):
                await self._given.wait()
            return True
        return False

    def take(self, speaker: Speaker) -> bool:
        """Take the run once more for this speaker; False where another one has it."""
        claim = self._held.setdefault(speaker.run_id, _Claim(speaker.holder, speaker.closed))
        if claim.holder != speaker.holder:
            return False
        claim.count += 1
        return True

    def give(self, speaker: Speaker) -> None:
        """Give back what was taken once."""
        claim = self._held[speaker.run_id]
        claim.count -= 1
        if claim.count == 0:
            del self._held[speaker.run_id]
            self._given.set()
            self._given = anyio.Event()


@dataclass(slots=True)
class _Claim:
    holder: str
    closed: bool
    count: int = field(default=0)
