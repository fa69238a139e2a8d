"""Executes operations: a slot, the provider, the intent, one last look, the call, its outcome.

Part of `driver.engine`; imports `driver.core`, `driver.providers.protocol` and `store`.

Theory of operation
-------------------
The order of the steps is the product (I1 and I2), so here it is in one place:

1. an operation waits for a slot; what an earlier boot accepted waits for the plane's confirmation too;
2. its provider is started and connected, and says whether the tool exists and the arguments fit: nothing is
   committed yet, so a crash here leaves a command that may simply run later;
3. the intent is committed, in a transaction that looks at the operation's state, its expiry, cancels, the
   drain and the fence again: what does not hold any more ends `not_executed` in that same transaction, or
   stays in the queue;
4. after the fsync those are looked at once more, because the commit took time;
5. the provider sends the call, once; from its first byte on, only an answer, or `unknown`, can end the
   attempt;
6. the outcome is committed, and with it the receipt.

Intake does step 3 in the transaction that accepts the command, when the provider is ready and a slot is
free: such an operation arrives here at step 4 (`run_started`).
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeVarTuple, Unpack

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus

from driver.core.attempts import NotSent, Phase, Report, Silence, ToolCall
from driver.core.classify import classify, classify_late
from driver.core.contracts import Contracts, ToolName
from driver.core.dispatch import Go, LookFacts, last_look
from driver.engine.assignments import Assignment, Waiting, intent, load
from driver.engine.outcomes import late_result, outcome
from driver.engine.posture import Limits, Posture, Slots
from driver.faults import Boundary
from driver.providers.protocol import Provider
from store.events import Draft, EventData, OperationNotExecuted
from store.journal import Journal
from store.lifecycle import State
from store.records import OperationId
from store.transaction import Transaction

log = structlog.get_logger(__name__)

Step = TypeVarTuple("Step")

CANCEL_DRAIN_S: Final = 5.0
"""How long a provider may take over a cancel at the end of a drain (docs/configuration.md)."""


@dataclass(slots=True)
class _Running:
    """An operation that holds a slot."""

    assignment: Assignment
    deadline_at: datetime | None = None
    """Set once the intent is committed."""
    phase: Phase = Phase.RESERVED
    cancelled: bool = False
    interrupted: bool = False
    """Whether its preparation was cut short: then there must be no intent."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    def reach(self, phase: Phase) -> None:
        """Note the phase that the call has got to."""
        self.phase = phase

    def cancel(self) -> None:
        """Stop preparing or calling; before the first byte the last look sees it too."""
        self.cancelled = True
        self.scope.cancel()


class Dispatcher:
    """Owns every operation between its acceptance and its outcome."""

    def __init__(
        self,
        *,
        journal: Journal,
        providers: Mapping[str, Provider],
        contracts: Contracts,
        posture: Posture,
        limits: Limits,
        clock: Callable[[], datetime],
        boundary: Boundary,
    ) -> None:
        self._journal = journal
        self._providers = providers
        self._contracts = contracts
        self._posture = posture
        self._limits = limits
        self._clock = clock
        self._boundary = boundary
        self.slots = Slots(limits.inflight_max)
        self._waiting: dict[OperationId, Waiting] = {}
        self._running: dict[OperationId, _Running] = {}
        self._tasks: TaskGroup | None = None
        self._changed = anyio.Event()

    @property
    def depth(self) -> int:
        """How many accepted operations wait."""
        return len(self._waiting)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Execute what arrives until cancelled. Cancelling it abandons what runs: drain first."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            task_status.started()
            await self._expire_waiting()

    def enqueue(self, places: Iterable[Waiting]) -> None:
        """Let accepted operations wait for their turn, in this order."""
        self._waiting.update((place.operation_id, place) for place in places)
        self.pump()

    def run_started(self, assignment: Assignment, deadline_at: datetime) -> None:
        """Call the provider for an operation whose intent is committed, and for which a slot was taken."""
        running = self._enter(assignment)
        running.deadline_at = deadline_at
        self._spawn(self._finish_started, running)

    def pump(self) -> None:
        """Give free slots to what waits longest. To be called when queue, slots or posture change."""
        self._changed.set()
        while self._waiting and self._posture.may_dispatch and self.slots.take(1):
            place = self._waiting.pop(next(iter(self._waiting)))
            self._spawn(self._run_waiting, place)

    def forget(self, operation_id: OperationId) -> None:
        """Take an operation that has ended in the journal out of the queue, or stop preparing it."""
        self._waiting.pop(operation_id, None)
        self.cancel(operation_id)

    def cancel(self, operation_id: OperationId) -> None:
        """Cancel an operation that holds a slot, if it does: its outcome stays honest."""
        running = self._running.get(operation_id)
        if running is not None:
            running.cancel()

    async def drain(self) -> None:
        """Let what runs finish for `drain_s`, then cancel it. Returns when no slot is held.

        What waits stays in the journal, accepted, for the next start.
        """
        for running in self._running.values():
            if running.deadline_at is None:
                running.scope.cancel()
        with anyio.move_on_after(self._limits.drain_s):
            await self.slots.all_given_back()
            return
        log.warning("drain_over", running=len(self._running), drain_s=self._limits.drain_s)
        for running in list(self._running.values()):
            running.cancel()
        with anyio.move_on_after(CANCEL_DRAIN_S * 2):
            await self.slots.all_given_back()

    def late(self, operation_id: OperationId, attempt: int, report: Report) -> None:
        """Record a provider's answer that came after its call was no longer waited for."""
        self._spawn(self._record_late, operation_id, attempt, report)

    # ------------------------------------------------------------ the steps

    async def _run_waiting(self, place: Waiting) -> None:
        """Steps 2 to 6 for an operation that was accepted earlier; its slot is taken."""
        assignment = await self._journal.read(lambda view: load(view, place, self._contracts))
        if assignment is None:
            self._release(place.operation_id)
            return
        running = self._enter(assignment)
        refusal = await self._prepare(running)
        started = await self._journal.transact(lambda tx: self._commit_intent(tx, running, refusal))
        if started:
            await self._finish_started(running)
            return
        self._release(assignment.operation_id)
        if started is None and not self._posture.draining:
            self.enqueue([place])

    async def _finish_started(self, running: _Running) -> None:
        """Steps 4 to 6."""
        self._boundary("dispatch.intent_committed")
        began = anyio.current_time()
        refused = self._not_executed(running, self._clock())
        if refused is None:
            report = await self._call(running)
            self._boundary("dispatch.answered")
            took_ms = round((anyio.current_time() - began) * 1000)
            await self._commit_outcome(running, self._judge(running, report, took_ms))
        else:
            await self._commit_outcome(running, refused)
        self._boundary("dispatch.outcome_committed")
        self._release(running.assignment.operation_id)

    async def _prepare(self, running: _Running) -> NotSent | None:
        """Step 2. A cancel, the expiry or a drain ends the wait; step 3 sees which it was."""
        assignment = running.assignment
        provider = self._provider(assignment.tool)
        if provider is None:
            return NotSent(reason="unknown_tool", message=no_provider(ToolName.parse(assignment.tool)))
        with running.scope:
            running.scope.deadline = self._loop_time(assignment.expires_at)
            refusal = await provider.prepare(
                self._tool_call(running, timeout_s=assignment.contract.execution_s)
            )
            self._boundary("dispatch.prepared")
            return refusal
        running.interrupted = True
        return None

    def _commit_intent(self, tx: Transaction, running: _Running, refusal: NotSent | None) -> bool | None:
        """Step 3. True: the intent stands; False: the operation has ended; None: it must wait on."""
        assignment = running.assignment
        record = tx.operation(assignment.operation_id)
        if record is None or record.state is not State.ACCEPTED:
            return False
        refused = self._not_executed(running, tx.now) if refusal is None else _unsent(refusal)
        if refused is not None and refused.reason not in ("draining", "fenced"):
            tx.append(assignment.draft(refused))
            return False
        if not self._posture.may_dispatch:
            return None
        if running.interrupted:
            tx.append(assignment.draft(OperationNotExecuted(reason="expired")))
            return False
        tx.append(assignment.draft(intent(assignment, tx.now)))
        running.deadline_at = assignment.deadline(tx.now)
        return True

    async def _call(self, running: _Running) -> Report:
        """Step 5. Whatever happens, this returns what is known about the call."""
        provider = self._provider(running.assignment.tool)
        assert provider is not None, "an intent is committed only for a tool of a configured provider"
        assert running.deadline_at is not None, "an intent has a deadline"
        timeout_s = max((running.deadline_at - self._clock()).total_seconds(), 0.0)
        running.scope = anyio.CancelScope()
        try:
            with running.scope:
                self._boundary("dispatch.before_call")
                return await provider.dispatch(self._tool_call(running, timeout_s=timeout_s), running.reach)
        except Exception as exc:
            log.exception(
                "provider_failed", operation_id=running.assignment.operation_id, error=type(exc).__name__
            )
            return _broken(running.phase, exc)
        return _abandoned(running.phase)

    def _judge(self, running: _Running, report: Report, duration_ms: int) -> EventData:
        assignment = running.assignment
        ending = classify(report, running.phase, assignment.contract)
        return outcome(ending, phase=running.phase, attempts=assignment.attempt, duration_ms=duration_ms)

    async def _commit_outcome(self, running: _Running, data: EventData) -> None:
        """Step 6: returns once the receipt is fsynced."""
        assignment = running.assignment
        await self._journal.transact(lambda tx: tx.append(assignment.draft(data)))
        log.info(
            "operation_ended",
            operation_id=assignment.operation_id,
            run_id=assignment.run_id,
            tool=assignment.tool,
            kind=data.KIND,
        )

    async def _record_late(self, operation_id: OperationId, attempt: int, report: Report) -> None:
        def record(tx: Transaction) -> None:
            found = tx.operation(operation_id)
            if found is None:
                return
            ending = classify_late(report, self._contracts.lookup(found.tool))
            data = late_result(ending, attempt=attempt)
            if data is not None:
                tx.append(
                    Draft(
                        data=data,
                        run_id=found.run_id,
                        command_id=found.command_id,
                        operation_id=operation_id,
                        origin=found.origin,
                    )
                )

        await self._journal.transact(record)
        log.info("late_result", operation_id=operation_id, attempt=attempt)

    # ------------------------------------------------------------ what the steps share

    async def _expire_waiting(self) -> None:
        """End what waits longer than its command allows. Sleeps until the nearest expiry, or a change."""
        while True:
            self._changed = anyio.Event()
            nearest = min(
                (w.expires_at for w in self._waiting.values() if w.expires_at is not None), default=None
            )
            with anyio.CancelScope(deadline=self._loop_time(nearest)):
                await self._changed.wait()
                continue
            if not self._posture.confirmed:
                # until then another life may have executed it: `expired` could be a lie
                await self._changed.wait()
                continue
            await self._expire_due()

    async def _expire_due(self) -> None:
        now = self._clock()
        due = [w for w in self._waiting.values() if w.expires_at is not None and w.expires_at <= now]

        def expire(tx: Transaction) -> None:
            for place in due:
                assignment = load(tx, place, self._contracts)
                if assignment is not None:
                    tx.append(assignment.draft(OperationNotExecuted(reason="expired")))

        await self._journal.transact(expire)
        for place in due:
            self.forget(place.operation_id)

    def _not_executed(self, running: _Running, now: datetime) -> OperationNotExecuted | None:
        verdict = last_look(
            LookFacts(
                now=now,
                expires_at=running.assignment.expires_at,
                deadline_at=running.deadline_at,
                cancelled=running.cancelled,
                draining=self._posture.draining,
                fenced=self._posture.fence is not None,
            )
        )
        return None if isinstance(verdict, Go) else OperationNotExecuted(reason=verdict.reason)

    def _tool_call(self, running: _Running, *, timeout_s: float) -> ToolCall:
        assignment = running.assignment
        return ToolCall(
            operation_id=assignment.operation_id,
            attempt=assignment.attempt,
            tool=ToolName.parse(assignment.tool).tool,
            arguments=assignment.arguments,
            key=assignment.operation_id,
            timeout_s=timeout_s,
            traceparent=assignment.traceparent,
        )

    def _provider(self, tool: str) -> Provider | None:
        return self._providers.get(ToolName.parse(tool).provider)

    def _loop_time(self, moment: datetime | None) -> float:
        """Return the event loop's time at `moment`; infinity where there is none."""
        if moment is None:
            return float("inf")
        return anyio.current_time() + (moment - self._clock()).total_seconds()

    def _enter(self, assignment: Assignment) -> _Running:
        running = _Running(assignment)
        self._running[assignment.operation_id] = running
        return running

    def _release(self, operation_id: OperationId) -> None:
        self._running.pop(operation_id, None)
        self.slots.give()
        self.pump()

    def _spawn(self, step: Callable[[Unpack[Step]], Coroutine[None, None, None]], *args: *Step) -> None:
        assert self._tasks is not None, "the dispatcher runs before anything is handed to it"
        self._tasks.start_soon(step, *args)


def no_provider(tool: ToolName) -> str:
    """Return what a call of a tool is told whose provider is not configured."""
    return (
        f"no provider {tool.provider!r} is configured: a tool is named PROVIDER/TOOL, as in the configuration"
    )


def _unsent(refusal: NotSent) -> OperationNotExecuted:
    return OperationNotExecuted(reason=refusal.reason, message=refusal.message or None)


def _abandoned(phase: Phase) -> Report:
    """What is known of a call that we cancelled ourselves."""
    if phase.may_have_left:
        return Silence(cause="cancelled", message="cancelled after the call may have been sent")
    return NotSent(reason="cancelled", message="cancelled before the call was sent")


def _broken(phase: Phase, exc: Exception) -> Report:
    """What is known of a call whose provider raised: an exception of ours, never the peer's word."""
    message = f"internal error in the provider: {type(exc).__name__}"
    if phase.may_have_left:
        return Silence(cause="internal", message=message)
    return NotSent(reason="connect_failed", message=message)
