"""The watchdog is fed while the journal commits, and by nothing else."""

import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest
from anyio.abc import UNIXDatagramSocket

from driver.watchdog import FEED, interval_s, watch
from store.transaction import Transaction
from tests.driver.engine.rig import ScriptedProvider, call, engine

pytestmark = pytest.mark.anyio

INTERVAL_S = 0.2
Channel = UNIXDatagramSocket


@asynccontextmanager
async def manager(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Channel]:
    """The service manager's end of the notify socket."""
    address = folder / "notify.sock"
    monkeypatch.setenv("NOTIFY_SOCKET", str(address))
    async with await anyio.create_unix_datagram_socket(local_path=address) as channel:
        yield channel


async def meal(channel: Channel) -> list[str]:
    """The next thing that the service manager is told."""
    with anyio.fail_after(30):
        packet, _ = await channel.receive()
    return packet.decode().splitlines()


async def test_an_idle_journal_is_made_to_commit_for_each_meal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit stands behind each feeding, and the state is told with it."""
    async with (
        manager(tmp_path, monkeypatch) as channel,
        engine(tmp_path, ScriptedProvider()) as rig,
        anyio.create_task_group() as tasks,
    ):
        before = rig.journal.statistics().commits
        tasks.start_soon(watch, rig.journal, INTERVAL_S, lambda: "ready")
        for _ in range(3):
            assert await meal(channel) == [FEED, "STATUS=ready"]
        assert rig.journal.statistics().commits >= before + 2
        tasks.cancel_scope.cancel()


async def test_a_journal_that_hangs_is_not_covered_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a commit does not return nothing is fed, for far longer than the interval; then it goes on."""
    stuck, free = anyio.Event(), threading.Event()
    async with (
        manager(tmp_path, monkeypatch) as channel,
        engine(tmp_path, ScriptedProvider()) as rig,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(watch, rig.journal, INTERVAL_S, lambda: "ready")
        await meal(channel)

        def hang(tx: Transaction) -> None:
            tx.beat()
            anyio.from_thread.run_sync(stuck.set, token=token)
            free.wait(60)

        token = anyio.lowlevel.current_token()
        tasks.start_soon(rig.journal.transact, hang)
        await stuck.wait()
        while True:  # what was said before it hung
            with anyio.move_on_after(INTERVAL_S * 5) as patience:
                await channel.receive()
            if patience.cancelled_caught:
                break
        free.set()
        assert (await meal(channel))[0] == FEED
        tasks.cancel_scope.cancel()


async def test_a_busy_journal_is_asked_for_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where calls commit anyway, the watchdog adds no commit of its own."""
    async with (
        manager(tmp_path, monkeypatch) as channel,
        engine(tmp_path, ScriptedProvider()) as rig,
        anyio.create_task_group() as tasks,
    ):
        await rig.intake.deliver([call()])
        await rig.settled()
        commits = rig.journal.statistics().commits
        tasks.start_soon(watch, rig.journal, 3600.0, lambda: "ready")
        assert (await meal(channel))[0] == FEED
        assert rig.journal.statistics().commits == commits
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}, None),
        ({"WATCHDOG_USEC": "often"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
    ],
)
def test_only_the_process_that_is_watched_feeds(environment: dict[str, str], expected: float | None) -> None:
    """WATCHDOG_PID names it; a child that inherits the variables is not it."""
    assert interval_s(environment, 7) == expected


async def test_a_long_unit_that_goes_on_is_no_hanging_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it tells of its steps the watchdog is fed; the state is told again with the next commit."""
    free = threading.Event()
    async with (
        manager(tmp_path, monkeypatch) as channel,
        engine(tmp_path, ScriptedProvider()) as rig,
        anyio.create_task_group() as tasks,
    ):

        def work(tx: Transaction) -> None:
            tx.beat()
            while not free.wait(INTERVAL_S / 50):
                tx.ledger.progress += 1

        tasks.start_soon(rig.journal.transact, work)
        tasks.start_soon(watch, rig.journal, INTERVAL_S, lambda: "ready")
        while await meal(channel) != [FEED]:
            pass  # what was said before it began
        assert await meal(channel) == [FEED]
        free.set()
        while await meal(channel) != [FEED, "STATUS=ready"]:
            pass
        tasks.cancel_scope.cancel()
