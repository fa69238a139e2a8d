"""Erases the secrets of calls that are over: a bounded step with each commit, from where the last one ended.

Part of `store`; imports its `head`. Runs in the owner's thread, within the open transaction.

What a contract withholds stands in one place only, the `data` of the command as it was received, because it
has to be sent to the provider. An operation that is settled sets `due` on it, the seq of its receipt; when
that is acknowledged, the row's body becomes NULL, and SQLite (`secure_delete`) writes zeros over it. Old
copies of its pages stand in the `-wal` until that is emptied: see `store.writer`.
"""

from dataclasses import dataclass
from typing import Final

from store.head import Ledger

ERASED_MAX: Final = 64
"""Payloads erased with one commit, some ten microseconds each."""
ERASED_BYTES_MAX: Final = 1_048_576
"""What is overwritten with one commit, unless one payload alone is larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Debt:
    """What is still to be erased: what waits for its acknowledgement, and whether some of it is due."""

    waiting: bool
    due: bool


NO_DEBT: Final = Debt(waiting=False, due=False)


def erase(ledger: Ledger) -> bool:
    """Erase the oldest payloads that are due. Returns whether there were any."""
    if ledger.head.key_check is None:
        return False  # no contract has withheld anything yet
    erased = size = 0
    for seq, length in ledger.execute("due", (ledger.head.acked_seq, ERASED_MAX)).fetchall():
        size += length
        if erased and size > ERASED_BYTES_MAX:
            break
        ledger.execute("erase", (seq,))
        erased += 1
    return erased > 0


def debt(ledger: Ledger) -> Debt:
    """Return what is still to be erased. Looks at one entry of an index."""
    row = None if ledger.head.key_check is None else ledger.execute("next_due").fetchone()
    return NO_DEBT if row is None else Debt(waiting=True, due=row[0] <= ledger.head.acked_seq)
