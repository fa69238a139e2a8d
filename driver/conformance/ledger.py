"""What stands in the world's ledger.

Part of `driver.conformance`; imports its world for the ledger's place.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final

import anyio

from driver.conformance.verdict import Answer
from driver.conformance.world import SCRIPT, SEARCH, entries_of

POLL_S: Final = 0.02
"""Seconds between two looks at a file that another process writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One call that reached the world."""

    tool: str
    item: str | None
    key: str | None
    way: str
    """How it went: see `world`, without the `first-`."""
    effect: bool
    answer: str
    said: int
    """How many answers set out: noted before they leave, and taken back where nobody listens."""


_FIELDS: Final = tuple(one.name for one in fields(Entry))


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The folder of one world: how its calls go, and what became of them."""

    folder: Path
    _script: dict[str, str] = field(default_factory=dict[str, str])

    def goes(self, **ways: str) -> None:
        """Say how calls go from now on, by tool; see `world` for the ways."""
        self._script.update(ways)
        draft = self.folder / f"{SCRIPT}.new"
        draft.write_text(json.dumps(self._script))
        draft.rename(self.folder / SCRIPT)

    def entries(self, item: str) -> list[Entry]:
        """Return the writes for one item, oldest first."""
        return [entry for entry in self._calls(item) if entry.tool != SEARCH]

    def searches(self, item: str) -> list[Entry]:
        """Return the reads that asked for one item, oldest first."""
        return [entry for entry in self._calls(item) if entry.tool == SEARCH]

    def effects(self, item: str) -> int:
        """Return how many effects there were for one item."""
        return sum(entry.effect for entry in self.entries(item))

    def answer(self, item: str) -> Answer:
        """Return the best that the world said in time to any call for the item."""
        said = {entry.answer for entry in self.entries(item)}
        return Answer.SUCCESS if "success" in said else Answer.ERROR if "error" in said else Answer.NONE

    def went(self, item: str, way: str, *, said: int = 0) -> bool:
        """Return whether a write for the item went this way, and that many answers set out for it."""
        return any(entry.way == way and entry.said >= said for entry in self.entries(item))

    def _calls(self, item: str) -> list[Entry]:
        return [
            Entry(**{name: entry[name] for name in _FIELDS})
            for entry in entries_of(self.folder)
            if entry["item"] == item
        ]

    async def until(self, happened: Callable[["World"], bool], seconds: float) -> bool:
        """Return whether something has happened in the world, as soon as it has, or after `seconds`."""
        with anyio.move_on_after(seconds):
            while not happened(self):  # noqa: ASYNC110 - another process writes the file
                await anyio.sleep(POLL_S)
            return True
        return happened(self)
