"""Names of the marks that a journal can bear beside its fence, and the one that a backup is made with.

Part of `store`; imports its own modules.
"""

import sqlite3
from typing import Final

from store.head import row_digest
from store.records import Timestamp
from store.statements import STATEMENTS

SUPERSEDED: Final = "superseded"
"""Another life of this driver has taken over, beside a fence of another reason."""
RESTORED: Final = "restored"
"""This file was restored from a backup: the next start raises a fence for that."""


def mark_restored(connection: sqlite3.Connection, detail: str, at: Timestamp) -> None:
    """Have the next start on this file come up fenced: for a copy of the journal that is not in use.

    Within the caller's transaction, if there is one. Raises sqlite3.Error.
    """
    connection.execute(STATEMENTS["set_mark"], (RESTORED, detail, at, row_digest(RESTORED, detail, at)))
