"""Hears what became of an attempt that an earlier process life began, and that outlived it.

Part of `driver.engine`; imports `driver.core`, `driver.providers` and its own siblings. Nothing is dispatched
here, so nobody has to confirm anything first: what the attempt came to is evidence like any other.
"""

import structlog

from driver.core.attempts import Report
from driver.engine.reports import abandoned, broken
from driver.engine.running import Running
from driver.providers.readoption import Finished, Lost, Readopting

log = structlog.get_logger(__name__)


async def hear(provider: Readopting, running: Running) -> Report | Lost:
    """Return how the attempt ended, with its last phase noted in `running`; `Lost` where nobody can tell.

    Takes as long as the attempt does, which has a deadline of its own. A cancel of `running` cancels it.
    Cancelling the caller leaves it to the next process life.
    """
    assignment = running.assignment
    try:
        found = await provider.readopt(assignment.operation_id, assignment.attempt)
        log.info(
            "attempt_readopted",
            operation_id=assignment.operation_id,
            attempt=assignment.attempt,
            found="lost"
            if isinstance(found, Lost)
            else "ended"
            if isinstance(found, Finished)
            else "running",
        )
        if isinstance(found, Lost):
            return found
        if not isinstance(found, Finished):
            assert running.scope is not None, "it is heard out until it is cancelled"
            with running.scope:
                found = await found.finish()
        if not isinstance(found, Finished):
            return abandoned(running.phase)
    except Exception as exc:
        log.exception("provider_failed", operation_id=assignment.operation_id, error=type(exc).__name__)
        return broken(running.phase, exc)
    running.reach(found.phase)
    return found.report
