"""The gateway, with real agents: one execution for one call, and an honest word about it, whatever dies."""

import shutil
import sys
from typing import Any, Final, cast

import anyio
import pytest
from mcp_types import RequestParamsMeta

from tests.system.agents import ERAS, OPERATION_ID, REPLAYED, Era, Told, agent
from tests.system.history import Json
from tests.system.sandbox import Sandbox, sandbox, standing
from tests.system.test_restored_backup import backup, restore_backup
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.kill]

KILLED = -9
GATEWAY: Final[dict[str, Any]] = {"gateway": {}}
SPAN: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

FORGETFUL: Final = """
import json
import sys
from uuid import uuid4
from driver.gateway import ledger
whole = ledger.Entry.asked
def asked(self, journal_id):
    data = whole(self, journal_id)
    if self.command_id is None:
        return data
    message = json.loads(data)
    params = message["params"]
    meta = {name: value for name, value in params["_meta"].items() if not name.startswith("dev.effectd/")}
    meta["dev.effectd/command-id"] = "gateway:" + uuid4().hex
    return json.dumps({**message, "params": {**params, "_meta": meta}}).encode() + b"\\n"
ledger.Entry.asked = asked
from driver.cli.main import main
sys.argv = ["effectd", "mcp", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("era", ERAS)
async def test_an_agents_calls_go_through_the_journal_and_come_back_unchanged(
    zygote: Zygote, era: Era
) -> None:
    """Tools of all providers under their names; a result as the provider gave it, and our words beside it."""
    async with standing(zygote, **GATEWAY) as made:
        async with agent(made, era=era) as one:
            tools = await one.tools()
            told = await one.call("counter__count", n=1)
        operation = await made.operation(told.operation_id)
    assert {"counter__count", "reader__slow", "effectd__operations"} <= set(tools)
    assert told.result.structured_content == {"count": 1, "key": told.operation_id}
    assert (told.outcome, REPLAYED in told.meta) == ("succeeded", False)
    assert (operation["origin"], operation["run_id"], operation["tool"]) == (
        "gateway",
        "run-1",
        "counter/count",
    )


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("said", [SPAN, "its own span", 7], ids=["a span", "no span", "no text"])
async def test_a_call_is_part_of_the_span_that_its_agent_makes_it_in(
    zygote: Zygote, era: Era, said: object
) -> None:
    """What stands in `_meta.traceparent`, as MCP has it, is the command's; what is no span is dropped."""
    async with standing(zygote, **GATEWAY) as made:
        async with agent(made, era=era) as one:
            meta = cast("RequestParamsMeta", {"traceparent": said})
            told = Told(await one.client.call_tool("counter__count", {"n": 1}, meta=meta))
        accepted: Json = {}

        def is_accepted(event: Json) -> bool:
            accepted.update(event)
            return bool(event["kind"] == "command.accepted")

        await made.events_until(is_accepted)
    assert told.outcome == "succeeded"
    assert accepted["data"].get("traceparent") == (said if said == SPAN else None)


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_whose_outcome_was_committed_is_answered_from_the_journal_after_a_kill(
    zygote: Zygote, era: Era
) -> None:
    """The relay asks again under the same id: the stored answer, marked, and no second effect."""
    told = await killed_at(zygote, "dispatch.outcome_committed", era)
    assert told.outcome == "succeeded"
    assert told.meta[REPLAYED] is True
    assert not told.result.is_error


async def killed_at(zygote: Zygote, boundary: str, era: Era = "legacy") -> Told:
    """Return what an agent is told whose daemon is killed at a boundary, and is started again."""
    async with sandbox(zygote, None, **GATEWAY) as made:
        life = made.start(kill_at=boundary)
        await life.ready()
        found: list[Told] = []
        async with agent(made, era=era) as one, anyio.create_task_group() as tasks:

            async def ask() -> None:
                found.append(await one.call("counter__count", n=1))

            tasks.start_soon(ask)
            assert await life.exit_code() == KILLED
            await made.start().ready()
        assert max(made.executions().values(), default=0) <= 1
        return found[0]


@pytest.mark.parametrize("era", ERAS)
async def test_an_effect_without_a_recorded_outcome_is_told_as_unknown(zygote: Zygote, era: Era) -> None:
    """What may have happened is said to, with its operation, and never with advice to do it once more."""
    told = await killed_at(zygote, "dispatch.answered", era)
    assert told.result.is_error
    assert told.outcome == "unknown"
    assert told.text.startswith("unknown: ")
    assert told.operation_id in told.text
    assert "try again" not in told.text.lower()
    assert "Do not repeat" in told.text


@pytest.mark.parametrize(
    "boundary", ["intake.committed", "dispatch.intent_committed", "dispatch.before_call"]
)
async def test_a_kill_at_any_step_leaves_one_execution_at_most(zygote: Zygote, boundary: str) -> None:
    """Whatever the agent is told then, it is not an error that hides an effect."""
    told = await killed_at(zygote, boundary)
    assert told.outcome in ("unknown", "succeeded")


async def test_a_journal_that_is_lost_under_a_call_makes_it_unknown(zygote: Zygote) -> None:
    """A new journal knows nothing of a call that the old one may have executed, and does not execute it."""
    async with sandbox(zygote, None, **GATEWAY) as made:
        life = made.start(kill_at="dispatch.outcome_committed")
        await life.ready()
        found: list[Told] = []
        async with agent(made) as one, anyio.create_task_group() as tasks:

            async def ask() -> None:
                found.append(await one.call("counter__count", n=1))

            tasks.start_soon(ask)
            assert await life.exit_code() == KILLED
            await anyio.to_thread.run_sync(shutil.rmtree, made.state)
            await made.start().ready()
        assert found[0].outcome == "unknown"
        assert "an earlier journal" in found[0].text
        assert len(made.effects()) == 1


async def test_a_fenced_daemon_does_not_deny_what_was_executed(zygote: Zygote) -> None:
    """Asked again about a call that its journal has, it tells the stored outcome; a new call is refused."""
    async with sandbox(zygote, None, **GATEWAY) as made:
        life = made.start(kill_at="dispatch.outcome_committed")
        await life.ready()
        found: list[Told] = []
        async with agent(made) as one, anyio.create_task_group() as tasks:

            async def ask() -> None:
                found.append(await one.call("counter__count", n=1))

            tasks.start_soon(ask)
            assert await life.exit_code() == KILLED
            await backup(made)
            await anyio.to_thread.run_sync(restore_backup, made)
            await made.start().ready()
            while not found:  # noqa: ASYNC110 - the answer tells only its asker
                await anyio.sleep(0.02)
            refused = await one.call("counter__count", n=2)
            assert (refused.outcome, refused.meta["dev.effectd/code"]) == ("refused", "fenced")
        assert (found[0].outcome, found[0].meta[REPLAYED]) == ("succeeded", True)
        assert len(made.effects()) == 1


async def test_a_relay_that_mints_a_new_id_doubles_an_effect(zygote: Zygote) -> None:
    """Control: the same kill, with a relay that asks again under another id."""
    allowing = {"providers__counter__tools__count": {"identical": "allow"}}
    async with sandbox(zygote, None, **GATEWAY, **allowing) as made:
        life = made.start(kill_at="dispatch.outcome_committed")
        await life.ready()
        program = (sys.executable, "-c", FORGETFUL)
        async with agent(made, program=program) as one, anyio.create_task_group() as tasks:
            tasks.start_soon(one.client.call_tool, "counter__count", {"n": 1})
            assert await life.exit_code() == KILLED
            await made.start().ready()
        assert len(made.effects()) == 2


async def test_an_answer_before_the_commit_is_a_lie(zygote: Zygote) -> None:
    """Control: a gateway that answers when the provider does tells a success that the journal never had."""
    async with sandbox(zygote, None, **GATEWAY) as made:
        life = made.start(patch="answer_uncommitted")
        await life.ready()
        async with agent(made) as one:
            told = await one.call("counter__count", n=1)
        await life.kill()
        await made.start().ready()
        operation = await made.operation(told.operation_id)
    assert (told.outcome, operation["state"]) == ("succeeded", "unknown")


async def test_an_equal_call_that_runs_is_attached_to(zygote: Zygote) -> None:
    """Two equal calls at once are one execution, and both get its answer."""
    async with standing(zygote, **GATEWAY) as made:
        gate = made.root / "gate"
        found: list[Told] = []
        async with agent(made) as one, anyio.create_task_group() as tasks:

            async def ask() -> None:
                found.append(await one.call("counter__slow", until=str(gate), n=1))

            tasks.start_soon(ask)
            await made.effects_reach(1)
            tasks.start_soon(ask)
            await attached(made, 1)
            gate.touch()
        assert [told.outcome for told in found] == ["succeeded", "succeeded"]
        assert len({told.operation_id for told in found}) == 1
        assert len(made.effects()) == 1


async def attached(made: Sandbox, count: int) -> None:
    """Return once so many calls have attached to others."""
    wanted = f"effectd_gateway_calls_attached_total {count}.0"
    async with made._client() as client:
        with anyio.fail_after(60):
            while wanted not in (await client.get("/metrics")).text:  # noqa: ASYNC110 - nobody is told of it
                await anyio.sleep(0.05)


async def test_a_look_alike_of_what_may_have_happened_is_refused(zygote: Zygote) -> None:
    """The agent's own resend after an uncertain outcome executes nothing, and is told of its twin."""
    async with sandbox(zygote, None, **GATEWAY) as made:
        life = made.start(kill_at="dispatch.answered")
        await life.ready()
        first: list[Told] = []
        told = anyio.Event()
        async with agent(made) as one, anyio.create_task_group() as tasks:

            async def ask() -> None:
                first.append(await one.call("counter__count", n=1))
                told.set()

            tasks.start_soon(ask)
            assert await life.exit_code() == KILLED
            await made.start().ready()
            with anyio.fail_after(60):
                await told.wait()
            second = await one.call("counter__count", n=1)
            other = await one.call("counter__count", n=2)
            assert (second.outcome, second.meta["dev.effectd/code"]) == ("refused", "lookalike_unsettled")
            assert second.operation_id == first[0].operation_id
            assert "state unknown" in second.text
            assert "try again" not in second.text.lower()
            assert other.outcome == "succeeded"
        assert len(made.effects()) == 2


async def test_the_run_is_that_of_the_command_line_and_survives_a_restart(zygote: Zygote) -> None:
    """Nothing that an agent sends names its run; a resumed run guards, too."""
    async with standing(zygote, **GATEWAY) as made:
        life = made.lives[-1]
        async with agent(made, "mine") as one:
            before = await one.call("counter__count", n=1, run_id="other", repeat=True)
            await life.kill()
            await made.start().ready()
            after = await one.call("counter__count", n=2)
        runs = {(await made.operation(told.operation_id))["run_id"] for told in (before, after)}
    assert runs == {"mine"}


async def test_two_gateways_on_one_run_are_told_so(zygote: Zygote) -> None:
    """The second one gets a tool error for its calls, and executes nothing, until the first has gone."""
    async with standing(zygote, **GATEWAY) as made:
        async with agent(made, "shared") as first:
            await first.call("counter__count", n=1)
            async with agent(made, "shared") as second:
                refused = await second.call("counter__count", n=2)
        async with agent(made, "shared") as later:
            taken = await later.call("counter__count", n=2)
        assert (refused.outcome, refused.meta["dev.effectd/code"]) == ("refused", "run_in_use")
        assert refused.result.is_error
        assert taken.outcome == "succeeded"
        assert len(made.effects()) == 2


async def test_wrong_input_is_a_tool_error_and_executes_nothing(zygote: Zygote) -> None:
    """An unknown tool, arguments that do not fit, arguments that are too large: each says what is wrong."""
    async with standing(zygote, **GATEWAY) as made:
        async with agent(made) as one:
            unknown = await one.call("counter__nothing")
            nowhere = await one.call("nobody__nothing")
            unfit = await one.call("counter__count", n="one")
            large = await one.call("counter__count", label="x" * 1_200_000)
            larger = await one.call("counter__count", label="x" * 5_000_000)
            after = await one.call("counter__count", n=1)
        assert (unknown.outcome, nowhere.outcome) == ("unknown_tool", "unknown_tool")
        assert (unfit.outcome, "invalid_arguments" in unfit.text) == ("not_executed", True)
        assert ("oversize" in large.text, "oversize" in larger.text) == (True, True)
        assert all(told.result.is_error for told in (unknown, nowhere, unfit, large, larger))
        assert after.outcome == "succeeded"
        assert len(made.effects()) == 1


async def test_a_fenced_or_stopping_daemon_is_a_tool_error(zygote: Zygote) -> None:
    """What a daemon refuses that acts on nothing is a refusal for the agent, too."""
    async with standing(zygote, **GATEWAY, driver={"drain_s": 60}) as made:
        life = made.lives[-1]
        gate = made.root / "gate"
        async with agent(made) as one, anyio.create_task_group() as tasks:
            tasks.start_soon(one.client.call_tool, "counter__slow", {"until": str(gate)})
            await made.effects_reach(1)
            status, _ = await made.post("/v1/drain", {})
            told = await one.call("counter__count", n=1)
            gate.touch()
            assert status == 202
            assert (told.outcome, told.meta["dev.effectd/code"]) == ("refused", "draining")
            assert "nothing was executed" in told.text
        assert await life.exit_code() == 0
        assert len(made.effects()) == 1


async def test_the_own_tools_look_and_settle_nothing(zygote: Zygote) -> None:
    """An agent sees the operations of its run, each whole, and no other run's."""
    async with standing(zygote, **GATEWAY) as made:
        async with agent(made, "mine") as one:
            told = await one.call("counter__count", n=1)
            listed = await one.call("effectd__operations")
            shown = await one.call("effectd__operation", operation_id=told.operation_id)
            probed = await one.call("effectd__probe", operation_id=told.operation_id)
        async with agent(made, "other") as other:
            hidden = await other.call("effectd__operation", operation_id=told.operation_id)
    listing, content = listed.content, shown.content
    assert [item["operation_id"] for item in listing["operations"]] == [told.operation_id]
    assert (content["state"], content["result"]["structuredContent"]["count"]) == ("succeeded", 1)
    assert "no_probe_declared" in probed.text
    assert hidden.outcome == "not_found"


async def test_the_socket_is_for_the_group_and_goes_with_the_daemon(zygote: Zygote) -> None:
    """0660, made before the daemon is ready, and removed at its end."""
    async with standing(zygote, **GATEWAY) as made:
        life = made.lives[-1]
        path = anyio.Path(made.runtime / "gateway.sock")
        mode = (await path.stat()).st_mode & 0o777
        assert await life.stop() == 0
        assert (mode, await path.exists()) == (0o660, False)


async def test_operation_ids_say_which_run_and_call(zygote: Zygote) -> None:
    """Two calls with the same arguments, one after the other, are two intents: both run."""
    async with standing(zygote, **GATEWAY) as made:
        async with agent(made) as one:
            told = [await one.call("counter__count", n=1) for _ in range(3)]
        assert len({item.meta[OPERATION_ID] for item in told}) == 3
        assert len(made.effects()) == 3


async def test_the_status_and_the_doctor_know_of_the_gateway(zygote: Zygote) -> None:
    """How many are connected; and a socket that nobody can connect to is a breakage."""
    async with standing(zygote, **GATEWAY) as made:
        async with agent(made):
            found = (await made.status())["gateway"]
            shown = await made.command("status")
        healthy = await made.command("doctor")
        await anyio.Path(made.runtime / "gateway.sock").unlink()
        broken = await made.command("doctor")
        assert found == {"connections": 1, "listen": None}
        assert "on, 1 connected" in shown.text
        assert (healthy.code, broken.code) == (0, 2)
        assert "agents cannot connect" in broken.text
