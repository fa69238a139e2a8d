"""Calls of agents, over a real engine: which answers a daemon that stops has to wait for."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

import driver.gateway.unconfirmed as unconfirmed_module
from driver.core.answers import Answer, Submission
from driver.core.attempts import Silence
from driver.core.contracts import Contract
from driver.core.frames import CommandFrame
from driver.gateway.answers import CODE, OPERATION_ID, OUTCOME, REPLAYED
from driver.gateway.asking import Asked
from driver.gateway.calls import Calls
from driver.gateway.limits import GatewayLimits
from driver.gateway.outcomes import Given, Outcome
from driver.gateway.runs import Speaker
from driver.gateway.waiting import Wait, Waits
from driver.providers.protocol import Provider
from store.journal import Journal
from store.records import CommandId, Identical, JsonObject, Origin, RunId
from tests.driver.engine.rig import DECLARED, SCOPE, Rig, ScriptedProvider, engine

pytestmark = pytest.mark.anyio

SPEAKER = Speaker(holder="relay", run_id=RunId("run-1"), uid=0, relayed=True)


@dataclass(frozen=True, slots=True)
class Around:
    """The rest of the daemon: an engine, and nobody who cancels."""

    rig: Rig
    contracted: Contract = DECLARED
    scope: str = SCOPE
    stopping: bool = False

    @property
    def journal(self) -> Journal:
        return self.rig.journal

    @property
    def providers(self) -> Mapping[str, Provider]:
        return {}

    def contract(self, tool: str) -> Contract:
        del tool
        return self.contracted

    async def deliver(self, frame: CommandFrame) -> Answer:
        (answer,) = await self.rig.intake.deliver([frame], Origin.GATEWAY)
        return answer

    async def submit(self, kind: str, run_id: RunId, data: JsonObject) -> Submission:
        raise AssertionError((kind, run_id, data))


class Patient:
    """An agent that does nothing but wait."""

    follows = False

    def progressed(self, said: JsonObject) -> None:
        del said

    async def meanwhile(self, wait: Wait) -> Outcome | None:
        del wait
        await anyio.sleep_forever()
        return None


@asynccontextmanager
async def calls(
    folder: Path,
    provider: ScriptedProvider,
    limits: GatewayLimits | None = None,
    contract: Contract = DECLARED,
) -> AsyncGenerator[Calls]:
    """Answer calls until the block ends; a stop waits for a client as long as that takes."""
    waits = Waits(lambda _provider: None)
    async with engine(folder, provider, contract=contract) as rig, anyio.create_task_group() as tasks:
        rig.journal.subscribe(waits.hear)
        yield Calls(Around(rig, contract), waits, limits or GatewayLimits(drain_s=3_600.0), tasks)
        tasks.cancel_scope.cancel()


async def ask(
    made: Calls,
    command_id: str,
    *,
    speaker: Speaker = SPEAKER,
    asked_at: datetime | None = None,
    **arguments: float,
) -> Given:
    """Make a call, the same one where it has the same arguments; or ask about one of before."""
    said: JsonObject = {**arguments}
    asked = Asked(
        command_id=CommandId(command_id),
        speaker=speaker,
        tool="tools/act",
        arguments=said,
        asked_at=asked_at,
        delivered_to=() if asked_at is None else (await made.journal_id(),),
    )
    return await made.answer(asked, Patient(), gone=lambda: False)


def operation_of(given: Given) -> str:
    """Return the operation that an answer names."""
    meta = given.result["_meta"]
    assert isinstance(meta, dict)
    return str(meta[OPERATION_ID])


async def test_a_stop_waits_for_answers_that_somebody_will_confirm(tmp_path: Path) -> None:
    """Of a refusal no client says that it has it: whoever was refused once would hold up every stop."""
    async with calls(tmp_path, ScriptedProvider(answer=Silence(cause="deadline", message="lost"))) as made:
        first, second = await ask(made, "one"), await ask(made, "two")
        assert first.about is not None
        assert second.about is None
        flushed = anyio.Event()

        async def flush() -> None:
            await made.flush()
            flushed.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flush)
            await anyio.wait_all_tasks_blocked()
            assert not flushed.is_set()
            made.delivered(first.about)
            with anyio.fail_after(30):
                await flushed.wait()


@pytest.mark.parametrize(("relayed", "way"), [(True, "with --run"), (False, "with Effectd-Run")])
async def test_who_is_told_that_a_run_is_in_use_is_told_what_to_do(
    tmp_path: Path, relayed: bool, way: str
) -> None:
    """In the words of what it came over: a client over HTTP starts nothing."""
    limits = GatewayLimits(handover_s=0.001)
    async with calls(tmp_path, ScriptedProvider(), limits) as made:
        assert made.claims.take(SPEAKER)
        given = await ask(made, "one", speaker=replace(SPEAKER, holder="another", relayed=relayed))
    assert way in str(given.result["content"])
    assert given.about is None


async def test_arguments_that_json_does_not_have_are_said_to_be_wrong(tmp_path: Path) -> None:
    """Whoever sends 1e999 is told so: nothing has a digest that is no JSON, and none is asked for."""
    async with calls(tmp_path, ScriptedProvider()) as made:
        given = await ask(made, "one", number=float("inf"))
    meta = given.result["_meta"]
    assert isinstance(meta, dict)
    assert (meta[OUTCOME], meta[CODE]) == ("refused", "invalid_arguments")
    assert given.about is None


async def test_a_stop_waits_for_no_answer_that_nobody_will_confirm(tmp_path: Path) -> None:
    """Whoever would say that he has it has gone; and there is an end to how many are remembered."""
    async with calls(tmp_path, ScriptedProvider()) as made:
        assert made.claims.take(SPEAKER)
        await ask(made, "one")
        with anyio.move_on_after(0) as waiting:
            await made.flush()
        assert waiting.cancelled_caught, "somebody is there who may say it"
        made.leave(SPEAKER)
        with anyio.fail_after(30):
            await made.flush()


async def test_answers_that_a_stop_waits_for_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a client that never says what it has, the newest are waited for."""
    monkeypatch.setattr(unconfirmed_module, "UNCONFIRMED_MAX", 1)
    async with calls(tmp_path, ScriptedProvider(answer=Silence(cause="deadline", message="lost"))) as made:
        await ask(made, "one", n=1)
        newest = await ask(made, "two", n=2)
        assert newest.about is not None
        made.delivered(newest.about)
        with anyio.fail_after(30):
            await made.flush()


@pytest.mark.parametrize("identical", ["guard-unsettled", "allow"])
async def test_equal_calls_of_one_moment_are_one_execution_in_the_next_life_too(
    tmp_path: Path, identical: Identical
) -> None:
    """They are sent at once, and neither waits for the other to be accepted: the journal has one of them."""
    provider = ScriptedProvider()
    contract = replace(DECLARED, identical=identical)
    async with calls(tmp_path, provider, contract=contract) as made:
        moment = datetime.now(UTC)
        first = await ask(made, "one")
        assert first.about is not None
        made.delivered(first.about)
        second = await ask(made, "two", asked_at=moment)
        assert second.result == {**first.result, "_meta": replayed(first)}
        assert second.about is not None
        made.delivered(second.about)
        third = await ask(made, "three")
        assert operation_of(third) != operation_of(first), "what was not asked before is a call of its own"
    assert len(provider.executed) == 2


async def test_a_call_that_was_made_is_not_denied_where_it_is_not_taken_again(tmp_path: Path) -> None:
    """Its run is another relay's by now: what is known of it is told, and of others that nothing was done."""
    provider = ScriptedProvider()
    async with calls(tmp_path, provider, GatewayLimits(handover_s=0.001)) as made:
        moment = datetime.now(UTC)
        first = await ask(made, "one")
        assert made.claims.take(replace(SPEAKER, holder="another"))
        again = await ask(made, "one", asked_at=moment)
        assert again.result == {**first.result, "_meta": replayed(first)}
        assert again.about == first.about
        never = await ask(made, "two", asked_at=moment, n=2)
        assert never.result["_meta"] == {OUTCOME: "refused", CODE: "run_in_use"}
        new = await ask(made, "three")
        assert new.result["_meta"] == {OUTCOME: "refused", CODE: "run_in_use"}
    assert len(provider.executed) == 1


def replayed(given: Given) -> JsonObject:
    """Return the `_meta` of an answer that is given once more."""
    return {OUTCOME: "succeeded", OPERATION_ID: operation_of(given), REPLAYED: True}
