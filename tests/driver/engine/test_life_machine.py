"""One operation through every order of events: answers, silence, retries, a person, cancels, time, crashes.

The world outside is a provider that remembers what really left; the journal is real. After each step the
journal may claim no more than the world allows (I3), and the world has seen nothing that rule R and the
approvals forbid (I2).
"""

import json
import shutil
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from driver.core.approval import UseFacts, look
from driver.core.attempts import Answered
from driver.core.conclusion import Attempted, Outcome
from driver.core.frames import CommandFrame
from driver.core.retry import Case
from store.events import OperationNotExecuted
from store.lifecycle import ENDED, Effect, State
from store.records import CommandId, JsonObject, OperationRecord, StoredEvent, moment
from store.view import View
from tests.driver.engine.outside import (
    CONTRACTS,
    EXECUTION_S,
    HORIZON_S,
    MODES,
    PLAIN,
    Execution,
    Mode,
    World,
)
from tests.driver.engine.rig import RUN, Rig, call, command, engine

COMMAND = CommandId("cmd-1")


class Life(RuleBasedStateMachine):
    """The rules are what may happen; `journal_is_honest` and the others are what must hold."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="effectd-"))
        self.world = World()
        self.contract = PLAIN
        self.opened: AbstractContextManager[Rig] | None = None
        self.rig: Rig | None = None
        self.expires_in_ms: int | None = None
        self.delivered = False
        self.decisions = 0
        self.granted_in: dict[object, int] = {}
        self.set_back_s = 0.0
        self._portal = start_blocking_portal()
        self.portal: BlockingPortal = self._portal.__enter__()

    # ------------------------------------------------------------ lives of the process

    @initialize(
        name=st.sampled_from(("safe", "safe", "safe, and errors prove", *sorted(CONTRACTS))),
        expires_in_ms=st.sampled_from([None, 90_000]),
        mode=st.sampled_from(MODES),
    )
    def begin(self, name: str, expires_in_ms: int | None, mode: Mode) -> None:
        """The first start, under some contract, and the call."""
        self.contract = self.world.contract = CONTRACTS[name]
        self.expires_in_ms = expires_in_ms
        self.world.mode = mode
        self.open(confirmed=True)
        self.deliver()

    def open(self, *, confirmed: bool) -> None:
        """Start the engine on what there is."""
        self.world.gate = anyio.Event()
        self.world.life += 1
        self.opened = self.portal.wrap_async_context_manager(
            engine(
                self.folder,
                self.world,
                contract=self.contract,
                clock=self.world.clock,
                confirmed=confirmed,
            )
        )
        self.rig = self.opened.__enter__()
        self.quiet()

    def close(self) -> None:
        """End the process in the middle of whatever it does."""
        assert self.opened is not None
        self.opened.__exit__(None, None, None)
        self.opened = self.rig = None

    def quiet(self) -> None:
        """Let everything happen that can happen without time, and without anybody outside."""
        assert self.rig is not None
        self.portal.call(self.rig.quiet)

    @precondition(lambda self: self.rig is not None)
    @rule(confirmed=st.booleans(), name=st.sampled_from(sorted(CONTRACTS)), same=st.booleans())
    def crash(self, confirmed: bool, name: str, same: bool) -> None:
        """The process ends, and the next one may find another contract in its configuration."""
        self.close()
        if not same:
            self.contract = self.world.contract = CONTRACTS[name]
        self.open(confirmed=confirmed)

    @precondition(lambda self: self.rig is not None and not self.rig.posture.confirmed)
    @rule()
    def confirm(self) -> None:
        """The plane knows this history."""
        assert self.rig is not None
        self.portal.call(self.rig.desk.history_confirmed)
        self.quiet()

    # ------------------------------------------------------------ what comes in

    def deliver_frames(self, *frames: CommandFrame) -> None:
        """Deliver, and wait for what follows."""
        assert self.rig is not None
        self.portal.call(self.rig.intake.deliver, frames)
        self.quiet()

    @precondition(lambda self: self.rig is not None and self.rig.posture.confirmed)
    @rule()
    def deliver(self) -> None:
        """The call, for the first time or again."""
        self.deliver_frames(call(COMMAND, expires_in_ms=self.expires_in_ms))
        self.delivered = True

    @precondition(lambda self: self.delivered and self.rig is not None and self.rig.posture.confirmed)
    @rule()
    def cancel(self) -> None:
        """Somebody does not want it any more."""
        self.decisions += 1
        name = f"cancel-{self.decisions}"
        self.deliver_frames(command("command.cancel", name, target_command_id=COMMAND))

    @precondition(lambda self: self.delivered and self.rig is not None)
    @rule(verdict=st.sampled_from(["grant", "grant", "deny"]), newest=st.booleans())
    def decide(self, verdict: str, newest: bool) -> None:
        """A person decides about the newest request, or about an old one."""
        asked = self.data_of("operation.approval_requested")
        if not asked:
            return
        self.decisions += 1
        data: JsonObject = {
            "operation_id": self.operation().operation_id,
            "approval_id": asked[-1 if newest else 0]["approval_id"],
            "decision": verdict,
            "approver": "operator:1000",
        }
        name = CommandId(f"decide-{self.decisions}")
        self.deliver_frames(CommandFrame(command_id=name, run_id=RUN, kind="operation.approve", data=data))
        for decided in self.data_of("operation.approval_decided"):
            self.granted_in.setdefault(decided["approval_id"], self.world.life)

    # ------------------------------------------------------------ what the world does

    @rule(mode=st.sampled_from(MODES))
    def behave(self, mode: Mode) -> None:
        """From now on the provider answers so."""
        self.world.mode = mode

    @precondition(lambda self: self.rig is not None)
    @rule()
    def let_go(self) -> None:
        """What hangs goes on."""
        self.portal.call(self._open_gate)
        self.quiet()

    async def _open_gate(self) -> None:
        self.world.gate.set()
        self.world.gate = anyio.Event()

    @precondition(lambda self: self.rig is not None and self.silent())
    @rule()
    def answer_late(self) -> None:
        """An attempt that nobody waits for any more turns out to have happened."""
        assert self.rig is not None
        seen = self.silent()[0]
        seen.answer = "success"
        call_id = seen.call.operation_id
        self.portal.call(self.rig.dispatcher.late, call_id, seen.call.attempt, Answered(result={}))
        self.quiet()

    @precondition(lambda self: self.rig is not None)
    @rule(seconds=st.sampled_from([1.0, 12.0, 12.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        """By every clock."""
        assert self.rig is not None
        self.world.clock.ahead += timedelta(seconds=seconds)
        self.world.clock.slept_s += seconds
        self.portal.call(self.rig.dispatcher.pump)
        self.quiet()

    @precondition(lambda self: not self.set_back_s)
    @rule(seconds=st.sampled_from([20.0, 200.0]))
    def the_clock_is_set_back(self, seconds: float) -> None:
        """Somebody sets the wall clock back."""
        self.world.clock.ahead -= timedelta(seconds=seconds)
        self.set_back_s += seconds

    # ------------------------------------------------------------ what the machine knows

    def silent(self) -> list[Execution]:
        """Attempts that left, got no answer yet, and are over for the daemon."""
        if not self.delivered:
            return []
        ended = {int(str(data["attempt"])) for data in self.data_of("operation.attempt_ended")}
        over = self.operation().state in ENDED
        return [
            seen
            for seen in self.world.executions
            if seen.answer == "silence" and (over or seen.call.attempt in ended)
        ]

    def read(self, unit: Callable[[View], object]) -> object:
        """Look into the journal."""
        assert self.rig is not None
        return self.portal.call(self.rig.journal.read, unit)

    def events(self) -> list[StoredEvent]:
        """Everything about the operation."""
        assert self.rig is not None
        return [event for event in self.portal.call(self.rig.events) if event.operation_id is not None]

    def data_of(self, kind: str) -> list[JsonObject]:
        """The data of each event of a kind, in order."""
        return [json.loads(event.body or b"")["data"] for event in self.events() if event.kind == kind]

    def operation(self) -> OperationRecord:
        """The operation."""
        assert self.rig is not None
        return self.portal.call(self.rig.operation)

    # ------------------------------------------------------------ what must hold

    @precondition(lambda self: self.rig is not None and self.delivered)
    @invariant()
    def no_attempt_is_made_twice(self) -> None:
        """I1 and I2: one execution for each intent, all with the operation's id as their key."""
        operation = self.operation()
        started = [data["attempt"] for data in self.data_of("operation.started")]
        executed = [seen.call.attempt for seen in self.world.executions]
        assert started == list(range(1, len(started) + 1))
        assert len(executed) == len(set(executed))
        assert set(executed) <= set(started)
        assert {seen.call.key for seen in self.world.executions} <= {operation.operation_id}

    @precondition(lambda self: self.rig is not None and self.delivered)
    @invariant()
    def another_attempt_is_one_that_rule_r_allows(self) -> None:
        """I2: nothing earlier can have happened, or the provider knows the key for long enough."""
        starts = [moment(event.at) for event in self.events() if event.kind == "operation.started"]
        for number, seen in enumerate(self.world.executions):
            earlier = self.world.executions[:number]
            doubtful = [other for other in earlier if not self.proves_nothing_happened(other)]
            if not doubtful:
                continue
            assert seen.contract.retry == "same-key"
            elapsed_s = (seen.at - starts[0]).total_seconds()
            budget_s = min(seen.call.timeout_s, EXECUTION_S)
            assert elapsed_s + budget_s < HORIZON_S + 0.5
            assert not any(other.answer == "success" and not self.was_late(other) for other in earlier)

    @staticmethod
    def proves_nothing_happened(seen: Execution) -> bool:
        """Whether an attempt's answer was, by its contract, that nothing happened."""
        return seen.answer == "error" and seen.contract.error_means == "none"

    def was_late(self, seen: Execution) -> bool:
        """Whether the answer to an attempt came after its end."""
        ended = {data["attempt"]: data["outcome"] for data in self.data_of("operation.attempt_ended")}
        return ended.get(seen.call.attempt) == "unknown"

    @precondition(lambda self: self.rig is not None and self.delivered)
    @invariant()
    def the_journal_is_honest(self) -> None:
        """I3: no claim beyond what the world has shown."""
        operation, seen = self.operation(), self.world.executions
        if operation.state is State.NOT_EXECUTED:
            assert seen == []
        if operation.state is State.SUCCEEDED:
            assert any(item.answer == "success" for item in seen)
        if operation.state is State.FAILED:
            assert any(item.answer == "error" for item in seen)
        if operation.effect is Effect.OCCURRED:
            assert any(item.answer == "success" for item in seen)
        if operation.effect is Effect.NONE:
            assert all(item.answer == "error" for item in seen)
        if operation.state in ENDED and any(item.answer == "success" for item in seen):
            assert operation.effect is Effect.OCCURRED or operation.state is State.UNKNOWN
        if operation.state in ENDED and any(item.answer == "silence" for item in seen):
            assert operation.settled == (operation.effect is Effect.OCCURRED)

    @precondition(lambda self: self.rig is not None and self.delivered)
    @invariant()
    def each_approval_is_used_once(self) -> None:
        """Whatever was asked is granted before, and carries one attempt."""
        granted = {
            str(data["approval_id"])
            for data in self.data_of("operation.approval_decided")
            if data["decision"] == "grant"
        }
        started = self.data_of("operation.started")
        used = [str(data["approval_id"]) for data in started if data.get("approval_id")]
        assert len(used) == len(set(used))
        assert set(used) <= granted
        asked = any(seen.contract.approval == "required" for seen in self.world.executions)
        assert bool(used) or not asked
        for seen in self.world.executions:
            approval_id = started[seen.call.attempt - 1].get("approval_id")
            assert approval_id is None or self.granted_in[approval_id] == seen.life

    @precondition(lambda self: self.rig is not None and self.delivered)
    @invariant()
    def there_is_one_receipt(self) -> None:
        """I4: none before the end, one at it, none afterwards."""
        terminal = [event for event in self.events() if event.terminal]
        assert len(terminal) == (self.operation().state in ENDED)

    def teardown(self) -> None:
        """In the end, with a plane, and with time, every call has its receipt."""
        try:
            if self.rig is not None and self.delivered:
                self.world.mode = "succeed"
                if not self.rig.posture.confirmed:
                    self.confirm()
                self.let_go()
                for _ in range(12 + int(self.set_back_s // 40)):
                    self.time_passes(40.0)
                assert self.operation().state in ENDED
                self.there_is_one_receipt()
                self.the_journal_is_honest()
                self.another_attempt_is_one_that_rule_r_allows()
        finally:
            if self.opened is not None:
                self.close()
            self._portal.__exit__(None, None, None)
            shutil.rmtree(self.folder, ignore_errors=True)


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=20,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestLife.__doc__ = "What Hypothesis does with the machine."


# ------------------------------------------------------------ controls: a broken rule is found


@contextmanager
def lived(name: str, mode: Mode) -> Generator[Life]:
    """A life that begins so, without the checks of its end."""
    life = Life()
    try:
        life.begin(name, None, mode)
        yield life
    finally:
        life.delivered = False
        life.teardown()


def test_a_retry_past_the_horizon_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control of rule R: without the look at the horizon the machine's invariant fails."""

    def story(life: Life) -> None:
        life.time_passes(40.0)
        life.crash(confirmed=False, name="safe", same=True)
        life.time_passes(40.0)
        life.time_passes(12.0)
        life.confirm()
        life.another_attempt_is_one_that_rule_r_allows()

    with lived("safe", "hang after") as life:
        story(life)

    def allow(_case: Case, _at: datetime) -> None:
        return None

    monkeypatch.setattr("driver.core.retry.permit", allow)
    with lived("safe", "hang after") as life, pytest.raises(AssertionError):
        story(life)


def test_a_receipt_of_the_last_attempt_alone_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control of I3: what the last attempt came to says nothing about the one before it."""

    def story(life: Life) -> None:
        life.behave("refuse")
        for _ in range(4):
            life.time_passes(40.0)
        life.the_journal_is_honest()

    with lived("safe", "lost") as life:
        story(life)

    def newest(attempts: Sequence[Attempted], unsent: OperationNotExecuted | None = None) -> Outcome:
        return unsent or attempts[-1].outcome

    monkeypatch.setattr("driver.engine.endings.conclude", newest)
    with lived("safe", "lost") as life, pytest.raises(AssertionError):
        story(life)


def test_a_grant_that_outlives_its_process_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control of approvals: after a crash between grant and start a person is asked again."""

    def story(life: Life) -> None:
        life.behave("hang early")
        life.decide("grant", newest=True)
        life.behave("succeed")
        life.crash(confirmed=True, name="asked", same=True)
        life.each_approval_is_used_once()

    with lived("asked", "succeed") as life:
        story(life)

    def any_grant(facts: UseFacts) -> object:
        newest = facts.newest
        heard = newest.approval_id if newest is not None and newest.decision == "grant" else None
        return look(replace(facts, granted=heard))

    monkeypatch.setattr("driver.engine.steps.look", any_grant)
    with lived("asked", "succeed") as life, pytest.raises(AssertionError):
        story(life)
