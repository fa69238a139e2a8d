"""When runs are triaged, and how many at once.

Part of `supervisor`; imports `store` and its siblings.

Theory of operation
-------------------
One task looks at every run that has unsettled operations: each `interval_s`, when something became unsettled,
when `run.triage` asked for it, and when a run said that it would be due. Each run is then triaged in a task
of its own (`supervisor.triage`), so that a model that takes its time over one of them holds up no other:
`AT_ONCE_MAX` at a time, and never one run twice at a time. A run that was passed over because it was being
triaged is looked at again once that has ended: what happened to it meanwhile may have come too late for it.

Nothing in here may end the daemon. What goes wrong with one run is logged, and that run waits; only a
journal that has stopped ends the loop, and the daemon knows that already.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import anyio
import structlog
from anyio.abc import TaskGroup

from store.errors import StoreError
from store.events import CommandAccepted, LateResult, OperationFailed, OperationProbed, OperationUnknown
from store.journal import Journal
from store.records import RunId, StoredEvent
from store.view import View
from supervisor.models.model import Model
from supervisor.triage import BACKOFF_S_MAX, Outside, Settings, Triage
from supervisor.wall import Wall

log: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)

AT_ONCE_MAX: Final = 4
"""Runs that are triaged at once. Each may be a program that runs, or a question to a model that counts how
many it is asked at once, and holds a wall in memory; and three that never answer leave one for the others."""
PAGE: Final = 100
ASKED_MAX: Final = 1_024
"""Runs that `run.triage` asked for and that were not looked at yet; they are found without it, too, later."""
GATHERING_S: Final = 0.1
"""What becomes unsettled within this is looked at together: a storm of failures makes no storm of looks."""
_WAKING: Final = frozenset(
    event.KIND for event in (OperationUnknown, OperationFailed, LateResult, OperationProbed)
)
_TRIAGE: Final = "run.triage"
"""The kind of the command that asks for it."""


class Supervisor:
    """Triage for the runs of one journal."""

    def __init__(self, journal: Journal, model: Model, settings: Settings, outside: Outside) -> None:
        self._journal = journal
        self._model = model
        self._settings = settings
        self._may_act = outside.may_act
        self._triage = Triage(journal, model, settings, outside)
        self._slots = anyio.Semaphore(AT_ONCE_MAX)
        self._judging: set[RunId] = set()
        self._passed_over: set[RunId] = set()
        self._asked: set[RunId] = set()
        self._resting: dict[RunId, float] = {}
        """Runs that went wrong in a way that nobody foresaw, and until when they rest."""
        self._woken = False
        self._due_at = 0.0
        self._news = anyio.Event()
        """Set when the loop was woken, or is due sooner than it thought."""

    async def wall(self, run_id: RunId) -> Wall | None:
        """Return what the model would be shown of the run now; None where there is no such run."""
        return await self._triage.wall(run_id)

    @property
    def model_name(self) -> str:
        """Whom the supervisor asks."""
        return self._model.name

    @property
    def calls(self) -> Mapping[str, int]:
        """What became of the questions to a model that costs something, in this process life."""
        return self._triage.calls

    async def run(self) -> None:
        """Triage until cancelled. Raises nothing; returns early only when the journal has stopped."""
        unsubscribe = self._journal.subscribe(self._hear)
        try:
            async with anyio.create_task_group() as tasks:
                while True:
                    self._woken = False
                    await self._look_around(tasks)
                    await self._rest()
        except* StoreError as stopped:
            log.info("supervisor_ended", reason=type(stopped.exceptions[0]).__name__)
        finally:
            unsubscribe()

    def _hear(self, events: Sequence[StoredEvent]) -> None:
        for event in events:
            if event.requeue_of is not None:
                continue
            if event.kind in _WAKING:
                self._wake()
            elif isinstance(event.data, CommandAccepted) and event.data.kind == _TRIAGE and event.run_id:
                if len(self._asked) < ASKED_MAX:
                    self._asked.add(event.run_id)
                self._wake()

    def _wake(self) -> None:
        self._woken = True
        self._news.set()

    def _be_due_in(self, seconds: float) -> None:
        self._due_at = min(self._due_at, anyio.current_time() + seconds)
        self._news.set()

    async def _rest(self) -> None:
        """Wait until the loop is woken, or a run is due."""
        while not self._woken and (left := self._due_at - anyio.current_time()) > 0:
            with anyio.move_on_after(left):
                await self._news.wait()
            self._news = anyio.Event()
        if self._woken:
            await anyio.sleep(GATHERING_S)

    async def _look_around(self, tasks: TaskGroup) -> None:
        """Have every run looked at once, whatever goes wrong; return when the last of them is begun with."""
        self._due_at = anyio.current_time() + self._settings.interval_s
        try:
            await self._round(tasks)
        except StoreError:
            raise
        except Exception:
            log.exception("supervisor_broken")
            self._due_at = anyio.current_time() + max(BACKOFF_S_MAX, self._settings.interval_s)

    async def _round(self, tasks: TaskGroup) -> None:
        after = 0
        asked, self._asked = self._asked, set()
        while self._may_act():
            page = await self._journal.read(partial(View.unsettled_runs, after=after, limit=PAGE))
            for run in page.items:
                await self._begin(tasks, run.run_id, asked=run.run_id in asked)
                asked.discard(run.run_id)
            if page.next is None:
                return
            after = page.next
        self._asked |= asked

    async def _begin(self, tasks: TaskGroup, run_id: RunId, *, asked: bool) -> None:
        """Begin to look at a run, as soon as there is room; one that is being triaged has its turn later."""
        if run_id in self._judging:
            self._passed_over.add(run_id)
            if asked:
                self._asked.add(run_id)
            return
        await self._slots.acquire()
        self._judging.add(run_id)
        tasks.start_soon(partial(self._judge, run_id, asked=asked))

    async def _judge(self, run_id: RunId, *, asked: bool) -> None:
        try:
            due_in_s = await self._carefully(run_id, asked=asked)
        finally:
            self._judging.discard(run_id)
            self._slots.release()
        if run_id in self._passed_over:
            self._passed_over.discard(run_id)
            due_in_s = 0.0
        self._be_due_in(due_in_s)

    async def _carefully(self, run_id: RunId, *, asked: bool) -> float:
        """Triage one run, whatever goes wrong; return in how many seconds it is due again."""
        until = self._resting.pop(run_id, 0.0)
        if not asked and (rest := until - anyio.current_time()) > 0:
            self._resting[run_id] = until
            return rest
        try:
            return await self._triage.judge(run_id, asked=asked)
        except StoreError:
            raise
        except Exception:
            log.exception("triage_broken", run_id=run_id)
            rest = max(BACKOFF_S_MAX, self._settings.interval_s)
            self._resting[run_id] = anyio.current_time() + rest
            return rest
