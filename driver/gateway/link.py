"""A relay's connection to the daemon, once both have greeted each other.

Part of `driver.gateway`; imports anyio and those of its siblings that do the same.
"""

from typing import Final

import anyio

from driver.gateway.connection import Connection
from driver.gateway.ledger import Entry
from driver.gateway.wire import Json, Message, line

_HANDSHAKE: Final = "effectd-handshake"
"""Begins the ids of handshakes that are made again."""


class NotServed(Exception):
    """The daemon does not serve this relay: `code` says why."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class Link:
    """One connection to the daemon. `open` once what the client says may be sent on it."""

    def __init__(self, connection: Connection, number: int, journal_id: str | None) -> None:
        self._connection = connection
        self.journal_id = journal_id
        self._shaken = anyio.Event()
        self.number = number
        self.open = False
        self.requests: dict[str, Json] = {}
        """The server's requests on it, as their ids were."""
        self.behind: set[Entry] = set()
        """Requests that waited when it was opened, and that are still to be sent on it."""

    async def send(self, data: bytes) -> None:
        """Send a line; where the connection is lost, the next one asks about what is unanswered."""
        try:
            await self._connection.send(data)
        except OSError:
            self.open = False

    async def tell(self, method: str, params: Message | None = None) -> None:
        """Say a word that wants no answer, as `send` does."""
        await self.send(line({"jsonrpc": "2.0", "method": method, "params": params or {}}))

    async def handshake(self, message: Message, *, initialized: bool) -> None:
        """Begin the session as the client once did, and wait for the answer to that."""
        await self.send(line({**message, "id": f"{_HANDSHAKE}-{self.number}"}))
        await self._shaken.wait()
        if initialized:
            await self.tell("notifications/initialized")

    def is_handshake(self, request_id: Json) -> bool:
        """Whether a response is the one to a handshake of ours; take note of it."""
        if request_id != f"{_HANDSHAKE}-{self.number}":
            return False
        self._shaken.set()
        return True
