"""What is kept outside the chain, however long it is: in pieces, each of which can be removed by itself.

Part of `store`; imports its own modules. Runs in the owner's thread, within the open transaction.

SQLite frees a row all at once, and `secure_delete` overwrites every page of it: 32 MiB would be one long
commit. So a payload that is longer than a piece stands in several rows. It is over as soon as its own row
names no pieces any more; they are shreds then, which the commits that follow remove (`store.erasure`), from
the last one on. A crash in between leaves fewer of them. What was recorded before there were pieces was cut
when the file was migrated (`store.cutting`).
"""

from collections.abc import Iterator
from typing import Final

from store.batches import Batches
from store.head import Ledger
from store.pace import Budget

PIECE_BYTES: Final = 65_536
"""Sixteen pages: a commit removes some of them."""


def keep(ledger: Batches, seq: int, digest: object, redact: str | None, payload: bytes) -> None:
    """Record the payload of event `seq`."""
    first, *others = _cut(payload)
    ledger.write("insert_payload", (seq, digest, redact, first, seq if others else None))
    for n, piece in enumerate(others, start=1):
        ledger.write("insert_piece", (seq, n, piece))


def _cut(payload: bytes) -> Iterator[bytes]:
    yield payload[:PIECE_BYTES]
    for start in range(PIECE_BYTES, len(payload), PIECE_BYTES):
        yield payload[start : start + PIECE_BYTES]


def whole(ledger: Ledger, body: bytes | None, pieces: int | None) -> bytes | None:
    """Return a payload's content: what its row has, and its pieces. None where it was erased."""
    if body is None or pieces is None:
        return body
    return body + b"".join(piece for _, piece in ledger.execute("pieces", (pieces,)))


def payload(ledger: Ledger, seq: int) -> bytes | None:
    """Return the payload of event `seq`; None where it has none, or it was erased."""
    row = ledger.execute("payload", (seq,)).fetchone()
    return None if row is None else whole(ledger, *row)


def has_any(ledger: Ledger, of: int) -> bool:
    """Whether there are pieces under this name."""
    return bool(ledger.execute("has_pieces", (of,)).fetchone()[0])


def let_go(ledger: Ledger, seq: int, *, secret: bool) -> None:
    """Make shreds of the pieces of event `seq`: before its payload is erased or deleted.

    `secret`: no copy of them may stay behind in the `-wal`.
    """
    if ledger.execute("shred", (int(secret), seq)).rowcount > 0:
        ledger.shreds = True


def sweep(ledger: Ledger, budget: Budget) -> tuple[bool, bool]:
    """Remove some shreds. Returns whether there were any, and whether there were secret ones."""
    if not ledger.shreds or budget.spent:
        return False, False
    swept = secret = False
    while not budget.spent:
        row = ledger.execute("next_shred").fetchone()
        if row is None:
            ledger.shreds = False
            break
        of, is_secret = row
        piece = ledger.execute("last_piece", (of,)).fetchone()
        if piece is None:
            ledger.execute("delete_shred", (of,))
        else:
            ledger.execute("delete_piece", (piece[0],))
            budget.take(piece[1])
            if not has_any(ledger, of):
                ledger.execute("delete_shred", (of,))
        swept, secret = True, secret or bool(is_secret)
    return swept, secret
