"""A call from its arrival to its answer: who asks, what it attaches to, and what is waited for.

Part of `driver.gateway`; imports `driver.core`, `store` and its siblings.

What is done for a call (the look at its twins, the delivery to the engine) is done in the gateway's own task
group. Whoever asked may go away at any moment, and others may be attached. Only one who says that nobody
wants it any more cancels it, and only where nobody else waits.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final, Protocol

import anyio
import structlog
from anyio.abc import TaskGroup

from driver.core.commands import CancelData
from driver.core.contracts import Contract
from driver.core.identity import args_digest, operation_id, sha256
from driver.crew import Crew
from driver.gateway.answers import Reading, result_of
from driver.gateway.asking import Asked, before, decision_about, frame_of, of_record, outcome_of
from driver.gateway.limits import GatewayLimits
from driver.gateway.objections import conflict, crowded, misshapen, run_in_use
from driver.gateway.outcomes import Alike, Delivered, Ended, Given, NotTaken, Outcome, Retired, Running
from driver.gateway.predecessors import Predecessors
from driver.gateway.runs import Claims, Speaker
from driver.gateway.sources import Sources
from driver.gateway.twins import DELIVERED, UNHEARD, Deliveries, attached, tells, undelivered
from driver.gateway.unconfirmed import Unconfirmed
from driver.gateway.waiting import Wait, Waits, Watch
from driver.providers.serving import Asking
from store.errors import QueueFull
from store.events import (
    CommandRefused,
    OperationFailed,
    OperationNotExecuted,
    OperationSucceeded,
    OperationUnknown,
)
from store.lifecycle import Effect
from store.records import (
    CommandId,
    Digest,
    JournalId,
    JsonObject,
    OperationId,
    RunId,
    Timestamp,
    moment,
)
from store.view import View

UNDELIVERED: Final = "answer_undelivered"
"""Why an equal call is refused whose answer nobody has heard."""
TOLD: Final = frozenset({OperationSucceeded.KIND, OperationFailed.KIND})
"""Ends that an agent would call again after, had it not heard of them."""
CREW_MAX: Final = 64
"""Tasks that are kept for calls to come: more begin at once only in a crowd."""

log = structlog.stdlib.get_logger(__name__)


class Asker(Protocol):
    """Whoever waits for an answer."""

    @property
    def follows(self) -> bool:
        """Whether the progress of the call is of interest."""
        ...

    def progressed(self, said: JsonObject) -> None:
        """Take what the provider says of its progress."""
        ...

    async def meanwhile(self, wait: Wait) -> Outcome | None:
        """Be with a call that waits, until cancelled: say how it is, and ask where there is what to ask.

        Returns an outcome where the call is to be answered with that, though it goes on.
        """
        ...


@dataclass(slots=True)
class Tally:
    """What the gateway did since its start, for whoever counts."""

    calls: int = 0
    attached: int = 0
    refused: int = 0
    replayed: int = 0
    connections: int = 0


class Calls:
    """Makes calls for agents, one execution each, and answers once what came of them is committed."""

    def __init__(self, sources: Sources, waits: Waits, limits: GatewayLimits, tasks: TaskGroup) -> None:
        self._sources = sources
        self._waits = waits
        self._limits = limits
        self._tasks = tasks
        self._crew = Crew(CREW_MAX)
        self._wired = frozenset(name for name, one in sources.providers.items() if isinstance(one, Asking))
        """The providers that answer as MCP has it."""
        waits.on_end = self._remember
        self._deliveries = Deliveries()
        self._predecessors = Predecessors(sources.journal, self._deliveries)
        self.unconfirmed: Final = Unconfirmed()
        self.claims = Claims()
        self.tally = Tally()

    async def answer(self, asked: Asked, asker: Asker, *, gone: Callable[[], bool]) -> Given:
        """Return the answer to a call, once what it tells is committed.

        Cancelled, it cancels the call, unless `gone()` says that the asker merely is not there any more, or
        others wait for the same call.
        """
        self.tally.calls += 1
        objection = self._objection(asked)
        if objection is not None:
            return await self._refuse(asked, objection)
        if not await self.claims.wait_and_take(asked.speaker, self._limits.handover_s):
            return await self._refuse(asked, run_in_use(asked.speaker))
        try:
            wait = self._wait_of(asked)
            if wait is None:
                return await self._refuse(asked, conflict(asked))
            return await self._attend(wait, asker, gone)
        finally:
            self.claims.give(asked.speaker)

    async def recall(self, asked: Asked) -> Given | None:
        """Return the answer to a call that is asked about again, and that nothing can be done for now.

        None where it was never taken: then nothing was executed.
        """
        if asked.asked_at is None:
            return None
        wait = self._new_wait(asked)
        outcome = await self._before(wait, asked, asked.asked_at)
        return None if outcome is None else await self._given(outcome, wait)

    async def journal_id(self) -> JournalId:
        """Return which journal this is."""
        return await self._sources.journal.read(lambda view: view.journal_id)

    async def predecessors(self, prefix: str, taken: Callable[[RunId], bool]) -> tuple[RunId, ...]:
        """See `Predecessors.left_open`."""
        return await self._predecessors.left_open(prefix, taken)

    def leave(self, speaker: Speaker) -> None:
        """Give back the run that was claimed for a connection, which has ended.

        Nobody is there any more to say that he has the answers: no stop waits for them.
        """
        self.claims.give(speaker)
        if not self.claims.holds(speaker.run_id):
            self.unconfirmed.let_go_of_run(speaker.run_id)

    def delivered(self, given: Delivered) -> None:
        """Note, lazily, that the agent has an answer: an equal call is a new one from then on.

        The note may be lost in a crash: an equal call is then refused once.
        """
        command_id = given.command_id
        self.unconfirmed.let_go(command_id)
        if not given.certain:
            return
        if not self._deliveries.heard(command_id, given.run_id, given.digest):
            return
        try:
            self._sources.journal.later(lambda tx: tx.note_delivery(command_id, DELIVERED))
        except QueueFull:
            log.warning("delivery_not_noted", command_id=command_id)

    async def take_back(self, command_id: CommandId, run_id: RunId, digest: Digest | None) -> None:
        """Note that the agent of a run had given up on a call before it could read the answer.

        Committed when it returns: an equal call is refused from then on, and told of this one.
        """
        wanted = operation_id(self._sources.scope, run_id, command_id)
        call = await self._sources.journal.read(lambda view: view.operation(wanted))
        if call is None or not call.write or not tells(call):
            return
        if self._sources.contract(call.tool).identical == "allow":
            return
        self._deliveries.take_back(call, digest or call.args_digest)
        self._predecessors.forget(call.run_id)
        await self._sources.journal.transact(lambda tx: tx.note_delivery(command_id, UNHEARD))

    async def flush(self) -> None:
        """Wait until the answers that are there have been delivered, `drain_s` at most."""
        with anyio.move_on_after(self._limits.drain_s):
            await self.unconfirmed.none_left()

    # ------------------------------------------------------------ before it is taken

    def _objection(self, asked: Asked) -> NotTaken | None:
        if self._waits.count >= self._limits.calls_max and self._waits.find(asked.command_id) is None:
            return crowded(self._waits.count)
        return misshapen(asked, self._limits)

    async def _refuse(self, asked: Asked, objection: NotTaken) -> Given:
        """Return the answer to a call that is not taken, unless it was when it was asked before."""
        known = await self.recall(asked)
        if known is not None:
            return known
        self.tally.refused += 1
        return Given(result=self._result(objection, asked.tool, Reading(None, None)))

    async def _before(self, wait: Wait, asked: Asked, asked_at: datetime) -> Outcome | None:
        """Return what is known of a call that cannot be taken now; None where nothing was executed."""
        digests = self._digests(wait.digest, asked, self._sources.contract(asked.tool))
        return await self._sources.journal.read(
            partial(before, wait=wait, asked=asked, asked_at=asked_at, digests=digests)
        )

    def _wait_of(self, asked: Asked) -> Wait | None:
        """Return the call that is asked for: one that waits already, or a new one, begun.

        None where another call waits under this id: its answer is none of this one's.
        """
        wait = self._new_wait(asked)
        known = self._waits.find(asked.command_id)
        if known is not None:
            return known if (known.run_id, known.digest) == (wait.run_id, wait.digest) else None
        equal = self._waits.equal(wait.run_id, wait.digest)
        if equal is not None:
            self.tally.attached += 1
            return equal
        self._waits.add(wait)
        self._crew.carry_out(partial(self._begin, wait, asked), self._tasks)
        return wait

    def _new_wait(self, asked: Asked) -> Wait:
        run_id = asked.speaker.run_id
        return Wait(
            command_id=asked.command_id,
            operation_id=operation_id(self._sources.scope, run_id, asked.command_id),
            run_id=run_id,
            tool=asked.tool,
            digest=args_digest(asked.tool, asked.arguments, sha256),
        )

    async def _begin(self, wait: Wait, asked: Asked) -> None:
        """Hand the call to the engine, unless an equal one stands for it."""
        outcome = await self._stand_in(wait, asked) or outcome_of(
            wait, await self._sources.deliver(frame_of(asked))
        )
        if isinstance(outcome, NotTaken) and asked.asked_at is not None:
            outcome = await self._before(wait, asked, asked.asked_at) or outcome
        if outcome is not None:
            self._waits.end(wait, outcome)

    def _remember(self, wait: Wait) -> None:
        """Have an equal write refused until somebody has heard the answer of this one."""
        contract, outcome = self._sources.contract(wait.tool), wait.outcome
        if wait.askers and isinstance(outcome, Ended) and outcome.taken:
            self.unconfirmed.add(wait.command_id, wait.run_id)
        if not isinstance(outcome, Ended) or not contract.write or contract.identical == "allow":
            return
        if outcome.uncertain:
            self._deliveries.doubt(wait.run_id)
        elif outcome.kind in TOLD and outcome.data.get("effect") != "none":
            self._deliveries.answered(wait.run_id, wait.digest, wait.command_id, wait.operation_id)

    async def _stand_in(self, wait: Wait, asked: Asked) -> Outcome | None:
        """Return what an equal call of before comes to for this one; None where it is to be made."""
        contract, speaker = self._sources.contract(asked.tool), asked.speaker
        if not contract.write or (contract.identical == "allow" and asked.asked_at is None):
            return None
        if self._deliveries.knows(speaker.run_id) and not speaker.resumes and asked.asked_at is None:
            twin = self._deliveries.unheard(speaker.run_id, wait.digest)
            return None if twin is None else Alike(code=UNDELIVERED, twin=twin, undelivered=True)
        digests = self._digests(wait.digest, asked, contract)
        look = partial(self._look, asked=asked, digests=digests, contract=contract)
        found, is_new = await self._sources.journal.read(look)
        if is_new:
            self._deliveries.begin(speaker.run_id)
        return found

    def _look(
        self, view: View, asked: Asked, digests: tuple[Digest, ...], contract: Contract
    ) -> tuple[Outcome | None, bool]:
        """Return what stands for the call, and whether its run is a new one. In the journal's thread."""
        if view.run(asked.speaker.run_id) is None and not asked.speaker.resumes:
            return None, True
        if view.command(asked.command_id) is not None or view.tombstone(asked.command_id) is not None:
            return None, False  # it was taken in another life of the daemon, and is answered from there
        everywhere = view.continued(asked.speaker.run_id, asked.speaker.resumes)
        if asked.asked_at is not None:
            earlier = attached(view, (asked.speaker.run_id,), digests, asked.asked_at)
            if earlier is not None:
                return of_record(view, earlier), False
        twin = undelivered(view, everywhere, digests, self._deliveries)
        if twin is None or contract.identical == "allow":
            return None, False
        return Alike(code=UNDELIVERED, twin=twin.operation_id, undelivered=True), False

    def _digests(self, plain: Digest, asked: Asked, contract: Contract) -> tuple[Digest, ...]:
        """The digests that equal arguments may have in the journal: a contract may withhold some of them."""
        if contract.redact is None:
            return (plain,)
        return plain, args_digest(asked.tool, asked.arguments, self._sources.journal.key.digest)

    # ------------------------------------------------------------ while it runs

    async def _attend(self, wait: Wait, asker: Asker, gone: Callable[[], bool]) -> Given:
        wait.askers += 1
        watches: tuple[Watch, ...] = (asker.progressed,) if asker.follows else ()
        wait.watches.extend(watches)
        try:
            outcome = wait.outcome or await self._outcome(wait, asker)
        except anyio.get_cancelled_exc_class():
            if wait.askers == 1 and not wait.over and not gone() and not self._sources.stopping:
                self._tasks.start_soon(self._cancel, wait)
            raise
        finally:
            wait.askers -= 1
            for watch in watches:
                wait.watches.remove(watch)
        return await self._given(outcome, wait)

    async def _outcome(self, wait: Wait, asker: Asker) -> Outcome:
        """Wait for the outcome, with the asker beside it; no longer than there is something to wait for."""
        if not asker.follows and self._sources.contract(wait.tool).approval == "none":
            return await self._end_of(wait)
        outcome: Outcome | None = None
        async with anyio.create_task_group() as beside:

            async def accompany() -> None:
                nonlocal outcome
                outcome = await asker.meanwhile(wait)
                if outcome is not None:
                    beside.cancel_scope.cancel()

            beside.start_soon(accompany)
            outcome = await self._end_of(wait)
            beside.cancel_scope.cancel()
        assert outcome is not None, "one of the two has ended it"
        return outcome

    async def _end_of(self, wait: Wait) -> Outcome:
        since = anyio.current_time()
        while wait.outcome is None:
            with anyio.move_on_at(self._ends(wait, since)) as patience:
                await wait.news()
                since = anyio.current_time()
            # when an attempt began is no news
            if patience.cancelled_caught and self._ends(wait, since) <= anyio.current_time():
                return Running(operation_id=wait.operation_id, approval_id=wait.approval_id)
        return wait.outcome

    def _ends(self, wait: Wait, since: float) -> float:
        """Return until when a call is waited for, by what is known of it now; `since` it is known."""
        latest = wait.expires_at if wait.approval_id else wait.deadline_at
        ends = since + self._sources.contract(wait.tool).budget_s if latest is None else _loop_time(latest)
        return ends + self._limits.patience_s

    async def _cancel(self, wait: Wait) -> None:
        """Let nobody do what nobody waits for; the outcome stays honest, and is committed."""
        data: JsonObject = {"target_command_id": wait.command_id, "reason": "the agent cancelled the call"}
        await self._sources.submit(CancelData.KIND, wait.run_id, data)

    # ------------------------------------------------------------ once it is over

    async def _given(self, outcome: Outcome, wait: Wait) -> Given:
        if isinstance(outcome, Alike | NotTaken | Retired):
            self.tally.refused += 1
        if isinstance(outcome, Ended) and outcome.replayed:
            self.tally.replayed += 1
        reading, outcome = await self._reading(outcome)
        result = self._result(outcome, wait.tool, reading)
        certain = True
        match outcome:
            case Alike(twin=twin, undelivered=True):
                record = await self._sources.journal.read(lambda view: view.operation(twin))
                command_id = None if record is None else record.command_id
            case Ended(taken=True):
                command_id = wait.command_id
                certain = not outcome.uncertain or _is_found_out(outcome, reading)
            case _:
                command_id = None
        if command_id is None:
            return Given(result=result)
        about = Delivered(command_id=command_id, run_id=wait.run_id, digest=wait.digest, certain=certain)
        return Given(result=result, about=about)

    def _result(self, outcome: Outcome, tool: str, reading: Reading) -> JsonObject:
        if reading.record is not None:
            tool = reading.record.tool  # the name that it was called by may be another tool's, or nobody's
        return result_of(
            outcome,
            tool,
            self._sources.contract(tool),
            reading,
            wire=tool.partition("/")[0] in self._wired,
            shown_max=self._limits.result_shown_bytes_max,
        )

    async def _reading(self, outcome: Outcome) -> tuple[Reading, Outcome]:
        """Read of the journal what the answer needs beside the outcome."""
        match outcome:
            case Ended(kind=CommandRefused.KIND, data=data):
                twin = data.get("twin_operation_id")
                if isinstance(twin, str):
                    alike = Alike(code=str(data["code"]), twin=OperationId(twin))
                    return await self._read(alike.twin), alike
                return Reading(None, None), outcome
            case Alike(twin=twin):
                return await self._read(twin), outcome
            case Ended(kind=OperationSucceeded.KIND, report=report) if report is not None:
                return Reading(None, None), outcome
            case Ended(kind=OperationNotExecuted.KIND, decided=None) if (
                outcome.data["reason"] == "approval_denied"
            ):
                decided = await self._sources.journal.read(
                    lambda view: decision_about(view, outcome.operation_id)
                )
                return Reading(None, None), replace(outcome, decided=decided)
            case Ended(operation_id=wanted):
                return await self._read(wanted), outcome
            case _:
                return Reading(None, None), outcome

    async def _read(self, wanted: OperationId) -> Reading:
        def read(view: View) -> Reading:
            stored = view.result(wanted)
            return Reading(view.operation(wanted), None if stored is None else json.loads(stored))

        return await self._sources.journal.read(read)


def _is_found_out(ended: Ended, reading: Reading) -> bool:
    """Whether an answer says that a call has happened whose end nobody knew."""
    found = reading.record is not None and reading.record.effect is Effect.OCCURRED
    return found and ended.kind == OperationUnknown.KIND


def _loop_time(stamp: Timestamp) -> float:
    return anyio.current_time() + (moment(stamp) - datetime.now(UTC)).total_seconds()
