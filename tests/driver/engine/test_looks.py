"""What is recorded of a look: always what it found, and a verdict only where nobody knows better by then."""

from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from driver.core.attempts import Silence
from driver.core.probes import Finding, Verdict
from driver.engine.endings import draft
from driver.engine.looks import Look, found_since, record_look
from store.events import OperationStarted, OperationSucceeded
from store.lifecycle import Effect, Source
from store.records import OperationRecord, timestamp
from store.transaction import Transaction
from tests.driver.engine.rig import Rig, ScriptedProvider, call, engine

pytestmark = pytest.mark.anyio

LOST = Silence(cause="connection_lost", message="gone")
FOUND: dict[Verdict, Finding] = {
    "occurred": Finding(verdict="occurred", matches=1, detail="1 match"),
    "absent": Finding(verdict="absent", matches=0, detail="0 matches"),
}


async def lost(rig: Rig) -> tuple[OperationRecord, Look]:
    """An operation whose outcome was lost, and a look at its one attempt."""
    await rig.intake.deliver([call()])
    record = await rig.settled()
    look = Look(
        operation_id=record.operation_id, tool="tools/find", started_seq=record.started_seq, attempts=1
    )
    return record, look


def second_attempt(tx: Transaction, record: OperationRecord, *, succeeds: bool) -> None:
    """Begin another attempt; and end it, if that is to happen."""
    started = OperationStarted(
        tool=record.tool,
        attempt=2,
        idempotency_key=record.operation_id,
        key_carrier="none",
        idempotent=False,
        dedupe_horizon_s=None,
        args_digest=record.args_digest,
        deadline_at=timestamp(tx.now + timedelta(seconds=60)),
    )
    tx.append(draft(record.operation_id, started))
    if succeeds:
        ended = OperationSucceeded(result={}, receipt=None, attempts=2, duration_ms=1)
        tx.append(draft(record.operation_id, ended))


@pytest.mark.parametrize("verdict", ["occurred", "absent"])
async def test_an_answer_to_a_later_attempt_is_better(tmp_path: Path, verdict: Verdict) -> None:
    """The provider has said that it happened: a look at the attempt before it is no verdict any more."""
    async with engine(tmp_path, ScriptedProvider(answer=LOST)) as rig:
        record, look = await lost(rig)
        await rig.journal.transact(lambda tx: second_attempt(tx, record, succeeds=True))
        said = await rig.journal.transact(lambda tx: record_look(tx, look, FOUND[verdict]))
        ended, kinds = await rig.operation(), await rig.kinds()
    assert not said
    assert kinds[-1] == "operation.probed"
    assert (ended.effect, ended.effect_by) == (Effect.OCCURRED, Source.PROVIDER)


async def test_a_look_speaks_of_the_attempts_that_it_could_see(tmp_path: Path) -> None:
    """What it did not find of the first says nothing of a second that has begun since."""
    async with engine(tmp_path, ScriptedProvider(answer=LOST)) as rig:
        record, look = await lost(rig)
        await rig.journal.transact(lambda tx: second_attempt(tx, record, succeeds=False))
        said = await rig.journal.transact(lambda tx: record_look(tx, look, FOUND["absent"]))
        evidence = await rig.journal.read(lambda view: view.evidence(record.operation_id))
        assert (await rig.operation()).effect is Effect.UNKNOWN
    assert said
    assert [(item.attempt, item.effect, item.source) for item in evidence] == [(1, Effect.NONE, Source.PROBE)]


async def test_a_look_from_before_any_attempt_is_no_verdict_about_one(tmp_path: Path) -> None:
    """It names no intent, and would be taken for a word about all of them."""
    async with engine(tmp_path, ScriptedProvider(answer=LOST)) as rig:
        _, look = await lost(rig)
        blind = replace(look, started_seq=None, attempts=0)
        assert not await rig.journal.transact(lambda tx: record_look(tx, blind, FOUND["occurred"]))
        assert (await rig.kinds())[-1] == "operation.probed"


async def test_the_first_look_after_an_event_is_found_again(tmp_path: Path) -> None:
    """By a command whose process died between the look and its receipt."""
    async with engine(tmp_path, ScriptedProvider(answer=LOST)) as rig:
        record, look = await lost(rig)
        before = await rig.journal.read(lambda view: view.last_seq)
        assert await rig.journal.read(lambda view: found_since(view, record.operation_id, before)) is None
        for finding in FOUND["absent"], FOUND["occurred"]:
            await rig.journal.transact(partial(record_look, look=look, finding=finding))
        first = await rig.journal.read(lambda view: found_since(view, record.operation_id, before))
        later = await rig.journal.read(lambda view: found_since(view, record.operation_id, before + 2))
    assert first == FOUND["absent"]
    assert later == FOUND["occurred"]
