"""Calls that wait: for a slot, a person, an equal one; and what an agent is told that can wait no longer."""

from typing import Any, Final

import anyio
import pytest

from tests.system.agents import ERAS, Agent, Era, Told, agent
from tests.system.sandbox import sandbox, standing
from tests.system.test_gateway import attached
from tests.system.test_gateway_approvals import waiting
from tests.system.test_probes import looking_at_the_ledger
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.kill]

GATEWAY: Final[dict[str, Any]] = {"gateway": {}}
CROWDED: Final[dict[str, Any]] = {
    **GATEWAY,
    "driver": {"max_inflight": 1},
    "providers__counter__tools__count": {"execution_s": 1.5},
}
"""One call at a time, and one that is to be over soon: on no machine in less than its server may need."""
SLOW_S: Final = 3.0
"""What an execution may take that is waited for and must succeed."""


@pytest.mark.parametrize("era", ERAS)
async def test_an_agent_that_can_wait_no_longer_is_told_so_and_nothing_new_is_started(
    zygote: Zygote, era: Era
) -> None:
    """Neither by that word, nor by asking again: an equal call attaches; what was taken is made once."""
    async with sandbox(zygote, None, **CROWDED) as made:
        await made.start(patch="impatient").ready()
        gate = made.root / "gate"
        told: list[Told] = []
        async with agent(made, "first") as busy, agent(made, "second", era=era) as one:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(busy.client.call_tool, "counter__slow", {"until": str(gate), "n": 0})
                await made.effects_reach(1)
                for _ in range(2):
                    await ask(one, told, "counter__count", {"n": 1})
                assert len(made.effects()) == 1
                gate.touch()
            await made.effects_reach(2)
            await made.events_until(
                lambda event: (
                    event["kind"] == "operation.succeeded" and event["operation_id"] == told[0].operation_id
                )
            )
            shown = await one.call("effectd__operation", operation_id=told[0].operation_id)
            assert shown.content["state"] == "succeeded"
        assert [item.outcome for item in told] == ["still_running", "still_running"]
        assert len({item.operation_id for item in told}) == 1
        assert all(item.result.is_error and item.text.startswith("still_running: ") for item in told)
        assert "try again" not in told[0].text.lower()
        assert [effect["arguments"]["n"] for effect in made.effects()] == [0, 1]


async def test_a_decision_that_takes_longer_than_the_call_may_is_still_waited_for(zygote: Zygote) -> None:
    """The time of the execution begins when it does, not when the agent asked."""
    tables: dict[str, Any] = {
        "gateway": {},
        "driver": {"allow_self_approval": True},
        "providers__counter__tools__count": {"approval": "required", "execution_s": SLOW_S},
    }
    async with sandbox(zygote, None, **tables) as made:
        await made.start(patch="impatient").ready()
        found: list[Told] = []
        async with agent(made) as one, anyio.create_task_group() as tasks:
            tasks.start_soon(ask, one, found, "counter__count", {"n": 1})
            operation = await waiting(made)
            await anyio.sleep(SLOW_S + 1)  # longer than the call may take, and its answer is waited for
            status, _ = await made.post(f"/v1/operations/{operation}/approve", {"decision": "grant"})
            assert status == 202
        assert [told.outcome for told in found] == ["succeeded"]


async def test_equal_calls_of_one_relay_are_one_execution_over_a_kill_of_the_daemon(zygote: Zygote) -> None:
    """Both are asked about again, and both get the answer of the one that was made."""
    async with sandbox(zygote, None, **GATEWAY) as made:
        life = made.start(kill_at="dispatch.outcome_committed")
        await life.ready()
        gate = made.root / "gate"
        arguments = {"until": str(gate), "n": 1}
        found: list[Told] = []
        async with agent(made) as one, anyio.create_task_group() as tasks:
            tasks.start_soon(ask, one, found, "counter__slow", arguments)
            await made.effects_reach(1)
            tasks.start_soon(ask, one, found, "counter__slow", arguments)
            await attached(made, 1)
            gate.touch()
            assert await life.exit_code() < 0
            await made.start().ready()
        assert [told.outcome for told in found] == ["succeeded", "succeeded"]
        assert len({told.operation_id for told in found}) == 1
        assert len(made.effects()) == 1


async def test_one_of_two_equal_calls_may_be_cancelled_without_the_other(zygote: Zygote) -> None:
    """Only a call that nobody wants any more is cancelled."""
    async with standing(zygote, **GATEWAY) as made:
        gate = made.root / "gate"
        arguments = {"until": str(gate), "n": 1, "heed_cancel": True}
        found: list[Told] = []
        dropped: list[Told] = []
        async with agent(made) as one, anyio.create_task_group() as tasks:
            async with anyio.create_task_group() as first:
                first.start_soon(ask, one, dropped, "counter__slow", arguments)
                await made.effects_reach(1)
                tasks.start_soon(ask, one, found, "counter__slow", arguments)
                await attached(made, 1)
                first.cancel_scope.cancel()
            await one.tools()  # behind the word of the cancel
            gate.touch()
        assert ([told.outcome for told in found], dropped) == (["succeeded"], [])
        assert len(made.effects()) == 1


@pytest.mark.parametrize("era", ERAS)
async def test_a_cancelled_call_is_cancelled_at_its_provider(zygote: Zygote, era: Era) -> None:
    """It was sent, so it is unknown what it did; the server heard that nobody waits."""
    async with standing(zygote, **GATEWAY) as made:
        dropped: list[Told] = []
        async with agent(made, era=era) as one:
            async with anyio.create_task_group() as tasks:
                arguments = {"seconds": 3_600, "n": 1, "heed_cancel": True}
                tasks.start_soon(ask, one, dropped, "counter__slow", arguments)
                await made.effects_reach(1)
                tasks.cancel_scope.cancel()
            await made.events_until(lambda event: event["kind"] == "operation.unknown")
            shown = await one.call("effectd__operations", limit=1)
            after = await one.call("counter__count", n=2)
        assert shown.content["operations"][0]["reason"] == "cancelled_after_dispatch"
        assert (dropped, after.outcome) == ([], "succeeded")


@pytest.mark.parametrize("era", ERAS)
async def test_a_relay_without_a_daemon_refuses_and_serves_once_there_is_one(
    zygote: Zygote, era: Era
) -> None:
    """An agent may start first: it is told that nothing was executed, and what to do."""
    async with sandbox(zygote, None, **GATEWAY) as made:
        async with agent(made, era=era) as one:
            refused = await one.call("counter__count", n=1)
            await made.start().ready()
            served = await one.call("counter__count", n=2)
        assert (refused.outcome, served.outcome) == ("refused", "succeeded")
        assert refused.text.startswith("refused (down): nothing was executed")
        assert [effect["arguments"]["n"] for effect in made.effects()] == [2]


async def test_an_agent_can_have_its_provider_looked_at(zygote: Zygote) -> None:
    """Where a probe is declared, `effectd__probe` says what it found; nothing is executed by it."""
    async with sandbox(zygote, None) as made:
        looking_at_the_ledger(made, visible_after_s=3_600)
        tables = {name.replace(".", "__"): keys for name, keys in made.tables.items()}
        made.configure(**{**tables, "gateway": {}})
        await made.start(EFFECTD_FAULT_AFTER_EFFECT="desk/act").ready()
        async with agent(made) as one:
            told = await one.call("desk__act")
            looked = await one.call("effectd__probe", operation_id=told.operation_id)
        assert told.outcome == "unknown"
        assert "effectd__probe" in told.text
        assert looked.content["effect"] == "occurred"


async def ask(one: Agent, found: list[Told], tool: str, arguments: dict[str, Any]) -> None:
    """Add what a call is answered with."""
    found.append(await one.call(tool, **arguments))
