"""How much can be said of one operation: at the bound, a command that would say more is refused (I11).

Part of `driver.engine`; imports `driver.core` and `store`.

Whatever decides about an operation reads its events and its evidence from the journal as far as `store.view`
goes. So nobody from outside may fill that: references least of all, then looks and further attempts, then
verdicts; the rest is left to what the daemon itself has to record.
"""

from collections.abc import Mapping
from typing import Final

from driver.core.commands import AnnotateData, CommandData, ProbeData, ReconcileData, RetryData
from store.events import CommandFailed
from store.view import EVIDENCE_MAX, OPERATION_EVENTS_MAX, View

EVENTS_MAX: Final[Mapping[str, int]] = {
    AnnotateData.KIND: OPERATION_EVENTS_MAX // 4,
    ProbeData.KIND: OPERATION_EVENTS_MAX // 2,
    RetryData.KIND: OPERATION_EVENTS_MAX // 2,
    ReconcileData.KIND: OPERATION_EVENTS_MAX // 4 * 3,
}
"""By kind of command: the events of its operation from which on it is refused."""
WORDS_MAX: Final = EVIDENCE_MAX // 4 * 3
"""Words about attempts, of an operation, up to which a verdict or another attempt may add more."""


def overfull(view: View, data: CommandData) -> CommandFailed | None:
    """Return the refusal of a command whose operation has too much said of it already; None where it has not.

    Commands about no operation, and those that end something, are never refused.
    """
    if not isinstance(data, AnnotateData | ProbeData | RetryData | ReconcileData):
        return None
    record = view.operation(data.operation_id)
    if record is None:
        return None
    events, bound = len(view.operation_events(data.operation_id)), EVENTS_MAX[data.KIND]
    if events >= bound:
        return _refused(f"{events} events, and {data.KIND} is taken up to {bound}")
    if isinstance(data, AnnotateData | ProbeData):
        return None
    words = len(view.evidence(data.operation_id)) + record.attempt_count
    if words > WORDS_MAX:
        return _refused(f"{words} words about its attempts, and {data.KIND} is taken up to {WORDS_MAX}")
    return None


def _refused(what: str) -> CommandFailed:
    message = f"too much has been said of this operation: {what}"
    return CommandFailed(code="overloaded", message=message)
