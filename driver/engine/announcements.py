"""What the daemon says of itself in the stream: started, recovered, stopping.

Part of `driver.engine`; imports `store`. A daemon that crashes in a loop does nothing else, and says it
once: an event equal to one since the last other thing that happened is not recorded again.
"""

from typing import Final

from store.declared import EventData
from store.events import Draft, DriverStopping
from store.transaction import Transaction
from store.wire import as_json, frame_of

TAIL: Final = 8
"""How many of the newest events are looked at: a crash loop leaves at most one of each kind there."""
TAIL_BYTES_MAX: Final = 65_536
"""Events of the daemon about itself are some hundred bytes each."""


def announce(tx: Transaction, data: EventData) -> None:
    """Append `data`, unless only news of the same kind stands between it and its twin."""
    for event in reversed(tx.events(max(tx.last_seq - TAIL, tx.base), TAIL, TAIL_BYTES_MAX)):
        if not event.kind.startswith("driver.") or event.kind == DriverStopping.KIND or event.body is None:
            break
        if event.kind == data.KIND and frame_of(event.body)["data"] == as_json(data):
            return
    tx.append(Draft(data=data))
