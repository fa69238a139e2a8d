"""What the local API calls an event: by its seq in its own history, as the wire does.

Part of `driver.local`; imports `store`. The journal's file counts on through all the histories that it held.
"""

from dataclasses import fields, replace
from typing import Any, Final, TypeVar

from store.records import AttemptRecord, CommandRecord, EvidenceRecord, StoredEvent
from store.view import View

R = TypeVar("R", AttemptRecord, CommandRecord, EvidenceRecord, StoredEvent)


def on_wire(view: View, item: R) -> R:
    """Return the record with the seqs that people and the plane know."""
    if not view.base:
        return item
    named: dict[str, Any] = {}
    for name in _NAMES & {each.name for each in fields(item)}:
        seq: int | None = getattr(item, name)
        named[name] = None if seq is None else view.wire_seq(seq)
    return replace(item, **named)


_NAMES: Final = frozenset({"seq", "accepted_seq", "receipt_seq", "started_seq"})
"""The members that name an event."""
