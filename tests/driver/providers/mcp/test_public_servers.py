"""Servers that others wrote: from PyPI and npm over stdio, and the official SDK's own over HTTP.

What they answer through the whole daemon stands in `tests.system.test_peers`.
"""

import re
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import pytest

from driver.core.attempts import Answered, NotSent
from driver.providers.mcp.life import Mode
from driver.providers.mcp.settings import HttpServer
from tests.driver.providers.mcp.stage import SERVERS, Stage, program, staged
from tests.peers import from_npm, from_pypi

pytestmark = pytest.mark.anyio

RUNS: Final = re.compile(rb"Uvicorn running on (http://127\.0\.0\.1:\d+) ")


@pytest.mark.parametrize(
    ("name", "arguments", "tools"),
    [
        ("mcp-server-everything", (), {"echo", "get-sum", "trigger-long-running-operation"}),
        ("mcp-server-filesystem", (".",), {"read_text_file", "write_file", "move_file"}),
        ("mcp-server-memory", (), {"create_entities", "read_graph", "delete_entities"}),
    ],
)
async def test_a_server_from_npm_lists_its_tools(
    tmp_path: Path, name: str, arguments: tuple[str, ...], tools: set[str]
) -> None:
    """Each is started as it comes, and speaks the older era."""
    async with staged(program(tmp_path, [from_npm(name), *arguments]), tmp_path / "ledger") as stage:
        assert await names_of(stage) >= tools


async def test_the_fetch_server_lists_its_tool(tmp_path: Path) -> None:
    """A public server, as it comes; what it fetches stands in the system tests."""
    async with staged(program(tmp_path, [from_pypi("mcp-server-fetch")]), tmp_path / "ledger") as stage:
        assert await names_of(stage) == {"fetch"}


async def test_a_tool_that_only_makes_tasks_has_an_answer(tmp_path: Path) -> None:
    """The server refuses plain calls of it, gives a handle, and has the answer some seconds later."""
    everything = program(tmp_path, [from_npm("mcp-server-everything")])
    async with staged(everything, tmp_path / "ledger") as stage:
        report = await stage.dispatch(stage.call("simulate-research-query", {"topic": "ink"}, timeout_s=120))
    assert isinstance(report, Answered)
    assert not report.is_error
    assert "# Research Report: ink" in str(report.result["content"])


async def names_of(stage: Stage) -> set[str]:
    """Return the names of the tools that are really served."""
    assert stage.provider is not None
    tools = await stage.provider.list_tools()
    assert not isinstance(tools, NotSent), tools.message
    return {tool.name for tool in tools}


async def test_the_time_server_tells_the_time(tmp_path: Path) -> None:
    """A public server, as it comes."""
    async with staged(program(tmp_path, [from_pypi("mcp-server-time")]), tmp_path / "ledger") as stage:
        assert await names_of(stage) >= {"get_current_time", "convert_time"}
        report = await stage.dispatch(stage.call("get_current_time", {"timezone": "UTC"}))
        assert isinstance(report, Answered)
        assert not report.is_error
        bad = await stage.dispatch(stage.call("get_current_time", {"timezone": "Nowhere/Land"}))
        assert isinstance(bad, Answered)
        assert bad.is_error


async def test_the_git_server_commits_once(tmp_path: Path) -> None:
    """One call, one commit in a real repository; a wrong argument is caught before it leaves."""
    repository = tmp_path / "repository"
    await anyio.to_thread.run_sync(_make_repository, repository)
    server = program(tmp_path, [from_pypi("mcp-server-git"), "--repository", str(repository)])
    async with staged(server, tmp_path / "ledger") as stage:
        assert stage.provider is not None
        call = stage.call("git_commit", {"repo_path": str(repository), "message": "once"})
        assert await stage.provider.prepare(call) is None
        report = await stage.dispatch(call)
        assert isinstance(report, Answered)
        assert not report.is_error
        wrong = await stage.provider.prepare(stage.call("git_commit", {"repo_path": str(repository)}))
        assert isinstance(wrong, NotSent)
        assert wrong.reason == "invalid_arguments"
    assert await anyio.to_thread.run_sync(_git, repository, "log", "--format=%s") == "once\n"


def _make_repository(path: Path) -> None:
    path.mkdir()
    _git(path, "init", "--quiet")
    _git(path, "config", "user.email", "test@example.invalid")
    _git(path, "config", "user.name", "test")
    (path / "file").write_text("content")
    _git(path, "add", "file")


def _git(path: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(path), *arguments], check=True, capture_output=True, text=True
    ).stdout


@asynccontextmanager
async def sdk_server(ledger: Path, *options: str) -> AsyncGenerator[str]:
    """Run the SDK's server in a process of its own, and return its URL once it listens."""
    argv = [sys.executable, str(SERVERS / "sdk_http.py"), "0", str(ledger), *options]
    async with await anyio.open_process(argv, stdout=subprocess.DEVNULL) as process:
        assert process.stderr is not None
        said = b""
        with anyio.fail_after(30):
            while (place := RUNS.search(said)) is None:
                said += await process.stderr.receive()
        try:
            yield f"{place[1].decode()}/mcp"
        finally:
            process.kill()


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("options", [(), ("json",)])
async def test_the_sdks_own_server_is_called_once_for_each_call(
    tmp_path: Path, options: tuple[str, ...], mode: Mode
) -> None:
    """Streams and plain JSON, in both eras; what it answers is what it did."""
    ledger = tmp_path / "ledger"
    async with sdk_server(ledger, *options) as url, staged(HttpServer(url=url), ledger) as stage:
        assert stage.provider is not None
        stage.provider._mode = mode
        for n in range(3):
            report = await stage.dispatch(stage.call("count", {"n": n}))
            assert isinstance(report, Answered)
            assert report.result["structuredContent"] == {"result": n + 1}
            assert not report.output_invalid
            assert ("resultType" in report.result) == (mode == "auto")
    assert ledger.read_text() == "0\n1\n2\n"
