"""`retry = "same-key"`: each attempt is in the journal, carries the same key, and none is made twice."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from driver.core.attempts import Answered, HttpStatus, NotSent, PeerError, Phase, Report, Silence
from store.lifecycle import Effect, Source, State
from tests.driver.engine.again import SAFE
from tests.driver.engine.rig import Rig, ScriptedProvider, call, command, engine, limits

pytestmark = pytest.mark.anyio

PATIENT = replace(SAFE, retry_backoff_s=30.0)
LOST = Silence(cause="connection_lost", message="gone")
REFUSED = NotSent(reason="connect_failed", message="refused")
BUSY = HttpStatus(status=503, result={"status": 503})


async def at_rest(rig: Rig, attempts: int = 1) -> None:
    """Return once so many attempts have ended, and the slots are free."""
    await rig.reaches("operation.attempt_ended", attempts)
    while rig.dispatcher.slots.in_use:
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("first", [LOST, BUSY, Silence(cause="deadline", message="no answer in time")])
async def test_an_attempt_that_may_have_happened_is_followed_by_one_with_the_same_key(
    tmp_path: Path, first: Report
) -> None:
    """The provider deduplicates, so trying again is how to find out what happened."""
    provider = ScriptedProvider(answers=[first])
    async with engine(tmp_path, provider, contract=SAFE) as rig:
        await rig.intake.deliver([call()])
        ended = await rig.settled()
        kinds = await rig.kinds()
        terminal = [event for event in await rig.events() if event.terminal]
    assert kinds == [
        "command.accepted",
        "operation.started",
        "operation.attempt_ended",
        "operation.started",
        "operation.succeeded",
    ]
    assert (ended.state, ended.effect, ended.attempt_count) == (State.SUCCEEDED, Effect.OCCURRED, 2)
    assert [(item.attempt, item.key) for item in provider.executed] == [
        (1, ended.operation_id),
        (2, ended.operation_id),
    ]
    assert len(terminal) == 1


async def test_a_provider_that_cannot_be_reached_is_tried_again(tmp_path: Path) -> None:
    """Each try is an attempt in the journal, with its proof that nothing left."""
    provider = ScriptedProvider(objections=[REFUSED], refusals=[REFUSED])
    async with engine(tmp_path, provider, contract=SAFE) as rig:
        await rig.intake.deliver([call()])
        ended = await rig.settled()
        attempts = await rig.attempts()
        evidence = await rig.journal.read(lambda view: view.evidence(ended.operation_id))
    assert attempts == [("not_executed", "connect_failed")] * 2 + [("succeeded", None)]
    assert [(item.effect, item.source) for item in evidence] == [
        (Effect.NONE, Source.DAEMON),
        (Effect.NONE, Source.DAEMON),
        (Effect.OCCURRED, Source.PROVIDER),
    ]
    assert [item.attempt for item in provider.executed] == [3]


async def test_the_number_of_attempts_is_bounded(tmp_path: Path) -> None:
    """The last word is the honest one: nobody knows."""
    provider = ScriptedProvider(answer=LOST)
    async with engine(tmp_path, provider, contract=SAFE) as rig:
        await rig.intake.deliver([call()])
        ended = await rig.settled()
        last = await rig.last()
    assert (ended.state, ended.reason, ended.settled) == (State.UNKNOWN, "connection_lost", False)
    assert (last["attempts"], len(provider.executed)) == (3, 3)


async def test_attempts_that_all_sent_nothing_end_not_executed(tmp_path: Path) -> None:
    """Proof for each of them is proof for the operation."""
    provider = ScriptedProvider(objection=REFUSED)
    async with engine(tmp_path, provider, contract=SAFE) as rig:
        await rig.intake.deliver([call()])
        ended = await rig.settled()
    assert (ended.state, ended.effect, ended.reason) == (State.NOT_EXECUTED, Effect.NONE, "connect_failed")
    assert (ended.attempt_count, provider.executed) == (3, [])


async def test_what_may_have_happened_is_never_hidden_by_an_attempt_that_sent_nothing(tmp_path: Path) -> None:
    """The first call may have landed, though nobody could be reached afterwards."""
    provider = ScriptedProvider(answers=[LOST], objection=None)
    async with engine(tmp_path, provider, contract=SAFE) as rig:
        provider.objections = []
        await rig.intake.deliver([call()])
        provider.objection = REFUSED
        ended = await rig.settled()
        attempts = await rig.attempts()
    assert (ended.state, ended.effect, ended.reason) == (State.UNKNOWN, Effect.UNKNOWN, "connection_lost")
    assert attempts == [("unknown", "connection_lost")] + [("not_executed", "connect_failed")] * 2
    assert len(provider.executed) == 1


async def test_an_answer_is_the_receipt_where_no_later_attempt_was_sent(tmp_path: Path) -> None:
    """It was dispatched and answered, so it is no `not_executed`, though nothing happened."""
    error = PeerError(code=-32000, message="locked", data={"by": "somebody"})
    provider = ScriptedProvider(answers=[error])
    async with engine(tmp_path, provider, contract=replace(SAFE, error_means="none")) as rig:
        await rig.intake.deliver([call()])
        provider.objection = REFUSED
        ended = await rig.settled()
        last = await rig.last()
        result = await rig.journal.read(lambda view: view.result(ended.operation_id))
    assert (ended.state, ended.effect, ended.settled) == (State.FAILED, Effect.NONE, True)
    assert (last["attempt"], last["attempts"]) == (1, 3)
    assert last["error"] == {"code": "-32000", "message": "locked"}
    assert result is not None
    assert b"somebody" in result


@pytest.mark.parametrize(
    "answer",
    [
        Answered(result={}, is_error=True),
        PeerError(code=-32602, message="bad"),
        HttpStatus(status=404, result={}),
    ],
)
async def test_a_last_word_is_not_asked_for_twice(tmp_path: Path, answer: Report) -> None:
    """The provider has told what it thinks of this call."""
    provider = ScriptedProvider(answer=answer)
    async with engine(tmp_path, provider, contract=SAFE) as rig:
        await rig.intake.deliver([call()])
        ended = await rig.settled()
    assert (ended.state, ended.attempt_count, len(provider.executed)) == (State.FAILED, 1, 1)


@pytest.mark.parametrize("reason", ["invalid_arguments", "unknown_tool"])
async def test_a_wrong_call_is_not_tried_again(tmp_path: Path, reason: str) -> None:
    """It would be as wrong the next time, and it leaves no attempt."""
    objection = NotSent(reason=reason, message="no")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    provider = ScriptedProvider(objection=objection)
    async with engine(tmp_path, provider, contract=SAFE) as rig:
        await rig.intake.deliver([call()])
        ended = await rig.settled()
    assert (ended.state, ended.reason, ended.attempt_count) == (State.NOT_EXECUTED, reason, 0)


async def test_without_the_contract_nothing_is_tried_again(tmp_path: Path) -> None:
    """The control: the same failures, and one attempt."""
    provider = ScriptedProvider(answers=[LOST])
    async with engine(tmp_path, provider, contract=replace(SAFE, retry="never")) as rig:
        await rig.intake.deliver([call()])
        ended = await rig.settled()
    assert (ended.state, len(provider.executed)) == (State.UNKNOWN, 1)


async def test_between_two_attempts_the_slot_is_free(tmp_path: Path) -> None:
    """One that waits for its next try holds nobody up."""
    provider = ScriptedProvider(answers=[LOST])
    async with engine(tmp_path, provider, contract=PATIENT, bounds=limits(inflight_max=1)) as rig:
        await rig.intake.deliver([call(), call("cmd-2", arguments={"n": 2})])
        assert (await rig.settled("cmd-2")).state is State.SUCCEEDED
        resting = await rig.operation()
        assert (resting.state, resting.deadline_at, rig.dispatcher.depth) == (State.STARTED, None, 1)
        assert not rig.dispatcher.crowded


# ------------------------------------------------------------ rule R, as time passes


async def test_past_the_horizon_it_stops_by_itself(tmp_path: Path) -> None:
    """The provider may have forgotten the key: nobody knows, and nobody tries."""
    provider = ScriptedProvider(answers=[LOST])
    async with engine(tmp_path, provider, contract=PATIENT) as rig:
        await rig.intake.deliver([call()])
        await at_rest(rig)
        # by the wall clock alone there would be time for another attempt
        rig.clock.ahead, rig.clock.slept_s = timedelta(seconds=31), 71.0
        rig.dispatcher.pump()
        ended = await rig.settled()
    assert (ended.state, ended.reason, ended.attempt_count) == (State.UNKNOWN, "connection_lost", 1)
    assert len(provider.executed) == 1


async def test_a_clock_that_went_backwards_closes_the_horizon(tmp_path: Path) -> None:
    """Nobody can tell any more how long ago the first attempt was."""
    provider = ScriptedProvider(answers=[LOST])
    async with engine(tmp_path, provider, contract=PATIENT) as rig:
        await rig.intake.deliver([call()])
        await at_rest(rig)
        rig.clock.ahead = timedelta(minutes=-5)
    async with engine(tmp_path, provider, contract=SAFE, clock=rig.clock, confirmed=False) as rig:
        rig.clock.ahead = timedelta(minutes=-5)
        rig.desk.history_confirmed()
        rig.dispatcher.enqueue([replace(place, due_at=None) for place in rig.recovered.waiting])
        ended = await rig.settled()
    assert (ended.state, ended.attempt_count, len(provider.executed)) == (State.UNKNOWN, 1, 1)


async def test_a_horizon_that_is_shorter_than_an_attempt_allows_none(tmp_path: Path) -> None:
    """The whole budget of the attempt must end before it."""
    provider = ScriptedProvider(answers=[LOST])
    async with engine(tmp_path, provider, contract=replace(SAFE, dedupe_horizon_s=30.0)) as rig:
        await rig.intake.deliver([call()])
        ended = await rig.settled()
    assert (ended.state, len(provider.executed)) == (State.UNKNOWN, 1)


async def test_the_expiry_of_the_command_caps_every_attempt(tmp_path: Path) -> None:
    """A next attempt that could only begin after it is not waited for."""
    provider = ScriptedProvider(answers=[LOST])
    async with engine(tmp_path, provider, contract=PATIENT) as rig:
        await rig.intake.deliver([call(expires_in_ms=10_000)])
        ended = await rig.settled()
    assert (ended.state, ended.reason, len(provider.executed)) == (State.UNKNOWN, "connection_lost", 1)


async def test_what_expires_between_two_attempts_ends_as_all_of_them_prove(tmp_path: Path) -> None:
    """`unknown` where one may have happened; `not_executed/expired` only where none was sent."""
    provider = ScriptedProvider(answers=[LOST])
    async with engine(tmp_path, provider, contract=PATIENT) as rig:
        await rig.intake.deliver([call(expires_in_ms=60_000)])
        await at_rest(rig)
        provider.refusals = [REFUSED]
        await rig.intake.deliver([call("cmd-2", arguments={"n": 2}, expires_in_ms=60_000)])
        await at_rest(rig, 2)
        rig.clock.ahead = timedelta(minutes=2)
        rig.dispatcher.pump()
        sent, unsent = await rig.settled(), await rig.settled("cmd-2")
    assert (sent.state, sent.reason) == (State.UNKNOWN, "connection_lost")
    assert (unsent.state, unsent.reason, unsent.effect) == (State.NOT_EXECUTED, "expired", Effect.NONE)
    assert len(provider.executed) == 1


# ------------------------------------------------------------ cancel, drain, fence


@pytest.mark.parametrize("kind", ["command.cancel", "run.cancel"])
async def test_a_cancel_between_two_attempts_ends_the_operation(tmp_path: Path, kind: str) -> None:
    """In the cancel's own commit, as its attempts prove; nothing is tried afterwards."""
    provider = ScriptedProvider(answers=[LOST])
    async with engine(tmp_path, provider, contract=PATIENT) as rig:
        await rig.intake.deliver([call()])
        await at_rest(rig)
        provider.refusals = [REFUSED]
        await rig.intake.deliver([call("cmd-2", arguments={"n": 2})])
        await at_rest(rig, 2)
        cancels = (
            [command(kind, "cancel-1")]
            if kind == "run.cancel"
            else [
                command(kind, "cancel-1", target_command_id="cmd-1"),
                command(kind, "cancel-2", target_command_id="cmd-2"),
            ]
        )
        await rig.intake.deliver(cancels)
        sent, unsent = await rig.operation(), await rig.operation("cmd-2")
        assert rig.dispatcher.depth == 0
    assert (sent.state, sent.reason) == (State.UNKNOWN, "connection_lost")
    assert (unsent.state, unsent.reason) == (State.NOT_EXECUTED, "cancelled")


async def test_a_cancel_of_a_running_attempt_is_the_last_of_them(tmp_path: Path) -> None:
    """Somebody wanted it stopped: no contract starts it again."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN)
    async with engine(tmp_path, provider, contract=SAFE) as rig:
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
        await rig.intake.deliver([command("run.cancel", "cancel-1")])
        ended = await rig.settled()
    assert (ended.state, ended.reason) == (State.UNKNOWN, "cancelled_after_dispatch")
    assert len(provider.executed) == 1


async def test_a_cancel_while_a_further_attempt_is_prepared(tmp_path: Path) -> None:
    """The earlier attempt keeps its word, and no intent follows."""
    provider = ScriptedProvider(answers=[LOST])
    async with engine(tmp_path, provider, contract=SAFE) as rig:
        provider.held_in_prepare = True
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
        await rig.intake.deliver([command("command.cancel", "cancel-1", target_command_id="cmd-1")])
        ended = await rig.settled()
        kinds = await rig.kinds()
    assert (ended.state, ended.reason, kinds.count("operation.started")) == (
        State.UNKNOWN,
        "connection_lost",
        1,
    )


async def test_a_drain_keeps_what_rests_for_the_next_life(tmp_path: Path) -> None:
    """It ends at once, for nothing runs; the next life goes on with the next attempt."""
    provider = ScriptedProvider(answers=[LOST])
    async with engine(tmp_path, provider, contract=PATIENT) as rig:
        await rig.intake.deliver([call()])
        await at_rest(rig)
        rig.posture.draining = True
        await rig.dispatcher.drain()
        assert (await rig.operation()).state is State.STARTED
    async with engine(tmp_path, provider, contract=SAFE) as rig:
        ended = await rig.settled()
    assert (ended.state, ended.attempt_count) == (State.SUCCEEDED, 2)


async def test_a_fenced_daemon_tries_nothing_again(tmp_path: Path) -> None:
    """What ran is recorded, as the end that it is."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN, answers=[LOST])
    async with engine(tmp_path, provider, contract=SAFE) as rig:
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
        await rig.desk.fence("forked", "another history")
        provider.gate.set()
        ended = await rig.settled()
    assert (ended.state, ended.reason, len(provider.executed)) == (State.UNKNOWN, "connection_lost", 1)


@pytest.mark.parametrize(
    ("late", "state", "executed"),
    [
        (Answered(result={"id": 1}), State.SUCCEEDED, 1),
        (PeerError(code=-32000, message="no"), State.SUCCEEDED, 2),
    ],
)
async def test_a_late_answer_holds_back_an_attempt_that_waits_for_its_provider(
    tmp_path: Path, late: Report, state: State, executed: int
) -> None:
    """The last look was before the answer; one that proves nothing holds back nothing."""
    provider = ScriptedProvider(answers=[LOST])
    async with engine(tmp_path, provider, contract=PATIENT) as rig:
        await rig.intake.deliver([call()])
        await at_rest(rig)
        provider.held_at = Phase.CONNECTING
        rig.clock.pass_by(31)
        rig.dispatcher.pump()
        await provider.arrived.wait()
        rig.dispatcher.late((await rig.operation()).operation_id, 1, late)
        await rig.quiet()
        provider.gate.set()
        ended = await rig.settled()
    assert (ended.state, len(provider.executed)) == (state, executed)
