"""Approvals of agents' calls: nobody decides about their own, and a denial says who and why."""

from typing import Any, Final

import anyio
import pytest
from mcp_types import ElicitRequestParams, ElicitResult

from tests.system.agents import ERAS, Era, Told, agent
from tests.system.history import Json
from tests.system.sandbox import Sandbox, standing
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.kill]

ASKING: Final[dict[str, Any]] = {
    "gateway": {},
    "providers__counter__tools__count": {"approval": "required"},
}
SELF: Final[dict[str, Any]] = {**ASKING, "driver": {"allow_self_approval": True}}


async def waiting(made: Sandbox) -> str:
    """Return the operation that waits for a person, once one does."""
    found: list[str] = []

    def asks(event: Json) -> bool:
        if event["kind"] == "operation.approval_requested":
            found.append(event["operation_id"])
        return bool(found)

    await made.events_until(asks)
    return found[-1]


async def test_no_agent_approves_itself(zygote: Zygote) -> None:
    """The uid behind the call is refused as its judge, by the local API, and is not asked in the client."""
    asked: list[str] = []

    async def answer(context: Any, params: ElicitRequestParams) -> ElicitResult:  # noqa: ANN401 - the SDK's
        asked.append(params.message)
        return ElicitResult(action="accept", content={"decision": "approve"})

    async with standing(zygote, **ASKING) as made:
        async with agent(made, elicitation_callback=answer) as one, anyio.create_task_group() as tasks:
            tasks.start_soon(one.client.call_tool, "counter__count", {"n": 1})
            operation = await waiting(made)
            status, problem = await made.post(f"/v1/operations/{operation}/approve", {"decision": "grant"})
            assert (status, problem["code"]) == (409, "self_approval")
            tasks.cancel_scope.cancel()
        assert (asked, made.effects()) == ([], [])


@pytest.mark.parametrize("decision", ["grant", "deny"])
async def test_a_call_waits_for_its_approval_and_is_told_of_the_decision(
    zygote: Zygote, decision: str
) -> None:
    """It waits, with words about its progress; granted it runs, denied it is told who and why."""
    heard: list[str] = []

    async def said(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message or "")

    async with standing(zygote, **SELF) as made:
        found: list[Told] = []
        async with agent(made) as one, anyio.create_task_group() as tasks:

            async def ask() -> None:
                found.append(
                    Told(await one.client.call_tool("counter__count", {"n": 1}, progress_callback=said))
                )

            tasks.start_soon(ask)
            operation = await waiting(made)
            body = {"decision": decision, "reason": "not on a Friday"}
            status, _ = await made.post(f"/v1/operations/{operation}/approve", body)
            assert status == 202
        (told,) = found
        assert any("awaiting_approval" in message for message in heard)
        if decision == "grant":
            assert (told.outcome, len(made.effects())) == ("succeeded", 1)
        else:
            assert (told.outcome, len(made.effects())) == ("denied", 0)
            assert "not on a Friday" in told.text
            assert "operator:0" in told.text


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("action", "outcome"), [("accept", "succeeded"), ("decline", "denied")])
async def test_a_user_can_be_asked_in_the_client(zygote: Zygote, era: Era, action: str, outcome: str) -> None:
    """Where that uid may decide: by a request in the older era, by a result that wants input in the newer."""

    async def answer(context: Any, params: ElicitRequestParams) -> ElicitResult:  # noqa: ANN401 - the SDK's
        assert "counter/count" in params.message
        content: dict[str, Any] = {"decision": "approve", "reason": "it is what I want"}
        if action == "accept":
            return ElicitResult(action="accept", content=content)
        return ElicitResult(action="decline")

    async with standing(zygote, **SELF) as made:
        async with agent(made, era=era, elicitation_callback=answer) as one:
            told = await one.call("counter__count", n=1)
        operation = await made.operation(told.operation_id)
        (approval,) = operation["approvals"]
        assert told.outcome == outcome
        assert approval["approver"].startswith("user:")
        assert len(made.effects()) == (1 if action == "accept" else 0)


async def test_cancelling_a_call_that_waits_ends_it(zygote: Zygote) -> None:
    """What nobody waits for any more is not done when somebody approves it later."""
    async with standing(zygote, **SELF) as made:
        ended: list[Json] = []

        def over(event: Json) -> bool:
            ended.append(event)
            return bool(event["kind"] == "operation.not_executed")

        async with agent(made) as one:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one.client.call_tool, "counter__count", {"n": 1})
                await waiting(made)
                tasks.cancel_scope.cancel()
            await made.events_until(over)
        assert ended[-1]["data"]["reason"] == "cancelled"
        assert made.effects() == []
