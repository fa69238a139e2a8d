"""How an event names other events: by their seq in its own history, as the wire counts it.

Part of `store`, pure: imports its events and their wire form. The journal's file counts on through all the
histories that it has held; the wire begins each at 1.
"""

from dataclasses import replace
from typing import Any, Final

from store.declared import EventData
from store.events import OperationDiverged
from store.wire import MEMBERS

_NAMING: Final = frozenset({"supersedes", "started_seq"})


def on_wire(data: EventData, base: int) -> EventData:
    """Return the event with what it names as the wire counts it, in a history that began after seq `base`.

    What belongs to an earlier history has no name in this one: it is left out.
    """
    if not base:
        return data
    found = {name: getattr(data, name) for name in _NAMING & MEMBERS[data.KIND]}
    named: dict[str, Any] = {
        name: seq - base if seq > base else None for name, seq in found.items() if seq is not None
    }
    if isinstance(data, OperationDiverged):
        first, second = data.evidence
        named["evidence"] = (max(first - base, 0), max(second - base, 0))
    return replace(data, **named) if named else data
