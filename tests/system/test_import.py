"""The first five minutes: from a client's file to a call through the gateway, with nothing in between."""

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.servers import counter_mcp
from tests.system.real import EFFECTD, daemon, run

pytestmark = pytest.mark.anyio


async def test_a_clients_file_becomes_calls_through_the_journal() -> None:
    """`init`, `check`, `run`, and the client with the block that `init` printed: two servers, one journal."""
    with tempfile.TemporaryDirectory(prefix="effectd-") as name:
        folder = Path(name)
        servers = {
            "counter": {
                "command": sys.executable,
                "args": ["-I", "-S", counter_mcp.__file__, str(folder / "effects"), "--api-key=canary-1"],
                "env": {"TOKEN": "canary-2"},
            },
            "time": {"command": str(EFFECTD.with_name("mcp-server-time"))},
        }
        (folder / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
        config = folder / "effectd.toml"
        made = await anyio.to_thread.run_sync(run, "init", "--from", folder / ".mcp.json", "--config", config)
        assert made.returncode == 0, made.stderr
        checked = await anyio.to_thread.run_sync(run, "check", "--connect", "--config", config)
        assert checked.returncode == 0, checked.stdout
        block = re.search(r"^\{.+?^\}", made.stdout, re.MULTILINE | re.DOTALL)
        assert block is not None
        entry: dict[str, Any] = json.loads(block[0])["mcpServers"]["effectd"]
        with daemon(config, folder / "log"):
            server = StdioServerParameters(command=entry["command"], args=entry["args"])
            async with Client(stdio_client(server)) as client:
                tools = {tool.name for tool in (await client.list_tools()).tools}
                counted = await client.call_tool("counter__count", {"n": 1})
                now = await client.call_tool("time__get_current_time", {"timezone": "UTC"})
            listed = await anyio.to_thread.run_sync(run, "ops", "--json", "--config", config)
        operations = json.loads(listed.stdout)["items"]
        effects = (folder / "effects").read_text().splitlines()
        written = config.read_text() + made.stdout + made.stderr + (folder / "log").read_text()
    assert {"counter__count", "time__get_current_time"} <= tools
    assert (counted.is_error, now.is_error) == (False, False)
    assert len(effects) == 1
    assert {(one["tool"], one["state"]) for one in operations} == {
        ("counter/count", "succeeded"),
        ("time/get_current_time", "succeeded"),
    }
    assert len({one["run_id"] for one in operations}) == 1
    assert "canary" not in written
