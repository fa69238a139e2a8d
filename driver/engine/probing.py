"""Runs probes: one read through the operation's own provider, and what it proves, in the journal.

Part of `driver.engine`; imports `driver.core`, `driver.providers.protocol` and `store`.

A look is no operation. It has no intent, no key and no slot; it is called under an id that no operation has,
so that an answer that comes too late lands nowhere. What it found is recorded in one transaction, as
`operation.probed`; and as a verdict beside it (`operation.reconciled`), where it says something that nobody
who knows better has said by then. The verdict speaks of the attempts that had been started when the question
was put.

A look waits for its turn, and for its provider to be ready. Whether the daemon may act is therefore asked
again after each of these waits, the last time with nothing between that and the call; a look that may not be
put any more leaves nothing behind, and is put anew when it may. So does one whose answer comes in another
history: it was put before somebody agreed to that one, and until then another life may have gone on.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final, Literal

import anyio
import structlog

from driver.core.attempts import NotSent, Phase, Report, ToolCall
from driver.core.contracts import Contract, Probe, ToolName
from driver.core.probes import Finding, Unclear, count, look_id, question, scope, verdict
from driver.core.redaction import Redaction, redaction
from driver.core.reports import Redactor
from driver.engine.errands import Postponed
from driver.engine.history import arguments_of, is_of_earlier_history, landed_by_now
from driver.engine.looks import Look, record_look
from driver.engine.reports import broken
from driver.engine.surroundings import Surroundings
from driver.engine.withheld import redactor
from driver.providers.protocol import Provider
from driver.providers.readoption import Readopting
from store.lifecycle import OPEN
from store.records import JournalId, JsonObject, OperationId, OperationRecord
from store.transaction import Transaction
from store.view import View

log = structlog.get_logger(__name__)

LOOKS_MAX: Final = 4
"""Looks at one provider at once: a burst of unknowns must not become a burst of reads."""

NoLookCode = Literal["unknown_operation", "no_probe_declared", "still_running"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoLook:
    """Why nobody looks: `code` is a stable word."""

    code: NoLookCode
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """One look, prepared: what is asked, and all that decides what the answer proves."""

    look: Look
    journal_id: JournalId
    """The history in which the question is put."""
    probe: Probe
    read: ToolName
    seen: JsonObject
    asked: JsonObject | Unclear
    landed: datetime | None
    own: Redactor | None
    """What keeps texts about the look from telling what the operation's contract withholds."""
    hidden: tuple[str, ...]
    """The paths of results that the operation's contract withholds."""


class Prober:
    """Looks, one question at a time, whoever asks for it."""

    def __init__(self, around: Surroundings) -> None:
        self._journal = around.journal
        self._providers = around.providers
        self._terms = around.terms
        self._posture = around.posture
        self._clock = around.clock
        self._machine = around.machine
        self._boundary = around.boundary
        self._new_id = around.new_id
        self._limits: dict[str, anyio.CapacityLimiter] = defaultdict(lambda: anyio.CapacityLimiter(LOOKS_MAX))

    async def look(self, operation_id: OperationId) -> Finding | NoLook:
        """Look for what an operation came to; return what was found, once it is durable.

        Raises `Postponed` where the daemon may not act any more when its turn has come, and where another
        history has begun since. Cancelling it leaves nothing behind, either.
        """
        case = await self._journal.read(partial(self._case, operation_id=operation_id))
        if isinstance(case, NoLook):
            return case
        async with self._limits[case.read.provider]:
            finding = await self._ask(case)
        self._boundary("probe.answered")
        settled = await self._journal.transact(partial(_record, case=case, finding=finding))
        self._boundary("probe.recorded")
        log.info(
            "operation_probed",
            operation_id=operation_id,
            tool=str(case.read),
            verdict=finding.verdict,
            matches=finding.matches,
            settled=settled,
        )
        return finding

    def refusal(self, view: View, operation_id: OperationId) -> NoLook | None:
        """Return why nobody can look for what an operation came to; None where somebody can."""
        case = self._case(view, operation_id)
        return case if isinstance(case, NoLook) else None

    # ------------------------------------------------------------ the question

    def _case(self, view: View, operation_id: OperationId) -> _Case | NoLook:
        record = view.operation(operation_id)
        if record is None:
            return NoLook(code="unknown_operation", message=f"this journal has no operation {operation_id}")
        contract = self._terms.lookup(record.tool)
        probe = contract.probe
        if probe is None:
            message = f"no contract declares a probe for {record.tool}: see [providers.P.tools.T.probe]"
            return NoLook(code="no_probe_declared", message=message)
        if record.state in OPEN:
            message = f"the operation is {record.state}: what it comes to cannot be seen before it has ended"
            return NoLook(code="still_running", message=message)
        own = redactor(view, record, contract)
        seen = scope(operation_id, arguments_of(view, record), record.receipt)
        read = ToolName(ToolName.parse(record.tool).provider, probe.tool)
        return _Case(
            look=Look(
                operation_id=operation_id,
                tool=str(read),
                started_seq=record.started_seq,
                attempts=record.attempt_count,
            ),
            journal_id=view.journal_id,
            probe=probe,
            read=read,
            seen=seen,
            asked=question(probe, seen),
            landed=self._landed(view, record, contract),
            own=own,
            hidden=() if own is None else _of_results(own.redaction),
        )

    def _landed(self, view: View, record: OperationRecord, contract: Contract) -> datetime | None:
        """Return when the last attempt could no longer land; None where another life may have begun one."""
        if is_of_earlier_history(view, record):
            return None
        return landed_by_now(view, view.attempts(record.operation_id), contract.late_result_s, self._machine)

    # ------------------------------------------------------------ the call

    async def _ask(self, case: _Case) -> Finding:
        began = self._clock()
        counted = case.asked if isinstance(case.asked, Unclear) else await self._count(case, case.asked)
        if isinstance(counted, Unclear) and case.own is not None:
            counted = Unclear(case.own.message(counted.detail))
        return verdict(case.probe, counted, began=began, landed=case.landed)

    async def _count(self, case: _Case, arguments: JsonObject) -> int | Unclear:
        contract = self._terms.lookup(str(case.read))
        if not contract.declared or contract.write:
            return Unclear(f"{case.read} is not declared a read, and a probe calls nothing else")
        provider = self._providers[case.read.provider]
        look = look_id(self._new_id())
        report, phase = await put(
            provider, look, case.read.tool, arguments, contract.execution_s, may_act=self._may_act
        )
        hiding = redaction((*(() if contract.redact is None else contract.redact.paths), *case.hidden))
        keeping = None if hiding is None else Redactor(redaction=hiding, arguments=arguments)
        return count(case.probe, case.seen, report, phase, contract, keeping)

    def _may_act(self) -> bool:
        return self._posture.may_dispatch


async def put(
    provider: Provider,
    look: OperationId,
    tool: str,
    arguments: JsonObject,
    timeout_s: float,
    *,
    may_act: Callable[[], bool],
) -> tuple[Report, Phase]:
    """Call a tool that only reads, once; return what became of that, and how far it got.

    `look` is the id that it is called under. `may_act` is asked before the provider is got ready, and right
    before the call leaves; raises `Postponed` where it says no, and the tool has not been called.

    Takes `timeout_s` to get ready, and as much again for the answer, at most. Whatever the provider raises is
    a report. What is heard of the call later, nobody can mistake for an operation's.
    """
    if not may_act():
        raise Postponed
    call = ToolCall(
        operation_id=look,
        attempt=1,
        tool=tool,
        arguments=arguments,
        key=None,
        timeout_s=timeout_s,
    )
    phase = Phase.RESERVED

    def reach(reached: Phase) -> None:
        nonlocal phase
        phase = reached

    refused: Report | None = NotSent(
        reason="deadline", message=f"the provider was not ready within {timeout_s:g} s"
    )
    try:
        with anyio.move_on_after(timeout_s):
            refused = await provider.prepare(call)
        if not may_act():
            raise Postponed
        return refused or await provider.dispatch(call, reach), phase
    except Postponed:
        raise
    except Exception as exc:
        log.exception("provider_failed", provider=provider.name, probe=tool, error=type(exc).__name__)
        return broken(phase, exc), phase
    finally:
        if isinstance(provider, Readopting):
            provider.settled(call.operation_id, call.attempt)


def _record(tx: Transaction, case: _Case, finding: Finding) -> bool:
    if tx.journal_id != case.journal_id:
        raise Postponed
    return record_look(tx, case.look, finding)


def _of_results(hidden: Redaction) -> tuple[str, ...]:
    return tuple(path for path in hidden.paths if path.startswith("result"))
