"""Looks around an attempt: kept outside the events, without what is withheld, and never in a call's way."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from driver.core.attempts import ToolCall
from driver.core.contracts import Contract
from driver.core.redaction import Redaction
from driver.engine.observing import Observer
from driver.engine.supervision import outside
from driver.engine.surroundings import Surroundings
from store.records import ObservationRecord, OperationRecord
from store.view import View
from supervisor.material import gather
from supervisor.triage import Outside
from supervisor.wall import build
from tests.driver.engine.rig import RUN, Rig, ScriptedProvider, call, engine

pytestmark = pytest.mark.anyio

SECRET = "canary-0123456789"


@dataclass
class Watching(ScriptedProvider):
    """Sees a little more each time it looks. Implements `Observing`."""

    sees: Callable[[ToolCall], str | None] = lambda _call: "clean"
    looks: list[ToolCall] = field(default_factory=list[ToolCall])
    blind: bool = False

    def observes(self, tool: str) -> bool:
        return tool == "act"

    async def observe(self, call: ToolCall) -> str | None:
        self.looks.append(call)
        if self.blind:
            raise RuntimeError("no eyes")
        return self.sees(call)


async def seen(rig: Rig) -> list[tuple[str, str]]:
    """What was kept around the newest attempt."""
    operation = await rig.operation()
    found: tuple[ObservationRecord, ...] = await rig.journal.read(
        lambda view: view.observations(operation.operation_id)
    )
    return [(item.side, item.text) for item in found]


def around(rig: Rig) -> Surroundings:
    """What the engine of the rig stands on."""
    return rig.engine._around


def supervision(rig: Rig) -> Outside:
    """What a supervisor over the rig would be told."""
    return outside(around(rig))


async def test_an_attempt_is_looked_at_before_and_after(tmp_path: Path) -> None:
    """The first look is durable before the call leaves, the second when its outcome is."""
    provider = Watching(fails=RuntimeError("gone"))
    provider.sees = lambda _: f"{len(provider.executed)} calls"
    async with engine(tmp_path, provider) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await rig.quiet()
        assert await seen(rig) == [("before", "0 calls"), ("after", "1 calls")]
        assert all(b"calls" not in (event.body or b"") for event in await rig.events())
        assert provider.looks[0].arguments == {"n": 1}


async def test_what_succeeded_needs_no_second_look(tmp_path: Path) -> None:
    """Its provider has said what happened."""
    async with engine(tmp_path, Watching()) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await rig.quiet()
        assert await seen(rig) == [("before", "clean")]


@pytest.mark.parametrize("blind", [False, True])
async def test_a_look_that_fails_is_in_no_call_s_way(tmp_path: Path, blind: bool) -> None:
    """Whether it saw nothing or broke: the call goes out, and nothing is kept."""
    provider = Watching(blind=blind)
    provider.sees = lambda _: None
    async with engine(tmp_path, provider) as rig:
        await rig.intake.deliver([call()])
        assert (await rig.settled()).state == "succeeded"
        await rig.quiet()
        assert await seen(rig) == []


async def test_what_a_contract_withholds_is_in_no_look_and_no_wall(tmp_path: Path) -> None:
    """Neither in the arguments, nor where a command, or the provider's error, quotes them."""
    contract = Contract(declared=True, redact=Redaction(("arguments.token",)))
    provider = Watching(fails=RuntimeError(f"no such token: {SECRET}"))
    provider.sees = lambda asked: f"token {asked.arguments['token']} is known"
    async with engine(tmp_path, provider, contract=contract) as rig:
        await rig.intake.deliver([call(arguments={"token": SECRET, "title": "shown"})])
        await rig.settled()
        await rig.quiet()
        assert [text for _, text in await seen(rig)] == ["token [redacted] is known"] * 2
        told = supervision(rig)
        material = await rig.journal.read(lambda view: gather(view, RUN, told.awaits))
        assert material is not None
        wall = build(material, told.disclosure, 64_000)
        assert SECRET not in wall.text
        assert '"title":"shown"' in wall.text
        assert "[redacted]" in wall.text


async def test_a_contract_that_withholds_results_lets_nobody_look(tmp_path: Path) -> None:
    """Which part of an output is one of them, nobody could say."""
    contract = Contract(declared=True, redact=Redaction(("result.structuredContent",)))
    provider = Watching()
    async with engine(tmp_path, provider, contract=contract) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        await rig.quiet()
        assert provider.looks == []


async def test_what_a_crash_kept_from_being_seen_is_looked_at_before_the_wall(tmp_path: Path) -> None:
    """Once; what was seen already stays as it is."""
    provider = Watching(fails=RuntimeError("gone"))
    async with engine(tmp_path, provider) as rig:
        provider.blind = True
        await rig.intake.deliver([call()])
        lost: OperationRecord = await rig.settled()
        await rig.quiet()
        assert await seen(rig) == []
        provider.blind = False
        await Observer(around(rig)).look_again([lost])
        provider.sees = lambda _: "changed"
        await Observer(around(rig)).look_again([lost])
        assert await seen(rig) == [("after", "clean")]


async def test_the_supervisor_acts_while_the_daemon_is_ready_and_not_else(tmp_path: Path) -> None:
    """Starting, draining and fenced daemons ask nobody."""
    async with engine(tmp_path, Watching()) as rig:
        told = supervision(rig)
        assert told.may_act()
        rig.posture.draining = True
        assert not told.may_act()
        rig.posture.draining, rig.posture.ready = False, False
        assert not told.may_act()


async def test_an_operation_without_a_probe_is_not_waited_for(tmp_path: Path) -> None:
    """Nothing will settle it by itself: it comes on the wall at once."""
    async with engine(tmp_path, Watching(fails=RuntimeError("gone"))) as rig:
        await rig.intake.deliver([call()])
        lost = await rig.settled()
        told = supervision(rig)

        def awaited(view: View) -> bool:
            return told.awaits(view, lost)

        assert not await rig.journal.read(awaited)
