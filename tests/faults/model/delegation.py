"""What is said of operations that are delegated, and delegated again: never more than their child runs show.

A tree of operations in one journal: calls that name another as their parent, in two runs of each, and calls
of those runs that name none. They end in any way and any order, further runs begin later, and somebody may
know better. After each step what stands about each parent is compared with what its children are by now.
"""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from store.events import Draft
from store.lifecycle import Effect, Source, State
from store.records import OperationRecord
from tests.faults.model.bench import Bench
from tests.faults.model.counting import ENDED, SEEN
from tests.faults.model.reference import OPEN
from tests.store.drafts import (
    accepted,
    accepted_command,
    completed,
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

OPERATIONS_MAX: Final = 9
DEEP_EVERY: Final = 8
"""A journal whose last event has a number that this divides is verified whole."""
NUMBERS: Final = st.integers(0, OPERATIONS_MAX)
ENDS: Final[dict[str, Callable[[int], Draft]]] = {
    "succeeded": succeeded,
    "failed": failed,
    "proven": partial(failed, effect=Effect.NONE),
    "unknown": unknown,
    "not sent": not_executed,
}
ACTORS: Final = ("operator:1", "probe:p/find", "supervisor:bold")


@dataclass
class Call:
    """An operation of the tree."""

    number: int
    run: str
    parent: int | None
    own: bool = False
    """Whether anybody said something of it itself."""


class DelegationModel(RuleBasedStateMachine):
    """The rules are what may happen to the tree."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="effectd-model-"))
        (self.folder / "run").mkdir()
        self.bench = Bench(self.folder)
        self.calls: dict[int, Call] = {}
        self.ended: dict[str, int] = {}
        """The runs that have, and their number."""
        self.judged: set[int] = set()
        """Parents that have counted as `none` because of their children."""

    def record(self, *drafts: Draft) -> None:
        """Record them in one commit."""
        self.bench.transact(recording(*drafts))

    def of(self, n: int) -> OperationRecord:
        """Return an operation as it is now."""
        found = self.bench.read(lambda view: view.operation(operation_id(n)))
        assert found is not None
        return found

    def some(self, which: int, wanted: Callable[[OperationRecord], bool]) -> Call | None:
        """Return one of the operations that are like that; None where there is none."""
        found = [call for n, call in sorted(self.calls.items()) if wanted(self.of(n))]
        return found[which % len(found)] if found else None

    @initialize(idle=st.booleans())
    def a_parent(self, idle: bool) -> None:
        """Its outcome is lost; a child of it may have done nothing, and its run be over."""
        self.calls[1] = Call(1, "run-1", None)
        self.record(accepted(1), started(1), unknown(1))
        if idle:
            self.call(0, which_run=0, named=True, at_once=True)
            self.end(0, "proven")
            self.end_run(0)

    @rule(parent=NUMBERS, which_run=st.integers(0, 2), named=st.booleans(), at_once=st.booleans())
    def call(self, parent: int, which_run: int, named: bool, at_once: bool) -> None:
        """A call in service of another, or one more of a run that serves it."""
        n = len(self.calls) + 1
        if n > OPERATIONS_MAX:
            return
        serves = 1 + parent % len(self.calls)
        run = f"serves-{serves}-{which_run}"
        if run in self.ended or not (named or any(call.run == run for call in self.calls.values())):
            return
        self.calls[n] = Call(n, run, serves if named else None)
        drafts = [accepted(n, run=run, parent=serves if named else None)]
        self.record(*drafts, *([started(n)] if at_once else []))
        SEEN["delegation: a later run"] += serves in self.judged

    @rule(n=NUMBERS, how=st.sampled_from(sorted(ENDS)))
    def end(self, n: int, how: str) -> None:
        """One that is open ends."""
        call = self.some(n, lambda found: found.state in OPEN)
        if call is None:
            return
        if self.of(call.number).state is not State.STARTED:
            how = "not sent"
        call.own = call.own or how in ("succeeded", "proven", "not sent")
        self.record(ENDS[how](call.number))

    @rule(n=NUMBERS, effect=st.sampled_from(Effect), actor=st.sampled_from(ACTORS))
    def judge(self, n: int, effect: Effect, actor: str) -> None:
        """Somebody says what happened."""
        call = self.some(n, lambda found: found.state in (State.FAILED, State.UNKNOWN))
        if call is not None and (effect is not Effect.UNKNOWN or actor != "probe:p/find"):
            call.own = True
            self.record(reconciled(call.number, effect, actor=actor))

    @rule(n=NUMBERS, effect=st.sampled_from([Effect.NONE, Effect.OCCURRED]))
    def answer_late(self, n: int, effect: Effect) -> None:
        """An answer comes after all."""
        call = self.some(n, lambda found: found.state in (State.FAILED, State.UNKNOWN))
        if call is not None:
            call.own = True
            self.record(late(call.number, effect=effect))

    @rule(which=NUMBERS)
    def end_run(self, which: int) -> None:
        """A run gets no more calls."""
        runs = sorted({call.run for call in self.calls.values()} - {"run-1"} - set(self.ended))
        if runs:
            run = runs[which % len(runs)]
            self.ended[run] = number = 50 + len(self.ended)
            self.record(accepted_command(number, "run.end", {}, run=run), completed(number))

    # ------------------------------------------------------------ what must hold

    def children(self, parent: int) -> Sequence[Call]:
        """Return the calls of the runs that serve an operation."""
        runs = {call.run for call in self.calls.values() if call.parent == parent}
        return [call for call in self.calls.values() if call.run in runs]

    @invariant()
    def a_parent_is_what_its_children_show(self) -> None:
        """Of those of which nobody else has said anything."""
        for parent in [call.number for call in self.calls.values() if not call.own]:
            found, children = self.of(parent), self.children(parent)
            if found.state in OPEN or not children:
                continue
            records = [self.of(call.number) for call in children]
            over = all(call.run in self.ended for call in children)
            idle = over and all(map(_did_nothing, records))
            if found.effect is Effect.NONE:
                assert idle, f"{parent} is none, and its children are {records}"
                self.judged.add(parent)
                SEEN["delegation: none"] += 1
            elif over and all(map(_is_known, records)):
                assert found.effect is Effect.OCCURRED, f"{parent} is {found.effect}: {records}"
                assert not idle or self.has_occurred(parent), f"{parent} has never had an effect"
                SEEN["delegation: occurred"] += 1

    def has_occurred(self, parent: int) -> bool:
        """Whether it was said once that a parent has happened: nothing equal takes that back."""
        known = self.bench.read(lambda view: view.evidence(operation_id(parent)))
        return any(word.effect is Effect.OCCURRED for word in known)

    def teardown(self) -> None:
        """The projections are what the events make of them."""
        try:
            last_seq = self.bench.read(lambda view: view.last_seq)
            self.bench.close()
            ENDED["delegation"] += 1
            if last_seq % DEEP_EVERY == 0:
                assert self.bench.findings() == []
                SEEN["verified whole"] += 1
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)


def _did_nothing(record: OperationRecord) -> bool:
    return record.effect is Effect.NONE and record.effect_by is not Source.SUPERVISOR


def _is_known(record: OperationRecord) -> bool:
    return record.settled and record.effect_by is not Source.SUPERVISOR
