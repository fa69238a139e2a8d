"""What a contract withholds: it reaches the provider, and nothing that anybody is told."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from driver.core.answers import Repeat, Reply
from driver.core.attempts import Answered, NotSent, PeerError, Report, Silence
from driver.core.codec import parse_from_plane
from driver.core.contracts import Contract, MetaKey
from driver.core.expressions import Expression
from driver.core.frames import CommandFrame, InvalidCommand
from driver.core.identity import args_digest, content_digest
from driver.core.redaction import MARKER, Redaction
from store.records import CommandId, Identical, JsonObject, JsonValue
from tests.driver.engine.rig import RUN, Rig, ScriptedProvider, call, engine

pytestmark = pytest.mark.anyio

TOKEN = "tok_9f8e7d6c5b4a"
EMAIL = "alice@example.com"
ARGUMENTS: JsonObject = {"token": TOKEN, "title": "a title", "n": 1}
PLAIN = Contract(declared=True, execution_s=5.0)
REDACTED = replace(PLAIN, redact=Redaction(("arguments.token", "result.structuredContent.people.*.email")))


def secret(command_id: str = "cmd-1", **more: JsonValue) -> CommandFrame:
    """A call with a secret in its arguments."""
    return call(command_id, arguments=ARGUMENTS | more)


async def told(rig: Rig) -> str:
    """Everything that the plane is told."""
    return "\n".join((event.body or b"").decode() for event in await rig.events())


async def data(rig: Rig, kind: str) -> JsonObject:
    """The data of the newest event of this kind."""
    found = [event for event in await rig.events() if event.kind == kind][-1]
    assert found.body is not None
    members: JsonObject = json.loads(found.body)["data"]
    return members


async def test_a_secret_reaches_the_provider_and_no_event(tmp_path: Path) -> None:
    """The call is made with what was asked for; its events say nothing of it, and their digests are keyed."""
    answer = Answered(
        result={
            "content": [{"type": "text", "text": f"stored {TOKEN} for {EMAIL}"}],
            "structuredContent": {"id": 7, "people": [{"email": EMAIL}]},
            "_meta": {"echo": TOKEN},
        }
    )
    contract = replace(REDACTED, receipt=Expression("result.structuredContent.id"))
    async with engine(tmp_path, provider := ScriptedProvider(answer=answer), contract=contract) as rig:
        await rig.intake.deliver([secret()])
        operation = await rig.settled()
        key = rig.journal.key
        accepted, succeeded = await data(rig, "command.accepted"), await data(rig, "operation.succeeded")
        stream = await told(rig)
    assert provider.executed[0].arguments == ARGUMENTS
    assert TOKEN not in stream
    assert EMAIL not in stream
    assert succeeded["result"] == {
        "content": [{"type": "text", "text": MARKER}],
        "structuredContent": {"id": 7, "people": [{"email": MARKER}]},
        "_meta": {"echo": MARKER},
    }
    assert (succeeded["receipt"], operation.receipt) == (7, 7)
    asked: JsonObject = {"tool": "tools/act", "arguments": ARGUMENTS}
    assert accepted["args_digest"] == args_digest("tools/act", ARGUMENTS, key.digest)
    assert accepted["content_digest"] == content_digest("tool.call", RUN, asked, key.digest)
    assert accepted["payload_digest"] == key.digest(json.dumps(asked, separators=(",", ":")).encode())


async def test_without_redaction_all_of_it_is_told(tmp_path: Path) -> None:
    """Negative control: the same call, the same search."""
    answer = Answered(result={"structuredContent": {"people": [{"email": EMAIL}]}, "echo": TOKEN})
    async with engine(tmp_path, ScriptedProvider(answer=answer), contract=PLAIN) as rig:
        await rig.intake.deliver([secret()])
        await rig.settled()
        accepted = await data(rig, "command.accepted")
        stream = await told(rig)
    assert TOKEN in stream
    assert EMAIL in stream
    assert accepted["args_digest"] == args_digest("tools/act", ARGUMENTS)


@pytest.mark.parametrize(
    "report",
    [
        Answered(result={"content": [{"type": "text", "text": f"no {TOKEN}"}]}, is_error=True),
        PeerError(code=-32602, message=f"bad {TOKEN}", data={"input": TOKEN}),
        Silence(cause="protocol_error", message=f"the server sent {TOKEN}"),
        NotSent(reason="connect_failed", message=f"no route for {TOKEN}"),
    ],
)
async def test_an_error_does_not_bring_a_secret_back(tmp_path: Path, report: Report) -> None:
    """Whoever words it: the tool, its protocol, or we ourselves."""
    async with engine(tmp_path, ScriptedProvider(answer=report), contract=REDACTED) as rig:
        await rig.intake.deliver([secret()])
        await rig.settled()
        assert TOKEN not in await told(rig)


async def test_an_objection_does_not_bring_a_secret_back(tmp_path: Path) -> None:
    """A refusal before anything is sent may say what is wrong with an argument, not which it is."""
    objection = NotSent(reason="invalid_arguments", message=f"$.token '{TOKEN}' is too short")
    async with engine(tmp_path, ScriptedProvider(objection=objection), contract=REDACTED) as rig:
        await rig.intake.deliver([secret()])
        await rig.settled()
        assert (await data(rig, "operation.not_executed"))["message"] == f"$.token '{MARKER}' is too short"


async def test_a_receipt_that_would_tell_is_missing(tmp_path: Path) -> None:
    """A reference that quotes a secret is kept by nobody, and the event says so."""
    contract = replace(REDACTED, receipt=Expression("result.ref"))
    answer = Answered(result={"ref": f"vault:{TOKEN}"})
    async with engine(tmp_path, ScriptedProvider(answer=answer), contract=contract) as rig:
        await rig.intake.deliver([secret()])
        operation = await rig.settled()
        succeeded = await data(rig, "operation.succeeded")
    assert operation.receipt is None
    assert (succeeded["receipt"], succeeded["receipt_missing"]) == (None, True)


async def test_a_person_is_asked_without_the_secret(tmp_path: Path) -> None:
    """The request is an event as any other."""
    contract = replace(REDACTED, approval="required")
    async with engine(tmp_path, ScriptedProvider(), contract=contract) as rig:
        await rig.intake.deliver([secret()])
        await rig.reaches("operation.approval_requested")
        asked = await data(rig, "operation.approval_requested")
        accepted = await data(rig, "command.accepted")
    assert asked["arguments"] == {"token": MARKER, "title": "a title", "n": 1}
    assert asked["args_digest"] == accepted["args_digest"]


async def test_a_large_result_is_stored_without_the_secret(tmp_path: Path) -> None:
    """Cut in its event, whole in the journal: redacted in both, under a keyed digest."""
    result: JsonObject = {"echo": f"{TOKEN} {'x' * 200_000}", "secret": TOKEN}
    async with engine(tmp_path, ScriptedProvider(answer=Answered(result=result)), contract=REDACTED) as rig:
        await rig.intake.deliver([secret()])
        operation = await rig.settled()
        succeeded = await data(rig, "operation.succeeded")
        stored = await rig.journal.read(lambda view: view.result(operation.operation_id))
    assert (succeeded["result"], succeeded["result_truncated"]) == (None, True)
    assert stored is not None
    assert TOKEN.encode() not in stored
    assert json.loads(stored)["secret"] == MARKER
    assert succeeded["payload_digest"] == rig.journal.key.digest(stored)


# ------------------------------------------------------------ answers that come late


LATE = Answered(result={"echo": TOKEN, "note": "stored"})


async def late(rig: Rig, report: Report) -> JsonObject:
    """Let an answer come late, and return what was recorded of it."""
    operation = await rig.operation()
    rig.dispatcher.late(operation.operation_id, 1, report)
    await rig.reaches("operation.late_result")
    return await data(rig, "operation.late_result")


async def test_a_late_answer_does_not_bring_a_secret_back(tmp_path: Path) -> None:
    """While the operation is unsettled, its arguments are there to compare with."""
    lost = Silence(cause="deadline", message="no answer in time")
    async with engine(tmp_path, ScriptedProvider(answer=lost), contract=REDACTED) as rig:
        await rig.intake.deliver([secret()])
        await rig.settled()
        recorded = await late(rig, LATE)
    assert recorded["result"] == {"echo": MARKER, "note": "stored"}


async def test_a_late_answer_after_the_erasing_says_nothing_but_that_it_came(tmp_path: Path) -> None:
    """Without the arguments nobody can tell what of it quotes them."""
    lost = Silence(cause="deadline", message="no answer in time")
    read = replace(REDACTED, effect="read", receipt=Expression("result.note"))
    async with engine(tmp_path, ScriptedProvider(answer=lost), contract=read) as rig:
        await rig.intake.deliver([secret()])
        await rig.settled()
        await rig.journal.transact(lambda tx: tx.acknowledge(tx.last_seq))
        found = await rig.journal.read(lambda view: view.command_data(CommandId("cmd-1")))
        assert found is not None
        assert found.body is None
        recorded = await late(rig, LATE)
    assert recorded["result"] == {"echo": MARKER, "note": MARKER}
    assert (recorded["effect"], recorded["receipt"]) == ("occurred", None)


# ------------------------------------------------------------ contracts that change


async def again(rig: Rig, frame: CommandFrame | InvalidCommand) -> str:
    """What a redelivery is answered: `repeated`, or the code of a refusal."""
    (answer,) = await rig.intake.deliver([frame])
    if isinstance(answer, Repeat):
        return "repeated"
    assert isinstance(answer, Reply)
    return str(json.loads(answer.frame)["code"])


CHANGES = [(PLAIN, REDACTED), (REDACTED, PLAIN), (REDACTED, REDACTED), (PLAIN, PLAIN)]


@pytest.mark.parametrize(("before", "after"), CHANGES, ids=["gains", "loses", "keeps", "has none"])
async def test_a_redelivery_is_recognised_whatever_its_contract_says_by_now(
    tmp_path: Path, before: Contract, after: Contract
) -> None:
    """The same content is the same command, under either digest; another content is a conflict."""
    provider = ScriptedProvider()
    async with engine(tmp_path, provider, contract=before) as rig:
        await rig.intake.deliver([secret()])
        await rig.settled()
    async with engine(tmp_path, provider, contract=after) as rig:
        assert await again(rig, secret()) == "repeated"
        assert await again(rig, secret(n=2)) == "conflict"
    assert len(provider.executed) == 1


@pytest.mark.parametrize(("before", "after"), CHANGES, ids=["gains", "loses", "keeps", "has none"])
@pytest.mark.parametrize("identical", ["guard-unsettled", "once-per-run"])
async def test_a_look_alike_is_found_whatever_its_contract_says_by_now(
    tmp_path: Path, before: Contract, after: Contract, identical: Identical
) -> None:
    """Equal arguments are equal under either digest; others are not."""
    lost = Silence(cause="deadline", message="no answer in time")
    provider = ScriptedProvider(answer=lost)
    async with engine(tmp_path, provider, contract=replace(before, identical=identical)) as rig:
        await rig.intake.deliver([secret()])
        await rig.settled()
    async with engine(tmp_path, provider, contract=replace(after, identical=identical)) as rig:
        await rig.intake.deliver([secret("cmd-2"), secret("cmd-3", n=2)])
        await rig.settled("cmd-3")
        refused = await data(rig, "command.refused")
    assert refused["code"] == "lookalike_unsettled"
    assert len(provider.executed) == 2


@pytest.mark.parametrize(("before", "after"), [(PLAIN, REDACTED), (REDACTED, PLAIN)], ids=["gains", "loses"])
async def test_a_refusal_is_repeated_whatever_its_contract_says_by_now(
    tmp_path: Path, before: Contract, after: Contract
) -> None:
    """An invalid command has a digest too, and its arguments may be as secret."""
    frame = parse_from_plane(
        json.dumps(
            {
                "type": "command",
                "command_id": "cmd-1",
                "run_id": "run-1",
                "kind": "tool.call",
                "data": {"tool": "tools/act", "arguments": [TOKEN]},
            }
        )
    )
    assert isinstance(frame, CommandFrame)
    async with engine(tmp_path, ScriptedProvider(), contract=before) as rig:
        await rig.intake.deliver([frame])
        refused = await data(rig, "command.refused")
        assert refused["code"] == "invalid"
        plain = content_digest(frame.kind, frame.run_id, frame.data)
        assert (refused["content_digest"] == plain) is (before.redact is None)
        assert TOKEN not in await told(rig)
    async with engine(tmp_path, ScriptedProvider(), contract=after) as rig:
        assert await again(rig, frame) == "repeated"
        assert len(await rig.events()) == 1


async def test_a_command_that_is_no_frame_has_a_keyed_digest_too(tmp_path: Path) -> None:
    """What is left of it names the tool."""
    broken = InvalidCommand(
        command_id=CommandId("cmd-1"),
        run_id=None,
        content=("tool.call", 7, {"tool": "tools/act", "arguments": ARGUMENTS}),
        message="run_id: must be a text",
    )
    async with engine(tmp_path, ScriptedProvider(), contract=REDACTED) as rig:
        await rig.intake.deliver([broken])
        refused = await data(rig, "command.refused")
        assert refused["content_digest"] == content_digest(*broken.content, rig.journal.key.digest)
        assert await again(rig, broken) == "repeated"


@pytest.mark.parametrize(("before", "after"), [(PLAIN, REDACTED), (REDACTED, PLAIN)], ids=["gains", "loses"])
async def test_what_waited_is_withheld_by_both_contracts(
    tmp_path: Path, before: Contract, after: Contract
) -> None:
    """A call that was accepted by one contract and runs under another: neither's secrets are told."""
    provider = ScriptedProvider(answer=Answered(result={"echo": TOKEN}))
    async with engine(tmp_path, provider, contract=before, confirmed=False) as rig:
        await rig.intake.deliver([secret()])
    async with engine(tmp_path, provider, contract=after) as rig:
        await rig.settled()
        assert (await data(rig, "operation.succeeded"))["result"] == {"echo": MARKER}
        assert TOKEN not in await told(rig)
        await rig.journal.transact(lambda tx: tx.acknowledge(tx.last_seq))
        found = await rig.journal.read(lambda view: view.command_data(CommandId("cmd-1")))
        assert found is not None
        assert found.body is None
    assert provider.executed[0].arguments == ARGUMENTS


async def test_a_retry_still_has_its_arguments(tmp_path: Path) -> None:
    """An attempt that is not the end leaves them, however much is acknowledged meanwhile."""
    provider = ScriptedProvider(objections=[NotSent(reason="connect_failed", message="nobody there")])
    contract = replace(
        REDACTED,
        idempotent=True,
        dedupe_horizon_s=3_600.0,
        key_carrier=MetaKey(),
        retry="same-key",
        retry_backoff_s=0.01,
    )
    async with engine(tmp_path, provider, contract=contract) as rig:
        rig.journal.subscribe(lambda _events: rig.journal.later(lambda tx: tx.acknowledge(tx.last_seq)))
        await rig.intake.deliver([secret()])
        await rig.settled()
    assert [executed.arguments for executed in provider.executed] == [ARGUMENTS]


# ------------------------------------------------------------ answers that no event can hold


def nested(levels: int) -> JsonObject:
    """An answer with so many objects and lists inside one another."""
    value: JsonValue = {}
    for _ in range(levels - 2):
        value = [value]
    return {"deep": value}


@pytest.mark.parametrize(
    "result", [nested(70), nested(3_000), {"n": float("nan")}, {"s": "\ud800"}, {"n": 10**5_000}]
)
async def test_an_answer_that_cannot_be_recorded_is_unknown(tmp_path: Path, result: JsonObject) -> None:
    """It may have happened; the outcome is recorded all the same, and the daemon goes on."""
    provider = ScriptedProvider(answers=[Answered(result=result)])
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        lost = await data(rig, "operation.unknown")
        await rig.intake.deliver([call("cmd-2", arguments={"n": 2})])
        await rig.settled("cmd-2")
    assert lost["reason"] == "protocol_error"
    assert "the answer cannot be recorded" in str(lost["message"])


@pytest.mark.parametrize(
    "result",
    [
        nested(50),
        {"big": 2**63, "bigger": -(10**100), "real": 1e-300},
        {"text": "\0\x1b[2J\u2028\N{GRINNING FACE}\ufffd", "data": "AAEC/w=="},
        {"content": [{"type": "image", "data": "iVBORw0KGgo=" * 30_000, "mimeType": "image/png"}]},
    ],
)
async def test_an_answer_that_can_be_recorded_is_kept_as_it_came(tmp_path: Path, result: JsonObject) -> None:
    """Integers beyond 64 bits, control characters, binary content: the journal has it whole."""
    async with engine(tmp_path, ScriptedProvider(answer=Answered(result=result)), contract=PLAIN) as rig:
        await rig.intake.deliver([call()])
        operation = await rig.settled()
        stored = await rig.journal.read(lambda view: view.result(operation.operation_id))
    assert stored is not None
    assert json.loads(stored) == result
