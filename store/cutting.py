"""Cuts what was recorded in one row, before there were pieces, into pieces: once, when a file is migrated.

Part of `store`; imports its `pieces`. Runs before the journal is in use. To free one row of 32 MiB holds a
commit up for a tenth of a second and more, as each of its pages is overwritten; its pieces go one by one.

Each payload is cut in a transaction of its own, so that the disk needs room for one of them only; where that
was interrupted, the next start goes on.
"""

import sqlite3
from typing import Final

from store.pieces import PIECE_BYTES

_NEXT: Final = """
SELECT seq FROM payloads WHERE seq > ? AND pieces IS NULL AND length(body) > ? ORDER BY seq LIMIT 1
"""


def cut_long(connection: sqlite3.Connection) -> None:
    """Let every payload that is longer than a piece stand in pieces. Raises sqlite3.Error."""
    after = -1
    while row := connection.execute(_NEXT, (after, PIECE_BYTES)).fetchone():
        (after,) = row
        connection.execute("BEGIN IMMEDIATE")
        _cut(connection, after)
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()


def _cut(connection: sqlite3.Connection, seq: int) -> None:
    with connection.blobopen("payloads", "body", seq, readonly=True) as body:
        first, n = body.read(PIECE_BYTES), 0
        while piece := body.read(PIECE_BYTES):
            n += 1
            connection.execute("INSERT INTO pieces (of, n, body) VALUES (?, ?, ?)", (seq, n, piece))
    connection.execute("UPDATE payloads SET body = ?, pieces = seq WHERE seq = ?", (first, seq))
