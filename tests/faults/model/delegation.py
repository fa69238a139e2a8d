"""What is said of operations that are delegated, and delegated again: never more than their child runs show.

A tree of operations in one journal: calls that name another as their parent, in two runs of each, and calls
of those runs that name none. They end in any way and any order, wait for a person, are tried again by rule R
(asked for from their own run or from elsewhere), are probed, and are pruned; further runs begin later, and
somebody may know better. After each step what stands about each parent is compared with what its children are
by now, and each operation on which a `none` rests, or on which something was begun, must not be tried again.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from store.events import Draft
from store.lifecycle import Effect, Source, State
from store.records import OperationRecord, StoredEvent
from store.retention import Retention
from store.view import View
from tests.faults.model.bench import Bench
from tests.faults.model.counting import ENDED, SEEN
from tests.faults.model.family import ACTORS, HOWS, LOST, NOT_SENT, Call
from tests.faults.model.journal import DAY_S, DEEP_EVERY, RETENTION
from tests.faults.model.reference import OPEN
from tests.store.drafts import (
    accepted,
    accepted_command,
    approval_requested,
    attempt_unsent,
    completed,
    driver_started,
    late,
    operation_id,
    reconciled,
    recording,
    started,
)

OPERATIONS_MAX: Final = 9
NUMBERS: Final = st.integers(0, OPERATIONS_MAX)
REVIVABLE: Final = (State.FAILED, State.UNKNOWN, State.NOT_EXECUTED)
JUDGED: Final = (State.FAILED, State.UNKNOWN)
THEN: Final = ("wait", "ask", "begin", "grant")
"""What follows at once where another attempt is asked for."""
CHILDREN: Final = ("none", "proven", "proven", "delegated", "succeeded", LOST)
"""How the first child ends; one that is delegated has a child that did nothing."""


@dataclass(frozen=True)
class Errand:
    """An open command that is no call."""

    number: int
    of: int
    run: str
    since: int
    """How many attempts its operation had when it came."""
    retry: bool


class DelegationModel(RuleBasedStateMachine):
    """The rules are what may happen to the tree."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="effectd-model-"))
        (self.folder / "run").mkdir()
        self.bench = Bench(self.folder)
        self.retention = Retention(RETENTION)
        self.calls: dict[int, Call] = {}
        self.last: dict[int, OperationRecord] = {}
        """Each operation as it was last seen: as it is now, unless it was pruned."""
        self.gone: set[int] = set()
        self.ended: set[str] = set()
        self.errands: list[Errand] = []
        self.commands = 100
        """The number of the newest command that is no call."""
        self.relied: list[tuple[int, int, frozenset[int]]] = []
        """A parent, its attempt that began on the strength of its `none`, and on whom that rested."""

    def record(self, *drafts: Draft) -> Sequence[StoredEvent]:
        """Record them in one commit, and look at everything again."""
        events = self.bench.transact(recording(*drafts))
        self.look()
        return events

    def look(self) -> None:
        """See how each operation is now."""
        numbers = self.calls.keys() - self.gone
        found = self.bench.read(lambda view: {n: view.operation(operation_id(n)) for n in numbers})
        self.last.update((n, record) for n, record in found.items() if record is not None)
        self.gone.update(n for n, record in found.items() if record is None)

    def some(self, which: int, wanted: Callable[[Call, OperationRecord], bool]) -> Call | None:
        """Return one of the operations that are like that; None where there is none."""
        found = [call for call in self.present() if wanted(call, self.last[call.number])]
        return found[which % len(found)] if found else None

    def present(self) -> list[Call]:
        """Return the operations that are in the journal."""
        return [call for n, call in sorted(self.calls.items()) if n not in self.gone]

    def asked(self, n: int) -> Errand | None:
        """Return the command that asks for another attempt of an operation."""
        return next((errand for errand in self.errands if errand.of == n and errand.retry), None)

    # ------------------------------------------------------------ what may happen

    @initialize(child=st.sampled_from(CHILDREN), then=st.sampled_from(["nothing", "call", *THEN]))
    def a_parent(self, child: str, then: str) -> None:
        """Its outcome is lost; it has a child, or none, and that or the parent goes on."""
        self.accept(Call(1, "run-1", None, 0), at_once=True)
        self.end(0, LOST, answered=True)
        if child == "none":
            return
        self.call(0, which_run=0, named=True, at_once=True)
        self.end(0, LOST if child == "delegated" else child, answered=True)
        if child == LOST:
            self.retry(1, elsewhere=True, then="begin")
        elif child == "delegated":
            self.call(1, which_run=0, named=True, at_once=True)
            self.end(0, "proven", answered=True)
            self.end_run(1)
        self.end_run(0)
        if child == "succeeded" and then in ("nothing", "call", "wait"):
            self.prune(30.0)
        elif child in ("proven", "delegated") and then == "call":
            self.call(0, which_run=1, named=True, at_once=False)
        elif child in ("proven", "delegated") and then != "nothing":
            self.retry(0, elsewhere=False, then=then)

    def accept(self, call: Call, *, at_once: bool) -> None:
        """Record a call, and its intent."""
        self.calls[call.number] = call
        (event,) = self.record(accepted(call.number, run=call.run, parent=call.parent))
        call.seq = event.seq
        if at_once:
            self.start(call)

    def start(self, call: Call) -> None:
        """Record the intent of its next attempt."""
        found = self.last[call.number]
        is_told = call.attempts > 0 and self.is_told(call)
        rests_on = self.rests_on(call.number) if is_told else frozenset[int]()
        (event,) = self.record(started(call.number, attempt=call.attempts + 1))
        call.begins(event.seq)
        if rests_on:
            self.relied.append((call.number, call.attempts, rests_on))
            SEEN["delegation: tried again on a none"] += 1
        SEEN["delegation: another attempt of a child"] += call.attempts > 1 and call.run != "run-1"
        SEEN["delegation: begun behind an approval"] += found.state is State.AWAITING_APPROVAL

    @rule(parent=NUMBERS, which_run=st.integers(0, 1), named=st.booleans(), at_once=st.booleans())
    def call(self, parent: int, which_run: int, named: bool, at_once: bool) -> None:
        """A call in service of another, or one more of a run that serves it."""
        n, present = len(self.calls) + 1, self.present()
        if n > OPERATIONS_MAX:
            return
        if not present:
            self.accept(Call(n, "run-1", None, 0), at_once=at_once)
            return
        serves = present[parent % len(present)].number
        run = f"serves-{serves}-{which_run}"
        if run in self.ended or not (named or any(call.run == run for call in present)):
            return
        SEEN["delegation: a later run"] += self.is_told(self.calls[serves])
        self.accept(Call(n, run, serves if named else None, 0), at_once=at_once)

    @rule(n=NUMBERS, how=st.sampled_from(HOWS), answered=st.booleans())
    def end(self, n: int, how: str, answered: bool) -> None:
        """One that is open ends, and whoever asked for its attempt is told, at once or later."""
        call = self.some(n, lambda call, found: found.state in OPEN and self.asked_for_in_vain(call) is None)
        if call is None:
            return
        if self.last[call.number].state is not State.STARTED or (self.rests(call) and how != LOST):
            how = NOT_SENT
        call.how = how
        self.record(call.ending())
        if answered and (errand := self.asked(call.number)) is not None:
            self.close(errand)

    @rule(n=NUMBERS)
    def rest(self, n: int) -> None:
        """An attempt sent nothing, and another one will follow by itself."""
        call = self.some(n, lambda call, found: found.state is State.STARTED and not self.rests(call))
        if call is not None:
            call.was_not_sent(call.attempts)
            self.record(attempt_unsent(call.number, attempt=call.attempts))

    def rests(self, call: Call) -> bool:
        """Whether no attempt of what has not ended runs."""
        return self.last[call.number].deadline_at is None

    @rule(n=NUMBERS, effect=st.sampled_from(Effect), actor=st.sampled_from(sorted(ACTORS)))
    def judge(self, n: int, effect: Effect, actor: str) -> None:
        """Somebody says what happened."""
        call = self.some(n, lambda _, found: found.state in JUDGED)
        if call is not None and (effect is not Effect.UNKNOWN or ACTORS[actor] is not Source.PROBE):
            call.says(effect, ACTORS[actor])
            self.record(reconciled(call.number, effect, actor=actor))

    @rule(n=NUMBERS, effect=st.sampled_from([Effect.NONE, Effect.OCCURRED]), newest=st.booleans())
    def answer_late(self, n: int, effect: Effect, newest: bool) -> None:
        """An answer comes after all, also while the operation waits, or is tried again."""
        late_for = (*JUDGED, State.AWAITING_APPROVAL)
        call = self.some(n, lambda call, found: call.attempts > 0 and found.state in late_for)
        attempt = 1 if call is None or not newest else call.attempts
        if call is not None and attempt not in call.unsent:
            call.says(effect, Source.PROVIDER, attempt)
            self.record(late(call.number, effect=effect, attempt=attempt))

    @rule(which=NUMBERS)
    def end_run(self, which: int) -> None:
        """A run gets no more calls."""
        runs = sorted({call.run for call in self.present()} - {"run-1"} - self.ended)
        if runs:
            run = runs[which % len(runs)]
            self.ended.add(run)
            self.commands += 1
            self.record(accepted_command(self.commands, "run.end", {}, run=run), completed(self.commands))

    # ------------------------------------------------------------ commands that are no calls

    @rule(n=NUMBERS, elsewhere=st.booleans(), then=st.sampled_from(THEN))
    def retry(self, n: int, elsewhere: bool, then: str) -> None:
        """Another attempt is asked for, where rule R allows one; a person is asked, or it begins."""
        call = self.some(n, lambda call, _: self.may_be_asked_for(call) and self.is_free(call))
        if call is None:
            return
        self.open(call, "operation.retry", "elsewhere" if elsewhere else call.run)
        if then in ("ask", "grant"):
            self.ask(call)
        if then in ("begin", "grant"):
            self.start(call)

    def may_be_asked_for(self, call: Call) -> bool:
        """Whether rule R has another attempt, by how the operation stands."""
        found = self.last[call.number]
        is_ready = found.state in REVIVABLE and self.asked(call.number) is None
        return is_ready and found.effect is not Effect.OCCURRED

    def is_free(self, call: Call) -> bool:
        """Whether the product lets it be tried again, as far as its parents go."""
        refused = self.bench.read(lambda view: view.idle_parent(operation_id(call.number))) is not None
        SEEN["delegation: parent judged"] += refused
        return not refused

    def open(self, call: Call, kind: str, run: str) -> None:
        """Record a command that names an operation, and has no receipt yet."""
        self.commands += 1
        errand = Errand(self.commands, call.number, run, call.attempts, kind == "operation.retry")
        self.errands.append(errand)
        self.record(
            accepted_command(self.commands, kind, {"operation_id": operation_id(call.number)}, run=run)
        )

    def close(self, errand: Errand) -> None:
        """Record its receipt."""
        self.errands.remove(errand)
        self.record(completed(errand.number))

    @rule(n=NUMBERS)
    def ask_again(self, n: int) -> None:
        """A person is asked about the attempt that somebody wants."""
        call = self.some(n, lambda call, _: self.is_to_begin(call))
        if call is not None:
            self.ask(call)

    def ask(self, call: Call) -> None:
        """Record that an operation waits for a person."""
        SEEN["delegation: waits on a none"] += self.is_told(call)
        self.record(approval_requested(call.number))

    @rule(n=NUMBERS, granted=st.booleans())
    def go_on(self, n: int, granted: bool) -> None:
        """The attempt that somebody wants begins, or it does not after all; or one follows by itself."""
        call = self.some(n, lambda call, found: self.is_to_begin(call) or self.goes_on(call, found))
        if call is None:
            return
        found, errand = self.last[call.number], self.asked(call.number)
        if errand is None or (granted and found.effect is not Effect.OCCURRED):
            self.start(call)
            return
        if found.state is State.AWAITING_APPROVAL:
            self.record(call.ending())  # it is what it was
        self.close(errand)

    def is_to_begin(self, call: Call) -> bool:
        """Whether an attempt was asked for, and has not begun."""
        return self.asked_for_in_vain(call) is not None

    def asked_for_in_vain(self, call: Call) -> Errand | None:
        """Return the command that asks for an attempt which has not begun."""
        errand = self.asked(call.number)
        return errand if errand is not None and errand.since == call.attempts else None

    def goes_on(self, call: Call, found: OperationRecord) -> bool:
        """Whether its first attempt, or a further one of those that follow by themselves, may begin."""
        if found.state is State.ACCEPTED:
            return True
        return found.state is State.STARTED and self.rests(call) and found.effect is not Effect.OCCURRED

    @rule(n=NUMBERS)
    def probe(self, n: int) -> None:
        """Somebody wants an operation to be looked at, and has no answer yet."""
        call = self.some(n, lambda _, found: found.state in JUDGED)
        if call is not None and not any(errand.of == call.number for errand in self.errands):
            self.open(call, "operation.probe", call.run)
            SEEN["delegation: probed"] += 1

    @rule(which=NUMBERS)
    def answer(self, which: int) -> None:
        """A command that is no call has its receipt."""
        over = [
            errand
            for errand in self.errands
            if not errand.retry
            or (self.last[errand.of].state not in OPEN and self.calls[errand.of].attempts > errand.since)
        ]
        if over:
            self.close(over[which % len(over)])

    @rule(days=st.sampled_from([3.0, 30.0]))
    def prune(self, days: float) -> None:
        """One pass of retention, some time later, of what the plane has."""
        self.record(driver_started())  # the newest event always stays
        self.bench.transact(lambda tx: tx.acknowledge(tx.last_seq))
        self.bench.now_s += days * DAY_S
        while not self.bench.transact(self.retention.step).finished:
            pass
        before = len(self.gone)
        self.look()
        SEEN["delegation: pruned"] += len(self.gone) > before

    # ------------------------------------------------------------ what must hold

    def children(self, parent: int) -> Sequence[Call]:
        """Return the calls of the runs that serve an operation, pruned or not."""
        runs = {call.run for call in self.calls.values() if call.parent == parent}
        return [call for call in self.calls.values() if call.run in runs]

    def is_told(self, call: Call) -> bool:
        """Whether an operation counts as not having happened because of its children, and of nothing else."""
        return self.last[call.number].effect is Effect.NONE and not call.is_idle

    def rests_on(self, parent: int) -> frozenset[int]:
        """Return the operations because of which a parent counts as not having happened."""
        found: set[int] = set()
        above = [parent]
        while above:
            for call in self.children(above.pop()):
                if call.number not in found:
                    found.add(call.number)
                    if self.is_told(call):
                        above.append(call.number)
        return frozenset(found)

    def did_nothing(self, call: Call) -> bool:
        """Whether that is known, and nothing of it is to come."""
        found = self.last[call.number]
        is_over = found.state not in OPEN and self.asked(call.number) is None
        return is_over and found.effect is Effect.NONE and found.effect_by is not Source.SUPERVISOR

    @invariant()
    def a_none_is_what_the_children_show(self) -> None:
        """Of a parent of which nobody else says it, whatever it does by now."""
        for call in self.present():
            children = self.children(call.number) if self.is_told(call) else ()
            if not children:
                continue
            over = all(child.run in self.ended for child in children)
            records = [self.last[child.number] for child in children]
            idle = over and all(map(self.did_nothing, children))
            assert idle, f"{call.number} is none, and its children are {records}"
            SEEN["delegation: none"] += 1

    @invariant()
    def a_parent_is_judged_once_its_children_are_known(self) -> None:
        """Where nobody has said anything of it, and nothing is to come in its child runs."""
        for call in self.present():
            found, children = self.last[call.number], self.children(call.number)
            if call.words or found.state not in JUDGED or not children:
                continue
            if not self.is_known(call, children):
                continue
            idle = all(map(self.did_nothing, children))
            assert found.effect is not Effect.UNKNOWN, f"{call.number} is not judged: {children}"
            if found.effect is Effect.OCCURRED:
                assert not idle or self.has_occurred(call.number), f"{call.number} has never had an effect"
                SEEN["delegation: occurred"] += 1

    def is_known(self, call: Call, children: Sequence[Call]) -> bool:
        """Whether the last child run began behind the intent, all have ended, and all calls are settled."""
        runs = {child.run for child in children}
        is_busy = any(
            errand.run in runs or errand.of in {c.number for c in children} for errand in self.errands
        )
        newest = max(min(c.seq for c in children if c.run == run and c.parent is not None) for run in runs)
        records = [self.last[child.number] for child in children]
        are_known = all(item.settled and item.effect_by is not Source.SUPERVISOR for item in records)
        return runs <= self.ended and not is_busy and are_known and newest > call.begun[-1]

    @invariant()
    def nothing_that_is_relied_on_is_tried_again(self) -> None:
        """While a parent counts as `none`, and also once an attempt has begun because it did."""
        relied: Mapping[int, int] = dict(self.reliances())
        for n, parent in relied.items():
            found = self.last[n]
            if n in self.gone or found.state not in REVIVABLE or found.effect is Effect.OCCURRED:
                continue
            judged = self.bench.read(partial(View.idle_parent, operation_id=operation_id(n)))
            assert judged is not None, f"{n} may be tried again, and {parent} relies on it: {found}"

    def reliances(self) -> Iterator[tuple[int, int]]:
        """Yield what somebody relies on, with who does."""
        for call in self.present():
            if self.is_told(call):
                yield from ((n, call.number) for n in self.rests_on(call.number))
        for parent, attempt, rested_on in self.relied:
            if parent not in self.gone and not self.calls[parent].was_idle(attempt):
                yield from ((n, parent) for n in rested_on)

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
