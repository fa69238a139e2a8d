"""A plane whose words are forged, and which takes what comes of it. Part of `hostile`."""

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.system.history import Json
from tests.system.plane import ScriptedPlane

DOCS = Path(__file__).resolve().parents[3] / "docs"


@cache
def documented(page: str) -> frozenset[str]:
    """Return the words that a page of the documentation has between back quotes."""
    return frozenset(re.findall(r"`([a-z_]+)`", (DOCS / page).read_text()))


@dataclass(slots=True)
class GulliblePlane(ScriptedPlane):
    """See the module. Everything else about the daemon's frames is held against the protocol all the same."""

    codes: Counter[str] = field(default_factory=Counter[str])
    """The codes of plain answers and of `error` frames."""

    def __post_init__(self) -> None:
        self.errors_expected = True

    def _answer(self, said: Json) -> None:
        if said["command_id"] in self.orders:
            ScriptedPlane._answer(self, said)
        self.codes[str(said.get("code", said["type"]))] += 1

    def undocumented(self) -> list[str]:
        """Return the codes of answers that docs/protocol.md does not name."""
        self.codes.update(error["code"] for error in self.errors)
        self.errors.clear()
        return sorted(set(self.codes) - documented("protocol.md") - {"retired"})
