"""`effectd erase`, against a real engine's sockets."""

import json
import os
import pty
import subprocess
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from store.records import OperationId
from tests.driver.cli.desk import EFFECTD, run, write_config
from tests.driver.engine.rig import Rig, ScriptedProvider, call
from tests.driver.engine.test_erasing import LARGE, acknowledge, fill
from tests.driver.local.stage import serving

pytestmark = pytest.mark.anyio

PAUSE_S = "driver.engine.erasures.PAUSE_S"


async def once(rig: Rig) -> OperationId:
    """One call that succeeded, and that the plane has."""
    await rig.intake.deliver([call()])
    done = await rig.settled()
    await acknowledge(rig)
    return done.operation_id


def begins(rig: Rig) -> anyio.Event:
    """Set once an erasure was accepted."""
    begun = anyio.Event()
    rig.journal.subscribe(
        lambda events: begun.set() if any(b"run.erase" in (e.body or b"") for e in events) else None
    )
    return begun


async def is_erased(rig: Rig, operation_id: OperationId) -> bool:
    """Whether its content is gone."""
    record = await rig.journal.read(lambda view: view.operation(operation_id))
    assert record is not None
    return await rig.journal.read(lambda view: view.command_payload(record.command_id)) is None


async def test_a_run_is_erased(tmp_path: Path) -> None:
    """What was erased, for people and for machines; again, there is nothing more to erase."""
    config = write_config(tmp_path)
    async with serving(tmp_path, ScriptedProvider()) as (rig, _):
        operation_id = await once(rig)
        done = await to_thread.run_sync(run, config, "erase", "run-1", "--yes")
        assert (done.exit_code, done.stdout) == (0, "Erased: 1 operation of run-1.\n")
        assert await is_erased(rig, operation_id)
        again = await to_thread.run_sync(run, config, "erase", "run-1", "--yes", "--json")
        told = json.loads(again.stdout)
        assert (again.exit_code, told["run_id"], told["kept"]["unsettled"]) == (0, "run-1", 0)
        story = (await to_thread.run_sync(run, config, "show", operation_id)).stdout
        assert [line.split() for line in story.splitlines() if "erased" in line] == [
            ["arguments", "erased"],
            ["result", "erased"],
        ]


async def test_what_is_kept_is_named_with_the_way_on(tmp_path: Path) -> None:
    """An unsettled one stays, and says how it is settled; then one that the plane does not have."""
    config = write_config(tmp_path)
    provider = ScriptedProvider(fails=RuntimeError("lost"))
    async with serving(tmp_path, provider) as (rig, _):
        operation_id = await once(rig)
        done = await to_thread.run_sync(run, config, "erase", "run-1", "--yes")
        assert done.exit_code == 1
        first, second, named, way = done.stdout.splitlines()
        assert first == "Erased: 0 operations of run-1."
        assert second == "Kept: 1 unsettled, 0 that the plane has not acknowledged yet."
        assert named.strip() == operation_id
        assert "effectd reconcile ID --config" in way
        settle = ("reconcile", operation_id, "--effect", "none", "--note", "looked")
        assert (await to_thread.run_sync(run, config, *settle)).exit_code == 0
        behind = await to_thread.run_sync(run, config, "erase", "run-1", "--yes")
        assert behind.exit_code == 1
        assert "0 unsettled, 1 that the plane has not acknowledged yet" in behind.stdout
        assert "effectd status" in behind.stdout
        await acknowledge(rig)
        as_json = await to_thread.run_sync(run, config, "erase", "run-1", "--yes", "--json")
        assert (as_json.exit_code, json.loads(as_json.stdout)["erased"]) == (0, 1)


async def test_where_nobody_can_be_asked_nothing_is_erased(tmp_path: Path) -> None:
    """Exit code 2, and the option that says so."""
    config = write_config(tmp_path)
    async with serving(tmp_path, ScriptedProvider()) as (rig, _):
        operation_id = await once(rig)
        refused = await to_thread.run_sync(run, config, "erase", "run-1")
        assert refused.exit_code == 2
        assert "--yes" in refused.stderr
        assert not await is_erased(rig, operation_id)


@pytest.mark.parametrize("sure", [True, False])
async def test_a_person_is_asked(tmp_path: Path, *, sure: bool) -> None:
    """With what it is about; whatever is no `y` erases nothing, and exits 1."""
    config = write_config(tmp_path)
    async with serving(tmp_path, ScriptedProvider()) as (rig, _):
        operation_id = await once(rig)
        words = ("erase", "run-1", "--config", str(config))
        code, shown = await to_thread.run_sync(on_terminal, words, b"y\n" if sure else b"\n")
        assert "Erase the content of run-1 for good? It has 1 operation [y/N]" in shown
        assert code == (0 if sure else 1)
        assert await is_erased(rig, operation_id) is sure


async def test_a_run_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    """Before anybody is asked anything."""
    config = write_config(tmp_path)
    async with serving(tmp_path, ScriptedProvider()):
        refused = await to_thread.run_sync(run, config, "erase", "run-9")
        assert refused.exit_code == 1
        assert "run_not_found" in refused.stderr


async def test_a_large_run_is_waited_for_with_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bar on a terminal while it goes on, and the answer when nothing of it is left."""
    monkeypatch.setattr(PAUSE_S, 3.0)
    config = write_config(tmp_path)
    async with serving(tmp_path, ScriptedProvider()) as (rig, _):
        await fill(rig)
        words = ("erase", "run-1", "--yes", "--config", str(config))
        code, shown = await to_thread.run_sync(on_terminal, words, b"")
        assert code == 0
        assert f"/{LARGE}" in shown
        assert f"{LARGE} operations of run-1." in shown


async def test_a_large_run_need_not_be_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is accepted, and goes on; how far it is stands with its command."""
    monkeypatch.setattr(PAUSE_S, 3_600.0)
    # however slow the machine is: the first step looks at all of them, and one goes with each
    monkeypatch.setattr("store.pace.STEP_S", 3_600.0)
    monkeypatch.setattr("store.erasure.ERASED_MAX", 1)
    config = write_config(tmp_path)
    async with serving(tmp_path, ScriptedProvider()) as (rig, served):
        await fill(rig)
        asked = await to_thread.run_sync(run, config, "erase", "run-1", "--yes", "--no-wait", "--json")
        told = json.loads(asked.stdout)
        assert (asked.exit_code, told["erased"], told["kept"]) == (0, None, None)
        async with served.client("inspect.sock") as client:
            command = (await client.get(f"/v1/commands/{told['command_id']}")).json()
        assert command["receipt_seq"] is None
        found = command["erasing"]
        assert (found["erased"], found["unsettled"], found["unacknowledged"]) == (LARGE, 0, 0)
        assert 0 < found["left"] < LARGE


async def test_a_daemon_that_stops_meanwhile_goes_on_after_its_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waited is told so, with exit code 1."""
    monkeypatch.setattr(PAUSE_S, 3_600.0)
    config = write_config(tmp_path)
    words = [*EFFECTD, "erase", "run-1", "--yes", "--config", str(config)]
    async with serving(tmp_path, ScriptedProvider()) as (rig, _):
        await fill(rig)
        begun = begins(rig)
        waiting = await anyio.open_process(words, start_new_session=True)
        with anyio.fail_after(60):
            await begun.wait()
    async with waiting:
        assert waiting.stderr is not None
        said = b"".join([piece async for piece in waiting.stderr])
        assert await waiting.wait() == 1
    assert b"it goes on after its restart" in said


async def test_a_daemon_that_is_fenced_meanwhile_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows how long that lasts: exit code 1, the reason, and the way out."""
    monkeypatch.setattr(PAUSE_S, 3_600.0)
    config = write_config(tmp_path)
    async with serving(tmp_path, ScriptedProvider()) as (rig, _):
        await fill(rig)
        begun = begins(rig)
        words = [*EFFECTD, "erase", "run-1", "--yes", "--config", str(config)]
        async with await anyio.open_process(words, start_new_session=True) as waiting:
            await begun.wait()
            await rig.desk.fence("forked", "another history")
            assert waiting.stderr is not None
            said = b"".join([piece async for piece in waiting.stderr])
            assert await waiting.wait() == 1
    assert b"fenced (forked)" in said
    assert b"effectd unfence" in said


def on_terminal(arguments: Sequence[str], typed: bytes) -> tuple[int, str]:
    """Run a command as a person does, who types this; return its exit code, and what the person sees."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    with subprocess.Popen(
        [*EFFECTD, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        os.write(ours, typed)
        found = b""
        try:
            while piece := os.read(ours, 65_536):
                found += piece
        except OSError:  # how a pseudo-terminal says that the other side is closed
            pass
        code = process.wait()
    os.close(ours)
    return code, found.decode()
