"""Duty: one life of each driver at a time. Who is connected, and who must give way to whom.

Part of `driver.plane`; imports anyio and `driver.core.frames`. Nothing here is durable: after a restart
everybody connects again, and the order of lives stands in the ledger.
"""

import sqlite3
from typing import Final, Protocol

import anyio

from driver.core.codec import render
from driver.core.frames import CLOSE_GOING_AWAY, CLOSE_SUPERSEDED, Hello
from driver.plane.ledger import now


class Connection(Protocol):
    """What the fleet knows of a driver's socket."""

    hello: Hello
    life: int
    """The place of its `boot_id` among the lives of this driver: a later life has a higher one."""

    def close(self, code: int, reason: str) -> None:
        """Make the socket close soon, with this code; what it says from now on is ignored."""
        ...


class Bell:
    """Wakes everybody who waits for something to happen. Take `next` before looking, then wait for it."""

    def __init__(self) -> None:
        self.next = anyio.Event()

    def ring(self) -> None:
        """Wake all who wait."""
        self.next.set()
        self.next = anyio.Event()


class Fleet:
    """The drivers that are connected, at most one socket each."""

    def __init__(self) -> None:
        self.work: Final = Bell()
        """Rings when there may be something to deliver."""
        self.news: Final = Bell()
        """Rings when events were committed."""
        self._connections: dict[str, Connection] = {}

    @property
    def connected(self) -> frozenset[str]:
        """The ids of the drivers that are connected."""
        return frozenset(self._connections)

    def admit(self, newcomer: Connection) -> bool:
        """Take the newcomer in, unless a later life of the same driver is connected.

        The same life's old socket is replaced quietly; an earlier life is told that it is superseded, which
        makes it stop acting until an operator says otherwise.
        """
        present = self._connections.get(newcomer.hello.driver_id)
        if present is not None and present.life > newcomer.life:
            return False
        if present is not None and present.life == newcomer.life:
            present.close(CLOSE_GOING_AWAY, "another socket of the same life has taken over")
        elif present is not None:
            present.close(CLOSE_SUPERSEDED, "another life of this driver_id has taken over")
        self._connections[newcomer.hello.driver_id] = newcomer
        return True

    def leave(self, connection: Connection) -> None:
        """Forget a socket that is closed. One that was replaced already changes nothing."""
        if self._connections.get(connection.hello.driver_id) is connection:
            del self._connections[connection.hello.driver_id]
            self.news.ring()


def greet(connection: sqlite3.Connection, hello: Hello) -> tuple[int, sqlite3.Row]:
    """Remember who says `hello`; return which life it is, and our watermark for its journal."""
    connection.execute(
        "INSERT INTO drivers (driver_id, hello, seen_at) VALUES (?, ?, ?)"
        " ON CONFLICT DO UPDATE SET hello=excluded.hello, seen_at=excluded.seen_at",
        (hello.driver_id, render(hello), now()),
    )
    connection.execute(
        "INSERT OR IGNORE INTO lives (driver_id, boot_id) VALUES (?, ?)", (hello.driver_id, hello.boot_id)
    )
    connection.execute(
        "INSERT OR IGNORE INTO journals (journal_id, driver_id, chain) VALUES (?, ?, ?)",
        (hello.journal_id, hello.driver_id, hello.journal_id),
    )
    life = connection.execute(
        "SELECT id FROM lives WHERE driver_id=? AND boot_id=?", (hello.driver_id, hello.boot_id)
    ).fetchone()
    head = connection.execute(
        "SELECT seq, chain FROM journals WHERE journal_id=?", (hello.journal_id,)
    ).fetchone()
    return life["id"], head
