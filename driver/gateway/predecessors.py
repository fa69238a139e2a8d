"""Earlier runs of the same client, which a run that nobody named continues where they left something open.

Part of `driver.gateway`; imports `driver.core`, `store` and its siblings.

A client that is not told which run it works on gets a new one with each start. An agent that died in the
middle of a call and comes back would send it again, into a run in which nothing guards. So the new run
resumes those that were begun from the same place, that nobody speaks for any more, and in which a write still
guards (it may happen yet, or may have happened, whatever a supervisor makes of it), or has an answer that
nobody heard.

All runs from the place are looked at, however many and however old, in steps that keep nobody from writing.
Which of them has a write that guards, indexes say. For answers that nobody heard there is none: a run is
walked through once, and remembered where there are none.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Final

from driver.core.commands import RESUMES_MAX
from driver.gateway.twins import DELIVERED, UNHEARD
from store.journal import Journal
from store.records import CommandId, Origin, RunId, RunRecord, Timestamp
from store.view import PAGE_MAX, View

RUNS: Final = 256
"""Runs that are looked at in one step."""
CLEAN_MAX: Final = 16_384
"""Runs of which it is remembered that each answer was heard; of others it is found out again."""

_PLACE: Final = re.compile(r"[0-9a-f]{12}", re.ASCII)


class TooManyOpen(Exception):
    """More runs from one place were left open than one run may resume."""

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(
            f"{count} earlier runs from here have a write that may have happened, or an answer that nobody "
            f"heard, and a run continues {RESUMES_MAX} at most: look at them with 'effectd ops --unsettled' "
            "and 'effectd ops --effect unknown', and settle some, or name a run"
        )


def is_place(text: str) -> bool:
    """Whether a relay may say that it is there: a digest, which its own run begins with."""
    return _PLACE.fullmatch(text) is not None


class Predecessors:
    """Finds what was left open. `delivered` are answers whose note is not in the journal yet."""

    def __init__(self, journal: Journal, delivered: Container[CommandId]) -> None:
        self._journal = journal
        self._delivered = delivered
        self._clean: OrderedDict[RunId, Timestamp] = OrderedDict()
        """Runs in which each answer was heard, as of their newest event."""

    async def left_open(self, prefix: str, taken: Callable[[RunId], bool]) -> tuple[RunId, ...]:
        """Return the runs whose names begin with `prefix` and that were left open, those with doubts first.

        `taken` says of which somebody speaks. Raises `TooManyOpen`.
        """
        running = await self._running(prefix)
        doubted: list[RunRecord] = []
        unheard: list[RunRecord] = []
        after: RunId | None = None
        while True:
            page = await self._journal.read(partial(View.runs_alike, prefix=prefix, after=after, limit=RUNS))
            for run, guards in page:
                if run.ended or taken(run.run_id):
                    continue
                if guards or run.run_id in running:
                    doubted.append(run)
                elif await self._has_unheard(run):
                    unheard.append(run)
            if len(page) < RUNS:
                break
            after = page[-1][0].run_id
        found = [*_newest_first(doubted), *_newest_first(unheard)]
        if len(found) > RESUMES_MAX:
            return await self._journal.read(partial(_outermost, runs=_newest_first(found)))
        return tuple(run.run_id for run in found)

    def forget(self, run_id: RunId) -> None:
        """Look again whether each answer of a run was heard: one was not, after all."""
        self._clean.pop(run_id, None)

    async def _running(self, prefix: str) -> frozenset[RunId]:
        """Return those in which a write has not ended."""
        found: set[RunId] = set()
        after = 0
        while True:
            page = await self._journal.read(partial(View.open_operations, after_seq=after, limit=PAGE_MAX))
            found.update(one.run_id for one in page if one.guards and one.run_id.startswith(prefix))
            if len(page) < PAGE_MAX:
                return frozenset(found)
            after = page[-1].accepted_seq

    async def _has_unheard(self, run: RunRecord) -> bool:
        if self._clean.get(run.run_id) == run.last_at:
            return False
        after = 0
        while True:
            page = await self._journal.read(
                partial(
                    View.answers_of_run,
                    run_id=run.run_id,
                    origin=Origin.GATEWAY,
                    after=after,
                    word=DELIVERED,
                    but=UNHEARD,
                )
            )
            if any(command_id not in self._delivered for command_id in page.items):
                return True
            if page.next is None:
                break
            after = page.next
        self._clean[run.run_id] = run.last_at
        while len(self._clean) > CLEAN_MAX:
            self._clean.popitem(last=False)
        return False


def _newest_first(runs: Sequence[RunRecord]) -> list[RunRecord]:
    return sorted(runs, key=lambda run: (run.first_at, run.run_id), reverse=True)


def _outermost(view: View, *, runs: Sequence[RunRecord]) -> tuple[RunId, ...]:
    """Return those through which a run continues all of them, newest first. In the journal's thread."""
    covered: set[RunId] = set()
    found: list[RunId] = []
    for run in runs:
        if run.run_id not in covered:
            found.append(run.run_id)
            covered.update(view.resumed(run.run_id))
    if len(found) > RESUMES_MAX:
        raise TooManyOpen(len(runs))
    return tuple(found)
