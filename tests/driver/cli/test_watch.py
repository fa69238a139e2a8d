"""`effectd ops --watch`: what changes is shown, on a terminal and in a pipe, across restarts."""

import json
import os
import pty
import signal
import subprocess
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from anyio.abc import Process

from tests.driver.cli.desk import EFFECTD, run, write_config
from tests.driver.cli.test_tail import Lines
from tests.driver.local.world import operation_id, served

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def watching(config: Path, *arguments: str) -> AsyncGenerator[tuple[Process, Lines]]:
    """A real `effectd ops --watch`, killed at the end if it is still there."""
    command = [*EFFECTD, "ops", "--watch", *arguments, "--config", str(config)]
    async with await anyio.open_process(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield process, Lines(process)
        finally:
            if process.returncode is None:
                process.kill()


async def test_a_pipe_gets_a_line_for_each_change_across_restarts(tmp_path: Path) -> None:
    """Each operation once, until it changes; Ctrl-C is a clean end."""
    config = write_config(tmp_path)
    async with AsyncExitStack() as stack:
        async with served(tmp_path) as world:
            await world.accept("cmd-1")
            process, lines = await stack.enter_async_context(watching(config))
            (first,) = await lines.next(1)
            assert (operation_id("cmd-1") in first, "accepted" in first) == (True, True)
            await world.lose("cmd-2")
            (second,) = await lines.next(1)
            assert (operation_id("cmd-2") in second, "crash_window" in second) == (True, True)
        async with served(tmp_path) as world:
            await world.succeed("cmd-3")
            (third,) = await lines.next(1)
            assert (operation_id("cmd-3") in third, "effect occurred" in third) == (True, True)
        process.send_signal(signal.SIGINT)
        with anyio.fail_after(30):
            assert await process.wait() == 0


async def test_as_json_it_is_the_apis_own_object(tmp_path: Path) -> None:
    """One object a line, under the same filters."""
    config = write_config(tmp_path)
    async with served(tmp_path) as world:
        await world.succeed("cmd-1")
        await world.lose("cmd-2")
        async with watching(config, "--json", "--unsettled") as (_, lines):
            (line,) = await lines.next(1)
        page = (await world.get("/v1/operations", unsettled="true")).json()
    assert json.loads(line) == page["items"][0]


async def test_a_terminal_shows_the_list_as_it_is(tmp_path: Path) -> None:
    """It is drawn anew when something happens."""
    config = write_config(tmp_path)
    async with served(tmp_path) as world:
        await world.lose("cmd-1")
        ours, theirs = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200", "LINES": "40"}
        command = [*EFFECTD, "ops", "--watch", "--config", str(config)]
        async with await anyio.open_process(
            command, stdout=theirs, stderr=subprocess.DEVNULL, env=environment
        ) as process:
            os.close(theirs)
            shown = b""
            with anyio.fail_after(60):
                while operation_id("cmd-1").encode() not in shown:
                    shown += await to_thread.run_sync(os.read, ours, 65_536)
                await world.lose("cmd-2")
                while operation_id("cmd-2").encode() not in shown:
                    shown += await to_thread.run_sync(os.read, ours, 65_536)
                process.send_signal(signal.SIGINT)
                assert await process.wait() == 0
        os.close(ours)
    assert b"OPERATION" in shown


def test_without_a_daemon_it_says_what_to_do(tmp_path: Path) -> None:
    """As every read: waiting is for a daemon that was there."""
    assert run(write_config(tmp_path), "ops", "--watch").exit_code == 3
