"""Rows of the journal's statements as records: what is read alone, without its place in the tables.

Part of `store`, pure: imports its lifecycle, records and tables. Rows of commands and operations, which are
written again, are those of `store.tables`.
"""

from store.lifecycle import Effect, Judgement, Source, Standing, State, guards
from store.located import Row
from store.records import (
    AttemptRecord,
    EvidenceRecord,
    OperationId,
    PrunedTwin,
    StoredEvent,
    Tombstone,
)


def attempt_row(operation_id: OperationId, row: Row) -> AttemptRecord:
    """Return an attempt of an operation."""
    (
        attempt, idempotency_key, key_carrier, idempotent, dedupe_horizon_s, started_seq, started_at,
        deadline_at, phase, outcome, reason, ended_at, duration_ms,
    ) = row  # fmt: skip
    return AttemptRecord(
        operation_id=operation_id,
        attempt=attempt,
        idempotency_key=idempotency_key,
        key_carrier=key_carrier,
        idempotent=bool(idempotent),
        dedupe_horizon_s=dedupe_horizon_s,
        started_seq=started_seq,
        started_at=started_at,
        deadline_at=deadline_at,
        phase=phase,
        outcome=outcome,
        reason=reason,
        ended_at=ended_at,
        duration_ms=duration_ms,
    )


def evidence_row(operation_id: OperationId, row: Row) -> EvidenceRecord:
    """Return what somebody said of an attempt."""
    attempt, seq, at, effect, source, actor = row
    return EvidenceRecord(
        operation_id=operation_id,
        attempt=attempt,
        seq=seq,
        at=at,
        effect=Effect(effect),
        source=Source(source),
        actor=actor,
    )


def tombstone_row(row: Row) -> Tombstone:
    """Return what is left of a command."""
    command_id, run_id, kind, seq, content_digest, operation_id, effect = row
    return Tombstone(
        command_id=command_id,
        run_id=run_id,
        kind=kind,
        seq=seq,
        content_digest=content_digest,
        operation_id=operation_id,
        effect=None if effect is None else Effect(effect),
    )


def pruned_twin_row(row: Row) -> PrunedTwin:
    """Return an equal write of which a tombstone is left."""
    operation_id, state, effect, effect_by = row
    judgement = Judgement(Effect(effect), None if effect_by is None else Source(effect_by))
    # what is listed as unsettled is never pruned, so how errors were meant makes no difference any more
    standing = Standing(write=True, state=State(state), judgement=judgement)
    return PrunedTwin(
        operation_id=operation_id,
        state=standing.state,
        effect=judgement.effect,
        effect_by=judgement.by,
        guards=guards(standing),
    )


def event_row(row: Row) -> StoredEvent:
    """Return an event as it was sealed."""
    seq, kind, at, run_id, command_id, operation_id, terminal, digest, chain, body = row
    return StoredEvent(
        seq=seq,
        kind=kind,
        at=at,
        run_id=run_id,
        command_id=command_id,
        operation_id=operation_id,
        terminal=bool(terminal),
        digest=digest,
        chain=chain,
        body=body,
    )
