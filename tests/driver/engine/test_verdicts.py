"""`operation.reconcile` and `operation.annotate`: what people say of an operation, and what follows."""

import json
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs

from driver.core.answers import Done, NotDone
from driver.core.attempts import Answered, Phase, Silence
from driver.core.contracts import Contract
from driver.core.frames import CommandFrame
from driver.core.verdicts import Record, Ruling
from store.lifecycle import Effect, Source, State
from store.records import CommandId, JsonObject, RunId
from tests.driver.engine.rig import RUN, Rig, ScriptedProvider, call, engine

pytestmark = pytest.mark.anyio

LOST = Silence(cause="connection_lost", message="gone")
FAILED = Answered(result={"isError": True, "content": []}, is_error=True)


def verdict(operation_id: str, command_id: str = "v-1", **data: object) -> CommandFrame:
    """An operator's word over the plane."""
    return _command("operation.reconcile", command_id, operation_id, _VERDICT | data)


def annotation(operation_id: str, metadata: JsonObject, command_id: str = "a-1") -> CommandFrame:
    """The host's reference."""
    return _command("operation.annotate", command_id, operation_id, {"metadata": metadata})


_VERDICT: dict[str, object] = {
    "effect": "occurred",
    "actor": "ann",
    "note": "saw it",
    "evidence": ["ticket 7"],
}


def _command(kind: str, command_id: str, operation_id: str, data: dict[str, object]) -> CommandFrame:
    raw: JsonObject = json.loads(json.dumps({"operation_id": operation_id, **data}))
    # the run of a verdict need not be the operation's
    return CommandFrame(command_id=CommandId(command_id), run_id=RunId("desk"), kind=kind, data=raw)


async def said(rig: Rig, kind: str) -> list[JsonObject]:
    """What the events of one kind say."""
    return [json.loads(event.body or b"")["data"] for event in await rig.events() if event.kind == kind]


async def receipt(rig: Rig, command_id: str) -> tuple[str, JsonObject]:
    """What became of a command."""
    (found,) = [event for event in await rig.events() if event.terminal and event.command_id == command_id]
    data: JsonObject = json.loads(found.body or b"")["data"]
    return found.kind, data


async def lost(rig: Rig) -> str:
    """An operation whose outcome nobody knows."""
    await rig.intake.deliver([call()])
    return (await rig.settled()).operation_id


async def test_a_verdict_settles_and_says_whose_word_it_is(tmp_path: Path) -> None:
    """With its provenance: the intent of the attempt that it is about; nothing is executed."""
    async with engine(tmp_path, provider := ScriptedProvider(answer=LOST)) as rig:
        operation_id = await lost(rig)
        await rig.intake.deliver([verdict(operation_id)])
        found = await rig.operation()
        (word,) = await said(rig, "operation.reconciled")
        kind, data = await receipt(rig, "v-1")
        await rig.quiet()
    assert (found.state, found.effect, found.effect_by) == (State.UNKNOWN, Effect.OCCURRED, Source.OPERATOR)
    assert (found.settled, found.best_effort) == (True, False)
    assert word == {
        "effect": "occurred",
        "actor": "operator:ann",
        "basis": "operator",
        "note": "saw it",
        "evidence": ["ticket 7"],
        "started_seq": found.started_seq,
        "supersedes": 3,
    }
    assert (kind, data["result"]) == (
        "command.completed",
        {"operation_id": operation_id, "effect": "occurred", "seq": 5, "recorded": True},
    )
    assert len(provider.executed) == 1


@pytest.mark.parametrize("name", ["supervisor:gpt", "probe:git_log", "daemon:proof", "shim:1", "provider"])
async def test_the_plane_speaks_as_an_operator_whatever_it_says(tmp_path: Path, name: str) -> None:
    """What a word is worth follows from who says it, so nobody can borrow another's rank."""
    async with engine(tmp_path, ScriptedProvider(answer=LOST)) as rig:
        operation_id = await lost(rig)
        await rig.intake.deliver([verdict(operation_id, actor=name)])
        found = await rig.operation()
        (word,) = await said(rig, "operation.reconciled")
    assert (word["actor"], found.effect_by) == (f"operator:{name}", Source.OPERATOR)


@pytest.mark.parametrize("name", ["delegation", "operator:delegation"])
async def test_nobody_has_the_name_of_what_follows_from_child_runs(tmp_path: Path, name: str) -> None:
    """Those words replace each other, and a person's must not be taken for one of them."""
    async with engine(tmp_path, ScriptedProvider(answers=[LOST])) as rig:
        await rig.intake.deliver([call()])
        operation_id = (await rig.settled()).operation_id
        await rig.intake.deliver([verdict(operation_id, actor=name)])
        (word,) = await said(rig, "operation.reconciled")
    assert word["actor"] == "operator:operator:delegation"


async def test_the_same_again_is_answered_with_the_same_event(tmp_path: Path) -> None:
    """And recorded once, under whatever command it comes."""
    async with engine(tmp_path, ScriptedProvider(answer=LOST)) as rig:
        operation_id = await lost(rig)
        await rig.intake.deliver([verdict(operation_id), verdict(operation_id, "v-2", override=True)])
        assert len(await said(rig, "operation.reconciled")) == 1
        _, first = await receipt(rig, "v-1")
        _, second = await receipt(rig, "v-2")
    assert isinstance(first["result"], dict)
    assert second["result"] == first["result"] | {"recorded": False}


async def test_of_two_operators_at_once_one_wins_and_the_other_is_told(tmp_path: Path) -> None:
    """None is lost, and none is silently overwritten."""
    async with engine(tmp_path, ScriptedProvider(answer=LOST)) as rig:
        operation_id = await lost(rig)
        async with anyio.create_task_group() as tasks:
            for number, effect in enumerate(["none", "occurred"] * 8):
                frame = verdict(operation_id, f"v-{number}", effect=effect, note=f"by {number}")
                tasks.start_soon(rig.intake.deliver, [frame])
        words = await said(rig, "operation.reconciled")
        receipts = [(await receipt(rig, f"v-{number}")) for number in range(16)]
        found = await rig.operation()
    assert len(words) == 1
    assert found.effect == words[0]["effect"]
    codes = [data.get("code") for _, data in receipts]
    assert (codes.count(None), codes.count("already_settled")) == (1, 15)


async def test_without_the_rule_each_of_two_operators_would_believe_to_have_won(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: it is the rule, in the transaction, that tells the second one."""

    def always(*_: object, **__: object) -> Ruling:
        return Record()

    monkeypatch.setattr("driver.engine.verdicts.rule", always)
    async with engine(tmp_path, ScriptedProvider(answer=LOST)) as rig:
        operation_id = await lost(rig)
        words = [verdict(operation_id, f"v-{effect}", effect=effect) for effect in ("none", "occurred")]
        await rig.intake.deliver(words)
        assert len(await said(rig, "operation.reconciled")) == 2


async def test_an_override_replaces_an_operators_word_and_nothing_stronger(tmp_path: Path) -> None:
    """Both words stay in the journal; the newest stands."""
    async with engine(tmp_path, ScriptedProvider(answers=[LOST])) as rig:
        operation_id = await lost(rig)
        await rig.intake.deliver(
            [
                verdict(operation_id),
                verdict(operation_id, "v-2", effect="none", note="not there"),
                verdict(operation_id, "v-3", effect="none", note="", override=True),
                verdict(operation_id, "v-4", effect="none", note="not there", override=True),
            ]
        )
        codes = [(await receipt(rig, f"v-{number}"))[1].get("code") for number in range(1, 5)]
        found = await rig.operation()
        await rig.intake.deliver([call("cmd-2", arguments={"n": 2})])
        succeeded = (await rig.settled("cmd-2")).operation_id
        await rig.intake.deliver([verdict(succeeded, "v-5", effect="none", override=True)])
        _, refused = await receipt(rig, "v-5")
    assert codes == [None, "already_settled", "note_required", None]
    assert (found.effect, found.effect_by) == (Effect.NONE, Source.OPERATOR)
    assert refused["code"] == "outranked"


async def test_a_reported_failure_takes_a_verdict_without_an_override(tmp_path: Path) -> None:
    """The provider's error proved nothing, so nothing is overridden."""
    async with engine(tmp_path, ScriptedProvider(answer=FAILED)) as rig:
        await rig.intake.deliver([call()])
        before = await rig.settled()
        await rig.intake.deliver([verdict(before.operation_id)])
        found = await rig.operation()
    assert (before.state, before.effect) == (State.FAILED, Effect.UNKNOWN)
    assert (found.effect, found.effect_by) == (Effect.OCCURRED, Source.OPERATOR)


async def test_while_it_runs_there_is_nothing_to_settle(tmp_path: Path) -> None:
    """The attempt may still end either way."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN)
    async with engine(tmp_path, provider) as rig:
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
        operation_id = (await rig.operation()).operation_id
        await rig.intake.deliver([verdict(operation_id)])
        _, refused = await receipt(rig, "v-1")
        provider.gate.set()
        found = await rig.settled()
    assert refused["code"] == "still_running"
    assert found.state is State.SUCCEEDED


async def test_a_late_answer_is_admitted_after_a_verdict_and_decides(tmp_path: Path) -> None:
    """The provider knows better than anybody who looked."""
    async with engine(tmp_path, ScriptedProvider(answer=LOST)) as rig:
        operation_id = await lost(rig)
        await rig.intake.deliver([verdict(operation_id, effect="none")])
        rig.dispatcher.late((await rig.operation()).operation_id, 1, Answered(result={"content": []}))
        found = await rig.until(lambda record: record.effect is Effect.OCCURRED)
        assert "operation.diverged" not in await rig.kinds()
    assert found.effect_by is Source.PROVIDER


async def test_a_contradiction_of_the_provider_with_itself_is_an_alarm(tmp_path: Path) -> None:
    """In the journal, and in the log as an error."""
    contract = Contract(declared=True, error_means="none")
    async with engine(tmp_path, ScriptedProvider(answer=FAILED), contract=contract) as rig:
        await rig.intake.deliver([call()])
        before = await rig.settled()
        with capture_logs() as logs:
            rig.dispatcher.late(before.operation_id, 1, Answered(result={"content": []}))
            await rig.reaches("operation.diverged")
            await rig.quiet()
        found = await rig.operation()
    assert (before.effect, found.state, found.effect) == (Effect.NONE, State.FAILED, Effect.OCCURRED)
    (alarm,) = [log for log in logs if log["event"] == "operation_diverged"]
    assert (alarm["log_level"], alarm["evidence"]) == ("error", [3, 4])


async def test_a_verdict_survives_a_restart_and_is_still_the_same_one(tmp_path: Path) -> None:
    """What it is compared with is in the journal."""
    async with engine(tmp_path, ScriptedProvider(answer=LOST)) as rig:
        operation_id = await lost(rig)
        await rig.intake.deliver([verdict(operation_id)])
    async with engine(tmp_path, ScriptedProvider(answer=LOST)) as rig:
        await rig.intake.deliver([verdict(operation_id, "v-2")])
        assert len(await said(rig, "operation.reconciled")) == 1
        assert (await rig.operation()).effect is Effect.OCCURRED


async def test_what_another_journal_may_have_executed_can_be_settled_once(tmp_path: Path) -> None:
    """An operation without an attempt here has one somewhere, perhaps: somebody can find out."""
    async with engine(tmp_path, ScriptedProvider()) as rig:
        await rig.intake.deliver([call(delivered_to=("f" * 32,))])
        operation_id = (await rig.settled()).operation_id
        await rig.intake.deliver([verdict(operation_id), verdict(operation_id, "v-2")])
        (word,) = await said(rig, "operation.reconciled")
        _, again = await receipt(rig, "v-2")
        found = await rig.operation()
    assert (found.reason, found.effect, found.settled) == ("journal_lost", Effect.OCCURRED, True)
    assert word["started_seq"] is None
    assert isinstance(again["result"], dict)
    assert again["result"]["recorded"] is False


async def test_what_is_not_known_cannot_be_settled_or_annotated(tmp_path: Path) -> None:
    """The receipt says so; the journal stays as it was."""
    nobody = f"op_{0:032x}"
    async with engine(tmp_path, ScriptedProvider()) as rig:
        await rig.intake.deliver([verdict(nobody), annotation(nobody, {"id": "1"})])
        assert [(await receipt(rig, name))[1]["code"] for name in ("v-1", "a-1")] == ["unknown_operation"] * 2


@pytest.mark.parametrize(
    "data",
    [
        {"note": "x" * 2_001},
        {"note": "é" * 1_001},
        {"effect": "maybe"},
        {"note": None},
        {"evidence": ["e"] * 33},
        {"evidence": "ticket 7"},
    ],
)
async def test_what_is_no_verdict_is_refused_for_good(tmp_path: Path, data: dict[str, object]) -> None:
    """A long note is refused, and never cut."""
    async with engine(tmp_path, ScriptedProvider(answer=LOST)) as rig:
        operation_id = await lost(rig)
        await rig.intake.deliver([verdict(operation_id, "v-1", **data)])
        kind, refusal = await receipt(rig, "v-1")
    assert (kind, refusal["code"]) == ("command.refused", "invalid")


async def test_an_annotation_is_kept_told_and_replaced_at_any_time(tmp_path: Path) -> None:
    """While it waits, when it has ended, and after a restart; the same again records nothing."""
    async with engine(tmp_path, ScriptedProvider(held_at=Phase.WRITTEN)) as rig:
        provider = rig.provider
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
        operation_id = (await rig.operation()).operation_id
        await rig.intake.deliver([annotation(operation_id, {"id": "42"})])
        assert (await rig.operation()).metadata == {"id": "42"}
        provider.gate.set()
        assert (await rig.settled()).metadata == {"id": "42"}
    async with engine(tmp_path, ScriptedProvider()) as rig:
        both: JsonObject = {"id": "42", "url": "https://example.test/42"}
        await rig.intake.deliver(
            [annotation(operation_id, both, "a-2"), annotation(operation_id, both, "a-3")]
        )
        found = await rig.operation()
        words = await said(rig, "operation.annotated")
        first, again = await receipt(rig, "a-2"), await receipt(rig, "a-3")
    assert found.metadata == both
    assert words == [{"metadata": {"id": "42"}}, {"metadata": both}]
    for (kind, data), recorded in ((first, True), (again, False)):
        assert kind == "command.completed"
        assert data["result"] == {"operation_id": operation_id, "recorded": recorded}


async def test_the_local_desk_says_what_came_of_a_verdict(tmp_path: Path) -> None:
    """It is a command as any other, with its own id."""
    async with engine(tmp_path, ScriptedProvider(answer=LOST)) as rig:
        operation_id = await lost(rig)
        data: JsonObject = {
            "operation_id": operation_id,
            "effect": "none",
            "actor": "operator:1000",
            "note": "",
            "label": "ann",
        }
        first = await rig.local.submit("operation.reconcile", RUN, data)
        other = await rig.local.submit("operation.reconcile", RUN, data | {"effect": "occurred"})
        (word,) = await said(rig, "operation.reconciled")
    assert isinstance(first, Done)
    assert first.result == {"operation_id": operation_id, "effect": "none", "seq": 5, "recorded": True}
    assert isinstance(other, NotDone)
    assert other.code == "already_settled"
    assert (word["actor"], word["label"]) == ("operator:1000", "ann")
