"""`effectd doctor`: what each exit code means, through the daemon and on the file."""

import json
import socket
import sqlite3
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from pydantic import JsonValue

from driver.local.sources import LinkFacts
from store.records import JsonObject
from store.transaction import Transaction
from tests.driver.cli.desk import desk_in, run, write_config
from tests.driver.local.world import World, accept, opened, start

pytestmark = pytest.mark.anyio


async def asked(config: Path, *flags: str) -> tuple[int, list[str], JsonObject]:
    """Return the exit code, the words for what was found, and all of the answer."""
    done = await to_thread.run_sync(partial(run, config, "doctor", "--json", *flags))
    answer = json.loads(done.stdout)
    assert answer["exit_code"] == done.exit_code
    assert answer["healthy"] is (done.exit_code == 0)
    return done.exit_code, [symptom["code"] for symptom in answer["symptoms"]], answer


def advice(answer: JsonObject) -> list[JsonValue]:
    """Return what is to be done next, of each thing that was found."""
    symptoms = answer["symptoms"]
    assert isinstance(symptoms, list)
    return [symptom["next"] for symptom in symptoms if isinstance(symptom, dict)]


async def test_a_healthy_daemon(tmp_path: Path) -> None:
    """0, and nothing to say."""
    async with desk_in(tmp_path) as desk:
        await desk.world.succeed("cmd-1")
        code, words, answer = await asked(desk.config)
        done = await desk.effectd("doctor")
    assert (code, words, answer["looked_by"]) == (0, [], "daemon")
    assert answer["sqlite_version"] == sqlite3.sqlite_version
    said = f"Healthy (the daemon that runs was asked).\n  sqlite      {sqlite3.sqlite_version}\n"
    assert (done.exit_code, done.stdout) == (0, said)


async def test_what_is_unsettled_counts_from_an_age_on(tmp_path: Path) -> None:
    """1 for any, unless an age is given that it has not reached; the next command is ready to be typed."""
    async with desk_in(tmp_path) as desk:
        await desk.world.lose("cmd-1")
        assert (await asked(desk.config))[:2] == (1, ["unsettled"])
        assert (await asked(desk.config, "--max-age", "0"))[0] == 1
        assert (await asked(desk.config, "--max-age", "86400"))[:2] == (0, [])
        for none in ("nan", "inf", "-1"):
            assert (await desk.effectd("doctor", "--max-age", none)).stdout == ""
        done = await desk.effectd("doctor")
        await desk.world.lose("cmd-2")
        both = await desk.effectd("doctor")
    assert f"effectd ops --unsettled --config {desk.config}" in done.stdout
    assert "1 operation may have happened" in done.stdout
    assert "2 operations may have happened" in both.stdout


async def test_a_fence_is_broken(tmp_path: Path) -> None:
    """2, whatever else there is; with the way out."""
    async with desk_in(tmp_path) as desk:
        await desk.world.lose("cmd-1")
        await desk.world.journal.transact(lambda tx: tx.raise_fence("forked", "the plane knows another one"))
        code, words, _ = await asked(desk.config)
        done = await desk.effectd("doctor")
    assert (code, words) == (2, ["fenced", "unsettled"])
    assert done.stdout.startswith("Broken")
    assert "effectd unfence --help" in done.stdout


async def test_an_unhealthy_daemon_is_broken(tmp_path: Path) -> None:
    """2: its journal commits nothing."""
    async with desk_in(tmp_path) as desk:
        desk.world.ill = "the journal has not committed anything for 10 s"
        assert (await asked(desk.config))[:2] == (2, ["unhealthy"])


async def test_integrity_is_broken(tmp_path: Path) -> None:
    """2: what start-up found stands in the status."""
    async with desk_in(tmp_path) as desk:
        desk.world.facts = replace(desk.world.facts, integrity="damaged")
        assert (await asked(desk.config))[:2] == (2, ["integrity"])


async def test_what_is_only_worth_knowing(tmp_path: Path) -> None:
    """0 all the same: a plane that is away, a drill, what the plane refused, incidents in the past."""
    async with desk_in(tmp_path) as desk:
        link = LinkFacts(connected=False, since=None, url="wss://plane", last_error="refused: HTTP 403")
        desk.world.facts = replace(
            desk.world.facts,
            link=link,
            fault_injection=("kill:x",),
            diverged=1,
            duplicated=1,
            state="draining",
        )
        await desk.world.chatter(1)
        await desk.world.journal.transact(lambda tx: tx.park(1, "invalid", ""))
        code, words, answer = await asked(desk.config)
    assert code == 0
    assert "the plane is not connected: wss://plane: refused: HTTP 403" in json.dumps(answer)
    assert words == [
        "draining",
        "diverged",
        "duplicated",
        "not_connected",
        "dead_letters",
        "fault_injection",
    ]


async def test_a_daemon_that_does_not_answer_is_broken(tmp_path: Path) -> None:
    """2: somebody listens, and speaks no HTTP."""
    (tmp_path / "run").mkdir()
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(tmp_path / "run" / "inspect.sock"))
        mute.listen()
        config = write_config(tmp_path)

        def hang_up() -> None:
            for _ in range(2):  # the knock, and the request
                mute.accept()[0].close()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(to_thread.run_sync, hang_up)
            assert (await asked(config))[:2] == (2, ["no_answer"])


# ------------------------------------------------------------ on the file


async def closed(folder: Path, *lost: str) -> World:
    """A journal that nobody uses any more."""
    async with opened(folder) as world:
        await world.succeed("cmd-0")
        for command in lost:
            await world.lose(command)
        return world


async def test_a_sound_file(tmp_path: Path) -> None:
    """0, and that no daemon runs; 2 where one should."""
    await closed(tmp_path)
    config = write_config(tmp_path)
    code, words, answer = await asked(config)
    assert (code, words, answer["looked_by"]) == (0, ["not_running"], "file")
    assert advice(answer) == ["effectd run"]
    assert (await asked(config, "--running"))[:2] == (2, ["not_running"])


async def test_a_file_with_something_unsettled(tmp_path: Path) -> None:
    """As through the daemon."""
    await closed(tmp_path, "cmd-1")
    config = write_config(tmp_path)
    assert (await asked(config))[:2] == (1, ["not_running", "unsettled"])
    assert (await asked(config, "--max-age", "86400"))[0] == 0


async def test_what_a_dead_daemon_had_under_way(tmp_path: Path) -> None:
    """1: it may have happened, and no start has listed it yet."""
    async with opened(tmp_path) as world:

        def begin(tx: Transaction) -> None:
            accept(tx, "cmd-1", "run-1", "issues/create")
            start(tx, "cmd-1", "run-1")

        await world.journal.transact(begin)
    config = write_config(tmp_path)
    assert (await asked(config))[:2] == (1, ["not_running", "under_way"])
    assert (await asked(config, "--max-age", "86400"))[0] == 0


async def test_a_damaged_file_is_broken(tmp_path: Path) -> None:
    """2, and where."""
    await closed(tmp_path)
    async with opened(tmp_path) as world:
        await world.chatter(2)
    await to_thread.run_sync(damage, tmp_path)
    code, words, _ = await asked(write_config(tmp_path))
    assert code == 2
    assert "integrity" in words


def damage(folder: Path) -> None:
    """Change a row, as a bad disk might."""
    (path,) = (folder / "state").glob("journal*.db")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE events SET kind = 'driver.stopping' WHERE kind = 'driver.started'")
    connection.close()


async def test_a_refused_file_is_broken(tmp_path: Path) -> None:
    """2: it is no journal. Nobody is told to start a daemon that would be refused."""
    await closed(tmp_path)
    config = write_config(tmp_path)
    (path,) = (tmp_path / "state").glob("journal*.db")
    path.write_bytes(b"not a database at all")
    code, words, answer = await asked(config)
    assert (code, words) == (2, ["not_running", "refused"])
    assert advice(answer) == [None, None]


async def test_a_daemon_whose_sockets_are_gone_is_broken(tmp_path: Path) -> None:
    """2: its lock says that it lives, so nobody is told that none runs, or to start another one."""
    config = write_config(tmp_path)
    async with opened(tmp_path) as world:
        await world.succeed("cmd-0")
        code, words, answer = await asked(config)
        assert (await asked(config, "--running"))[:2] == (2, ["in_use"])
    assert (code, words) == (2, ["in_use"])
    assert f"uses this journal, and none listens at {tmp_path}" in json.dumps(answer)


async def test_a_disk_without_room_is_broken(tmp_path: Path) -> None:
    """2: a daemon would refuse new calls there, or not start at all."""
    await closed(tmp_path)
    config = write_config(tmp_path)
    config.write_text(config.read_text() + "\n[journal]\nmax_bytes = 9_000_000_000_000_000\n")
    config.write_text(config.read_text() + "reserve_bytes = 8_000_000_000_000_000\n")
    code, words, answer = await asked(config)
    assert (code, words) == (2, ["not_running", "no_room"])
    assert "8000.0 TB of journal.reserve_bytes" in json.dumps(answer)
    assert advice(answer)[0] is None


async def test_no_journal_yet(tmp_path: Path) -> None:
    """0: nothing has happened, so nothing is wrong; and nothing is made by looking."""
    assert (await asked(write_config(tmp_path)))[:2] == (0, ["not_running", "no_journal"])
    assert not (tmp_path / "state").exists()


def test_a_wrong_configuration(tmp_path: Path) -> None:
    """2, as of every command."""
    config = tmp_path / "effectd.toml"
    config.write_text("[nonsense]\n")
    assert run(config, "doctor").exit_code == 2


def test_an_age_below_nothing_is_a_usage_error(tmp_path: Path) -> None:
    """It would make everything unsettled too old."""
    assert run(write_config(tmp_path), "doctor", "--max-age", "-1").exit_code == 2
