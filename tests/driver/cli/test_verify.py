"""`effectd verify`: through the daemon, on the file, and what its exit code says."""

import json
import sqlite3
from pathlib import Path

import pytest
from anyio import to_thread

from tests.driver.cli.desk import desk_in, run, write_config
from tests.driver.local.world import opened

pytestmark = pytest.mark.anyio


def damage(folder: Path) -> None:
    """Change a word of an event, as a bad disk might."""
    (path,) = (folder / "state").glob("journal*.db")
    with sqlite3.connect(path) as connection:
        connection.execute(
            "UPDATE events SET body = CAST(replace(body, '/test', '/tesT') AS BLOB) WHERE seq = 2"
        )
    connection.close()


async def test_a_sound_journal_of_a_running_daemon(tmp_path: Path) -> None:
    """The daemon looks."""
    async with desk_in(tmp_path) as desk:
        await desk.world.lose("cmd-1")
        done = await desk.effectd("verify")
        assert (done.exit_code, done.stdout) == (
            0,
            "The journal is sound (looked at by the daemon that runs).\n",
        )
        answer = json.loads((await desk.effectd("verify", "--json")).stdout)
        assert answer == {"ok": True, "looked_by": "daemon", "findings": []}


async def test_a_running_daemon_looks_deeply_too(tmp_path: Path) -> None:
    """What no event makes is found while it works; nothing is changed."""
    async with desk_in(tmp_path) as desk:
        await desk.world.lose("cmd-1")
        assert (await desk.effectd("verify", "--deep")).exit_code == 0
        await desk.world.journal.transact(
            lambda tx: tx.ledger.connection.execute("UPDATE attempts SET phase = 'reserved'")
        )
        assert (await desk.effectd("verify")).exit_code == 0, "no other row says what the phase was"
        done = await desk.effectd("verify", "--deep")
    assert done.exit_code == 1
    assert "the events make" in done.stdout


async def test_a_rebuild_needs_a_daemon_at_rest(tmp_path: Path) -> None:
    """It is refused, with the way there."""
    async with desk_in(tmp_path) as desk:
        done = await desk.effectd("verify", "--rebuild")
    assert done.exit_code == 1
    assert "stop that first" in done.stderr


async def test_a_rebuild_mends_what_the_events_say(tmp_path: Path) -> None:
    """The file that takes the journal's place is named; once more, nothing is to be done."""
    async with opened(tmp_path) as world:
        await world.lose("cmd-1")
    config = write_config(tmp_path)

    def spoil() -> None:
        with sqlite3.connect(tmp_path / "state" / "journal.db") as connection:
            connection.execute("UPDATE operations SET state = 'succeeded', listed = 0")
        connection.close()

    await to_thread.run_sync(spoil)
    answer = json.loads((await to_thread.run_sync(run, config, "verify", "--rebuild", "--json")).stdout)
    assert (answer["ok"], answer["rebuilt"], answer["findings"]) == (True, "journal-2.db", [])
    assert {finding["check"] for finding in answer["mended"]} >= {"operations", "projections"}
    done = await to_thread.run_sync(run, config, "verify", "--rebuild")
    assert (done.exit_code, done.stdout) == (
        0,
        "The journal is sound (looked at in its file: no daemon runs).\n",
    )
    async with opened(tmp_path) as world:
        assert len(await world.journal.read(lambda view: view.operations_after(0, 10).items)) == 1


async def test_a_rebuild_on_damaged_events_changes_nothing(tmp_path: Path) -> None:
    """It says which event, and what to do."""
    async with opened(tmp_path) as world:
        await world.chatter(5)
    await to_thread.run_sync(damage, tmp_path)
    done = await to_thread.run_sync(run, write_config(tmp_path), "verify", "--rebuild")
    assert done.exit_code == 1
    assert "event 2" in done.stderr
    assert [item.name for item in (tmp_path / "state").glob("journal*")] == ["journal.db"]


@pytest.mark.parametrize("flags", [(), ("--deep",)])
async def test_a_sound_journal_at_rest(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Without a daemon the file is looked at."""
    async with opened(tmp_path) as world:
        await world.lose("cmd-1")
    done = await to_thread.run_sync(run, write_config(tmp_path), "verify", *flags)
    assert (done.exit_code, done.stdout) == (
        0,
        "The journal is sound (looked at in its file: no daemon runs).\n",
    )


async def test_a_damaged_journal_at_rest(tmp_path: Path) -> None:
    """Exit code 1, and where."""
    async with opened(tmp_path) as world:
        await world.chatter(5)
    config = write_config(tmp_path)
    await to_thread.run_sync(damage, tmp_path)
    done = await to_thread.run_sync(run, config, "verify")
    assert done.exit_code == 1
    assert "wrong with the journal" in done.stdout
    assert "event 2" in done.stdout
    answer = json.loads((await to_thread.run_sync(run, config, "verify", "--json")).stdout)
    assert answer["ok"] is False
    assert answer["looked_by"] == "file"
    assert "event 2" in {finding["subject"] for finding in answer["findings"]}


async def test_a_journal_in_use_without_its_socket_is_left_alone(tmp_path: Path) -> None:
    """The lock says that somebody has it."""
    async with opened(tmp_path):
        done = await to_thread.run_sync(run, write_config(tmp_path), "verify")
    assert done.exit_code == 1
    assert "uses this journal" in done.stderr


async def test_an_emptied_journal_is_refused(tmp_path: Path) -> None:
    """What cannot be looked at is said, with exit code 1."""
    async with opened(tmp_path) as world:
        await world.chatter(1)
    (path,) = (tmp_path / "state").glob("journal*.db")
    path.write_bytes(b"")
    done = await to_thread.run_sync(run, write_config(tmp_path), "verify")
    assert done.exit_code == 1
    assert "empty" in done.stderr


def test_a_folder_without_a_journal_is_not_called_sound(tmp_path: Path) -> None:
    """A state folder that was misspelled must not look like good news."""
    done = run(write_config(tmp_path), "verify")
    assert (done.exit_code, "no journal yet" in done.stderr) == (1, True)
    assert "driver.state_dir" in done.stderr
    assert "sound" not in done.stdout
