"""What is found out about a call after its agent was told that nobody knows: the agent hears it once."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import pytest

from driver.core.attempts import Answered, Report, Silence
from driver.core.contracts import Contract
from driver.gateway.answers import CODE, OUTCOME
from driver.gateway.calls import Calls
from driver.gateway.limits import GatewayLimits
from driver.gateway.outcomes import Given
from driver.gateway.waiting import Waits
from store.records import JsonValue, OperationId
from tests.driver.engine.rig import Rig, ScriptedProvider, engine
from tests.driver.engine.test_verdicts import verdict
from tests.driver.gateway.test_calls import Around, ask, operation_of

pytestmark = pytest.mark.anyio

LOST: Final = Silence(cause="deadline", message="lost")
ERROR: Final = Answered(result={"isError": True, "content": []}, is_error=True)
DONE: Final = Answered(result={"content": [{"type": "text", "text": "done after all"}]})
UNSETTLED: Final = Contract(declared=True, error_means="unsettled")


@asynccontextmanager
async def gateway(
    folder: Path, provider: ScriptedProvider, contract: Contract = UNSETTLED
) -> AsyncGenerator[tuple[Calls, Rig]]:
    """Answer calls in one life of the daemon."""
    waits = Waits(lambda _provider: None)
    async with engine(folder, provider, contract=contract) as rig, anyio.create_task_group() as tasks:
        rig.journal.subscribe(waits.hear)
        yield Calls(Around(rig, contract), waits, GatewayLimits(), tasks), rig
        tasks.cancel_scope.cancel()


async def make(made: Calls, command_id: str) -> Given:
    """Make the call, and hear its answer."""
    given = await ask(made, command_id)
    if given.about is not None:
        made.delivered(given.about)
    return given


def state(given: Given) -> tuple[JsonValue, JsonValue]:
    """Return what an answer says that it is, and which of the reasons."""
    meta = given.result["_meta"]
    assert isinstance(meta, dict)
    return meta[OUTCOME], meta.get(CODE)


@pytest.mark.parametrize(
    ("first", "by"), [(LOST, "a late answer"), (LOST, "an operator"), (ERROR, "an operator")]
)
@pytest.mark.parametrize("restarts", [False, True])
async def test_what_turned_out_to_have_happened_is_told_before_it_is_made_again(
    tmp_path: Path, first: Report, by: str, restarts: bool
) -> None:
    """The agent heard only that nobody knew, and sends it again: it is told so once, and nothing is done."""
    provider = ScriptedProvider(answers=[first])
    async with gateway(tmp_path, provider) as (made, rig):
        doubtful = await make(made, "one")
        assert state(await make(made, "two")) == ("refused", "lookalike_unsettled")
        if by == "an operator":
            await rig.intake.deliver([verdict(operation_of(doubtful))])
            await rig.reaches("operation.reconciled")
        else:
            assert provider.late is not None
            provider.late(OperationId(operation_of(doubtful)), 1, DONE)
            await rig.reaches("operation.late_result")
        if not restarts:
            await again(made, doubtful, provider)
    if restarts:
        async with gateway(tmp_path, provider) as (made, _):
            await again(made, doubtful, provider)


async def again(made: Calls, doubtful: Given, provider: ScriptedProvider) -> None:
    """Send it again twice: what it is told, and that the second time is another call."""
    told = await make(made, "three")
    assert state(told) == ("refused", "answer_undelivered")
    assert operation_of(told) == operation_of(doubtful)
    text = str(told.result["content"])
    assert "that was not known yet when it was answered" in text
    assert len(provider.executed) == 1
    assert state(await make(made, "four")) == ("succeeded", None)
    assert len(provider.executed) == 2


async def test_what_turned_out_not_to_have_happened_may_be_made(tmp_path: Path) -> None:
    """Whoever sends it again means it: nothing stands in its way."""
    provider = ScriptedProvider(answers=[LOST])
    async with gateway(tmp_path, provider) as (made, rig):
        doubtful = await make(made, "one")
        await rig.intake.deliver([verdict(operation_of(doubtful), effect="none")])
        await rig.reaches("operation.reconciled")
        assert state(await make(made, "two")) == ("succeeded", None)


async def test_a_late_answer_stands_in_the_refusal(tmp_path: Path) -> None:
    """It is what the agent wanted."""
    provider = ScriptedProvider(answers=[LOST])
    async with gateway(tmp_path, provider) as (made, rig):
        doubtful = await make(made, "one")
        assert provider.late is not None
        provider.late(OperationId(operation_of(doubtful)), 1, DONE)
        await rig.reaches("operation.late_result")
        assert "done after all" in str((await make(made, "two")).result["content"])
