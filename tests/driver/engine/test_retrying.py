"""`operation.retry`: rule R decides, nothing is begun twice, and what cannot begin changes nothing."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from driver.core.attempts import Answered, NotSent, PeerError, Phase, Report
from driver.core.contracts import Contract
from driver.engine.running import Running, Step
from driver.engine.steps import Steps
from store.events import Draft, OperationReconciled
from store.lifecycle import Effect, Source, State
from store.records import CommandId, JsonObject, RunId
from store.transaction import Transaction
from tests.driver.engine.again import (
    DEDUPLICATING,
    GONE,
    LATE,
    PLAIN,
    ask_again,
    believing,
    receipt,
    receipt_now,
    refused,
    say,
)
from tests.driver.engine.rig import Clock, Rig, ScriptedProvider, call, command, engine, limits

pytestmark = pytest.mark.anyio

ASKING = Contract(declared=True, approval="required")
CHILD_RUN = RunId("child")


async def test_what_is_proven_not_to_have_happened_runs_again_with_the_same_key(tmp_path: Path) -> None:
    """The attempt has the next number; its outcome is no second receipt, and names the first."""
    provider = ScriptedProvider(answers=[GONE])
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        await rig.intake.deliver([call()])
        lost = await rig.settled()
        await say(rig, Effect.NONE)
        await ask_again(rig)
        kind, data = await receipt(rig)
        ended = await rig.operation()
        events = [event for event in await rig.events() if event.operation_id == ended.operation_id]
    assert (kind, data["outcome"], data["attempt"], data["effect"]) == (
        "command.completed",
        "succeeded",
        2,
        "occurred",
    )
    assert [(item.attempt, item.key) for item in provider.executed] == [
        (1, lost.operation_id),
        (2, lost.operation_id),
    ]
    assert (ended.state, ended.effect, ended.settled, ended.attempt_count) == (
        State.SUCCEEDED,
        Effect.OCCURRED,
        True,
        2,
    )
    first = next(event for event in events if event.kind == "operation.unknown")
    last = events[-1]
    assert (first.terminal, last.kind, last.terminal) == (True, "operation.succeeded", False)
    assert last.body is not None
    assert json.loads(last.body)["data"]["supersedes"] == first.seq


async def test_nothing_proves_that_it_did_not_happen(tmp_path: Path) -> None:
    """Refused at once, in the transaction that accepts the command, and nothing is called."""
    provider = ScriptedProvider(answers=[GONE])
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        assert await refused(rig) == "not_proven_none"
        assert (await rig.operation()).state is State.UNKNOWN
    assert len(provider.executed) == 1


@pytest.mark.parametrize("effect", list(Effect))
async def test_a_supervisors_word_allows_nothing(tmp_path: Path, effect: Effect) -> None:
    """I8: whatever it says, the refusal is the same as without it; for a `none` it says why."""
    provider = ScriptedProvider(answers=[GONE])
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await say(rig, effect, "supervisor:rules")
        code = await refused(rig)
    assert code == ("best_effort_only" if effect is Effect.NONE else "not_proven_none")
    assert len(provider.executed) == 1


async def test_a_rule_r_that_believes_a_supervisor_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control of I8: a guess would let a write run a second time."""
    monkeypatch.setattr("driver.engine.proof.proof", believing)
    provider = ScriptedProvider(answers=[GONE])
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await say(rig, Effect.NONE, "supervisor:rules")
        await ask_again(rig)
        assert (await receipt(rig))[1]["outcome"] == "succeeded"
    assert len(provider.executed) == 2


@pytest.mark.parametrize("actor", ["operator:1000", "probe:tools/find"])
async def test_what_is_known_to_have_happened_is_not_done_again(tmp_path: Path, actor: str) -> None:
    """Whoever knows it, a supervisor excepted."""
    provider = ScriptedProvider(answers=[GONE])
    async with engine(tmp_path, provider, contract=DEDUPLICATING) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await say(rig, Effect.OCCURRED, actor)
        assert await refused(rig) == "already_occurred"


async def test_what_succeeded_is_not_done_again(tmp_path: Path) -> None:
    """There is nothing to retry."""
    provider = ScriptedProvider()
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        assert await refused(rig) == "already_occurred"


async def test_an_unknown_operation_is_refused(tmp_path: Path) -> None:
    """The journal has no such operation."""
    async with engine(tmp_path, ScriptedProvider()) as rig:
        await rig.intake.deliver([command("operation.retry", "retry-1", operation_id="op_" + "0" * 32)])
        found = await receipt_now(rig)
    assert found is not None
    assert found[1]["code"] == "unknown_operation"


async def test_what_runs_is_not_begun_a_second_time(tmp_path: Path) -> None:
    """Nor what has not begun at all."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN)
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
        assert await refused(rig) == "still_running"
        provider.gate.set()
        await rig.settled()


async def test_what_waits_has_not_ended(tmp_path: Path) -> None:
    """There is no attempt that another one could follow."""
    provider = ScriptedProvider()
    async with engine(tmp_path, provider, contract=PLAIN, confirmed=False) as rig:
        await rig.intake.deliver([call()])
        assert await refused(rig) == "not_ended"


@pytest.mark.parametrize(("closed", "code"), [(False, "may_still_land"), (True, None)])
async def test_an_attempt_that_may_still_land_keeps_the_next_one_from_beginning(
    tmp_path: Path, *, closed: bool, code: str | None
) -> None:
    """Proof that it has not happened is no proof that it will not; a closed transport is."""
    provider = ScriptedProvider(answers=[LATE], closed=closed)
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await say(rig, Effect.NONE)
        if code is None:
            await ask_again(rig)
            assert (await receipt(rig))[1]["outcome"] == "succeeded"
        else:
            assert await refused(rig) == code
            rig.clock.ahead = timedelta(hours=2)  # a clock that is set is no time that passes
            assert await refused(rig, "retry-2") == code
            rig.clock.pass_by(61)
            await ask_again(rig, "retry-3")
            assert (await receipt(rig, "retry-3"))[1]["outcome"] == "succeeded"
    assert len(provider.executed) == 2


async def test_a_read_may_always_run_again(tmp_path: Path) -> None:
    """Nothing can happen twice."""
    provider = ScriptedProvider(answers=[LATE])
    async with engine(tmp_path, provider, contract=replace(PLAIN, effect="read")) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await ask_again(rig)
        assert (await receipt(rig))[1]["outcome"] == "succeeded"


# ------------------------------------------------------------ (b): the provider deduplicates


async def test_a_provider_that_deduplicates_is_asked_again(tmp_path: Path) -> None:
    """Though the first attempt may have happened, and may still land."""
    provider = ScriptedProvider(answers=[LATE])
    async with engine(tmp_path, provider, contract=DEDUPLICATING) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await ask_again(rig)
        assert (await receipt(rig))[1]["outcome"] == "succeeded"


@pytest.mark.parametrize(
    ("today", "after_s", "code"),
    [
        (replace(DEDUPLICATING, idempotent=False, dedupe_horizon_s=None), 0, "not_deduplicated"),
        (replace(DEDUPLICATING, key_carrier=PLAIN.key_carrier), 0, "another_key"),
        (DEDUPLICATING, 80, "past_horizon"),
        (DEDUPLICATING, -80, "clock_went_back"),
    ],
)
async def test_the_part_of_the_promise_that_fails_is_named(
    tmp_path: Path, today: Contract, after_s: float, code: str
) -> None:
    """The contract of the first attempt and today's, the carrier, the horizon with the budget, the clocks."""
    provider = ScriptedProvider(answers=[GONE])
    clock = Clock()
    async with engine(tmp_path, provider, contract=DEDUPLICATING, clock=clock) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
    async with engine(tmp_path, provider, contract=today, clock=clock) as rig:
        clock.ahead = timedelta(seconds=after_s)
        assert await refused(rig) == code
    assert len(provider.executed) == 1


# ------------------------------------------------------------ what an attempt comes to


ENDINGS = [
    (Answered(result={}), "succeeded", State.SUCCEEDED, Effect.OCCURRED, True),
    (GONE, "unknown", State.UNKNOWN, Effect.UNKNOWN, False),
    (PeerError(code=-32000, message="no"), "failed", State.FAILED, Effect.UNKNOWN, True),
]


@pytest.mark.parametrize(("second", "outcome", "state", "effect", "settled"), ENDINGS)
async def test_the_operation_is_what_its_attempts_prove(
    tmp_path: Path, second: Report, outcome: str, state: State, effect: Effect, *, settled: bool
) -> None:
    """What was said of the first attempt settles nothing about the second."""
    provider = ScriptedProvider(answers=[GONE, second])
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await say(rig, Effect.NONE)
        await ask_again(rig)
        _, data = await receipt(rig)
        ended = await rig.operation()
        unsettled = await rig.journal.read(lambda view: view.unsettled()[0])
    assert (data["outcome"], ended.state, ended.effect, ended.settled) == (outcome, state, effect, settled)
    assert unsettled == (not settled)


async def test_an_error_that_means_nothing_happened_is_believed_beside_a_verdict(tmp_path: Path) -> None:
    """The first attempt is cleared by an operator, the second by the provider: nothing happened."""
    provider = ScriptedProvider(answers=[GONE, PeerError(code=-32000, message="no")])
    async with engine(tmp_path, provider, contract=replace(PLAIN, error_means="none")) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await say(rig, Effect.NONE)
        await ask_again(rig)
        await receipt(rig)
        ended = await rig.operation()
    assert (ended.state, ended.effect, ended.settled) == (State.FAILED, Effect.NONE, True)


async def test_an_attempt_that_cannot_be_sent_leaves_the_operation_as_it_was(tmp_path: Path) -> None:
    """It is an attempt in the journal, with its proof; the operation's last word is the one before."""
    provider = ScriptedProvider(answers=[GONE])
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await say(rig, Effect.NONE)
        provider.objection = NotSent(reason="connect_failed", message="refused")
        await ask_again(rig)
        _, data = await receipt(rig)
        ended = await rig.operation()
        attempts = await rig.attempts()
    assert (data["outcome"], data["reason"]) == ("not_executed", "connect_failed")
    assert attempts == [("unknown", "connection_lost"), ("not_executed", "connect_failed")]
    assert (ended.state, ended.effect, ended.effect_by) == (State.UNKNOWN, Effect.NONE, Source.OPERATOR)


async def test_what_never_began_begins_with_the_first_attempt(tmp_path: Path) -> None:
    """The proof that nothing was sent says nothing about an attempt that came later."""
    provider = ScriptedProvider(objection=NotSent(reason="connect_failed", message="refused"), answers=[GONE])
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        await rig.intake.deliver([call()])
        assert (await rig.settled()).attempt_count == 0
        provider.objection = None
        await ask_again(rig)
        _, data = await receipt(rig)
        ended = await rig.operation()
        assert (data["attempt"], data["outcome"]) == (1, "unknown")
        assert (ended.state, ended.effect, ended.settled) == (State.UNKNOWN, Effect.UNKNOWN, False)
        assert await refused(rig, "retry-2") == "not_proven_none"


async def test_an_operators_unknown_does_not_hide_an_attempt_that_came_later(tmp_path: Path) -> None:
    """It was a last word about the attempt that there was."""
    provider = ScriptedProvider(answer=GONE)
    async with engine(tmp_path, provider, contract=DEDUPLICATING) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await say(rig, Effect.UNKNOWN)
        assert (await rig.operation()).settled
        await ask_again(rig)
        await receipt(rig)
        ended = await rig.operation()
    assert (ended.state, ended.effect_by, ended.settled) == (State.UNKNOWN, None, False)


# ------------------------------------------------------------ once only, and what withdraws it


async def test_a_second_wish_waits_for_the_first(tmp_path: Path) -> None:
    """Two commands that ask for an attempt never lead to two."""
    provider = ScriptedProvider(answers=[GONE])
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await say(rig, Effect.NONE)
        rig.posture.confirmed = False
        await ask_again(rig)
        assert await refused(rig, "retry-2") == "still_running"
        rig.posture.confirmed = True
        rig.engine.pump()
        assert (await receipt(rig))[1]["attempt"] == 2
    assert len(provider.executed) == 2


async def test_the_look_alike_of_a_retry_is_refused_while_it_runs(tmp_path: Path) -> None:
    """The operation guards again, though a verdict had settled it."""
    provider = ScriptedProvider(answers=[GONE])
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await say(rig, Effect.NONE)
        provider.held_at = Phase.WRITTEN
        await ask_again(rig)
        await provider.arrived.wait()
        await rig.intake.deliver([call("cmd-2")])
        found = await receipt_now(rig, "cmd-2")
        provider.gate.set()
        await receipt(rig)
    assert found is not None
    assert found[1]["code"] == "lookalike_unsettled"


async def test_an_expired_command_is_never_revived(tmp_path: Path) -> None:
    """Its expiry caps every attempt."""
    provider = ScriptedProvider(answers=[GONE])
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        await rig.intake.deliver([call(expires_in_ms=60_000)])
        await rig.settled()
        await say(rig, Effect.NONE)
        rig.clock.ahead = timedelta(seconds=61)
        assert await refused(rig) == "expired"


@pytest.mark.parametrize("target", ["cmd-1", "retry-1"])
async def test_a_wish_can_be_cancelled_before_its_attempt_begins(tmp_path: Path, target: str) -> None:
    """By either command's id; the operation is what it was, in this process life and the next."""
    provider = ScriptedProvider(answers=[GONE])
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await say(rig, Effect.NONE)
        provider.held_in_prepare = True
        await ask_again(rig)
        await provider.arrived.wait()
        await rig.intake.deliver([command("command.cancel", "cancel-1", target_command_id=target)])
        kind, data = await receipt(rig)
        await rig.quiet()
        assert rig.dispatcher.slots.in_use == 0
    provider.held_in_prepare = False
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        await rig.quiet()
        ended = await rig.operation()
    assert (kind, data["code"]) == ("command.failed", "cancelled")
    assert (ended.state, ended.effect, ended.attempt_count) == (State.UNKNOWN, Effect.NONE, 1)
    assert len(provider.executed) == 1


async def test_cancelling_a_run_withdraws_its_wishes(tmp_path: Path) -> None:
    """They are open commands of the run."""
    provider = ScriptedProvider(answers=[GONE])
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await say(rig, Effect.NONE)
        provider.held_in_prepare = True
        await ask_again(rig)
        await provider.arrived.wait()
        await rig.intake.deliver([command("run.cancel", "cancel-1")])
        found = await receipt_now(rig, "cancel-1")
        assert found is not None
        assert found[1]["cancelled"] == 1
        assert (await receipt(rig))[1]["code"] == "cancelled"
        await rig.quiet()
    assert len(provider.executed) == 1


async def test_a_retry_that_runs_is_cancelled_like_any_attempt(tmp_path: Path) -> None:
    """The tool is told, and the outcome stays honest."""
    provider = ScriptedProvider(answers=[GONE])
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await say(rig, Effect.NONE)
        provider.held_at = Phase.WRITTEN
        await ask_again(rig)
        await provider.arrived.wait()
        await rig.intake.deliver([command("command.cancel", "cancel-1", target_command_id="retry-1")])
        _, data = await receipt(rig)
    assert (data["outcome"], data["reason"]) == ("unknown", "cancelled_after_dispatch")


async def test_evidence_that_comes_before_the_first_byte_is_seen(tmp_path: Path) -> None:
    """Between the intent and the call an operator says that it has happened: nothing is sent."""
    provider = ScriptedProvider(answers=[GONE])
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await say(rig, Effect.NONE)
        steps = rig.dispatcher._steps  # pyright: ignore[reportPrivateUsage]
        overtaken = _Overtaken(steps.posture, steps.machine, steps.terms, steps.lookalikes, steps.new_id)
        rig.dispatcher._steps = overtaken  # pyright: ignore[reportPrivateUsage]
        await ask_again(rig)
        _, data = await receipt(rig)
        ended = await rig.operation()
    assert (data["outcome"], data["reason"]) == ("not_executed", "cancelled")
    assert ended.effect is Effect.OCCURRED
    assert len(provider.executed) == 1


class _Overtaken(Steps):
    """Just behind each intent an operator says that it has happened."""

    def begin(self, tx: Transaction, running: Running, objection: NotSent | None) -> Step:
        step = super().begin(tx, running, objection)
        record = tx.operation(running.assignment.operation_id)
        assert record is not None
        late = OperationReconciled(
            effect=Effect.OCCURRED,
            actor="operator:1000",
            basis="verdict",
            note="found it",
            evidence=(),
            started_seq=record.started_seq,
        )
        tx.append(Draft(data=late, operation_id=record.operation_id))
        return step


# ------------------------------------------------------------ approval


async def granted(rig: Rig, decision: str, count: int, of: str = "cmd-1") -> None:
    """Decide about the newest request of a call, once there are `count` of all."""
    await rig.reaches("operation.approval_requested", count)
    await rig.quiet()
    record = await rig.operation(of)
    requests = [event for event in await rig.events() if event.kind == "operation.approval_requested"]
    asked = [event for event in requests if event.operation_id == record.operation_id][-1]
    assert asked.body is not None
    await rig.intake.deliver(
        [
            command(
                "operation.approve",
                f"approve-{of}-{count}",
                operation_id=record.operation_id,
                approval_id=json.loads(asked.body)["data"]["approval_id"],
                decision=decision,
                approver="operator:1000",
            )
        ]
    )


async def lost_after_approval(rig: Rig) -> None:
    """Have a call approved, sent and lost, and an operator say that it did not happen."""
    await rig.intake.deliver([call()])
    await granted(rig, "grant", 1)
    await rig.settled()
    await say(rig, Effect.NONE)


async def test_a_retry_asks_for_an_approval_of_its_own(tmp_path: Path) -> None:
    """An approval belongs to one attempt; while a person is asked, look-alikes are refused."""
    provider = ScriptedProvider(answers=[GONE])
    async with engine(tmp_path, provider, contract=ASKING) as rig:
        await lost_after_approval(rig)
        await ask_again(rig)
        await rig.reaches("operation.approval_requested", 2)
        waiting = await rig.operation()
        assert (waiting.state, waiting.guards, waiting.ended_at) == (State.AWAITING_APPROVAL, True, None)
        assert len(provider.executed) == 1
        await granted(rig, "grant", 2)
        assert (await receipt(rig))[1]["outcome"] == "succeeded"
    assert len(provider.executed) == 2


async def test_a_denied_retry_leaves_the_operation_as_it_was(tmp_path: Path) -> None:
    """`not_executed` would be a lie: the first attempt was sent."""
    provider = ScriptedProvider(answers=[GONE])
    async with engine(tmp_path, provider, contract=ASKING) as rig:
        await lost_after_approval(rig)
        before = await rig.operation()
        await ask_again(rig)
        await granted(rig, "deny", 2)
        kind, data = await receipt(rig)
        after = await rig.operation()
    assert (kind, data["code"]) == ("command.failed", "approval_denied")
    assert (after.state, after.reason, after.effect, after.effect_by) == (
        State.UNKNOWN,
        before.reason,
        Effect.NONE,
        Source.OPERATOR,
    )
    assert len(provider.executed) == 1


@pytest.mark.parametrize("then", ["grant", "deny"])
async def test_a_retry_that_waits_for_a_person_survives_a_restart(tmp_path: Path, then: str) -> None:
    """The request stands, and the command ends with what was decided, in the next process life."""
    provider = ScriptedProvider(answers=[GONE])
    async with engine(tmp_path, provider, contract=ASKING) as rig:
        await lost_after_approval(rig)
        await ask_again(rig)
        await rig.reaches("operation.approval_requested", 2)
    async with engine(tmp_path, provider, contract=ASKING) as rig:
        await granted(rig, then, 2)
        kind, data = await receipt(rig)
    assert kind == ("command.completed" if then == "grant" else "command.failed")
    assert len(provider.executed) == (2 if then == "grant" else 1)
    assert data.get("outcome", data.get("code")) in ("succeeded", "approval_denied")


async def test_a_request_that_expires_withdraws_the_retry(tmp_path: Path) -> None:
    """Nobody decided in time: the operation is what it was."""
    provider = ScriptedProvider(answers=[GONE])
    async with engine(tmp_path, provider, contract=ASKING) as rig:
        await lost_after_approval(rig)
        await ask_again(rig)
        await rig.reaches("operation.approval_requested", 2)
        rig.clock.ahead = timedelta(hours=2)
        rig.dispatcher.pump()
        kind, data = await receipt(rig)
        after = await rig.operation()
    assert (kind, data["code"], after.state) == ("command.failed", "approval_expired", State.UNKNOWN)


# ------------------------------------------------------------ restarts


async def test_a_retry_that_had_not_begun_begins_in_the_next_life(tmp_path: Path) -> None:
    """The open command is all that there is of it, once the plane has confirmed the history."""
    provider = ScriptedProvider(answers=[GONE])
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await say(rig, Effect.NONE)
        rig.posture.confirmed = False
        await ask_again(rig)
    async with engine(tmp_path, provider, contract=PLAIN, confirmed=False) as rig:
        await rig.quiet()
        assert len(provider.executed) == 1
        rig.desk.history_confirmed()
        assert (await receipt(rig))[1]["outcome"] == "succeeded"
    assert [item.attempt for item in provider.executed] == [1, 2]


async def test_a_retry_that_had_begun_is_never_begun_again(tmp_path: Path) -> None:
    """Its process life ended in mid-call: the receipt says that nobody knows."""
    provider = ScriptedProvider(answers=[GONE])
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await say(rig, Effect.NONE)
        provider.held_at = Phase.WRITTEN
        await ask_again(rig)
        await provider.arrived.wait()
    provider.held_at = None
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        _, data = await receipt(rig)
        ended = await rig.operation()
        assert (data["outcome"], data["reason"], data["attempt"]) == ("unknown", "crash_window", 2)
        assert (ended.state, ended.effect, ended.settled) == (State.UNKNOWN, Effect.UNKNOWN, False)
        assert await refused(rig, "retry-2") == "not_proven_none"
    assert [item.attempt for item in provider.executed] == [1, 2]


async def test_a_redelivered_retry_is_answered_and_not_done_again(tmp_path: Path) -> None:
    """As any command."""
    provider = ScriptedProvider(answers=[GONE])
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await say(rig, Effect.NONE)
        await ask_again(rig)
        await receipt(rig)
        await ask_again(rig)
        await rig.quiet()
    assert len(provider.executed) == 2


async def test_there_is_a_bound_on_what_is_asked_for_and_not_done(tmp_path: Path) -> None:
    """Beyond it new work is refused without a trace, to be delivered again."""
    provider = ScriptedProvider(answer=GONE)
    async with engine(tmp_path, provider, contract=PLAIN, bounds=limits(queue_max=2)) as rig:
        for number in range(1, 4):
            await rig.intake.deliver([call(f"cmd-{number}", arguments={"n": number})])
            await rig.settled(f"cmd-{number}")
            await say(rig, Effect.NONE, command_id=f"cmd-{number}")
        rig.posture.confirmed = False
        for number in range(1, 4):
            await ask_again(rig, f"retry-{number}", f"cmd-{number}")
        known = await rig.journal.read(lambda view: view.command(CommandId("retry-3")))
    assert known is None


async def delegated(rig: Rig, *, ends: bool = True) -> None:
    """A parent, and a call of another run that serves it: both are lost, and the child run ends."""
    await rig.intake.deliver([call()])
    parent = await rig.settled()
    child = call("child-1", run_id=CHILD_RUN, arguments={"n": 2})
    data: JsonObject = {**child.data, "parent_operation_id": parent.operation_id}
    await rig.intake.deliver([replace(child, data=data)])
    await rig.settled("child-1")
    if ends:
        await rig.intake.deliver([command("run.end", "end-1", run_id=CHILD_RUN)])


@pytest.mark.parametrize("contract", [PLAIN, DEDUPLICATING])
async def test_what_its_parents_none_rests_on_is_not_tried_again(tmp_path: Path, contract: Contract) -> None:
    """Whatever evidence there is of it later would be weaker than the word that its parent did nothing."""
    provider = ScriptedProvider(answers=[GONE, GONE])
    async with engine(tmp_path, provider, contract=contract) as rig:
        await delegated(rig)
        await say(rig, Effect.NONE, command_id="child-1")
        parent = await rig.operation()
        await ask_again(rig, of="child-1")
        found = await receipt_now(rig)
        await say(rig, Effect.UNKNOWN)
        await ask_again(rig, "retry-2", of="child-1")
        kind, data = await receipt(rig, "retry-2")
    assert (parent.effect, parent.effect_by) == (Effect.NONE, Source.OPERATOR)
    assert found is not None
    assert (found[0], found[1]["code"]) == ("command.failed", "parent_judged")
    assert (kind, data["outcome"]) == ("command.completed", "succeeded"), "nobody relies on it any more"


async def test_what_has_judged_no_parent_is_tried_again(tmp_path: Path) -> None:
    """Its run goes on, so nothing follows from it yet; once both are over, the parent has happened."""
    provider = ScriptedProvider(answers=[GONE, GONE])
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        await delegated(rig, ends=False)
        await say(rig, Effect.NONE, command_id="child-1")
        await ask_again(rig, of="child-1")
        kind, data = await receipt(rig)
        await rig.intake.deliver([command("run.end", "end-1", run_id=CHILD_RUN)])
        parent = await rig.operation()
    assert (kind, data["outcome"]) == ("command.completed", "succeeded")
    assert parent.effect is Effect.OCCURRED


async def test_nothing_is_concluded_while_an_attempt_of_a_child_is_asked_for(tmp_path: Path) -> None:
    """By a command of another run, too: what its run's end would have proven is open until that is over."""
    provider = ScriptedProvider(answers=[GONE, GONE])
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        await delegated(rig, ends=False)
        await say(rig, Effect.NONE, command_id="child-1")
        rig.posture.confirmed = False
        await ask_again(rig, of="child-1")
        await rig.intake.deliver([command("run.end", "end-1", run_id=CHILD_RUN)])
        before = await rig.operation()
        rig.posture.confirmed = True
        rig.engine.pump()
        _, data = await receipt(rig)
        after = await rig.operation()
    assert (before.effect, before.effect_by) == (Effect.UNKNOWN, None)
    assert data["outcome"] == "succeeded"
    assert (after.effect, after.effect_by) == (Effect.OCCURRED, Source.DAEMON)


async def test_no_attempt_rests_on_what_was_concluded_before_another_child_began(tmp_path: Path) -> None:
    """That the parent did nothing was said of fewer runs: what was asked for by it is refused in its turn."""
    provider = ScriptedProvider(answers=[GONE, GONE])
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        await delegated(rig)
        await say(rig, Effect.NONE, command_id="child-1")
        parent = await rig.operation()
        rig.posture.confirmed = False
        await ask_again(rig)
        child = call("child-2", run_id=RunId("later"), arguments={"n": 3})
        data: JsonObject = {**child.data, "parent_operation_id": parent.operation_id}
        await rig.intake.deliver([replace(child, data=data)])
        rig.posture.confirmed = True
        rig.engine.pump()
        kind, found = await receipt(rig)
        await rig.settled("child-2")
        assert await refused(rig, "retry-2") == "not_proven_none"
    assert parent.effect is Effect.NONE
    assert (kind, found["code"]) == ("command.failed", "not_proven_none")
    assert len(provider.executed) == 3


async def test_a_grant_allows_no_attempt_of_what_happened_meanwhile(tmp_path: Path) -> None:
    """A person is asked for an attempt because the child did nothing; before the grant a later one did."""
    provider = ScriptedProvider(answers=[GONE, GONE])
    async with engine(tmp_path, provider, contract=ASKING) as rig:
        await rig.intake.deliver([call()])
        await granted(rig, "grant", 1)
        parent = await rig.settled()
        for number, (child, run_id) in enumerate((("child-1", CHILD_RUN), ("child-2", RunId("later"))), 2):
            if number == 3:
                await ask_again(rig)
                await rig.reaches("operation.approval_requested", 3)
            asked = call(child, run_id=run_id, arguments={"n": number})
            data: JsonObject = {**asked.data, "parent_operation_id": parent.operation_id}
            await rig.intake.deliver([replace(asked, data=data)])
            await granted(rig, "grant", 2 * number - 2, child)
            await rig.settled(child)
            if number == 2:
                await rig.intake.deliver([command("run.end", "end-1", run_id=CHILD_RUN)])
                await say(rig, Effect.NONE, command_id=child)
                assert (await rig.operation()).effect is Effect.NONE
        assert (await rig.operation()).state is State.AWAITING_APPROVAL
        await granted(rig, "grant", 4)
        kind, found = await receipt(rig)
    assert (kind, found["code"]) == ("command.failed", "not_proven_none")
    assert len(provider.executed) == 3
