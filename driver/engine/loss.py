"""The drill that loses an answer on purpose: the effect is real, and nobody hears of it.

Part of `driver.engine`; imports `driver.core`, `store` and its own siblings. Off unless
`EFFECTD_FAULT_AFTER_EFFECT` names an operation or a tool (`driver.faults`); then everything behind `unknown`
can be practised on the real thing: late answers excepted, for this one was already there.

Of a tool it is the first call in each run that is struck. Which one that is stands in the journal, so that a
restart strikes no second one.
"""

from typing import Final

import structlog

from driver.core.attempts import Answered, Report, Silence
from driver.engine.assignments import Assignment
from store.journal import Journal
from store.lifecycle import State
from store.records import OperationFilter, OperationRecord
from store.view import View

log = structlog.get_logger(__name__)

PAGE: Final = 500
MESSAGE: Final = "a fault drill lost the answer after the effect (EFFECTD_FAULT_AFTER_EFFECT)"


class Loss:
    """Loses the answers that a drill names."""

    def __init__(self, journal: Journal, target: str | None) -> None:
        self._journal = journal
        self._target = target

    async def strike(self, assignment: Assignment, report: Report) -> Report:
        """Return what is known of the attempt: its report, unless the drill loses it."""
        if self._target not in (assignment.operation_id, assignment.tool) or assignment.attempt > 1:
            return report
        if not isinstance(report, Answered) or report.is_error:
            return report
        if self._target == assignment.tool and not await self._journal.read(
            lambda view: _is_first(view, assignment)
        ):
            return report
        log.warning("answer_lost_on_purpose", operation_id=assignment.operation_id, tool=assignment.tool)
        return Silence(cause="connection_lost", message=MESSAGE)


def _is_first(view: View, assignment: Assignment) -> bool:
    """Whether no call of the tool that was accepted before this one in its run may have had an effect."""
    mine = view.operation(assignment.operation_id)
    assert mine is not None, "what runs has a record"
    wanted = OperationFilter(run_id=assignment.run_id, tool=assignment.tool)
    page = view.operations(wanted, None, PAGE)
    while True:
        if any(_may_have_happened(item, mine) for item in page.items):
            return False
        if page.next is None:
            return True
        page = view.operations(wanted, page.next, PAGE)


def _may_have_happened(item: OperationRecord, mine: OperationRecord) -> bool:
    earlier = item.accepted_seq < mine.accepted_seq
    return earlier and item.attempt_count > 0 and item.state is not State.NOT_EXECUTED
