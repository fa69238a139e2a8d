"""`effectd tail`: from the past into the present, and across restarts of the daemon."""

import json
import shutil
import signal
import subprocess
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from driver.cli.tail import LAST
from store.records import JournalId
from store.rollback import accept_rollback
from tests.driver.cli.desk import EFFECTD, desk_in, write_config
from tests.driver.local.world import served

pytestmark = pytest.mark.anyio


class Lines:
    """The lines of a process's output, as they come."""

    def __init__(self, process: Process) -> None:
        assert process.stdout is not None
        self._stream = TextReceiveStream(process.stdout)
        self._rest = ""

    async def next(self, count: int) -> list[str]:
        """Return the next `count` lines."""
        with anyio.fail_after(30):
            while self._rest.count("\n") < count:
                self._rest += await self._stream.receive()
        *lines, self._rest = self._rest.split("\n", count)
        return lines

    async def seqs(self, count: int) -> list[int]:
        """Return the seqs of the next `count` lines of JSON."""
        return [json.loads(line)["seq"] for line in await self.next(count)]


@asynccontextmanager
async def tailing(config: Path, *arguments: str) -> AsyncGenerator[tuple[Process, Lines]]:
    """A real `effectd tail --follow`, killed at the end if it is still there."""
    command = [*EFFECTD, "tail", "--follow", *arguments, "--config", str(config)]
    async with await anyio.open_process(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield process, Lines(process)
        finally:
            if process.returncode is None:
                process.kill()


async def test_tail_shows_one_line_for_each_event(tmp_path: Path) -> None:
    """What it is about, for people; the wire's own bytes, for machines."""
    async with desk_in(tmp_path) as desk:
        await desk.world.lose("cmd-1")
        done = await desk.effectd("tail")
        kinds = [line.split()[3] for line in done.stdout.splitlines()]
        assert kinds == ["command.accepted", "operation.started", "operation.unknown"]
        wire = (await desk.world.get("/v1/events")).text
        assert (await desk.effectd("tail", "--json")).stdout == wire


async def test_tail_begins_near_the_end_or_where_it_is_told(tmp_path: Path) -> None:
    """The last ones, unless `--after` says otherwise."""
    async with desk_in(tmp_path) as desk:
        await desk.world.chatter(LAST + 20)
        assert len((await desk.effectd("tail")).stdout.splitlines()) == LAST
        assert len((await desk.effectd("tail", "--after", "0")).stdout.splitlines()) == LAST + 20
        assert len((await desk.effectd("tail", "--after", str(LAST + 19))).stdout.splitlines()) == 1


async def test_following_survives_restarts_and_ctrl_c_is_a_clean_end(tmp_path: Path) -> None:
    """Every event once, in order, whatever the daemon does; then exit code 0."""
    config = write_config(tmp_path)
    async with AsyncExitStack() as stack:
        async with served(tmp_path) as world:
            await world.chatter(3)
            process, lines = await stack.enter_async_context(tailing(config, "--json"))
            assert await lines.seqs(3) == [1, 2, 3]
            await world.chatter(1)
            assert await lines.seqs(1) == [4]
        for life in range(2):
            async with served(tmp_path) as world:
                await world.chatter(2)
                assert await lines.seqs(2) == [5 + 2 * life, 6 + 2 * life]
        process.send_signal(signal.SIGINT)
        with anyio.fail_after(30):
            assert await process.wait() == 0


async def test_following_ends_cleanly_while_the_daemon_is_away(tmp_path: Path) -> None:
    """Ctrl-C in the wait for a daemon is no error either."""
    config = write_config(tmp_path)
    async with AsyncExitStack() as stack:
        async with served(tmp_path) as world:
            await world.chatter(1)
            process, lines = await stack.enter_async_context(tailing(config, "--json"))
            await lines.next(1)
        process.send_signal(signal.SIGINT)
        with anyio.fail_after(30):
            assert await process.wait() == 0


async def test_another_journal_is_shown_from_its_beginning(tmp_path: Path) -> None:
    """A cursor means nothing in another history."""
    config = write_config(tmp_path)
    async with AsyncExitStack() as stack:
        async with served(tmp_path) as world:
            await world.chatter(5)
            _, lines = await stack.enter_async_context(tailing(config, "--json"))
            assert await lines.seqs(5) == [1, 2, 3, 4, 5]
        await anyio.to_thread.run_sync(shutil.rmtree, tmp_path / "state")
        async with served(tmp_path) as world:
            await world.chatter(2)
            assert await lines.seqs(2) == [1, 2]


async def test_following_goes_on_into_another_history(tmp_path: Path) -> None:
    """What begins in mid-stream is shown once, after a restart, too; an old cursor is refused."""
    config = write_config(tmp_path)
    async with AsyncExitStack() as stack:
        async with desk_in(tmp_path) as desk:
            await desk.world.chatter(5)
            _, lines = await stack.enter_async_context(tailing(config, "--json"))
            assert await lines.seqs(5) == [1, 2, 3, 4, 5]
            await desk.world.journal.transact(
                lambda tx: accept_rollback(tx, JournalId("e" * 32), reason="restored_backup", actor="plane")
            )
            assert await lines.seqs(1) == [1]
            refused = await desk.effectd("tail", "--after", "5")
            assert refused.exit_code == 1
            assert "--after 0" in refused.stderr
        async with served(tmp_path) as world:
            await world.chatter(2)
            assert await lines.seqs(2) == [2, 3]


async def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    """`effectd tail | head -1`."""
    async with desk_in(tmp_path) as desk:
        await desk.world.chatter(3_000)
        command = [*EFFECTD, "tail", "--after", "0", "--config", str(desk.config)]
        async with await anyio.open_process(command) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            await process.stdout.receive()
            await process.stdout.aclose()
            with anyio.fail_after(30):
                await process.wait()
                with pytest.raises(anyio.EndOfStream):
                    await process.stderr.receive()
