"""The hash chain over a journal's events: what ties each event to all that came before it.

Part of `store`, pure: standard library only. The definition is the protocol's (section 3): before seq 1 the
chain is the `journal_id`; after each event it is the first 32 hex digits of SHA-256(previous chain + digest),
where the digest is the SHA-256, in hex, of the event's bytes up to the comma before `"chain"`, closed with
`}`. All inputs are the ASCII text of the hex digits, so that content can be erased, and its digest kept,
without breaking the chain.
"""

import hashlib
from typing import Final

from store.records import Chain, Digest, JournalId

CHAIN_DIGITS: Final = 32
"""Length of a chain value in hex digits (docs/protocol.md, section 3)."""


def origin(journal_id: JournalId) -> Chain:
    """Return the chain value of a journal without events."""
    return Chain(journal_id)


def digest(body: bytes) -> Digest:
    """Return the SHA-256 of `body`, as hex digits."""
    return Digest(hashlib.sha256(body).hexdigest())


def extend(previous: Chain, event_digest: Digest) -> Chain:
    """Return the chain value after the event with `event_digest`."""
    # ASCII, except in a damaged journal, where it must not match, and must not raise
    inputs = f"{previous}{event_digest}".encode("ascii", "backslashreplace")
    return Chain(hashlib.sha256(inputs).hexdigest()[:CHAIN_DIGITS])


def seal(body: bytes, chain: Chain) -> bytes:
    """Return the whole frame: `body` (as `store.wire.render` gives it) with `chain` as its last member."""
    return body[:-1] + f',"chain":"{chain}"}}'.encode("ascii")


def unseal(frame: bytes) -> tuple[bytes, Chain]:
    """Return the body and the chain value of a frame that `seal` made.

    Raises ValueError for anything else.
    """
    head, mark, tail = frame.rpartition(b',"chain":"')
    if not mark or len(tail) != CHAIN_DIGITS + 2 or not tail.endswith(b'"}'):
        raise ValueError("not a sealed event: its last member is not a chain value")  # noqa: TRY003 - foreign
    return head + b"}", Chain(tail[:-2].decode("ascii"))
