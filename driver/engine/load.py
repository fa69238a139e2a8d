"""What waits, as admission sees it: what is accepted and has not been handed on yet included.

Part of `driver.engine`; imports its siblings. Deliveries that share a commit are admitted one after the
other, in the journal's thread, and are handed on after it: none of them stands in a queue yet when the next
one is looked at.
"""

from dataclasses import dataclass

from driver.engine.errands import Errand
from driver.engine.queue import Waiting
from store.values import light


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What waits: for a slot, for a person, and for its receipt."""

    depth: int = 0
    unapproved: int = 0
    errands: int = 0

    def __add__(self, other: "Load") -> "Load":
        return Load(
            depth=self.depth + other.depth,
            unapproved=self.unapproved + other.unapproved,
            errands=self.errands + other.errands,
        )

    def __sub__(self, other: "Load") -> "Load":
        return Load(
            depth=self.depth - other.depth,
            unapproved=self.unapproved - other.unapproved,
            errands=self.errands - other.errands,
        )


def load_of(place: Waiting | None, errand: Errand | None) -> Load:
    """Return what one delivery adds; None: there is none that waits."""
    return Load(
        depth=int(place is not None),
        unapproved=int(place is not None and place.unapproved),
        errands=int(errand is not None),
    )


class Coming:
    """What is accepted, and not handed on yet. Each of its two sums is one thread's, and grows alone."""

    def __init__(self) -> None:
        self._accepted = Load()
        self._handed_on = Load()

    @property
    def load(self) -> Load:
        """What is under way; more than that for the moment in which it is handed on, and never less."""
        handed_on = self._handed_on
        return self._accepted - handed_on

    def accept(self, load: Load) -> None:
        """Take note of what a unit of a commit has accepted. In the journal's thread."""
        self._accepted += load

    def hand_on(self, load: Load) -> None:
        """Take note that it stands in its queues by now. In the loop's thread."""
        self._handed_on += load
