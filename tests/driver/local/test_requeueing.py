"""A person has a dead letter reported again: over the operator's socket, once."""

import json
from pathlib import Path

import pytest

from store.records import Fence, RunId, timestamp
from tests.driver.engine.rig import ScriptedProvider, call
from tests.driver.local.stage import serving

pytestmark = pytest.mark.anyio


async def test_it_is_recorded_once(tmp_path: Path) -> None:
    """201 with the new event; asked again, 200 with the same; the list says what it was requeued as."""
    async with serving(tmp_path, ScriptedProvider()) as (rig, served):
        await rig.intake.deliver([call()])
        done = await rig.settled()
        seqs = await rig.journal.read(lambda view: view.operation_events(done.operation_id))
        await rig.journal.transact(lambda tx: tx.park(seqs[-1], "invalid", "poison"))
        async with served.client("operator.sock") as client:
            path = f"/v1/dead-letters/{seqs[-1]}/requeue"
            first = await client.post(path)
            assert (first.status_code, first.json()["seq"]) == (201, seqs[-1])
            again = await client.post(path, json={})
            assert (again.status_code, again.json()) == (200, first.json())
            (letter,) = (await client.get("/v1/dead-letters")).json()["items"]
            assert letter["requeued_as"] == first.json()["requeued_as"]
            newest = (await client.get("/v1/events")).text.splitlines()[-1]
            event = json.loads(newest)
            assert (event["seq"], event["kind"]) == (letter["requeued_as"], letter["kind"])
            assert (event["terminal"], event["data"]["requeue_of"]) == (False, seqs[-1])
            shown = (await client.get(f"/v1/operations/{done.operation_id}")).json()
            assert shown["events"] == list(seqs)


async def test_what_is_no_dead_letter_is_not_found(tmp_path: Path) -> None:
    """An event that was not parked, one that does not exist, and what is no number."""
    async with serving(tmp_path, ScriptedProvider()) as (rig, served):
        await rig.intake.deliver([call()])
        await rig.settled()
        async with served.client("operator.sock") as client:
            for seq in ("1", "0", "999999", "-1", "x", "²", "9" * 30):
                response = await client.post(f"/v1/dead-letters/{seq}/requeue")
                assert (response.status_code, response.json()["code"]) == (404, "dead_letter_not_found"), seq


async def test_refusals(tmp_path: Path) -> None:
    """Reads cannot requeue; a fenced daemon reports nothing; what was erased cannot be reported."""
    async with serving(tmp_path, ScriptedProvider()) as (rig, served):
        await rig.intake.deliver([call()])
        await rig.settled()
        await rig.journal.transact(lambda tx: tx.park(1, "invalid", "poison"))
        async with served.client("inspect.sock") as client:
            assert (await client.post("/v1/dead-letters/1/requeue")).status_code == 403
        async with served.client("operator.sock") as client:
            assert (await client.post("/v1/dead-letters/1/requeue", json={"x": 1})).status_code == 422
            rig.posture.fence = Fence(reason="forked", detail="", at=timestamp(rig.clock()))
            fenced = await client.post("/v1/dead-letters/1/requeue")
            assert (fenced.status_code, fenced.json()["code"]) == (409, "fenced")
            rig.posture.fence = None
            await rig.journal.transact(lambda tx: tx.acknowledge(tx.last_seq))
            await rig.journal.transact(lambda tx: tx.erase_run(RunId("run-1")))
            erased = await client.post("/v1/dead-letters/1/requeue")
            assert (erased.status_code, erased.json()["code"]) == (409, "content_erased")
