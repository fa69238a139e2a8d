"""Probes what nobody knows the outcome of, by itself: after a restart, and from then on as it comes.

Part of `driver.engine`; imports `driver.core`, its own siblings and `store`.

Theory of operation
-------------------
What is to be probed, and when, follows from the journal alone (`driver.engine.looks`): this loop only knows
which operations to ask about. Those are what its first round finds, and whatever an event is about from then
on. Each is looked at again by the schedule until somebody who knows better has settled it, or its attempts
are used up; a supervisor's word does not end that.

Nothing is asked before the daemon may act: a provider's answer would be evidence in a journal that the plane
may not know as its own. Each provider has so many looks at once, so that one that hangs holds up no other.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus

from driver.core.contracts import ToolName
from driver.engine.agenda import Agenda
from driver.engine.errands import Postponed
from driver.engine.looks import next_look
from driver.engine.probing import LOOKS_MAX, Prober
from driver.engine.surroundings import Surroundings
from driver.engine.terms import Terms
from store.errors import StoreError
from store.events import (
    LateResult,
    OperationFailed,
    OperationProbed,
    OperationReconciled,
    OperationStarted,
    OperationUnknown,
)
from store.journal import Journal
from store.records import OperationFilter, OperationId, OperationRecord, StoredEvent
from store.view import View

log = structlog.get_logger(__name__)

PAGE: Final = 100
"""Operations that are read at once."""
WATCHED_MAX: Final = 10_000
"""Operations that stand in the agendas; what is beyond them is found by a later round."""
NEWS_MAX: Final = 10_000
"""Operations whose news is remembered until the loop comes to it: likewise."""
SETBACK_S: Final = 60.0
"""After a look that nothing came of, not even a record: a bug of ours, which must not spin."""

NEWS: Final = frozenset(
    data.KIND
    for data in (
        OperationUnknown,
        OperationFailed,
        OperationStarted,
        OperationProbed,
        OperationReconciled,
        LateResult,
    )
)
"""The kinds of events that change when an operation is to be probed."""
ROUNDS: Final = (
    OperationFilter(unsettled=True),
    # a supervisor's word takes an operation off the list, and off nothing else
    OperationFilter(inferred=True),
)
"""Where a round finds what is to be probed: by indexes of what may be, however much has been settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """An operation, and when it is to be looked at; None: not any more."""

    operation_id: OperationId
    provider: str
    due: datetime | None


class ProbeLoop:
    """One for each process life. Does nothing where no contract declares a probe."""

    def __init__(self, around: Surroundings, prober: Prober) -> None:
        self._journal: Final[Journal] = around.journal
        self._terms: Final[Terms] = around.terms
        self._posture = around.posture
        self._clock = around.clock
        self._prober = prober
        self._agendas: dict[str, Agenda] = defaultdict(Agenda)
        self._looking: dict[str, set[OperationId]] = defaultdict(set)
        self._news: dict[OperationId, None] = {}
        self._left_out = False
        """Whether there was more than can be watched."""
        self._wake = anyio.Event()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Probe until cancelled. Cancelling it leaves to the next life what is left to do."""
        if not self._terms.probes:
            task_status.started()
            return
        unsubscribe = self._journal.subscribe(self._hear)
        try:
            async with anyio.create_task_group() as tasks:
                task_status.started()
                await self._go_round()
                while True:
                    await self._step(tasks)
        finally:
            unsubscribe()

    def pump(self) -> None:
        """Begin what may begin. To be called when the posture changes."""
        self._wake.set()

    def _hear(self, events: Sequence[StoredEvent]) -> None:
        for event in events:
            if event.kind not in NEWS or event.operation_id is None:
                continue
            if len(self._news) < NEWS_MAX:
                self._news[event.operation_id] = None
            else:
                self._left_out = True
        if self._news:
            self._wake.set()

    # ------------------------------------------------------------ one step

    async def _step(self, tasks: TaskGroup) -> None:
        """Take note of the news, begin what is due, and wait for more of either."""
        self._wake = anyio.Event()
        while self._news:
            batch = [*self._news][:PAGE]
            for operation_id in batch:
                del self._news[operation_id]
            self._enter(await self._journal.read(partial(_schedule, terms=self._terms, wanted=batch)))
        if self._left_out and self._watched < WATCHED_MAX // 2:
            await self._go_round()
        if self._posture.may_dispatch:
            self._begin(tasks)
        with anyio.CancelScope(deadline=self._deadline()):
            await self._wake.wait()

    def _begin(self, tasks: TaskGroup) -> None:
        now = self._clock()
        for provider, agenda in self._agendas.items():
            looking = self._looking[provider]
            while len(looking) < LOOKS_MAX and (operation_id := agenda.take(now)) is not None:
                looking.add(operation_id)
                tasks.start_soon(self._look, provider, operation_id)

    async def _look(self, provider: str, operation_id: OperationId) -> None:
        try:
            await self._prober.look(operation_id)
            # whatever was heard of it meanwhile was passed over
            self._news[operation_id] = None
        except StoreError:
            raise  # a journal that fails stops the daemon
        except Postponed:
            # when the daemon may act again, the journal says whether, and when
            self._news[operation_id] = None
        except Exception:
            log.exception("probe_failed", operation_id=operation_id)
            self._agendas[provider].put(operation_id, self._clock() + timedelta(seconds=SETBACK_S))
        self._looking[provider].discard(operation_id)
        self._wake.set()

    def _deadline(self) -> float:
        """Return the event loop's time at which the next look is due that may begin; infinity without one."""
        moments = [
            due
            for provider, agenda in self._agendas.items()
            if len(self._looking[provider]) < LOOKS_MAX and (due := agenda.next_due()) is not None
        ]
        if not moments or not self._posture.may_dispatch:
            return float("inf")
        return anyio.current_time() + (min(moments) - self._clock()).total_seconds()

    # ------------------------------------------------------------ which operations

    @property
    def _watched(self) -> int:
        return sum(map(len, self._agendas.values()))

    async def _go_round(self) -> None:
        """Find everything that is to be probed, now or later."""
        self._left_out = False
        for wanted in ROUNDS:
            before: int | None = None
            while True:
                found, before = await self._journal.read(
                    partial(_round, terms=self._terms, wanted=wanted, before=before)
                )
                self._enter(found)
                if before is None:
                    break

    def _enter(self, found: Iterable[_Found]) -> None:
        for item in found:
            if item.due is None:
                # not of each provider that anybody ever named: only of those with probes
                if item.provider in self._agendas:
                    self._agendas[item.provider].remove(item.operation_id)
            elif item.operation_id in self._looking[item.provider]:
                continue  # its end will be news
            elif self._watched < WATCHED_MAX:
                self._agendas[item.provider].put(item.operation_id, item.due)
            else:
                self._left_out = True


def _round(
    view: View, terms: Terms, wanted: OperationFilter, before: int | None
) -> tuple[tuple[_Found, ...], int | None]:
    """Return what one page of a round has found, and where the next begins; None: that was the last."""
    page = view.operations(wanted, before, PAGE)
    found = (_found(view, record, terms) for record in page.items)
    return tuple(item for item in found if item.due is not None), page.next


def _schedule(view: View, terms: Terms, wanted: Iterable[OperationId]) -> tuple[_Found, ...]:
    """Return when each of these operations is to be looked at."""
    records = (view.operation(operation_id) for operation_id in wanted)
    return tuple(_found(view, record, terms) for record in records if record is not None)


def _found(view: View, record: OperationRecord, terms: Terms) -> _Found:
    return _Found(
        operation_id=record.operation_id,
        provider=ToolName.parse(record.tool).provider,
        due=next_look(view, record, terms.lookup(record.tool)),
    )
