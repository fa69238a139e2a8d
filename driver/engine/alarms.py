"""What of the journal's news somebody should look at: said in the log, once, when it is durable.

Part of `driver.engine`; imports `store`.
"""

from collections.abc import Sequence

import structlog

from store.events import OperationDiverged, OperationProbed
from store.records import StoredEvent

log = structlog.get_logger(__name__)


def raise_alarms(events: Sequence[StoredEvent]) -> None:
    """Log what among newly committed events wants attention. A listener of the journal."""
    for event in events:
        if event.requeue_of is not None:
            continue
        match event.data:
            case OperationProbed(verdict="duplicated", matches=matches):
                log.error(
                    "effect_duplicated", operation_id=event.operation_id, seq=event.seq, matches=matches
                )
            case OperationDiverged(evidence=pair):
                log.error(
                    "operation_diverged", operation_id=event.operation_id, seq=event.seq, evidence=list(pair)
                )
            case _:
                pass
