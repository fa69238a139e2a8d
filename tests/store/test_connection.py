"""The one connection: its settings, its one hop, and what goes wrong without its owner."""

import sqlite3
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio import CancelScope, create_task_group

import store.connection as connection_module
from store.connection import JournalConnection, configure, connect, prepare_new, verify_settings
from store.errors import JournalFailed, SettingNotTaken
from tests.store.conftest import Open
from tests.store.disk import IOERR_FSYNC, failing_disk
from tests.store.drafts import driver_started, recording

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def connected(path: Path) -> AsyncGenerator[JournalConnection]:
    """A connection to a new file, with the journal's settings."""

    def prepare(raw: sqlite3.Connection) -> None:
        prepare_new(raw)
        configure(raw, path)
        raw.execute("CREATE TABLE t (a INTEGER PRIMARY KEY)")

    await anyio.Path(path).touch(mode=0o600)
    async with connect(path) as connection:
        assert isinstance(connection, JournalConnection)
        await connection.run(prepare)
        yield connection


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("synchronous", "NORMAL", 1),
        ("synchronous", "OFF", 0),
        ("locking_mode", "NORMAL", "normal"),
        ("journal_mode", "DELETE", "delete"),
        ("wal_autocheckpoint", "1000", 1000),
        ("secure_delete", "OFF", 0),
    ],
)
async def test_a_setting_that_was_not_taken_is_noticed(
    tmp_path: Path, name: str, value: str, found: int | str
) -> None:
    """Negative control of the read-back: SQLite itself says nothing where it cannot do as told."""

    def spoil(raw: sqlite3.Connection) -> None:
        raw.execute(f"PRAGMA {name} = {value}").fetchall()
        verify_settings(raw, tmp_path / "x.db")

    async with connected(tmp_path / "x.db") as connection:
        with pytest.raises(SettingNotTaken, match=f"{name} = .* reads back {found}") as raised:
            await connection.run(spoil)
        assert raised.value.exit_code == 2


async def test_an_open_journal_refuses_a_setting_that_was_not_taken(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `synchronous = FULL` there is no journal at all."""
    weak = tuple(
        ("synchronous", "NORMAL", wanted) if name == "synchronous" else (name, value, wanted)
        for name, value, wanted in connection_module._SET
    )
    async with opened():
        pass
    monkeypatch.setattr(connection_module, "_SET", weak)
    with pytest.raises(SettingNotTaken, match="synchronous"):
        async with opened():
            pass


async def test_with_a_weaker_setting_a_commit_is_not_flushed(tmp_path: Path) -> None:
    """Negative control of FULL: at NORMAL the count of flushes that the other tests rest on is zero."""

    def insert(raw: sqlite3.Connection) -> None:
        raw.execute("INSERT INTO t DEFAULT VALUES")

    with failing_disk() as disk:
        async with connected(tmp_path / "x.db") as connection:
            await connection.run(insert)
            disk.syncs.clear()
            await connection.run(insert)
            assert disk.syncs == ["x.db-wal"]
            disk.syncs.clear()
            await connection.run(lambda raw: raw.execute("PRAGMA synchronous = NORMAL").fetchall())
            await connection.run(insert)
            assert disk.syncs == []


async def test_without_an_owner_two_tasks_tear_each_others_transactions(tmp_path: Path) -> None:
    """Negative control of the owner: on aiosqlite's methods, a rollback takes another's write along."""
    async with connected(tmp_path / "x.db") as connection:
        began, wrote = anyio.Event(), anyio.Event()

        async def one() -> None:
            await connection.execute("BEGIN IMMEDIATE")
            await connection.execute("INSERT INTO t VALUES (1)")
            began.set()
            await wrote.wait()
            await connection.execute("ROLLBACK")

        async def another() -> None:
            await began.wait()
            await connection.execute(
                "INSERT INTO t VALUES (2)"
            )  # would commit by itself, were nobody else there
            wrote.set()

        async with create_task_group() as tasks:
            tasks.start_soon(one)
            tasks.start_soon(another)
        assert await connection.run(lambda raw: raw.execute("SELECT a FROM t").fetchall()) == []


async def test_without_whole_units_a_cancelled_caller_leaves_a_transaction_open(tmp_path: Path) -> None:
    """Negative control of the one hop: a caller cancelled between two statements never commits."""
    async with connected(tmp_path / "x.db") as connection:
        with CancelScope() as scope:
            await connection.execute("BEGIN IMMEDIATE")
            await connection.execute("INSERT INTO t VALUES (1)")
            scope.cancel()
            await connection.execute("COMMIT")
        # aiosqlite ran the statement all the same, or it did not: either way nobody was told
        assert scope.cancelled_caught


async def test_a_function_runs_whole_even_if_its_caller_is_cancelled(tmp_path: Path) -> None:
    """`run` is one hop: the function is in the connection's thread, and cancellation ends the wait only."""

    def both(raw: sqlite3.Connection) -> None:
        raw.execute("BEGIN IMMEDIATE")
        raw.execute("INSERT INTO t VALUES (1)")
        raw.execute("INSERT INTO t VALUES (2)")
        raw.execute("COMMIT")

    async with connected(tmp_path / "x.db") as connection:
        with CancelScope() as scope:
            scope.cancel()
            await connection.run(both)
        assert await connection.run(lambda raw: raw.execute("SELECT a FROM t").fetchall()) in (
            [],
            [(1,), (2,)],
        )


async def test_an_abandoned_connection_writes_nothing(tmp_path: Path) -> None:
    """Neither file changes; a plain close would have checkpointed, and removed the -wal."""
    path = tmp_path / "x.db"
    async with connected(path) as connection:
        for _ in range(20):
            await connection.run(lambda raw: raw.execute("INSERT INTO t DEFAULT VALUES"))
        before = [await anyio.Path(file).read_bytes() for file in (path, f"{path}-wal")]
        with failing_disk() as disk:
            await connection.abandon()
            assert disk.syncs == []
        assert [await anyio.Path(file).read_bytes() for file in (path, f"{path}-wal")] == before


async def test_a_failed_open_leaves_no_thread_behind(opened: Open) -> None:
    """An unclosed connection would hang the interpreter: whatever fails, it is closed."""
    async with opened() as journal:
        await journal.transact(recording(driver_started()))
    count = threading.active_count()
    with failing_disk() as disk:
        disk.on_read = lambda name: IOERR_FSYNC if name == "journal.db" else 0
        for _ in range(3):
            with pytest.raises(JournalFailed):
                async with opened():
                    pass
    assert threading.active_count() <= count + 1  # a worker of to_thread may have come and stayed
