"""Another attempt: contracts that allow one, how it is asked for, and what comes of it."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import anyio

from driver.core.attempts import Silence
from driver.core.contracts import Contract, MetaKey
from store.events import Draft, OperationReconciled
from store.lifecycle import Effect, Evidence, Judgement, judge
from store.records import AttemptRecord, CommandId, EvidenceRecord
from store.transaction import Transaction
from store.view import View
from tests.driver.engine.rig import Rig, command

SAFE = Contract(
    declared=True,
    idempotent=True,
    dedupe_horizon_s=100.0,
    key_carrier=MetaKey(),
    retry="same-key",
    retry_attempts=3,
    retry_backoff_s=0.001,
    execution_s=30.0,
)
"""A tool that deduplicates, and is tried again by itself."""
GONE = Silence(cause="connection_lost", message="gone")
LATE = Silence(cause="deadline", message="no answer in time")
PLAIN = Contract(declared=True)
DEDUPLICATING = replace(SAFE, retry="never")
"""The same, tried again where somebody asks for it."""


async def receipt(rig: Rig, command_id: str = "retry-1") -> tuple[str, dict[str, Any]]:
    """The receipt of a command, once it has one: its kind, and its data."""
    while True:
        committed = anyio.Event()
        end = rig.journal.subscribe(lambda _events, committed=committed: committed.set())  # type: ignore[misc]
        try:
            found = await receipt_now(rig, command_id)
            if found is not None:
                return found
            with anyio.fail_after(30):
                await committed.wait()
        finally:
            end()


async def receipt_now(rig: Rig, command_id: str = "retry-1") -> tuple[str, dict[str, Any]] | None:
    """The receipt of a command; None while it has none."""

    def read(view: View) -> tuple[str, dict[str, Any]] | None:
        record = view.command(CommandId(command_id))
        event = None if record is None or record.receipt_seq is None else view.event(record.receipt_seq)
        if event is None or event.body is None:
            return None
        data = json.loads(event.body)["data"]
        return event.kind, data.get("result") or data

    return await rig.journal.read(read)


async def say(rig: Rig, effect: Effect, actor: str = "operator:1000", command_id: str = "cmd-1") -> None:
    """Let somebody give a verdict."""
    record = await rig.operation(command_id)

    def reconcile(tx: Transaction) -> None:
        data = OperationReconciled(
            effect=effect,
            actor=actor,
            basis="verdict",
            note="looked",
            evidence=(),
            started_seq=record.started_seq,
        )
        best_effort = actor.startswith("supervisor")
        tx.append(Draft(data=data, operation_id=record.operation_id, best_effort=best_effort))

    await rig.journal.transact(reconcile)


async def ask_again(rig: Rig, command_id: str = "retry-1", of: str = "cmd-1") -> None:
    """Deliver an `operation.retry`."""
    record = await rig.operation(of)
    await rig.intake.deliver([command("operation.retry", command_id, operation_id=record.operation_id)])


async def refused(rig: Rig, command_id: str = "retry-1") -> str:
    """The code with which a retry was refused in the transaction that accepted it."""
    await ask_again(rig, command_id)
    found = await receipt_now(rig, command_id)
    assert found is not None, "it is refused at once"
    kind, data = found
    assert kind == "command.failed"
    assert data["message"]
    return str(data["code"])


def believing(evidence: Iterable[EvidenceRecord], attempts: Sequence[AttemptRecord], **_: int) -> Judgement:
    """What all evidence says, a supervisor's among it: what rule R would do if a guess were proof."""
    return judge([Evidence(item.attempt, item.effect, item.source) for item in evidence], len(attempts))
