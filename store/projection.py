"""What an event changes: the projections of an operation as functions of its record and the event.

Part of `store`, pure: imports its lifecycle, events and records. `store.tables` writes what these functions return,
both when an event is first recorded and when `effectd verify` rebuilds everything from the events: one code, so the
two cannot disagree.

The rules of evidence, one place: an answer of the provider speaks of its attempt; `not_executed` is the daemon's
proof about the newest attempt; a verdict (of an operator, a probe or a supervisor) looked at the world, and so speaks
of every attempt that had been started when it was given. `operation.unknown` says nothing.
"""

from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Final

from store.events import (
    AttemptEnded,
    EventData,
    LateResult,
    OperationAnnotated,
    OperationFailed,
    OperationNotExecuted,
    OperationReconciled,
    OperationStarted,
    OperationSucceeded,
    OperationUnknown,
)
from store.lifecycle import (
    MOVES,
    Effect,
    Evidence,
    Judgement,
    Source,
    Standing,
    advance,
    guards,
    is_listed,
    is_settled,
)
from store.records import CommandId, OperationId, OperationRecord, Origin, RunId, Timestamp

MOVING: Final = frozenset(kind for _, kind in MOVES)
"""The kinds of event that move the state of an operation; the others must only find one."""

ACTORS: Final = {
    "operator": Source.OPERATOR,
    "probe": Source.PROBE,
    "supervisor": Source.SUPERVISOR,
    "shim": Source.SHIM,
}
"""The prefix of a verdict's actor, and the source that it stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A recorded event as the projections see it."""

    seq: int
    at: Timestamp
    data: EventData
    run_id: RunId | None
    command_id: CommandId | None
    operation_id: OperationId | None
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd:
    """How one attempt ended."""

    attempt: int
    phase: str | None
    outcome: str
    reason: str | None
    duration_ms: int | None


def source_of(actor: str) -> Source:
    """Return whose word a verdict of `actor` is (`operator:1000`, `probe:search_issues`). Raises ValueError."""
    try:
        return ACTORS[actor.partition(":")[0]]
    except KeyError:
        raise ValueError(
            f"the actor {actor!r} of a verdict begins with none of {', '.join(ACTORS)}"
        ) from None


def after(operation: OperationRecord, fact: Fact) -> OperationRecord:
    """Return the operation after the event, its effect not yet judged again. Raises `IllegalMove`."""
    state = advance(operation.state, fact.data.KIND) if fact.data.KIND in MOVING else operation.state
    return _follow(
        fact.data, operation if state is operation.state else replace(operation, state=state), fact
    )


@singledispatch
def _follow(data: EventData, operation: OperationRecord, fact: Fact) -> OperationRecord:
    return operation


@_follow.register
def _(data: OperationStarted, operation: OperationRecord, fact: Fact) -> OperationRecord:
    return replace(
        operation,
        attempt_count=data.attempt,
        started_seq=fact.seq,
        started_at=fact.at,
        deadline_at=data.deadline_at,
        ended_at=None,
        reason=None,
        error_means=None,
    )


@_follow.register
def _(data: OperationSucceeded, operation: OperationRecord, fact: Fact) -> OperationRecord:
    return replace(operation, ended_at=fact.at, result_seq=fact.seq, receipt=data.receipt, reason=None)


@_follow.register
def _(data: OperationFailed, operation: OperationRecord, fact: Fact) -> OperationRecord:
    return replace(
        operation,
        ended_at=fact.at,
        result_seq=fact.seq,
        receipt=data.receipt,
        reason=data.reason,
        error_means=data.error_means,
    )


@_follow.register
def _(data: OperationNotExecuted, operation: OperationRecord, fact: Fact) -> OperationRecord:
    return replace(operation, ended_at=fact.at, reason=data.reason)


@_follow.register
def _(data: OperationUnknown, operation: OperationRecord, fact: Fact) -> OperationRecord:
    return replace(operation, ended_at=fact.at, reason=data.reason, receipt=data.receipt)


@_follow.register
def _(data: LateResult, operation: OperationRecord, fact: Fact) -> OperationRecord:
    return replace(
        operation,
        result_seq=fact.seq,
        receipt=data.receipt,
        error_means=data.error_means or operation.error_means,
    )


@_follow.register
def _(data: OperationAnnotated, operation: OperationRecord, fact: Fact) -> OperationRecord:
    return replace(operation, metadata=data.metadata)


def judged(operation: OperationRecord, judgement: Judgement) -> OperationRecord:
    """Return the operation under `judgement`: its effect, and what follows from it."""
    standing = _standing(operation, judgement)
    return replace(
        operation,
        effect=judgement.effect,
        effect_by=judgement.by,
        best_effort=judgement.best_effort,
        settled=is_settled(standing),
        guards=guards(standing),
    )


def listed(operation: OperationRecord) -> bool:
    """Whether a judged operation is listed as unsettled."""
    return is_listed(_standing(operation, Judgement(operation.effect, operation.effect_by)))


def _standing(operation: OperationRecord, judgement: Judgement) -> Standing:
    return Standing(
        write=operation.write, state=operation.state, judgement=judgement, error_means=operation.error_means
    )


@singledispatch
def evidence(data: EventData, operation: OperationRecord, seen: int) -> tuple[Evidence, ...]:
    """Return what the event says about which attempts. `seen` is the newest attempt that a verdict could know of."""
    return ()


@evidence.register
def _(data: OperationSucceeded, operation: OperationRecord, seen: int) -> tuple[Evidence, ...]:
    return (Evidence(data.attempts, Effect.OCCURRED, Source.PROVIDER),)


@evidence.register
def _(data: OperationFailed, operation: OperationRecord, seen: int) -> tuple[Evidence, ...]:
    return (Evidence(data.attempts, data.effect, Source.PROVIDER),)


@evidence.register
def _(data: OperationNotExecuted, operation: OperationRecord, seen: int) -> tuple[Evidence, ...]:
    return (Evidence(max(operation.attempt_count, 1), Effect.NONE, Source.DAEMON),)


@evidence.register
def _(data: LateResult, operation: OperationRecord, seen: int) -> tuple[Evidence, ...]:
    return (Evidence(data.attempt, data.effect, Source.PROVIDER),)


@evidence.register
def _(data: OperationReconciled, operation: OperationRecord, seen: int) -> tuple[Evidence, ...]:
    source = source_of(data.actor)
    return tuple(Evidence(attempt, data.effect, source) for attempt in range(1, max(seen, 1) + 1))


@singledispatch
def attempt_end(data: EventData, operation: OperationRecord) -> AttemptEnd | None:
    """Return which attempt the event ends, and how; None where it ends none."""
    return None


@attempt_end.register
def _(data: AttemptEnded, operation: OperationRecord) -> AttemptEnd | None:
    return AttemptEnd(
        attempt=data.attempt, phase=data.phase, outcome=data.outcome, reason=data.reason, duration_ms=None
    )


@attempt_end.register
def _(data: OperationSucceeded, operation: OperationRecord) -> AttemptEnd | None:
    return AttemptEnd(
        attempt=data.attempts,
        phase=data.phase,
        outcome="succeeded",
        reason=None,
        duration_ms=data.duration_ms,
    )


@attempt_end.register
def _(data: OperationFailed, operation: OperationRecord) -> AttemptEnd | None:
    return AttemptEnd(
        attempt=data.attempts,
        phase=data.phase,
        outcome="failed",
        reason=data.reason,
        duration_ms=data.duration_ms,
    )


@attempt_end.register
def _(data: OperationNotExecuted, operation: OperationRecord) -> AttemptEnd | None:
    return AttemptEnd(
        attempt=operation.attempt_count,
        phase=None,
        outcome="not_executed",
        reason=data.reason,
        duration_ms=None,
    )


@attempt_end.register
def _(data: OperationUnknown, operation: OperationRecord) -> AttemptEnd | None:
    return AttemptEnd(
        attempt=operation.attempt_count,
        phase=data.phase,
        outcome="unknown",
        reason=data.reason,
        duration_ms=None,
    )
