"""The triage of one run: whether it is due, whom it costs what, and what happens when that fails.

Part of `supervisor`; imports `store` and its siblings.

Theory of operation
-------------------
A run is triaged exactly while unsettled operations remain that wait for no probe, once nothing in it runs or
waits and the youngest of them is `min_age_s` old. One wall after the other is judged until none is due.

Where asking costs something, each attempt is recorded, durably, before the question leaves, together with
the moment before which there is no other: a process that dies in between, however often, asks again once for
each life, and no more than `max_attempts` times since the run's last verdict. Then the rules decide, at no
cost, and say that a person should look. An answer that is none, twice, comes to the same at once.

Whoever has a run triaged sees to it that it is triaged once at a time (`supervisor.loop` does): what is
recorded bounds how often a run is asked about, and not how often at once.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

import anyio
import structlog

from store.journal import Journal
from store.records import OperationRecord, RunId, TriageRecord, moment, timestamp
from store.transaction import Transaction
from store.view import View
from supervisor.material import Awaits, Disclosure, Material, gather
from supervisor.models.model import Model, ModelFailed
from supervisor.models.rules import RulesModel, decide
from supervisor.recording import Verdict, record
from supervisor.verdict import Malformed
from supervisor.wall import Wall, build

log: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)

BACKOFF_S_MAX: Final = 600.0
"""Between two attempts the wait doubles, from `interval_s` up to this, or up to itself where it is longer."""
PAUSE_S_MIN: Final = 0.05

Boundary = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How often is looked, and what it may cost (docs/configuration.md, `[supervisor]`)."""

    interval_s: float
    max_attempts: int
    wall_bytes_max: int
    min_age_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What the supervisor is told by the driver."""

    disclosure: Disclosure
    awaits: Awaits
    observe: Callable[[Sequence[OperationRecord]], Awaitable[None]]
    """Looks once more, by the reading commands of the contracts, at what ended without being known."""
    may_act: Callable[[], bool]
    """Whether the daemon is ready, not draining and not fenced."""
    boundary: Boundary


@dataclass(frozen=True, slots=True)
class Later:
    """Nothing is due before that many seconds."""

    seconds: float

    @classmethod
    def after(cls, delta: timedelta) -> "Later":
        """At least a little, so that a clock that stands still makes no busy loop."""
        return cls(max(delta.total_seconds(), PAUSE_S_MIN))


class Triage:
    """Judges runs of one journal, each when it is due."""

    def __init__(self, journal: Journal, model: Model, settings: Settings, outside: Outside) -> None:
        self._journal = journal
        self._model = model
        self._settings = settings
        self._outside = outside
        self.calls: Counter[str] = Counter()
        """What became of each question that may have cost something: `answered`, `repaired`, `malformed` or
        `failed`."""

    async def wall(self, run_id: RunId) -> Wall | None:
        """Return what the model would be shown of the run now; None where there is no such run."""
        material = await self._journal.read(lambda view: gather(view, run_id, self._outside.awaits))
        return None if material is None else await self._built(material)

    async def judge(self, run_id: RunId, *, asked: bool) -> float:
        """Judge walls of the run until none is due; return in how many seconds one is."""
        while self._outside.may_act():
            found = await self._journal.read(lambda view: self._look(view, run_id))
            if isinstance(found, Later):
                return found.seconds
            if unseen := [item.record for item in found.subjects if not item.observed_after]:
                await self._outside.observe(unseen)
                again = await self._journal.read(lambda view: self._look(view, run_id))
                if isinstance(again, Later):
                    return again.seconds
                found = again
            verdict = await self._verdict(await self._built(found), asked=asked)
            if isinstance(verdict, Later):
                return verdict.seconds
            await self._record(verdict)
            asked = False
        return self._settings.interval_s

    def _look(self, view: View, run_id: RunId) -> Material | Later:
        """Return what a wall is made of now, or in how many seconds the run may be due."""
        material = gather(view, run_id, self._outside.awaits)
        if material is None or not material.subjects or material.is_open:
            return Later(self._settings.interval_s)
        ready_at = material.old_enough_at(self._settings.min_age_s)
        return material if ready_at is None else Later.after(ready_at - material.now)

    async def _built(self, material: Material) -> Wall:
        """Made in a worker thread: what is withheld is looked for in every text."""
        disclosure, bytes_max = self._outside.disclosure, self._settings.wall_bytes_max
        return await anyio.to_thread.run_sync(build, material, disclosure, bytes_max)

    async def _record(self, verdict: Verdict) -> None:
        settled = await self._journal.transact(lambda tx: record(tx, verdict))
        self._outside.boundary("supervisor.recorded")
        log.info(
            "triaged",
            run_id=verdict.wall.run_id,
            model=verdict.model,
            status=verdict.status,
            settled=len(settled),
            left_out=verdict.wall.left_out,
            needs_attention=verdict.answer.needs_attention,
        )

    # ------------------------------------------------------------ asking

    async def _verdict(self, wall: Wall, *, asked: bool) -> Verdict | Later:
        """Return a verdict about the wall, or in how many seconds it may be asked for again."""
        if not self._model.is_paid:
            judged = await self._model.judge(wall)
            return Verdict(wall=wall, answer=judged.answer, model=self._model.name, status=judged.status)
        began = await self._journal.transact(lambda tx: self._begin(tx, wall.run_id, asked=asked))
        if isinstance(began, Later):
            return began
        if began is None:
            return self._fallback(wall, f"was asked {self._settings.max_attempts} times and gave no answer")
        self._outside.boundary("supervisor.attempt_recorded")
        return await self._asked_for(wall, began)

    async def _asked_for(self, wall: Wall, triage: TriageRecord) -> Verdict | Later:
        try:
            judged = await self._model.judge(wall)
        except Malformed as malformed:
            self.calls["malformed"] += 1
            log.warning("triage_answer_malformed", run_id=wall.run_id, problem=malformed.problem)
            return self._fallback(wall, f"gave no usable answer: {malformed.problem}")
        except ModelFailed as failed:
            self.calls["failed"] += 1
            log.warning(
                "triage_model_failed",
                run_id=wall.run_id,
                model=self._model.name,
                detail=failed.detail,
                attempt=triage.attempts,
                attempts_max=self._settings.max_attempts,
            )
            if triage.attempts >= self._settings.max_attempts:
                return self._fallback(wall, failed.detail)
            return await self._put_off(triage, failed)
        self.calls[judged.status] += 1
        self._outside.boundary("supervisor.answered")
        return Verdict(wall=wall, answer=judged.answer, model=self._model.name, status=judged.status)

    def _begin(self, tx: Transaction, run_id: RunId, *, asked: bool) -> TriageRecord | Later | None:
        """Record one more attempt; None where there were enough, or the seconds until there may be one."""
        before = tx.triage(run_id)
        attempts = 0 if before is None else before.attempts
        if attempts >= self._settings.max_attempts:
            return None
        if before is not None and not asked and moment(before.not_before) > tx.now:
            return Later.after(moment(before.not_before) - tx.now)
        not_before = timestamp(tx.now + timedelta(seconds=self._backoff_s(attempts + 1)))
        triage = TriageRecord(run_id=run_id, attempts=attempts + 1, not_before=not_before)
        tx.set_triage(triage)
        return triage

    async def _put_off(self, triage: TriageRecord, failed: ModelFailed) -> Later:
        """Let the next attempt wait from now, and as long as the peer asked for."""
        wait_s = max(self._backoff_s(triage.attempts), failed.retry_after_s or 0.0)

        def write(tx: Transaction) -> None:
            tx.set_triage(replace(triage, not_before=timestamp(tx.now + timedelta(seconds=wait_s))))

        await self._journal.transact(write)
        return Later(wait_s)

    def _backoff_s(self, attempts: int) -> float:
        ceiling = max(BACKOFF_S_MAX, self._settings.interval_s)
        return min(self._settings.interval_s * 2.0 ** (attempts - 1), ceiling)

    def _fallback(self, wall: Wall, why: str) -> Verdict:
        rules = RulesModel()
        answer = decide(wall)
        summary = f"The rules decided, for {self._model.name} {why}. {answer.summary}"
        return Verdict(
            wall=wall,
            answer=replace(answer, needs_attention=True, summary=summary),
            model=rules.name,
            status="fallback",
        )
