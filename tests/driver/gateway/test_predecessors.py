"""Which earlier runs one continues: those that were left open, however many there are and however old."""

from collections.abc import AsyncGenerator, Container
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from driver.core.commands import RESUMES_MAX
from driver.gateway.predecessors import Predecessors, TooManyOpen
from driver.gateway.twins import DELIVERED, UNHEARD
from store.events import Draft
from store.journal import Journal, open_journal
from store.lifecycle import Effect
from store.records import CommandId, Origin, RunId
from store.retention import Retention, RetentionSettings
from store.settings import JournalSettings
from tests.store.conftest import Clock, Ids
from tests.store.drafts import accepted, command_id, reconciled, recording, started, succeeded, unknown

pytestmark = pytest.mark.anyio

PLACE = "mcp-0123456789ab-"


@asynccontextmanager
async def journal_in(folder: Path) -> AsyncGenerator[tuple[Journal, Clock]]:
    """Open a journal of the test's own."""
    settings, clock = JournalSettings(state_dir=folder / "state", runtime_dir=folder / "run"), Clock()
    async with open_journal(settings, clock=clock, new_id=Ids()) as journal:
        yield journal, clock


def begun(n: int, *resumes: int) -> tuple[Draft, Draft]:
    """A write of the gateway that was begun, in a run of its own from the place."""
    names = tuple(RunId(f"{PLACE}{other}") for other in resumes) or None
    return replace(accepted(n, run=f"{PLACE}{n}", resumes=names), origin=Origin.GATEWAY), started(n)


async def found(
    journal: Journal, delivered: Container[CommandId] = (), *taken: int, by: Predecessors | None = None
) -> list[int]:
    """Return the numbers of the runs that one from the place continues, in order."""
    looking = by or Predecessors(journal, delivered)
    names = {f"{PLACE}{n}" for n in taken}
    return [int(run.removeprefix(PLACE)) for run in await looking.left_open(PLACE, names.__contains__)]


async def test_what_guards_or_was_not_heard_is_continued_and_nothing_else(tmp_path: Path) -> None:
    """Those with doubts come first, each part newest first; nobody else's run, none spoken for."""
    async with journal_in(tmp_path) as (journal, _):
        drafts = [draft for n in range(1, 7) for draft in begun(n)]
        await journal.transact(recording(*drafts, succeeded(1), succeeded(2), unknown(3), unknown(4)))
        await journal.transact(recording(accepted(9, run="mcp-ffffffffffff-9"), started(9), unknown(9)))
        await journal.transact(recording(reconciled(3, Effect.UNKNOWN), reconciled(4, Effect.OCCURRED)))
        await journal.transact(lambda tx: tx.note_delivery(command_id(2), DELIVERED))
        assert await found(journal) == [6, 5, 3, 4, 1]
        assert await found(journal, (), 6, 5) == [3, 4, 1]
        assert await found(journal, (command_id(1), command_id(4)), 6, 5) == [3]


async def test_what_was_pruned_still_guards(tmp_path: Path) -> None:
    """A tombstone refuses an equal call as the operation did, so its run is continued as before."""
    async with journal_in(tmp_path) as (journal, clock):
        drafts = [draft for n in (1, 2) for draft in begun(n)]
        await journal.transact(recording(*drafts, unknown(1), unknown(2)))
        await journal.transact(recording(reconciled(1, Effect.UNKNOWN), reconciled(2, Effect.NONE)))
        await journal.transact(recording(accepted(3, run="later")))
        await journal.transact(lambda tx: tx.acknowledge(tx.last_seq))
        clock.now += timedelta(days=40)
        await journal.transact(Retention(RetentionSettings()).step)
        assert await journal.read(lambda view: view.tombstone(command_id(1))) is not None
        assert await found(journal) == [1]


async def test_that_each_answer_was_heard_is_remembered_until_it_was_not(tmp_path: Path) -> None:
    """A run is walked through again where something happened in it, or an answer was taken back."""
    async with journal_in(tmp_path) as (journal, _):
        await journal.transact(recording(*begun(1), succeeded(1)))
        await journal.transact(lambda tx: tx.note_delivery(command_id(1), DELIVERED))
        looking = Predecessors(journal, ())
        assert await found(journal, by=looking) == []
        await journal.transact(lambda tx: tx.note_delivery(command_id(1), UNHEARD))
        assert await found(journal, by=looking) == [], "as nobody said so, it was not looked at again"
        looking.forget(RunId(f"{PLACE}1"))
        assert await found(journal, by=looking) == [1]
        await journal.transact(lambda tx: tx.note_delivery(command_id(1), DELIVERED))
        assert await found(journal, by=looking) == []
        more = replace(accepted(2, run=f"{PLACE}1"), origin=Origin.GATEWAY)
        await journal.transact(recording(more, started(2), succeeded(2)))
        assert await found(journal, by=looking) == [1]


async def test_more_than_one_run_may_resume_are_continued_through_others_or_refused(tmp_path: Path) -> None:
    """None of them is left out in silence."""
    count = RESUMES_MAX + 6
    async with journal_in(tmp_path) as (journal, _):
        for n in range(1, count + 1):
            await journal.transact(recording(*begun(n), unknown(n)))
        with pytest.raises(TooManyOpen, match=f"{count} earlier runs.*{RESUMES_MAX} at most"):
            await found(journal)
        await journal.transact(recording(*begun(count + 1, *range(1, 9)), unknown(count + 1)))
        assert await found(journal) == [count + 1, *range(count, 8, -1)]
