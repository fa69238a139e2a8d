"""What the gateway needs from the rest of the daemon: the one seam between them.

Part of `driver.gateway`; imports `driver.core`, `driver.providers` (its protocols) and `store`. The
composition root implements `Sources`; tests implement it over a real engine.
"""

from collections.abc import Mapping
from typing import Protocol

from driver.core.answers import Answer, Submission
from driver.core.contracts import Contract
from driver.core.frames import CommandFrame
from driver.providers.protocol import Provider
from store.journal import Journal
from store.records import JsonObject, RunId


class Sources(Protocol):
    """The rest of the daemon, as the gateway sees it."""

    @property
    def journal(self) -> Journal:
        """The open journal."""
        ...

    @property
    def providers(self) -> Mapping[str, Provider]:
        """All configured providers, by name. They run."""
        ...

    @property
    def scope(self) -> str:
        """What operation ids are made within."""
        ...

    @property
    def stopping(self) -> bool:
        """Whether the daemon drains: who hangs up now did not cancel anything."""
        ...

    def contract(self, tool: str) -> Contract:
        """Return what holds for a tool today, as a command names it. Never blocks."""
        ...

    async def deliver(self, frame: CommandFrame) -> Answer:
        """Hand in a call; return the answer to it, once that is fsynced."""
        ...

    async def submit(self, kind: str, run_id: RunId, data: JsonObject) -> Submission:
        """Record and do a command of the gateway's own; return what became of it, once that is fsynced."""
        ...
