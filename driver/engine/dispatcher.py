"""Executes operations: a slot, the provider, the intent, one last look, the call, its outcome.

Part of `driver.engine`; imports `driver.core`, `driver.providers.protocol` and `store`. What is said to a
provider stands in `calling`.

Theory of operation
-------------------
The order of the steps is the product (I1 and I2), so here it is in one place:

1. an operation waits for a slot; what an earlier boot accepted waits for the plane's confirmation too;
2. its provider is started and connected, and says whether the tool exists and the arguments fit: nothing is
   committed yet, so a crash here leaves a command that may simply run later;
3. the intent is committed, in a transaction that looks at the operation's state, its expiry, cancels, the
   drain and the fence again: what does not hold any more ends `not_executed` in that same transaction, or
   stays in the queue;
4. after the fsync those are looked at once more, because the commit took time; for a further attempt the
   evidence is, too;
5. the provider sends the call, once; from its first byte on, only an answer, or `unknown`, can end the
   attempt. A fence, or evidence, that comes before that byte has step 4 done anew;
6. the outcome is committed, and with it the receipt; or it is the end of this attempt only, the slot is given
   back, and the operation rests until it is due for another one (step 1).

An attempt that outlived an earlier process life is heard out at step 5, and goes on to step 6 (`readopt`).

Intake does step 3 in the transaction that accepts the command, when the provider is ready and a slot is
free: such an operation arrives here at step 4 (`run_started`).
"""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeVarTuple, Unpack

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus

from driver.core.attempts import Phase, Report
from driver.core.conclusion import Attempted, Outcome
from driver.core.probes import is_look
from driver.core.reports import judge
from driver.crew import Crew, Work
from driver.engine.assignments import Assignment, UnderWay, identify, load
from driver.engine.calling import CANCEL_DRAIN_S, Caller, loop_time
from driver.engine.endings import lost, record_late
from driver.engine.intents import Intents, unheld
from driver.engine.lookalikes import Lookalikes
from driver.engine.loss import Loss
from driver.engine.observing import Observer
from driver.engine.outcomes import found_by_shim, outcome
from driver.engine.posture import Slots
from driver.engine.queue import Queue, Waiting, granted
from driver.engine.readoption import hear
from driver.engine.running import Later, Over, Running, Started
from driver.engine.steps import Steps
from driver.engine.surroundings import Surroundings
from driver.engine.waits import end_waiting, give_up
from driver.providers.readoption import Lost
from store.events import (
    LateResult,
    OperationFailed,
    OperationNotExecuted,
    OperationReconciled,
    OperationSucceeded,
    OperationUnknown,
)
from store.records import OperationId, StoredEvent
from store.transaction import Transaction

log = structlog.get_logger(__name__)

Args = TypeVarTuple("Args")

EVIDENCE: Final = frozenset({LateResult.KIND, OperationReconciled.KIND})
"""What is learned of attempts that have ended while another one is on its way."""


class Dispatcher:
    """Owns every operation between its acceptance and its outcome."""

    def __init__(self, around: Surroundings) -> None:
        self._journal = around.journal
        self._terms = around.terms
        self._posture = around.posture
        self._limits = around.limits
        self._clock = around.clock
        lookalikes = Lookalikes(around.journal.key)
        self._steps = Steps(around.posture, around.machine, around.terms, lookalikes, around.new_id)
        self._boundary = around.boundary
        self._answered = around.answered
        self._caller = Caller(around)
        self._loss = Loss(around.journal, around.lose)
        self._observer = Observer(around)
        self._grants: dict[OperationId, str] = {}
        self.intents = Intents()
        self.slots = Slots(around.limits.inflight_max)
        self._queue = Queue()
        self._places: dict[OperationId, Waiting] = {}
        """The places that hold a slot now, for their first step."""
        self._running: dict[OperationId, Running] = {}
        self._tasks: TaskGroup | None = None
        self._crew = Crew(around.limits.inflight_max)
        self._changed = anyio.Event()

    @property
    def runs(self) -> bool:
        """Whether anything can be handed to it: not before it has begun, nor once the daemon ends."""
        return self._tasks is not None

    @property
    def depth(self) -> int:
        """How many accepted operations hold no slot."""
        return self._queue.depth

    @property
    def unapproved(self) -> int:
        """How many accepted operations wait for a person, or will have to."""
        return self._queue.unapproved + sum(place.unapproved for place in self._places.values())

    @property
    def crowded(self) -> bool:
        """Whether operations wait for a slot: then nothing may pass them."""
        return self._queue.crowded

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Execute what arrives until cancelled. Cancelling it abandons what runs: drain first."""
        unsubscribe = self._journal.subscribe(self._hear)
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                task_status.started()
                await self._watch_time()
        finally:
            unsubscribe()
            self._tasks = None

    def enqueue(self, places: Iterable[Waiting]) -> None:
        """Let operations wait for their turn, in this order."""
        for place in places:
            self._queue.put(place)
        self.pump()

    def run_started(self, assignment: Assignment, deadline_at: datetime, started_seq: int) -> None:
        """Call the provider for an operation whose intent is committed, and for which a slot was taken."""
        running = self._enter(assignment)
        running.deadline_at, running.started_seq = deadline_at, started_seq
        self._carry_out(partial(self._finish_started, running))

    def readopt(self, attempts: Iterable[UnderWay]) -> None:
        """Wait for attempts that an earlier process life began, and that may have outlived it.

        Their providers must run. They hold slots, be there as many as may.
        """
        for found in attempts:
            self.slots.hold()
            running = self._enter(found.assignment)
            running.deadline_at, running.phase = found.deadline_at, Phase.WRITING
            running.scope = anyio.CancelScope()
            self._spawn(self._finish_readopted, running, found.started_at)

    def pump(self) -> None:
        """Give free slots to what waits longest. To be called when queue, slots or posture change."""
        if not self._queue:
            return
        self._changed.set()
        self._queue.rouse(self._clock())
        while self._queue.crowded and self._posture.may_dispatch and self.slots.take(1):
            place = self._queue.take()
            assert place is not None, "somebody waits in a queue that is crowded"
            self._places[place.operation_id] = place
            self._carry_out(partial(self._run_waiting, place))

    def forget(self, operation_id: OperationId) -> None:
        """Take an operation that has ended in the journal out of the queue, or stop preparing it."""
        self._queue.remove(operation_id)
        running = self._running.get(operation_id)
        if running is not None:
            running.cancel()

    def cancel(self, operation_id: OperationId) -> None:
        """Cancel an operation that has been started: its outcome stays honest."""
        running = self._running.get(operation_id)
        if running is not None:
            running.cancel()
        else:
            self._queue.remove(operation_id)
            self._spawn(self._end_waiting, [operation_id], OperationNotExecuted(reason="cancelled"))

    def fenced(self) -> None:
        """Let what waits for the plane, or for its provider, look at the fence."""
        self.intents.interrupt()
        for running in self._running.values():
            running.recall()

    def abandon(self, operation_ids: Iterable[OperationId]) -> None:
        """Let go what an accepted rollback has ended in the journal. What was called already is heard out."""
        self.intents.begin_history()
        for operation_id in operation_ids:
            self._queue.remove(operation_id)
            running = self._running.get(operation_id)
            if running is not None and running.deadline_at is None:
                running.cancel()

    def grant(self, operation_id: OperationId, approval_id: str) -> None:
        """Let an operation go on whose newest request was granted, durably."""
        if self._queue.grant(operation_id, approval_id):
            self.pump()
        elif operation_id in self._places:
            # its request is committed, and whoever asked has not heard of that yet
            self._grants[operation_id] = approval_id

    async def drain(self) -> None:
        """Let what runs finish for `drain_s`, then cancel it. Returns when no slot is held.

        What waits stays in the journal, accepted, for the next start.
        """
        for running in self._running.values():
            if running.deadline_at is None or running.holding:
                running.withdraw()
        with anyio.move_on_after(self._limits.drain_s):
            await self.slots.all_given_back()
            return
        log.warning("drain_over", running=len(self._running), drain_s=self._limits.drain_s)
        for running in list(self._running.values()):
            running.cancel()
        with anyio.move_on_after(CANCEL_DRAIN_S * 2):
            await self.slots.all_given_back()

    def late(self, operation_id: OperationId, attempt: int, report: Report) -> None:
        """Record a provider's answer that came after its call was no longer waited for.

        A probe's is nobody's: what it would prove was judged undetermined already. So is one that comes while
        the daemon ends, after this has: a provider may still listen while it closes.
        """
        if is_look(operation_id) or self._tasks is None:
            return
        running = self._running.get(operation_id)
        if running is not None and running.heard is None and running.hears(attempt):
            running.heard = report
        else:
            self._spawn(self._record_late, operation_id, attempt, report)

    # ------------------------------------------------------------ the steps

    async def _run_waiting(self, place: Waiting) -> None:
        """Steps 2 to 6 for an operation that waited; its slot is taken."""
        assignment = await self._journal.read(lambda view: load(view, place, self._terms))
        if assignment is None:
            await self._journal.transact(lambda tx: give_up(tx, place))
            self._release(place.operation_id, None, place)
            return
        running = self._enter(assignment, place)
        identify(assignment)
        refusal = await self._caller.prepare(running)
        step = await self._journal.transact(lambda tx: self._steps.begin(tx, running, refusal))
        if isinstance(step, Started):
            await self._finish_started(running)
        else:
            self._leave(running, step)

    async def _finish_started(self, running: Running) -> None:
        """Steps 4 to 6."""
        identify(running.assignment)
        self._boundary("dispatch.intent_committed")
        self._terms.warn(running.assignment.tool, running.assignment.contract)
        not_held = await self._hold(running)
        self._boundary("dispatch.intent_held")
        await self._observer.look(running.assignment, "before")
        began = anyio.current_time()
        word: Outcome | None = await self._refused_at_last(running) or not_held
        if word is None:
            report = await self._loss.strike(running.assignment, await self._caller.call(running))
            self._answered(running.assignment.operation_id, report)
            self._boundary("dispatch.answered")
            took_ms = round((anyio.current_time() - began) * 1000)
            word = self._judge(running, report, took_ms)
            if running.recalled and not running.phase.may_have_left:
                word = await self._refused_at_last(running) or word
        await self._end(running, running.ended(word))

    async def _finish_readopted(self, running: Running, started_at: datetime) -> None:
        """Steps 5 and 6 of an attempt that another process life began."""
        assignment = running.assignment
        identify(assignment)
        provider = self._terms.readopting(assignment.tool)
        assert provider is not None, "recovery left it open because there is one"
        report = await hear(provider, running)
        self._boundary("dispatch.answered")
        if isinstance(report, Lost):
            await self._end(running, lost(assignment.attempt, report.message))
            return
        took_ms = max(round((self._clock() - started_at).total_seconds() * 1000), 0)
        await self._end(running, running.ended(found_by_shim(self._judge(running, report, took_ms))))

    async def _end(self, running: Running, newest: Attempted) -> None:
        """Step 6, and what follows once the receipt, or the end of the attempt, is fsynced."""
        word, tool = newest.outcome, running.assignment.tool
        step = await self._journal.transact(lambda tx: self._steps.end(tx, running, newest))
        if isinstance(step, Over) and step.why:
            log.info("no_retry", why=step.why)
        self._boundary("dispatch.outcome_committed")
        provider = self._terms.readopting(tool)
        if provider is not None:
            provider.settled(running.assignment.operation_id, running.assignment.attempt)
        if running.heard is not None and not isinstance(word, OperationSucceeded):
            # an error after a cancel may be about the cancel: it is kept, and ends nothing
            assignment = running.assignment
            await self._record_late(assignment.operation_id, assignment.attempt, running.heard)
        if isinstance(word, OperationFailed | OperationUnknown) and self._observer.observes(tool):
            self._spawn(self._observer.look, running.assignment, "after")
        self._leave(running, step)

    async def _hold(self, running: Running) -> OperationNotExecuted | None:
        """Between steps 3 and 4: wait until the plane holds the intent, where it must; else return that not.

        A cancel, the expiry, a drain or a fence ends the wait; step 4 sees which it was. The budget of the
        execution begins when this returns.
        """
        assignment = running.assignment
        contract, held = assignment.contract, False
        if not contract.held_s:
            return None
        assert running.deadline_at is not None, "an intent has a deadline"
        ends = min(anyio.current_time() + contract.held_s, loop_time(assignment.expires_at, self._clock()))
        running.holding = True
        if not running.cancelled:
            with anyio.CancelScope(deadline=ends) as running.scope:
                held = await self.intents.held(running.started_seq)
        running.holding = False
        budget_ends = self._clock() + timedelta(seconds=contract.execution_s)
        running.deadline_at = min(running.deadline_at, budget_ends)
        return None if held else unheld(contract.held_s)

    def _judge(self, running: Running, report: Report, duration_ms: int) -> Outcome:
        assignment = running.assignment
        ending = judge(report, running.phase, assignment.contract, assignment.redactor)
        return outcome(ending, phase=running.phase, attempts=assignment.attempt, duration_ms=duration_ms)

    async def _record_late(self, operation_id: OperationId, attempt: int, report: Report) -> None:
        def record(tx: Transaction) -> bool:
            found = tx.operation(operation_id)
            if found is None:
                return False
            return record_late(tx, operation_id, attempt, report, self._terms.lookup(found.tool))

        if await self._journal.transact(record):
            self.forget(operation_id)

    def _hear(self, events: Sequence[StoredEvent]) -> None:
        """Have further attempts of which nothing has left looked at anew where more is known by now."""
        for event in events:
            if event.kind in EVIDENCE and event.operation_id is not None:
                running = self._running.get(event.operation_id)
                if running is not None and running.is_further and not running.phase.may_have_left:
                    self._spawn(self._reconsider, running)

    async def _reconsider(self, running: Running) -> None:
        if await self._journal.read(lambda view: self._steps.doubt(view, running)) is not None:
            running.recall()

    # ------------------------------------------------------------ what the steps share

    async def _watch_time(self) -> None:
        """End what waits longer than its command allows, and wake what has rested. Sleeps until then."""
        while True:
            self._changed = anyio.Event()
            with anyio.CancelScope(deadline=loop_time(self._queue.next_moment(), self._clock())):
                await self._changed.wait()
                continue
            if not self._posture.confirmed or self._posture.fence is not None:
                # another life may have executed it: `expired` could be a lie
                await self._changed.wait()
                continue
            expired = [place.operation_id for place in self._queue.expired(self._clock())]
            if expired:
                await self._end_waiting(expired)
            self.pump()

    async def _end_waiting(
        self, operation_ids: Sequence[OperationId], reason: OperationNotExecuted | None = None
    ) -> None:
        for operation_id in await self._journal.transact(lambda tx: end_waiting(tx, operation_ids, reason)):
            self.forget(operation_id)

    async def _refused_at_last(self, running: Running) -> OperationNotExecuted | None:
        """Step 4. For a further attempt the evidence is looked at once more, too."""
        if running.is_further:
            doubt = await self._journal.read(lambda view: self._steps.doubt(view, running))
            if doubt is not None:
                return doubt
        return self._steps.refusal(running, self._clock())

    def _enter(self, assignment: Assignment, place: Waiting | None = None) -> Running:
        running = Running(assignment, place)
        self._running[assignment.operation_id] = running
        return running

    def _leave(self, running: Running, step: Over | Later) -> None:
        """Give the slot back; what may go on rests, unless it was cancelled meanwhile."""
        operation_id = running.assignment.operation_id
        if isinstance(step, Later) and not running.cancelled:
            asked = step.place.asked
            known = asked is not None and asked.approval_id == self._grants.get(operation_id)
            self._queue.put(granted(step.place, asked.approval_id) if asked and known else step.place)
        self._release(operation_id, running, running.place)
        if isinstance(step, Later) and running.cancelled:
            self.cancel(operation_id)

    def _release(self, operation_id: OperationId, running: Running | None, place: Waiting | None) -> None:
        """Give a slot back. What holds another by now, for a further attempt, is not touched."""
        if self._running.get(operation_id) is running:
            self._running.pop(operation_id, None)
        if self._places.get(operation_id) is place:
            self._places.pop(operation_id, None)
            self._grants.pop(operation_id, None)
        self.slots.give()
        self.pump()

    def _carry_out(self, attempt: Work) -> None:
        assert self._tasks is not None, "the dispatcher runs before anything is handed to it"
        self._crew.carry_out(attempt, self._tasks)

    def _spawn(self, step: Callable[[Unpack[Args]], Coroutine[None, None, None]], *args: *Args) -> None:
        assert self._tasks is not None, "the dispatcher runs before anything is handed to it"
        self._tasks.start_soon(step, *args)
