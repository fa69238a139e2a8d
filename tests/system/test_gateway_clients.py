"""Clients that others wrote, at the gateway, and servers that others wrote behind it."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client as FastClient
from fastmcp.client.transports import StdioTransport

from tests.peers import from_npm, from_pypi
from tests.system.agents import ERAS, Era, agent, command
from tests.system.sandbox import Sandbox, standing
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.lane]


async def test_fastmcp_lists_and_calls(zygote: Zygote) -> None:
    """Its results are as the server gave them, and its calls are in the journal."""
    async with standing(zygote, gateway={}) as made:
        first, *rest = command(made, "run-1")
        async with FastClient(StdioTransport(command=first, args=rest)) as client:
            names = [tool.name for tool in await client.list_tools()]
            result = await client.call_tool("counter__count", {"n": 1})
        assert "counter__count" in names
        assert (result.structured_content or {})["count"] == 1
        assert len(made.effects()) == 1


async def inspect(made: Sandbox, *arguments: str) -> dict[str, Any]:
    """Return what the inspector prints of one request."""
    program = from_npm("mcp-inspector")
    first, *rest = command(made, "run-1")
    servers = made.root / "servers.json"
    servers.write_text(json.dumps({"mcpServers": {"effectd": {"command": first, "args": rest}}}))
    ended = await anyio.to_thread.run_sync(
        lambda: subprocess.run(
            [program, "--cli", "--config", str(servers), "--server", "effectd", *arguments],
            capture_output=True,
            timeout=120,
            check=False,
            env={**os.environ, "NO_COLOR": "1"},
        )
    )
    assert ended.returncode == 0, ended.stderr.decode()
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


async def test_the_inspector_lists_and_calls(zygote: Zygote) -> None:
    """The official inspector, in its command line mode."""
    async with standing(zygote, gateway={}) as made:
        listed = await inspect(made, "--method", "tools/list")
        called = await inspect(
            made, "--method", "tools/call", "--tool-name", "counter__count", "--tool-arg", "n=1"
        )
        assert "counter__count" in [tool["name"] for tool in listed["tools"]]
        assert called["structuredContent"]["count"] == 1
        assert len(made.effects()) == 1


@pytest.mark.parametrize("era", ERAS)
async def test_public_servers_are_passed_through(zygote: Zygote, tmp_path: Path, era: Era) -> None:
    """Git and time, with their schemas and annotations; what is committed through the gateway is there."""
    repository = tmp_path / "repository"
    await anyio.to_thread.run_sync(lambda: subprocess.run(["git", "init", "-q", repository], check=True))
    tables: dict[str, Any] = {
        "gateway": {},
        "providers__git": {"kind": "mcp", "argv": [from_pypi("mcp-server-git")]},
        "providers__time": {"kind": "mcp", "argv": [from_pypi("mcp-server-time")]},
    }
    async with standing(zygote, **tables) as made:
        async with agent(made, era=era) as one:
            tools = {tool.name: tool for tool in (await one.client.list_tools()).tools}
            status = await one.call("git__git_status", repo_path=str(repository))
            now = await one.call("time__get_current_time", timezone="Europe/Zurich")
            wrong = await one.call("git__git_status", repo_path="/nowhere")
        assert "repo_path" in tools["git__git_status"].input_schema["properties"]
        assert (status.outcome, now.outcome) == ("succeeded", "succeeded")
        assert "Europe/Zurich" in now.text
        assert (wrong.outcome, wrong.result.is_error) == ("failed", True)


@pytest.mark.parametrize("era", ERAS)
async def test_resources_prompts_and_progress_are_passed_through(zygote: Zygote, era: Era) -> None:
    """The official example server, which has all of them."""
    tables: dict[str, Any] = {
        "gateway": {},
        "providers__every": {"kind": "mcp", "argv": [from_npm("mcp-server-everything"), "stdio"]},
    }
    heard: list[float] = []

    async def said(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async with standing(zygote, **tables) as made:
        async with agent(made, era=era) as one:
            resources = (await one.client.list_resources()).resources
            read = await one.client.read_resource(str(resources[0].uri))
            prompts = (await one.client.list_prompts()).prompts
            simple = next(prompt.name for prompt in prompts if not prompt.arguments)
            prompt = await one.client.get_prompt(simple)
            names = await one.tools()
            slow = next(name for name in names if "long" in name)
            arguments = {"duration": 0.4, "steps": 4}
            done = await one.client.call_tool(slow, arguments, progress_callback=said)
        assert read.contents
        assert prompt.messages
        assert not done.is_error
        assert heard == sorted(heard)
        assert heard
