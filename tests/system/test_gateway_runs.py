"""Which run an agent's calls belong to, where nobody names one, and whose it is at a time."""

import os
import signal
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from driver.gateway.wire import Message, line
from tests.system.agents import CODE, EFFECTD, Agent, Told, agent, command
from tests.system.sandbox import Life, Sandbox, sandbox, standing
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.kill]

GATEWAY: Final[dict[str, Any]] = {"gateway": {}}
GUARD_S: Final = 30.0
HELLO: Final[Message] = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "hasty", "version": "1"},
    },
}


def called(tool: str, arguments: Message) -> Message:
    """Return a call as a client sends it."""
    return {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments},
    }


def folder(made: Sandbox, name: str) -> tuple[str, ...]:
    """Return what starts a relay in a folder of this name, and says its process id."""
    place = made.root / name
    place.mkdir(exist_ok=True)
    script = f'cd "{place}" && echo $$ > pid && exec "{EFFECTD}" mcp "$@"'
    return ("sh", "-c", script, "sh")


def pid_of(made: Sandbox, name: str) -> int:
    """Return the process id of the relay that was started last in a folder."""
    return int((made.root / name / "pid").read_text())


async def run_of(made: Sandbox, told: Told) -> str:
    """Return the run of the operation that an answer is about."""
    found: str = (await made.operation(told.operation_id))["run_id"]
    return found


async def ask(one: Agent, found: list[Told], tool: str, arguments: dict[str, Any]) -> None:
    """Add what a call is answered with."""
    found.append(await one.call(tool, **arguments))


async def lost_by(made: Sandbox, life: Life, one: Agent) -> Told:
    """Return what `counter__count` is answered with, once the daemon died with it and was started again."""
    found: list[Told] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, one, found, "counter__count", {"n": 1})
        assert await life.exit_code() < 0
        await made.start().ready()
    return found[0]


async def lose(one: Agent, tool: str, arguments: dict[str, Any]) -> None:
    """Make a call whose answer is not heard, since the relay is killed."""
    with pytest.raises(MCPError):
        await one.call(tool, **arguments)


async def test_two_windows_in_one_folder_have_a_run_each(zygote: Zygote) -> None:
    """With the very same lines in the client both work at once, and neither is in the other's way."""
    async with standing(zygote, **GATEWAY) as made:
        program = folder(made, "shop")
        async with agent(made, None, program=program) as one, agent(made, None, program=program) as other:
            told = [await window.call("counter__count", n=1) for window in (one, other)]
        runs = [await run_of(made, item) for item in told]
        assert [item.outcome for item in told] == ["succeeded", "succeeded"]
        assert len(set(runs)) == 2
        assert len({run.rpartition("-")[0] for run in runs}) == 1, "they say which folder it was"


async def test_a_client_that_starts_anew_does_not_repeat_what_may_have_happened(zygote: Zygote) -> None:
    """Its new run continues the one that was left open in this folder, and no other folder's."""
    async with sandbox(zygote, None, **GATEWAY) as made:
        life = made.start(kill_at="dispatch.answered")
        await life.ready()
        async with agent(made, None, program=folder(made, "shop")) as one:
            lost = await lost_by(made, life, one)
        async with agent(made, None, program=folder(made, "shop")) as anew:
            equal = await anew.call("counter__count", n=1)
            shown = await anew.call("effectd__operation", operation_id=equal.operation_id)
            listed = await anew.call("effectd__operations", unsettled=True)
            other = await anew.call("counter__count", n=2)
        async with agent(made, None, program=folder(made, "elsewhere")) as stranger:
            unrelated = await stranger.call("counter__count", n=1)
        assert (equal.outcome, equal.meta[CODE]) == ("refused", "lookalike_unsettled")
        assert equal.operation_id == lost.operation_id
        assert shown.content["state"] == "unknown"
        assert [one["operation_id"] for one in listed.content["operations"]] == [equal.operation_id]
        assert (other.outcome, unrelated.outcome) == ("succeeded", "succeeded")
        assert len(made.effects()) == 3


@pytest.mark.parametrize("restarted", [False, True])
async def test_an_answer_that_a_killed_client_never_heard_guards_in_the_next_one(
    zygote: Zygote, restarted: bool
) -> None:
    """It is told what came of it, with the result, whether the daemon remembers it or its journal does."""
    async with standing(zygote, **GATEWAY) as made:
        life = made.lives[-1]
        gate = made.root / "gate"
        arguments = {"n": 1, "until": str(gate)}
        async with agent(made, None, program=folder(made, "shop")) as one, anyio.create_task_group() as tasks:
            tasks.start_soon(lose, one, "counter__slow", arguments)
            await made.effects_reach(1)
            os.kill(pid_of(made, "shop"), signal.SIGKILL)
            await life.told("gateway_disconnected")
        gate.touch()
        await made.events_until(lambda event: event["kind"] == "operation.succeeded")
        if restarted:
            await life.kill()
            await made.start().ready()
        async with agent(made, None, program=folder(made, "shop")) as anew:
            equal = await anew.call("counter__slow", **arguments)
            again = await anew.call("counter__slow", **arguments)
        assert (equal.outcome, equal.meta[CODE]) == ("refused", "answer_undelivered")
        assert '"count": 1' in equal.text.replace('"count":1', '"count": 1')
        assert again.outcome == "succeeded", "it was told, and may want a second one"
        assert len(made.effects()) == 2


async def test_a_client_that_closed_its_end_is_continued_while_its_relay_is_still_there(
    zygote: Zygote,
) -> None:
    """It waits a moment for answers: a client that comes back at once has not got them."""
    async with standing(zygote, **GATEWAY) as made:
        gate = made.root / "gate"
        arguments: Message = {"n": 1, "until": str(gate)}
        told: list[Told] = []
        program = [*folder(made, "shop"), *command(made, None)[2:]]
        async with await anyio.open_process(program, stderr=None) as relay:
            assert relay.stdin is not None
            for message in (HELLO, called("counter__slow", arguments)):
                await relay.stdin.send(line(message))
            await made.effects_reach(1)
            await relay.stdin.aclose()
            async with agent(made, None, program=folder(made, "shop")) as anew:
                with anyio.move_on_after(GUARD_S):  # made a second time, it would wait for the gate
                    await ask(anew, told, "counter__slow", arguments)
            gate.touch()
        assert [(one.outcome, one.meta[CODE]) for one in told] == [("refused", "lookalike_unsettled")]
        assert len(made.effects()) == 1


async def test_what_is_named_in_a_refusal_can_be_looked_at(zygote: Zygote) -> None:
    """The equal call may be of a run that this one continues through another one."""
    async with sandbox(zygote, None, **GATEWAY) as made:
        life = made.start(kill_at="dispatch.answered")
        await life.ready()
        async with agent(made, "first") as one:
            lost = await lost_by(made, life, one)
        async with agent(made, "second", "--resumes", "first") as one:
            await one.call("counter__count", n=2)
        async with agent(made, "third", "--resumes", "second") as one:
            equal = await one.call("counter__count", n=1)
            shown = await one.call("effectd__operation", operation_id=equal.operation_id)
            listed = await one.call("effectd__operations", unsettled=True)
        assert (equal.outcome, equal.operation_id) == ("refused", lost.operation_id)
        assert shown.content["state"] == "unknown"
        assert [item["operation_id"] for item in listed.content["operations"]] == [equal.operation_id]


JUDGES: Final = {
    "supervisor": "which could not be found out so far",
    "operator": "which nobody could find out",
    "nobody": "and nobody knows yet",
}
"""What is said of a call that may have happened, by who has looked at it."""


@pytest.mark.parametrize("judge", JUDGES)
async def test_no_guess_lets_a_client_that_starts_anew_repeat_what_may_have_happened(
    zygote: Zygote, judge: str
) -> None:
    """A verdict closes an entry of a list, and guards as before; so do more calls than any page holds.

    Whoever looks at the call is told so beside what is known of it.
    """
    soon = {"min_age_s": 0.2, "interval_s": 0.3} if judge == "supervisor" else {}
    async with sandbox(zygote, None, **GATEWAY, supervisor=soon) as made:
        life = made.start(kill_at="dispatch.answered")
        await life.ready()
        async with agent(made, None, program=folder(made, "shop")) as one:
            lost = await lost_by(made, life, one)
            for number in range(40):
                await one.call("reader__count", n=100 + number)
        operation_id = lost.operation_id
        if judge == "supervisor":
            await made.events_until(lambda event: event["kind"] == "supervisor.verdict")
        elif judge == "operator":
            said = {"effect": "unknown", "note": "nobody can know"}
            assert (await made.post(f"/v1/operations/{operation_id}/reconcile", said))[0] == 201
        assert (await made.operation(operation_id))["settled"] is (judge != "nobody")
        async with agent(made, None, program=folder(made, "shop")) as anew:
            equal = await anew.call("counter__count", n=1)
            shown = await anew.call("effectd__operation", operation_id=operation_id)
        assert (equal.outcome, equal.meta[CODE]) == ("refused", "lookalike_unsettled")
        assert equal.operation_id == operation_id
        assert f"may have happened, {JUDGES[judge]}" in equal.text
        caution = shown.content["caution"]
        assert caution.startswith(f"It may have happened, {JUDGES[judge]}. Do not repeat the call")
        assert [effect["arguments"]["n"] for effect in made.effects()].count(1) == 1


async def test_a_run_in_which_nothing_is_open_is_not_continued(zygote: Zygote) -> None:
    """What may be made once in a run may be made in the next one: a new start is a new piece of work."""
    tables = {**GATEWAY, "providers__counter__tools__count": {"identical": "once-per-run"}}
    async with standing(zygote, **tables) as made:
        async with agent(made, None, program=folder(made, "shop")) as one:
            told = [await one.call("counter__count", n=1) for _ in range(2)]
        async with agent(made, None, program=folder(made, "shop")) as anew:
            told.append(await anew.call("counter__count", n=1))
        assert [item.outcome for item in told] == ["succeeded", "refused", "succeeded"]


async def test_a_named_run_is_its_next_relays_once_the_one_before_is_killed(zygote: Zygote) -> None:
    """Nothing has to expire: who speaks for a run is whoever is connected."""
    async with standing(zygote, **GATEWAY) as made:
        async with agent(made, "mine", program=folder(made, "shop")) as one:
            await one.call("counter__count", n=1)
            os.kill(pid_of(made, "shop"), signal.SIGKILL)
            async with agent(made, "mine") as anew:
                told = await anew.call("counter__count", n=2)
        assert told.outcome == "succeeded"


async def test_a_call_waits_a_moment_for_a_relay_that_is_about_to_end(zygote: Zygote) -> None:
    """A client may start its server anew before the one before has gone."""
    async with standing(zygote, **GATEWAY) as made:
        found: list[Told] = []
        async with agent(made, "mine", program=folder(made, "shop")) as one:
            await one.call("counter__count", n=1)
            async with agent(made, "mine") as anew, anyio.create_task_group() as tasks:
                await anew.tools()
                tasks.start_soon(ask, anew, found, "counter__count", {"n": 2})
                os.kill(pid_of(made, "shop"), signal.SIGTERM)
        assert [told.outcome for told in found] == ["succeeded"]


async def test_a_relay_continues_the_runs_that_its_command_line_names(zygote: Zygote) -> None:
    """What may have happened in one of them is not made again in this one."""
    async with sandbox(zygote, None, **GATEWAY) as made:
        life = made.start(kill_at="dispatch.answered")
        await life.ready()
        async with agent(made, "old") as one:
            lost = await lost_by(made, life, one)
        async with agent(made, "new", "--resumes", "old") as anew:
            equal = await anew.call("counter__count", n=1)
        async with agent(made, "another") as other:
            unrelated = await other.call("counter__count", n=1)
        assert (equal.outcome, equal.operation_id) == ("refused", lost.operation_id)
        assert unrelated.outcome == "succeeded"


async def test_a_relay_starts_nothing(zygote: Zygote) -> None:
    """It carries lines: an agent that ends it has ended all of it."""
    async with standing(zygote, **GATEWAY) as made:
        async with agent(made, program=folder(made, "shop")) as one:
            await one.call("counter__count", n=1)
            children = children_of(pid_of(made, "shop"))
        assert children == []


def children_of(pid: int) -> list[str]:
    """Return the process ids of what a process has started."""
    found = (task.joinpath("children").read_text() for task in Path(f"/proc/{pid}/task").iterdir())
    return " ".join(found).split()
