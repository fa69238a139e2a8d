"""A person erases a run: over the operator's socket, and told what was kept."""

from pathlib import Path

import pytest

from tests.driver.engine.rig import ScriptedProvider, call
from tests.driver.local.stage import serving

pytestmark = pytest.mark.anyio


async def test_the_answer_says_what_was_erased_and_kept(tmp_path: Path) -> None:
    """202 with the command's id; the operation is listed as before, without arguments and result."""
    async with serving(tmp_path, ScriptedProvider()) as (rig, served):
        await rig.intake.deliver([call()])
        done = await rig.settled()
        await rig.journal.transact(lambda tx: tx.acknowledge(tx.last_seq))
        async with served.client("operator.sock") as client:
            response = await client.post("/v1/runs/run-1/erase")
            assert response.status_code == 202
            answer = response.json()
            assert (answer["run_id"], answer["erased"]) == ("run-1", 1)
            assert answer["kept"] == {
                "unsettled": 0,
                "unacknowledged": 0,
                "operation_ids": [],
                "truncated": False,
            }
            command = (await client.get(f"/v1/commands/{answer['command_id']}")).json()
            assert (command["kind"], command["receipt_kind"]) == ("run.erase", "command.completed")
            shown = (await client.get(f"/v1/operations/{done.operation_id}")).json()
            assert (shown["state"], shown["effect"]) == ("succeeded", "occurred")
            assert (shown["arguments"], shown["result"], shown["receipt"]) == (None, None, None)


async def test_it_takes_the_operators_socket_and_a_run(tmp_path: Path) -> None:
    """Reads cannot erase; a run that nobody knows is not found; a body has no members."""
    async with serving(tmp_path, ScriptedProvider()) as (rig, served):
        await rig.intake.deliver([call()])
        await rig.settled()
        async with served.client("inspect.sock") as client:
            assert (await client.post("/v1/runs/run-1/erase")).status_code == 403
        async with served.client("operator.sock") as client:
            missing = await client.post("/v1/runs/run-9/erase")
            assert (missing.status_code, missing.json()["code"]) == (404, "run_not_found")
            assert (await client.post("/v1/runs/run-1/erase", json={"x": 1})).status_code == 422
