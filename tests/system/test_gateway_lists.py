"""The list of tools at the gateway: as the providers describe them, and kept fresh when they change."""

import sys
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from tests.system.agents import agent
from tests.system.sandbox import standing
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.kill]

CHANGING: Final = Path(__file__).parents[1] / "servers" / "changing_mcp.py"
TABLES: Final[dict[str, Any]] = {
    "gateway": {},
    "providers__changing": {"kind": "mcp", "argv": [sys.executable, "-I", "-S", str(CHANGING)]},
    "providers__shell": {"kind": "command"},
    "providers__shell__tools__say": {"argv": ["echo", "=arguments.text"]},
}


async def test_titles_schemas_and_annotations_are_passed_through(zygote: Zygote) -> None:
    """A program that is declared gets a schema of the arguments that its templates look at."""
    async with standing(zygote, **TABLES) as made:
        async with agent(made) as one:
            tools = {tool.name: tool for tool in (await one.client.list_tools()).tools}
            said = await one.call("shell__say", text="hi")
        grow, say = tools["changing__grow"], tools["shell__say"]
        assert (grow.title, grow.description) == ("Grow", "adds a tool")
        assert grow.annotations is not None
        assert grow.annotations.read_only_hint is True
        assert list(say.input_schema["properties"]) == ["text"]
        assert said.content["stdout"] == "hi\n"


async def test_a_change_of_a_providers_tools_is_told_and_listed(zygote: Zygote) -> None:
    """In the older era unasked: a client that lists again has the new tool, and can call it."""
    changed = anyio.Event()

    async def hear(message: Any) -> None:  # noqa: ANN401 - whatever the SDK hands over
        if "ToolListChanged" in type(getattr(message, "root", message)).__name__:
            changed.set()

    async with standing(zygote, **TABLES) as made:
        async with agent(made, message_handler=hear) as one:
            before = await one.tools()
            await one.call("changing__grow")
            with anyio.fail_after(60):
                await changed.wait()
            after = await one.tools()
            called = await one.call("changing__new1")
        assert set(after) - set(before) == {"changing__new1"}
        assert called.outcome == "succeeded"


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_client_of_the_newer_era_listens_for_changes_over_restarts(
    zygote: Zygote, restarted: bool
) -> None:
    """Its one request for them goes on with the next daemon, which nobody has to ask again."""
    async with standing(zygote, **TABLES) as made:
        life = made.lives[-1]
        async with agent(made, era="auto") as one, one.client.listen(tools_list_changed=True) as changes:
            before = await one.tools()
            if restarted:
                await life.kill()
                await made.start().ready()
                assert await one.tools() == before
            await one.call("changing__grow")
            with anyio.fail_after(60):
                await anext(aiter(changes))
            after = await one.tools()
        assert "changing__new1" in set(after) - set(before)
