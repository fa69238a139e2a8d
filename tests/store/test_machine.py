"""The journal against a list: what it acknowledged is there, in order, and nothing else.

A crash is a copy of the folder while the journal is open: exactly what SIGKILL leaves behind. (What a power
loss leaves behind is tested where commits are counted and flushed: here every write has reached the copy.)
"""

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
from anyio import CancelScope, create_task_group
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from store.errors import ImpossibleEvent
from store.events import Draft
from store.journal import Journal, open_journal
from store.lifecycle import ENDED, Effect, IllegalMove, State
from store.records import JournalId, StoredEvent
from store.settings import JournalSettings
from store.transaction import Transaction
from store.verify import verify_file
from store.view import View
from tests.store.conftest import FILES, Clock, Ids
from tests.store.drafts import (
    accepted,
    failed,
    late,
    not_executed,
    operation_id,
    reconciled,
    recording,
    started,
    succeeded,
    unknown,
)

Make = Callable[..., Draft]

NEXT: dict[State | None, list[Make]] = {
    None: [accepted],
    State.ACCEPTED: [started, not_executed, unknown],
    State.STARTED: [succeeded, failed, unknown, not_executed],
    State.UNKNOWN: [late],
    State.FAILED: [late],
}
STATE_AFTER: dict[Make, State] = {
    accepted: State.ACCEPTED,
    started: State.STARTED,
    not_executed: State.NOT_EXECUTED,
    unknown: State.UNKNOWN,
    succeeded: State.SUCCEEDED,
    failed: State.FAILED,
}
OPERATIONS = st.integers(0, 7)


def _everything(view: View) -> tuple[Sequence[StoredEvent], int, Mapping[State, int], JournalId]:
    return view.events(0, 1_000, 10_000_000), view.acked_seq, view.counts(), view.journal_id


class Undone(Exception):
    """What a unit raises after it has written."""


class JournalMachine(RuleBasedStateMachine):
    """One journal, opened again and again, and the list that it must equal."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.settings = JournalSettings(state_dir=self.folder / "state", runtime_dir=self.folder / "run")
        self.clock, self.ids = Clock(), Ids()
        self.portal: BlockingPortal = self.stack.enter_context(start_blocking_portal())
        self.model: list[StoredEvent] = []
        self.states: dict[int, State] = {}
        self.acked = 0
        self.lazy: int | None = None
        self.journal_id: JournalId | None = None
        self.open()

    def open(self) -> None:
        opening = open_journal(self.settings, clock=self.clock, new_id=self.ids)
        self.context: AbstractContextManager[Journal] = self.portal.wrap_async_context_manager(opening)
        self.journal = self.context.__enter__()

    def close(self) -> None:
        self.context.__exit__(None, None, None)

    def teardown(self) -> None:
        self.close()
        found = verify_file(self.settings, lambda _: None, now=self.clock.now, deep=True)
        self.stack.close()
        assert found == ()

    def committed(self, events: tuple[StoredEvent, ...]) -> None:
        """The caller was told: from now on, these are there."""
        self.model += events
        if self.lazy is not None:
            self.acked, self.lazy = self.lazy, None

    @rule(n=OPERATIONS, choice=st.integers(0, 3))
    def move(self, n: int, choice: int) -> None:
        """An operation goes one legal step further."""
        state = self.states.get(n)
        if state in NEXT:
            make = NEXT[state][choice % len(NEXT[state])]
            self.committed(self.portal.call(self.journal.transact, recording(make(n))))
            self.states[n] = STATE_AFTER.get(make, state or State.ACCEPTED)

    @rule(n=OPERATIONS)
    def call(self, n: int) -> None:
        """Acceptance and intent share a commit, as they do for a call that runs at once."""
        if n not in self.states:
            self.committed(self.portal.call(self.journal.transact, recording(accepted(n), started(n))))
            self.states[n] = State.STARTED

    @rule(n=OPERATIONS, effect=st.sampled_from(Effect))
    def settle(self, n: int, effect: Effect) -> None:
        """An operator says something of an operation."""
        if n in self.states:
            self.committed(self.portal.call(self.journal.transact, recording(reconciled(n, effect))))

    @rule(numbers=st.lists(OPERATIONS, unique=True, min_size=2))
    def many_at_once(self, numbers: list[int]) -> None:
        """Callers that arrive together each get their own events, and all of them are in order."""
        fresh = [n for n in numbers if n not in self.states]
        told: list[StoredEvent] = []

        async def one(n: int) -> None:
            told.extend(await self.journal.transact(recording(accepted(n), started(n))))

        async def all_of_them() -> None:
            async with create_task_group() as tasks:
                for n in fresh:
                    tasks.start_soon(one, n)

        if fresh:
            self.portal.call(all_of_them)
            self.committed(tuple(sorted(told, key=lambda event: event.seq)))
            self.states |= dict.fromkeys(fresh, State.STARTED)

    @rule(n=OPERATIONS)
    def cancelled_caller(self, n: int) -> None:
        """A caller that is cancelled is not told, and its unit is whole all the same."""
        if n in self.states:
            return

        async def hand_in_and_leave() -> tuple[StoredEvent, ...]:
            with CancelScope() as scope:
                scope.cancel()
                await self.journal.transact(recording(accepted(n), started(n)))
            assert scope.cancelled_caught
            last = len(self.model)
            return await self.journal.transact(lambda tx: tx.events(last, 10, 1_000_000))

        events = self.portal.call(hand_in_and_leave)
        assert [event.kind for event in events] == ["command.accepted", "operation.started"]
        self.committed(events)
        self.states[n] = State.STARTED

    @rule(n=OPERATIONS)
    def undone(self, n: int) -> None:
        """A unit that raises after it has written leaves nothing, in memory or on disk."""

        def unit(tx: Transaction) -> None:
            if tx.operation(operation_id(n)) is None:
                tx.append(accepted(n))
            raise Undone

        with pytest.raises(Undone):
            self.portal.call(self.journal.transact, unit)
        self.committed(())

    @rule(n=OPERATIONS)
    def illegal(self, n: int) -> None:
        """What the lifecycle does not allow changes nothing."""
        wrong = accepted(n) if n in self.states else succeeded(n)
        with pytest.raises((IllegalMove, ImpossibleEvent)):
            self.portal.call(self.journal.transact, recording(wrong))
        self.committed(())

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        """The watermark moves with the next commit, or is lost with the process and told again."""
        seq = data.draw(st.integers(self.acked, len(self.model)))

        def unit(tx: Transaction) -> None:
            tx.acknowledge(seq)

        self.portal.call(self.journal.later, unit)
        self.lazy = seq

    @rule()
    def stop_and_start(self) -> None:
        """A clean stop commits what is lazy, and leaves one file."""
        self.close()
        self.committed(())
        assert {item.name for item in self.settings.state_dir.iterdir()} == FILES
        self.open()

    @rule()
    def kill_and_start(self) -> None:
        """SIGKILL loses nothing that anybody was told, and adds nothing."""
        state, copy = self.settings.state_dir, self.folder / "copy"
        shutil.copytree(state, copy)
        self.close()
        shutil.rmtree(state)
        copy.rename(state)
        self.lazy = None
        self.open()

    @invariant()
    def equals_the_list(self) -> None:
        """Every event, the watermark, the counts and the unsettled are those of the model."""
        events, acked, counts, journal_id = self.portal.call(self.journal.read, _everything)
        assert list(events) == self.model
        assert acked == self.acked
        assert sum(counts.values()) == len(self.states)
        for state in State:
            assert counts[state] == sum(found is state for found in self.states.values())
        ended = [n for n, state in self.states.items() if state in ENDED]
        receipts = [event for event in events if event.terminal]
        assert sorted(event.operation_id or "" for event in receipts) == sorted(
            operation_id(n) for n in ended
        )
        self.journal_id = self.journal_id or journal_id
        assert journal_id == self.journal_id


JournalMachine.TestCase.settings = settings(
    max_examples=30, stateful_step_count=20, suppress_health_check=[HealthCheck.too_slow]
)


TestJournal = JournalMachine.TestCase
