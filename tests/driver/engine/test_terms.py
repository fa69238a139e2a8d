"""What holds for a tool that no contract declares, and that somebody is told of it."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from driver.core.answers import Silent
from driver.core.attempts import Phase
from driver.core.contracts import Contract, Contracts, ToolName
from driver.engine.terms import NAMED_MAX, Terms
from tests.driver.engine.rig import DECLARED, ScriptedProvider, call, engine

pytestmark = pytest.mark.anyio


def test_a_trusted_hint_makes_an_undeclared_tool_a_read_and_nothing_else() -> None:
    """A declared tool is what its contract says."""
    provider = ScriptedProvider(read_only=True)
    contracts = Contracts(tools={ToolName("tools", "act"): DECLARED})
    terms = Terms(contracts, {"tools": provider})
    assert terms.lookup("tools/other").effect == "read"
    assert terms.lookup("tools/act") is DECLARED
    assert terms.lookup("elsewhere/other").effect == "write"
    provider.connected = False
    assert terms.lookup("tools/other").effect == "write"


async def test_a_hint_that_is_known_at_admission_decides_it(tmp_path: Path) -> None:
    """Reads are never look-alikes; while nobody has said so, the tool is a write."""
    provider = ScriptedProvider(read_only=True, connected=False, held_at=Phase.WRITTEN)
    async with engine(tmp_path, provider, undeclared=True) as rig:
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
        assert (await rig.operation()).write
        provider.connected = True
        assert await rig.intake.deliver([call("cmd-2"), call("cmd-3")]) == [Silent(), Silent()]
        assert not (await rig.operation("cmd-2")).write
        provider.gate.set()
        for name in ("cmd-1", "cmd-2", "cmd-3"):
            await rig.settled(name)
    assert len(provider.executed) == 3


async def test_the_first_call_of_an_undeclared_tool_is_warned_of_once(tmp_path: Path) -> None:
    """With its name and the table to write, and none of its arguments."""
    with capture_logs() as logs:
        async with engine(tmp_path, ScriptedProvider(), undeclared=True) as rig:
            for n in range(2):
                await rig.intake.deliver([call(f"cmd-{n}", arguments={"secret": f"hunter{n}"})])
                await rig.settled(f"cmd-{n}")
    (warning,) = [line for line in logs if line["log_level"] == "warning"]
    assert warning == {
        "event": "tool_not_declared",
        "log_level": "warning",
        "tool": "tools/act",
        "taken_for": "write",
        "declare": "[providers.tools.tools.act]",
    }
    assert "hunter" not in str(logs)


async def test_a_declared_tool_is_warned_of_never(tmp_path: Path) -> None:
    """Its contract may well be empty: somebody has thought of it."""
    with capture_logs() as logs:
        async with engine(tmp_path, ScriptedProvider(), contract=Contract(declared=True)) as rig:
            await rig.intake.deliver([call()])
            await rig.settled()
    assert [line for line in logs if line["log_level"] == "warning"] == []


def test_the_table_to_write_is_quoted_as_toml_wants_it() -> None:
    """A tool's name is anything."""
    with capture_logs() as logs:
        Terms(Contracts(), {}).warn("issues/create issue", Contract())
    assert logs[0]["declare"] == '[providers.issues.tools."create issue"]'


def test_the_tools_that_are_warned_of_are_bounded() -> None:
    """Their names come from outside, and each is kept."""
    terms = Terms(Contracts(), {})
    with capture_logs() as logs:
        for n in range(NAMED_MAX + 10):
            terms.warn(f"tools/{n}", Contract())
    assert len(logs) == NAMED_MAX
