"""A second daemon at the same time: on the state folder of the first, or on a copy, as in a cloned sandbox.

An intruder must be refused by the lock of the folder. A clone has the first one's identity and the history as
far as it was copied: the plane speaks to whichever connected last, and closes the other's connection with
4001. What is promised of two that live at once is what the plane can tell: a clone whose history it knows to
have gone on elsewhere does nothing; of two that it cannot tell apart, a tool whose intents it must hold is
called by one only. An operator then looks which of them goes on, and ends the other, before lifting a fence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from driver.engine.fences import ROLLBACKS
from store.errors import JournalBusy
from store.journal import open_journal
from store.records import StoredEvent
from tests.faults.simulation.disk import Disk
from tests.faults.simulation.files import copy_folder
from tests.faults.simulation.life import Around, Life

INTRUDING, CLONED, INSEPARABLE = 0.06, 0.06, 0.06
"""In how many worlds somebody starts a second daemon, a clone lives, one lives that the plane cannot tell."""
REFUSED: Final = "a second daemon was refused by the lock"
KEPT: Final = "the clone went on"
ENDED: Final = "the clone was ended"


class Intruder(Life):
    """A daemon that somebody starts where one lives."""

    async def _run(self) -> None:
        truth = self.around.truth
        try:
            async with open_journal(self.settings, clock=self.around.clocks.wall, new_id=self.around.ids):
                truth.blame("I10", "two daemons have one journal open")
        except JournalBusy as busy:
            truth.reached[REFUSED] += 1
            if busy.pid is None:
                truth.blame("I10", f"it was not the folder's lock that kept a second daemon out: {busy}")
        except Exception as error:  # noqa: BLE001 - whatever it is, it should have been refused
            truth.blame("I10", f"a second daemon on one journal: {error!r}")
        self.ended.set()


class Clone(Life):
    """The daemon of a copied sandbox."""

    def __init__(self, number: int, disk: Disk, around: Around) -> None:
        super().__init__(number, disk, around)
        self.name = f"clone-{number}"
        self.told: dict[int, bytes | None] = {}
        """Every event that its own callers were told of; and what it began with."""

    def _begin(self, events: Sequence[StoredEvent], acked_seq: int) -> None:
        del acked_seq
        self.told = {event.seq: event.body for event in events}

    def _hear(self, events: Sequence[StoredEvent]) -> None:
        self.told |= {event.seq: event.body for event in events}
        self.around.truth.hears(self.number, events)


@dataclass(slots=True)
class Rivals:
    """Whoever lives beside the daemon of a world. At most one of each kind."""

    rng: Random
    intruder: Intruder | None = None
    clone: Clone | None = None

    @property
    def any(self) -> bool:
        """Whether there is one that may still do something."""
        return self.clone is not None or (self.intruder is not None and not self.intruder.ended.is_set())

    def intrude(self, around: Around) -> None:
        """Start a second daemon on the folder of the first."""
        around.truth.fired["a second daemon on one folder"] += 1
        self.intruder = Intruder(2_000, Disk(self.rng), around)
        self.intruder.start()

    def withdraw(self) -> None:
        """End the intruder: the folder is about to be without a daemon, and open to whoever comes."""
        if self.intruder is not None:
            end(self.intruder)
            self.intruder = None

    def copy(self, around: Around) -> None:
        """Start the daemon of a copied sandbox, in its own folder and with a network of its own."""
        around.truth.fired["a clone"] += 1
        self.clone = Clone(1_000, Disk(self.rng), around)
        self.clone.start()

    def is_time(self, life: Life) -> bool:
        """Whether an operator has noticed that there are two."""
        clone = self.clone
        assert clone is not None, "there are two"
        is_fenced = clone.posture.fence is not None or life.posture.fence is not None
        return clone.ready and is_fenced and self.rng.random() < 0.5

    def part(self, to: Path, *, is_known: bool, is_first_known: bool) -> Clone | None:
        """End the clone. Where its history is the one to go on with, leave its files in `to`; return it.

        That is the one that the plane knows. An operator takes the other one only where it says itself that
        the plane knows better.
        """
        clone = self.clone
        assert clone is not None, "there are two"
        self.clone = None
        fence = clone.posture.fence
        is_told = fence is not None and fence.reason in ROLLBACKS
        may_go_on = is_known or (clone.ready and is_told)
        goes_on = may_go_on and (not is_first_known or self.rng.random() < 0.5)
        if goes_on:
            copy_folder(clone.around.folder / "state", to)
        clone.around.truth.reached[KEPT if goes_on else ENDED] += 1
        end(clone)
        return clone if goes_on else None

    def close(self) -> None:
        """Close what is left open, when the world is over."""
        for life in (self.intruder, self.clone):
            if life is not None:
                life.alive = False
                life.close()


def end(life: Life) -> None:
    """Kill a second daemon: its connections end, and nobody restarts it."""
    life.alive = False
    life.around.tools.process_died(life)
    wire = life.around.network.wire
    if wire is not None and wire.process is life:
        wire.process_died()
    life.close()
