"""Which statement lists operations under a filter: the one whose index leads to the fewest rows.

Part of `store`, pure: imports its records and lifecycle. For each NAME that `plan` returns, `floor_NAME`
and `page_NAME` stand in `store/sql/operations.sql`.
"""

from datetime import datetime
from typing import Any

from store.lifecycle import State
from store.records import OperationFilter, timestamp


def plan(wanted: OperationFilter, now: datetime) -> tuple[str, dict[str, Any]]:
    """Return the name of the statements, and their parameters: the other conditions filter what it finds."""
    parameters: dict[str, Any] = {
        "state": wanted.state,
        "effect": wanted.effect,
        "run_id": wanted.run_id,
        "tool": wanted.tool,
        "unsettled": wanted.unsettled,
        "reason": wanted.reason,
        "overdue_at": None,
    }
    if wanted.inferred:
        return "inferred", parameters
    if wanted.reason == "stale_in_flight":
        return "open", parameters | {"reason": None, "overdue_at": timestamp(now)}
    if wanted.reason == "failed_uncertain":
        state = State.FAILED if wanted.state in (None, State.FAILED) else ""
        return _unsettled(wanted), parameters | {"reason": None, "unsettled": True, "state": state}
    if wanted.unsettled:
        return _unsettled(wanted), parameters
    if wanted.reason is not None:
        return "with_reason", parameters
    if wanted.state in (State.ACCEPTED, State.AWAITING_APPROVAL, State.STARTED):
        return "open", parameters
    if wanted.state in (State.FAILED, State.NOT_EXECUTED, State.UNKNOWN) and wanted.run_id is None:
        return "not_succeeded", parameters
    return ("of_run" if wanted.run_id is not None else "all"), parameters


def _unsettled(wanted: OperationFilter) -> str:
    return "unsettled" if wanted.run_id is None else "unsettled_of_run"
