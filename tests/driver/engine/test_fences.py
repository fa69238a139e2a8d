"""Fences, as the engine raises and lifts them: what stands, what becomes of what runs and waits."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from driver.core.answers import Repeat, Reply, Silent
from driver.core.attempts import NotSent, Phase
from driver.core.unfencing import StillFenced, Unfenced
from driver.engine.fences import Fences
from store.events import Draft, OperationReconciled
from store.lifecycle import Effect, State
from store.marks import SUPERSEDED, TOLD
from store.records import CommandId, JsonObject
from store.view import View
from tests.driver.engine.rig import Rig, ScriptedProvider, call, command, engine

pytestmark = pytest.mark.anyio

OPERATOR = "operator:0"


def fences(rig: Rig) -> Fences:
    """What raises and lifts fences."""
    return rig.engine.fences


async def news(rig: Rig) -> list[JsonObject]:
    """What the daemon said of itself, in order, over all histories of the file."""
    found = await rig.journal.read(lambda view: view.events(0, 1_000, 16_000_000))
    frames: list[JsonObject] = [json.loads(event.body or b"") for event in found]
    return [frame for frame in frames if str(frame["kind"]).startswith("driver.")]


async def unfence(rig: Rig, *, accept_rollback: bool) -> Unfenced:
    """Lift the fence; the plane confirms the history at once."""
    found = await fences(rig).lift(accept_rollback=accept_rollback, actor=OPERATOR)
    assert isinstance(found, Unfenced)
    rig.desk.history_confirmed()
    return found


@pytest.mark.parametrize("accept_rollback", [False, True])
async def test_without_a_fence_there_is_nothing_to_lift(tmp_path: Path, *, accept_rollback: bool) -> None:
    """Neither way changes anything: above all, no history ends by mistake."""
    async with engine(tmp_path, ScriptedProvider()) as rig:
        before = await rig.journal.read(lambda view: (view.journal_id, view.last_seq))
        found = await fences(rig).lift(accept_rollback=accept_rollback, actor=OPERATOR)
        assert isinstance(found, StillFenced)
        assert found.code == "not_fenced"
        assert await rig.journal.read(lambda view: (view.journal_id, view.last_seq)) == before


@pytest.mark.parametrize("reason", ["rolled_back", "forked", "conflict"])
async def test_another_history_must_be_accepted(tmp_path: Path, reason: str) -> None:
    """Going on with this one cannot work: the refusal says what can."""
    async with engine(tmp_path, ScriptedProvider()) as rig:
        await rig.desk.fence(reason, "d")
        found = await fences(rig).lift(accept_rollback=False, actor=OPERATOR)
        assert isinstance(found, StillFenced)
        assert found.code == "rollback_not_accepted"
        assert "effectd unfence --accept-rollback" in found.message
        assert rig.posture.fence is not None


async def test_after_a_takeover_the_same_history_goes_on(tmp_path: Path) -> None:
    """The event names who lifted it; nothing is dispatched before the plane confirmed it again."""
    async with engine(tmp_path, ScriptedProvider()) as rig:
        await rig.desk.fence("superseded", "by another life")
        journal_id = await rig.journal.read(lambda view: view.journal_id)
        found = await fences(rig).lift(accept_rollback=False, actor=OPERATOR)
        assert isinstance(found, Unfenced)
        assert (found.journal_id, found.previous_journal_id) == (journal_id, None)
        (event,) = [e for e in await news(rig) if e["kind"] == "driver.unfenced"]
        assert event["data"] == {"reason": "superseded", "actor": OPERATOR}
        await rig.intake.deliver([call()])
        assert rig.provider.executed == []
        rig.desk.history_confirmed()
        await rig.reaches("operation.succeeded")


async def test_a_takeover_is_remembered_beside_another_fence(tmp_path: Path) -> None:
    """It survives a restart, and goes with the fence; the reason stays the first one."""
    async with engine(tmp_path, ScriptedProvider()) as rig:
        await rig.desk.fence("rolled_back", "d")
        await rig.desk.fence("superseded", "by another life")
    async with engine(tmp_path, ScriptedProvider()) as rig:
        await fences(rig).resume()
        assert rig.posture.fence is not None
        assert rig.posture.fence.reason == "rolled_back"
        assert await rig.journal.read(lambda view: view.mark(SUPERSEDED)) == "by another life"
        await unfence(rig, accept_rollback=True)
        assert await rig.journal.read(lambda view: view.mark(SUPERSEDED)) is None


async def test_a_restored_backup_comes_up_fenced(tmp_path: Path) -> None:
    """It is told of once, and stands over restarts; with the plane's word another history begins."""
    async with engine(tmp_path, ScriptedProvider()) as rig:
        await rig.journal.transact(lambda tx: tx.raise_fence("restored_backup", "of a day"))
    for _ in range(2):
        async with engine(tmp_path, ScriptedProvider()) as rig:
            await fences(rig).resume()
            assert rig.posture.fence is not None
            assert rig.posture.fence.reason == "restored_backup"
            assert [e["kind"] for e in await news(rig)].count("driver.fenced") == 1
    async with engine(tmp_path, ScriptedProvider()) as rig:
        await fences(rig).resume()
        old, seq = await rig.journal.read(lambda view: (view.journal_id, view.last_seq))
        await rig.desk.agree()
        assert rig.posture.fence is None
        assert not rig.posture.may_dispatch
        told = (await news(rig))[-1]
        assert (told["kind"], told["seq"]) == ("driver.unfenced", 1)
        assert told["journal_id"] != old
        data = told["data"]
        assert isinstance(data, dict)
        assert (data["reason"], data["actor"]) == ("restored_backup", "plane")
        assert (data["previous_journal_id"], data["previous_seq"]) == (old, seq)
        assert await rig.journal.read(lambda view: view.mark(TOLD)) is None


@pytest.mark.parametrize("accept_rollback", [False, True])
async def test_an_operator_who_agrees_to_a_restored_backup_begins_another_history(
    tmp_path: Path, *, accept_rollback: bool
) -> None:
    """With the option or without: under the old name, what was given after the backup would run again."""
    async with engine(tmp_path, ScriptedProvider(), confirmed=False) as rig:
        await rig.intake.deliver([call()])
        await rig.desk.fence("restored_backup", "d")
        old = await rig.journal.read(lambda view: view.journal_id)
        found = await unfence(rig, accept_rollback=accept_rollback)
        assert (found.previous_journal_id, found.unknown) == (old, 1)
        assert (await rig.operation()).reason == "rolled_back"
        (answer,) = await rig.intake.deliver([replace(call("cmd-2"), delivered_to=(old,))])
        assert isinstance(answer, Silent)
        assert (await rig.operation("cmd-2")).reason == "journal_lost"
        await rig.intake.deliver([call("cmd-3", arguments={"n": 3})])
        await rig.reaches("operation.succeeded")
        assert len(rig.provider.executed) == 1


@pytest.mark.parametrize("reason", ["superseded", "rolled_back", None])
async def test_the_plane_agrees_to_restored_backups_alone(tmp_path: Path, reason: str | None) -> None:
    """Under another fence, or none, its word ends no history."""
    async with engine(tmp_path, ScriptedProvider()) as rig:
        if reason is not None:
            await rig.desk.fence(reason, "d")
        before = await rig.journal.read(lambda view: (view.journal_id, view.last_seq))
        await rig.desk.agree()
        assert await rig.journal.read(lambda view: (view.journal_id, view.last_seq)) == before
        assert (rig.posture.fence is None) is (reason is None)


async def test_a_restored_backup_that_is_too_old_is_fenced_for_that(tmp_path: Path) -> None:
    """The plane knows more than the backup: its agreement is no way out any more, nor is an operator's."""
    async with engine(tmp_path, ScriptedProvider()) as rig:
        await rig.desk.fence("restored_backup", "d")
        await rig.desk.fence("rolled_back", "the plane has acknowledged more")
        assert rig.posture.fence is not None
        assert rig.posture.fence.reason == "rolled_back"
        await rig.desk.agree()
        assert rig.posture.fence is not None


async def test_what_waited_never_runs_after_an_accepted_rollback(tmp_path: Path) -> None:
    """It is unknown, not executed; its redelivery hears that, and new calls run as ever."""
    async with engine(tmp_path, ScriptedProvider(), confirmed=False) as rig:
        await rig.intake.deliver([call()])
        await rig.desk.fence("rolled_back", "d")
        found = await unfence(rig, accept_rollback=True)
        assert found.unknown == 1
        (answer,) = await rig.intake.deliver([call()])
        assert isinstance(answer, Repeat)
        assert [event.kind for event in answer.events] == ["command.accepted", "operation.unknown"]
        await rig.intake.deliver([call("cmd-2", arguments={"n": 2})])
        await rig.reaches("operation.succeeded")
        assert [made.operation_id for made in rig.provider.executed] == [
            (await rig.operation("cmd-2")).operation_id
        ]


async def test_what_runs_is_heard_out_after_an_accepted_rollback(tmp_path: Path) -> None:
    """Its operation is unknown by then, and the answer settles that, late: nothing is lost."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN)
    async with engine(tmp_path, provider) as rig:
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
        await rig.desk.fence("forked", "d")
        await unfence(rig, accept_rollback=True)
        assert (await rig.operation()).state is State.UNKNOWN
        provider.gate.set()
        await rig.reaches("operation.late_result")
        record = await rig.operation()
        assert (record.state, record.effect, record.settled) == (State.UNKNOWN, Effect.OCCURRED, True)
        await rig.dispatcher.slots.all_given_back()


async def test_what_is_known_from_before_is_retired(tmp_path: Path) -> None:
    """A redelivered command of the old history executes nothing, and is answered with what is left of it."""
    async with engine(tmp_path, ScriptedProvider()) as rig:
        await rig.intake.deliver([call()])
        await rig.reaches("operation.succeeded")
        old, seq = await rig.journal.read(lambda view: (view.journal_id, view.last_seq))
        await rig.journal.transact(lambda tx: tx.acknowledge(tx.last_seq))
        await rig.desk.fence("forked", "d")
        await unfence(rig, accept_rollback=True)
        (answer,) = await rig.intake.deliver([call()])
        assert isinstance(answer, Reply)
        frame = json.loads(answer.frame)
        assert (frame["type"], frame["kind"], frame["effect"]) == (
            "retired",
            "operation.succeeded",
            "occurred",
        )
        assert (frame["journal_id"], frame["seq"]) == (old, seq)
        assert len(rig.provider.executed) == 1


async def retry(rig: Rig, command_id: str) -> JsonObject:
    """Ask for another attempt of cmd-1's operation, and return the receipt's data."""
    record = await rig.operation()
    frame = command("operation.retry", command_id, operation_id=record.operation_id)
    await rig.intake.deliver([frame])

    def receipt(view: View) -> JsonObject:
        asked = view.command(CommandId(command_id))
        assert asked is not None
        event = None if asked.receipt_seq is None else view.event(asked.receipt_seq)
        assert event is not None
        data: JsonObject = json.loads(event.body or b"")["data"]
        return data

    return await rig.journal.read(receipt)


async def test_a_none_from_before_does_not_allow_another_attempt(tmp_path: Path) -> None:
    """Whoever went on with the other history may have tried again; a `none` from now on counts."""
    provider = ScriptedProvider(objection=NotSent(reason="connect_failed", message="nobody there"))
    async with engine(tmp_path, provider) as rig:
        await rig.intake.deliver([call()])
        record = await rig.settled()
        assert (record.state, record.effect) == (State.NOT_EXECUTED, Effect.NONE)
        await rig.journal.transact(lambda tx: tx.acknowledge(tx.last_seq))
        await rig.desk.fence("forked", "d")
        await unfence(rig, accept_rollback=True)
        provider.objection = None
        assert (await rig.operation()).effect is Effect.NONE
        assert (await retry(rig, "cmd-2"))["code"] == "not_proven_none"
        verdict = OperationReconciled(
            effect=Effect.NONE, actor=OPERATOR, basis="operator", note="n", evidence=(), started_seq=None
        )
        await rig.journal.transact(
            lambda tx: tx.append(Draft(data=verdict, operation_id=record.operation_id))
        )
        await rig.intake.deliver([command("operation.retry", "cmd-3", operation_id=record.operation_id)])
        await rig.reaches("operation.succeeded")
        assert len(provider.executed) == 1


async def test_a_fence_holds_back_what_waits_for_its_provider(tmp_path: Path) -> None:
    """The last look was before the fence, and a server that has to be started anew takes its time."""
    provider = ScriptedProvider(held_at=Phase.CONNECTING)
    async with engine(tmp_path, provider) as rig:
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
        await rig.desk.fence("superseded", "by another life")
        ended = await rig.settled()
        provider.gate.set()
        await rig.quiet()
    assert (ended.state, ended.reason, provider.executed) == (State.NOT_EXECUTED, "fenced", [])


async def test_a_fence_changes_nothing_about_what_has_left(tmp_path: Path) -> None:
    """Its answer is heard."""
    provider = ScriptedProvider(held_at=Phase.WRITING)
    async with engine(tmp_path, provider) as rig:
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
        await rig.desk.fence("superseded", "by another life")
        provider.gate.set()
        ended = await rig.settled()
    assert (ended.state, len(provider.executed)) == (State.SUCCEEDED, 1)
