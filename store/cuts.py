"""What an event loses: one that is too long for a frame, until it fits; and one whose content is erased.

Part of `store`, pure: imports its events, their wire form and records. Of one that is too long, what can be
read elsewhere goes first: a result is kept whole beside its event, arguments stand in their command's own
data. What stands nowhere else, a receipt and what people read, goes last. Identities, outcomes and digests
are never cut: an event that is too long even so is recorded as it is, and the link parks it as a dead letter.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from store.declared import EventData
from store.events import (
    ApprovalDecided,
    CommandFailed,
    CommandRefused,
    OperationAnnotated,
    OperationDiverged,
    OperationProbed,
    OperationReconciled,
    SupervisorVerdict,
)
from store.records import Digest, JsonObject, JsonValue
from store.wire import MEMBERS

ORDER: Final = ("result", "arguments", "receipt", "message", "error")
"""The members that an event can lose, the first to go first. An error loses its message, not its code."""
FLAGS: Final[Mapping[str, str]] = {
    "result": "result_truncated",
    "arguments": "arguments_truncated",
    "receipt": "receipt_missing",
}
"""The members that say so, where an event has them."""
_EMPTY: Final[Mapping[str, Mapping[str, object]]] = {
    ApprovalDecided.KIND: {"reason": None},
    OperationReconciled.KIND: {"note": "", "evidence": ()},
    OperationProbed.KIND: {"detail": None},
    OperationDiverged.KIND: {"detail": ""},
    OperationAnnotated.KIND: {"metadata": {}},
    SupervisorVerdict.KIND: {"summary": "", "causes": (), "remedies": (), "lesson": ""},
}
"""What else is erased, by kind: members that are never cut, because people wrote them to be read."""
RESULT_BYTES_MAX: Final = 33_554_432
"""A result that its event is too small for is kept whole up to this: four times what providers may answer by
default, because what is not ASCII is escaped here. A longer one is cut, and kept nowhere."""


def cut(
    data: EventData,
    *,
    excess: Callable[[EventData], int],
    digest: Callable[[bytes], Digest] | None,
) -> tuple[EventData, bytes | None]:
    """Return the event without as many of its members as it takes, and its whole result if that was one.

    `excess` says by how many bytes an event is too long: it fits at 0 or below. `digest` names the result
    that is kept; None keeps none. What would make the event longer is not done.
    """
    kept: bytes | None = None
    for name in ORDER:
        too_long = excess(data)
        if too_long <= 0:
            break
        shorter = without(data, name)
        whole = None if digest is None or name != "result" else _whole(data)
        if digest is not None and whole is not None:
            shorter = replace(shorter, **_members(payload_digest=digest(whole)))
        if excess(shorter) < too_long:
            data, kept = shorter, kept or whole
    return data, kept


def without(data: EventData, name: str) -> EventData:
    """Return the event without what the member says, flagged; the same event where it says nothing."""
    value = getattr(data, name, None)
    if not value:
        return data
    if name == "error":
        return replace(data, **_members(error={**value, "message": ""}))
    must_be = name == "message" and isinstance(data, CommandRefused | CommandFailed)
    changed = _members(**{name: "" if must_be else None})
    if FLAGS.get(name) in MEMBERS[data.KIND]:
        changed |= _members(**{FLAGS[name]: True})
    return replace(data, **changed)


def stripped(data: EventData) -> EventData:
    """Return the event without arguments, results, receipts, notes and messages: what erasing leaves of it.

    Identities, outcomes, effects, times and digests stay, and so does everything that a projection is made
    of.
    """
    for name in ORDER:
        data = without(data, name)
    error: JsonObject | None = getattr(data, "error", None)
    changed = dict(_EMPTY.get(data.KIND, {}))
    if error:
        changed["error"] = {"code": error.get("code"), "message": ""}
    return replace(data, **_members(**changed)) if changed else data


def _whole(data: EventData) -> bytes | None:
    """Return the bytes of the result that an event of this kind can name, if they are worth keeping.

    An empty one is not, and is never cut.
    """
    result: JsonValue = getattr(data, "result", None)
    if not result or "payload_digest" not in MEMBERS[data.KIND]:
        return None
    whole = json.dumps(result, separators=(",", ":"), allow_nan=False).encode("ascii")
    return whole if len(whole) <= RESULT_BYTES_MAX else None


def _members(**values: Any) -> dict[str, Any]:  # noqa: ANN401 - the members of whichever kind of event it is
    return values
