"""From when on an attempt can no longer land: what it may have sent has happened by then, or never will.

Part of `driver.core`, pure: imports `driver.core.retry` and `store.records`. Definition: docs/protocol.md,
section 4, rule R.

An attempt is over for good with its answer, and where its transport is closed: it was lost, or died with the
process that held it. Where the daemon merely stopped waiting, the call may still be on its way, and is for as
long as its answer is listened for.

These are moments of the wall clock, which anybody may set. One that was set forward makes nothing land any
sooner: by the machine's own clock `unhurried` puts the moment off by as much.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from driver.core.retry import Clocks, First
from store.records import AttemptRecord, moment

LISTENED_FOR: Final = frozenset(
    {"execution_timeout", "cancelled_after_dispatch", "protocol_error", "gateway_error", "task_pending"}
)
"""Reasons of `unknown` that say only why nobody waits any more."""
ELSEWHERE: Final = frozenset({"journal_lost", "rolled_back"})
"""Reasons of `unknown` with which another life of the daemon may be executing it: nobody here can tell."""


CLOCKS_DIFFER: Final = timedelta(seconds=0.25)
"""What lies between the readings of two clocks, and what one is corrected by, is no setting of it."""


def landed_by(attempts: Iterable[AttemptRecord], late_result_s: float) -> datetime | None:
    """Return when the last of these attempts could no longer land; None where that cannot be told.

    That is so while one of them runs, where there is none, and where another life may have had some.
    `late_result_s` is the contract's.
    """
    ends = [_landed_by(attempt, late_result_s) for attempt in attempts]
    known = [end for end in ends if end is not None]
    return max(known) if known and len(known) == len(ends) else None


def _landed_by(attempt: AttemptRecord, late_result_s: float) -> datetime | None:
    if attempt.ended_at is None or attempt.reason in ELSEWHERE:
        return None
    ended = moment(attempt.ended_at)
    if attempt.outcome == "unknown" and attempt.reason in LISTENED_FOR:
        return ended + timedelta(seconds=late_result_s)
    return ended


def unhurried(until: datetime, attempt: AttemptRecord, began: First, now: Clocks) -> datetime:
    """Return `until`, later by what the wall clock was set forward since `attempt` has ended.

    `began` is that attempt as its intent was recorded. Where nobody can tell, as after a start of the
    machine, it is `until`.
    """
    then, machine = began.machine, now.machine
    if attempt.ended_at is None or then is None or then.boot_id != machine.boot_id:
        return until
    ended, budget = moment(attempt.ended_at), moment(attempt.deadline_at) - began.at
    took = min(max(ended - began.at, timedelta()), max(budget, timedelta()))
    since = timedelta(seconds=machine.uptime_s - then.uptime_s) - took
    ahead = (now.wall - ended) - since
    return until + ahead if ahead > CLOCKS_DIFFER else until
