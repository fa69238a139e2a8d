"""The journal, its lifecycle and the supervisor's recording, against operations that a model remembers.

Any order of intents, ends, further attempts, late answers, verdicts by anybody, walls that have grown old,
acknowledgements, retention, erasure, stops and kills. After each step every operation is what the model says:
state, effect, whether it is listed, whether it guards. What was pruned was over and acknowledged, and left a
tombstone that answers for it.
"""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from store.erasure import BEGIN, RunErasure
from store.events import Draft
from store.lifecycle import Effect, Source, State
from store.records import OperationId, OperationRecord, RunId, Twin
from store.retention import Retention, RetentionSettings
from store.transaction import Transaction
from store.view import View
from supervisor.material import gather
from supervisor.recording import Verdict, record
from supervisor.verdict import Answer
from supervisor.verdict import Word as Said
from supervisor.wall import Wall, build
from tests.faults.model.bench import Bench
from tests.faults.model.counting import ENDED, SEEN
from tests.faults.model.reference import OPEN, Known, Word
from tests.store.drafts import (
    accepted,
    command_id,
    digest,
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
from tests.supervisor.stage import await_nothing, disclose

RUN: Final = RunId("run-1")
NUMBERS: Final = st.integers(0, 5)
DAY_S: Final = 86_400.0
RETENTION: Final = RetentionSettings(
    retention=timedelta(days=2), retention_unknown=timedelta(days=20), tombstones=timedelta(days=100)
)
ENDS: Final[dict[str, tuple[State, Effect | None]]] = {
    "succeeded": (State.SUCCEEDED, Effect.OCCURRED),
    "failed": (State.FAILED, Effect.UNKNOWN),
    "proven": (State.FAILED, Effect.NONE),
    "unsettled": (State.FAILED, Effect.UNKNOWN),
    "unknown": (State.UNKNOWN, None),
    "not sent": (State.NOT_EXECUTED, Effect.NONE),
}
"""How an operation ends, and what that says of the world."""
MEANWHILE: Final = ("nothing", "nothing", "a word", "a word afterwards", "an attempt", "later")
"""What may happen between a wall and the verdict about it, or soon after."""
ACTORS: Final = {"operator:1": Source.OPERATOR, "probe:p/find": Source.PROBE}
DEEP_EVERY: Final = 8
"""A journal whose last event has a number that this divides is verified whole."""
WALL_BYTES_MAX: Final = 100_000


class JournalModel(RuleBasedStateMachine):
    """The rules are what may happen to a journal."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="effectd-model-"))
        (self.folder / "run").mkdir()
        self.bench = Bench(self.folder)
        self.known: dict[int, Known] = {}
        self.pruned: dict[int, Known] = {}
        self.erased: set[int] = set()
        self.acked = 0
        self.wall: Wall | None = None
        self.retention = Retention(RETENTION)

    def some(self, which: int, wanted: Callable[[Known], bool]) -> Known | None:
        """Return one of the operations that a rule is about; None where there is none."""
        found = [known for n, known in sorted(self.known.items()) if wanted(known) and n not in self.erased]
        return found[which % len(found)] if found else None

    # ------------------------------------------------------------ what is recorded

    @initialize(alike=st.lists(st.integers(0, 2), min_size=2, max_size=4))
    def some_calls(self, alike: list[int]) -> None:
        """A run that has begun."""
        for n, which in enumerate(alike):
            self.call(n, which, at_once=True)

    def record(self, known: Known, *drafts: Draft) -> None:
        """Record events of one operation, and note the newest."""
        events = self.bench.transact(recording(*drafts))
        last_seq = self.bench.read(lambda view: view.last_seq)
        known.newest_seq, known.newest_at = max(events[-1].seq, last_seq), self.bench.now_s

    @rule(n=NUMBERS, alike=st.integers(0, 2), at_once=st.booleans())
    def call(self, n: int, alike: int, at_once: bool) -> None:
        """A call is accepted, with its intent or without."""
        if n in self.known or n in self.pruned:
            return
        known = Known(n, alike)
        drafts = [accepted(n, args=digest(1_000 + alike))]
        if at_once:
            drafts.append(started(n))
            known.state, known.attempts = State.STARTED, 1
        self.record(known, *drafts)
        self.known[n] = known

    @rule(n=NUMBERS)
    def begin(self, n: int) -> None:
        """The intent of the first attempt, or of a further one."""
        known = self.some(n, lambda known: known.state not in (State.STARTED, State.SUCCEEDED))
        if known is None:
            return
        SEEN["another attempt"] += known.attempts > 0
        known.attempts += 1
        known.state = State.STARTED
        # what was said of an operation that had never started is about no attempt of this journal
        known.words = [word for word in known.words if word.attempt < known.attempts]
        self.record(known, started(known.number, attempt=known.attempts))

    @rule(n=NUMBERS, how=st.sampled_from(sorted(ENDS)))
    def end(self, n: int, how: str) -> None:
        """The attempt that runs ends, and its operation with it."""
        known = self.some(n, lambda known: known.state in OPEN)
        if known is None:
            return
        if known.state is not State.STARTED and how not in ("unknown", "not sent"):
            return
        attempt = max(known.attempts, 1)
        state, effect = ENDS[how]
        known.state, known.unsettled_error = state, how == "unsettled"
        if effect is not None:
            known.words.append(Word(attempt, effect, Source.DAEMON if how == "not sent" else Source.PROVIDER))
        self.record(known, _end(known, how))
        SEEN[how] += 1

    @rule(n=NUMBERS, attempt=st.integers(1, 3), effect=st.sampled_from([Effect.OCCURRED, Effect.UNKNOWN]))
    def answer_late(self, n: int, attempt: int, effect: Effect) -> None:
        """An answer comes after its attempt had ended."""
        known = self.some(n, lambda known: known.state not in OPEN and known.attempts >= attempt)
        if known is not None:
            self.answer(known, attempt, effect)

    def answer(self, known: Known, attempt: int, effect: Effect) -> None:
        """Record what the provider says of an attempt that had ended."""
        before = {w.effect for w in known.words if w.attempt == attempt and w.source in _ANSWERS}
        known.words.append(Word(attempt, effect, Source.PROVIDER))
        self.record(known, late(known.number, effect=effect, attempt=attempt))
        SEEN["late answer"] += 1
        if effect is Effect.OCCURRED and Effect.NONE in before:
            SEEN["contradiction"] += 1
            assert self.kinds().count("operation.diverged") > 0, "a contradiction is an event"

    @rule(n=NUMBERS)
    def contradict(self, n: int) -> None:
        """Whoever said that nothing happened says that it did."""
        known = self.some(n, lambda known: known.state is State.FAILED and known.effect is Effect.NONE)
        if known is not None:
            self.answer(known, known.attempts, Effect.OCCURRED)

    @rule(n=NUMBERS, effect=st.sampled_from(Effect), actor=st.sampled_from(sorted(ACTORS)))
    def judge(self, n: int, effect: Effect, actor: str) -> None:
        """Somebody says what happened."""
        known = self.some(n, lambda known: known.state not in OPEN)
        if known is not None and (effect is not Effect.UNKNOWN or ACTORS[actor] is Source.OPERATOR):
            self.say(known, effect, actor)

    def judge_one(self, effect: Effect, wanted: Callable[[Known], bool]) -> None:
        """An operator says what happened, of one that is like that."""
        known = self.some(0, wanted)
        if known is not None:
            self.say(known, effect, "operator:1")

    def say(self, known: Known, effect: Effect, actor: str) -> None:
        """Record a verdict about all attempts that there were."""
        SEEN["supervisor overruled"] += known.by == "supervisor"
        for attempt in range(1, max(known.attempts, 1) + 1):
            known.words.append(Word(attempt, effect, ACTORS[actor]))
        self.record(known, reconciled(known.number, effect, actor=actor))
        SEEN[f"verdict of {ACTORS[actor]}"] += 1

    # ------------------------------------------------------------ the supervisor

    @rule(
        effect=st.sampled_from(Effect),
        meanwhile=st.sampled_from(MEANWHILE),
    )
    def triage(self, effect: Effect, meanwhile: str) -> None:
        """What a model is shown now, and its answer, at once or some time later."""
        material = self.bench.read(lambda view: gather(view, RUN, await_nothing))
        if material is not None and material.subjects:
            self.wall = build(material, disclose, WALL_BYTES_MAX)
            if meanwhile == "a word":
                self.judge_one(Effect.OCCURRED, lambda known: known.listed)
            elif meanwhile == "an attempt":
                self.begin(0)
            if meanwhile != "later":
                self.record_verdict(effect)
            if meanwhile == "a word afterwards":
                self.judge_one(Effect.NONE, lambda known: known.by == "supervisor")

    @precondition(lambda self: self.wall is not None)
    @rule(effect=st.sampled_from(Effect))
    def record_verdict(self, effect: Effect) -> None:
        """The model's answer, about a wall that may be old: only what is as it was shown is settled."""
        wall, self.wall = self.wall, None
        assert wall is not None
        words = tuple(Said(name, effect, "a guess") for name in wall.operation_ids)
        answer = Answer(needs_attention=False, summary="guessed", words=words)
        verdict = Verdict(wall=wall, answer=answer, model="bold", status="answered")
        shown = {entry.operation_id: entry.attempt_count for entry in wall.entries}
        expected = [
            known
            for known in self.known.values()
            if known.listed and shown.get(operation_id(known.number)) == known.attempts
        ]
        settled = self.bench.transact(lambda tx: record(tx, verdict))
        wanted = sorted(operation_id(known.number) for known in expected)
        assert sorted(settled) == wanted, "a verdict about another state of things"
        last_seq = self.bench.read(lambda view: view.last_seq)
        for known in expected:
            for attempt in range(1, max(known.attempts, 1) + 1):
                known.words.append(Word(attempt, effect, Source.SUPERVISOR))
            known.newest_seq, known.newest_at = last_seq, self.bench.now_s
        SEEN["verdict of supervisor"] += bool(expected)
        SEEN["old wall left alone"] += len(expected) < len(shown)

    # ------------------------------------------------------------ what is over

    @rule(share=st.floats(0, 1))
    def acknowledge(self, share: float) -> None:
        """The plane has some of it, or all."""
        last_seq = self.bench.read(lambda view: view.last_seq)
        seq = max(self.acked, round(last_seq * min(share * 1.5, 1.0)))
        self.bench.transact(lambda tx: tx.acknowledge(seq))
        self.acked = seq

    @rule(days=st.sampled_from([0.5, 3.0, 30.0]), acknowledged=st.booleans())
    def prune(self, days: float, acknowledged: bool) -> None:
        """One pass of retention, some time later."""
        if acknowledged:
            self.acknowledge(1.0)
        self.bench.now_s += days * DAY_S
        while not self.bench.transact(self.retention.step).finished:
            pass
        for n, known in list(self.known.items()):
            if self.bench.read(partial(_operation, number=n)) is None:
                self._was_pruned(n, known)

    def _was_pruned(self, n: int, known: Known) -> None:
        age_s = self.bench.now_s - known.newest_at
        assert known.newest_seq <= self.acked, f"{n} was pruned and is not acknowledged"
        kept = known.state in OPEN or known.listed
        assert not kept, f"{n} was pruned and is not over"
        limit = RETENTION.retention if known.is_over else RETENTION.retention_unknown
        assert age_s >= limit.total_seconds() - 1, f"{n} was pruned after {age_s} s"
        self.pruned[n] = self.known.pop(n)
        SEEN["pruned"] += 1

    @rule(acknowledged=st.booleans())
    def erase(self, acknowledged: bool) -> None:
        """Somebody wants the content of the run to be gone."""
        if acknowledged:
            self.acknowledge(1.0)
        found = BEGIN
        while found.after is not None:
            found = self.bench.transact(partial(_erase, so_far=found))
        for n, known in self.known.items():
            if self.bench.read(partial(_is_erased, number=n)) and n not in self.erased:
                kept = known.state in OPEN or known.listed
                assert not kept, f"{n} was erased and is not over"
                assert known.newest_seq <= self.acked, f"{n} was erased and is not acknowledged"
                self.erased.add(n)
                SEEN["erased"] += 1

    # ------------------------------------------------------------ processes

    @rule(killed=st.booleans())
    def restart(self, killed: bool) -> None:
        """The process ends, politely or not, and another one opens the journal."""
        if killed:
            self.bench.kill()
        else:
            self.bench.close()
        SEEN["killed" if killed else "stopped"] += 1
        self.bench.open()
        self.retention = Retention(RETENTION)

    # ------------------------------------------------------------ what must hold

    def kinds(self) -> list[str]:
        """What happened, in order."""
        return [event.kind for event in self.bench.read(lambda view: view.events(0, 1_000, 10**7))]

    @invariant()
    def everything_is_as_the_model_says(self) -> None:
        """State, effect and what they mean."""
        for n, known in self.known.items():
            found = self.bench.read(partial(_operation, number=n))
            assert found is not None, f"{n} is gone"
            assert (found.state, found.effect, found.attempt_count) == (
                known.state, known.effect, known.attempts
            ), f"{n}: {found} is not {known}"  # fmt: skip
            assert found.best_effort == (known.by == "supervisor")
            assert found.guards == known.guards, f"{n}: {found.guards=}, {known}"
            assert found.settled == (known.state not in OPEN and not known.listed)
        listed, _ = self.bench.read(View.unsettled)
        assert listed == sum(known.listed for known in self.known.values())
        SEEN["unknown, listed"] += listed

    @invariant()
    def look_alikes_are_known(self) -> None:
        """What guards is found by its arguments, pruned or not."""
        everything = {**self.known, **self.pruned}
        for alike in range(3):
            twins = self.bench.read(partial(_twins, alike=alike))
            guarding = {twin.operation_id for twin in twins if twin.guards}
            expected = {
                operation_id(n) for n, known in everything.items() if known.alike == alike and known.guards
            }
            expected = {name for name in expected if name in guarding or not self._tombstone_is_gone(name)}
            assert guarding == expected
            SEEN["look-alike guarded"] += bool(guarding)

    def _tombstone_is_gone(self, name: OperationId) -> bool:
        gone = [n for n in self.pruned if operation_id(n) == name]
        return any(self.bench.read(partial(_has_no_tombstone, number=n)) for n in gone)

    def teardown(self) -> None:
        """Each command has one receipt at most, and the file is whole."""
        try:
            last_seq = self.bench.read(lambda view: view.last_seq)
            self.bench.close()
            ENDED["journal"] += 1
            if last_seq % DEEP_EVERY == 0:
                assert self.bench.findings() == []
                SEEN["verified whole"] += 1
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)


_ANSWERS: Final = (Source.PROVIDER, Source.DAEMON)


def _end(known: Known, how: str) -> Draft:
    """Return the event with which an operation ends so."""
    n, attempts = known.number, max(known.attempts, 1)
    match how:
        case "succeeded":
            return succeeded(n, attempts=attempts)
        case "failed":
            return failed(n, attempts=attempts)
        case "proven":
            return failed(n, effect=Effect.NONE, attempts=attempts)
        case "unsettled":
            return failed(n, unsettled=True, attempts=attempts)
        case "unknown":
            return unknown(n, attempts=known.attempts)
        case _:
            return not_executed(n)


def _operation(view: View, *, number: int) -> OperationRecord | None:
    return view.operation(operation_id(number))


def _is_erased(view: View, *, number: int) -> bool:
    return view.is_erased(operation_id(number))


def _has_no_tombstone(view: View, *, number: int) -> bool:
    return view.tombstone(command_id(number)) is None


def _twins(view: View, *, alike: int) -> Sequence[Twin]:
    return view.twins((RUN,), digest(1_000 + alike))


def _erase(tx: Transaction, *, so_far: RunErasure) -> RunErasure:
    return tx.erase_run(RUN, so_far)
