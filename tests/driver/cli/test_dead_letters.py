"""`effectd dead-letters` and `requeue`, against a real engine's sockets."""

import json
from pathlib import Path

import pytest
from anyio import to_thread

from tests.driver.cli.desk import run, write_config
from tests.driver.engine.rig import ScriptedProvider, call
from tests.driver.local.stage import serving

pytestmark = pytest.mark.anyio


async def test_what_was_refused_is_listed_and_reported_again_once(tmp_path: Path) -> None:
    """The list says what, why, and, once it was requeued, as which event."""
    config = write_config(tmp_path)
    async with serving(tmp_path, ScriptedProvider()) as (rig, _):
        empty = await to_thread.run_sync(run, config, "dead-letters")
        assert empty.stdout == "None: there is no event that a plane did not take.\n"
        await rig.intake.deliver([call()])
        done = await rig.settled()
        *_, seq = await rig.journal.read(lambda view: view.operation_events(done.operation_id))
        await rig.journal.transact(lambda tx: tx.park(seq, "too_large", "over the \x1b[31mlimit"))
        listed = await to_thread.run_sync(run, config, "dead-letters")
        heading, line = listed.stdout.splitlines()
        assert heading.split()[:2] == ["SEQ", "EVENT"]
        assert line.split()[:3] == [str(seq), "operation.succeeded", "too_large"]
        assert "\x1b" not in listed.stdout
        first = await to_thread.run_sync(run, config, "requeue", str(seq))
        assert first.stdout.startswith(f"Requeued: event {seq}, as event ")
        again = await to_thread.run_sync(run, config, "requeue", str(seq), "--json")
        as_json = await to_thread.run_sync(run, config, "dead-letters", "--json")
        (letter,) = json.loads(as_json.stdout)["items"]
        assert letter["requeued_as"] == json.loads(again.stdout)["requeued_as"]
        assert f"as event {letter['requeued_as']}." in first.stdout


async def test_what_is_no_dead_letter_is_refused(tmp_path: Path) -> None:
    """Exit code 1, and a line that says so."""
    config = write_config(tmp_path)
    async with serving(tmp_path, ScriptedProvider()):
        refused = await to_thread.run_sync(run, config, "requeue", "1")
        assert refused.exit_code == 1
        assert "effectd dead-letters" in refused.stderr
