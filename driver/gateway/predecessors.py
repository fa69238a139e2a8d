"""Earlier runs of the same client, which a run that nobody named continues where they left something open.

Part of `driver.gateway`; imports `store` and its siblings. Reads the journal, in its thread.

A client that is not told which run it works on gets a new one with each start. An agent that died in the
middle of a call and comes back would send it again, into a run in which nothing guards. So the new run
resumes those that were begun from the same place, that nobody speaks for any more, and in which a write may
still happen, may have happened, or has an answer that nobody heard.
"""

import re
from collections.abc import Callable, Container, Iterator
from itertools import islice
from typing import Final

from driver.gateway.twins import is_undelivered
from driver.gateway.wire import run_prefix
from store.records import CommandId, OperationFilter, OperationRecord, Origin, RunId
from store.view import View

PREDECESSORS_MAX: Final = 16
"""Runs from one place that are looked at, and resumed where something is open."""
RUNS_SEEN_MAX: Final = 200
"""Of the runs of all clients, the newest that are looked at, beside those with unsettled operations."""
CALLS_SEEN_MAX: Final = 32
"""The newest calls of each."""

_PLACE: Final = re.compile(r"[0-9a-f]{12}", re.ASCII)


def is_place(text: str) -> bool:
    """Whether a relay may say that it is there: a digest, which its own run begins with."""
    return _PLACE.fullmatch(text) is not None


def left_open(
    view: View, place: str, *, taken: Callable[[RunId], bool], delivered: Container[CommandId]
) -> tuple[RunId, ...]:
    """Return the runs that were begun from a place, and left with something open, those with doubts first.

    `taken` says of which somebody speaks; `delivered` are answers whose note is not in the journal yet.
    """
    prefix = run_prefix(place)
    begun = (run for run in dict.fromkeys(_candidates(view)) if run.startswith(prefix) and not taken(run))
    return tuple(run for run in islice(begun, PREDECESSORS_MAX) if _is_open(view, run, delivered))


def _candidates(view: View) -> Iterator[RunId]:
    for page in (view.unsettled_runs(0, RUNS_SEEN_MAX), view.runs(None, RUNS_SEEN_MAX)):
        yield from (run.run_id for run in page.items if not run.ended)


def _is_open(view: View, run_id: RunId, delivered: Container[CommandId]) -> bool:
    calls = view.operations(OperationFilter(run_id=run_id), None, CALLS_SEEN_MAX).items
    return any(_calls_for_care(view, call, delivered) for call in calls)


def _calls_for_care(view: View, call: OperationRecord, delivered: Container[CommandId]) -> bool:
    if not call.write or call.origin is not Origin.GATEWAY:
        return False
    return not call.settled or is_undelivered(view, call, delivered)
