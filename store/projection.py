"""What an event changes: the projections of an operation as functions of its record and the event.

Part of `store`, pure: imports its lifecycle, events and records. `store.tables` writes what these functions
return, both when an event is first recorded and when `effectd verify` rebuilds everything from the events:
one code, so the two cannot disagree.

The rules of evidence, one place: an answer of the provider, or what a shim recorded that outlived the
daemon, speaks of its attempt; `not_executed` is the daemon's proof about the newest attempt; an attempt that
is not the operation's end brings what its own end proves; a verdict (of an operator, a probe or a supervisor,
or the daemon's own about a delegation) looked at the world, and so speaks of every attempt that had been
started when it was given.
`operation.unknown` says nothing. Of the daemon's words about a delegation only the newest counts: the
statements that read evidence leave the others out.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

from store.declared import EventData
from store.events import (
    ApprovalRequested,
    AttemptEnded,
    CommandAccepted,
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
    State,
    advance,
    guards,
    is_erasable,
    is_listed,
    is_settled,
    judge,
)
from store.records import (
    IDENTICAL_DEFAULT,
    CommandId,
    OperationId,
    OperationRecord,
    Origin,
    RunId,
    Timestamp,
)
from store.values import changed, light

MOVING: Final = frozenset(kind for _, kind in MOVES)
"""The kinds of event that move the state of an operation; the others must only find one."""

ACTORS: Final = {
    "daemon": Source.DAEMON,
    "operator": Source.OPERATOR,
    "probe": Source.PROBE,
    "supervisor": Source.SUPERVISOR,
    "shim": Source.SHIM,
}
"""The prefix of a verdict's actor, and the source that it stands for."""

DELEGATION: Final = "delegation"
"""The basis, and the actor behind that prefix, of what follows from child runs: the newest counts."""


@light
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
    base: int = 0
    """What is added to a seq that `data` names: it counts from the beginning of its own history."""


@light
@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """How one attempt ended."""

    attempt: int
    phase: str | None
    outcome: str
    reason: str | None
    duration_ms: int | None


def actor_of(source: Source, name: str) -> str:
    """Return the actor of a verdict that somebody of this name gives.

    Nobody has the name of what follows from child runs, whose words replace each other.
    """
    actor = f"{source}:{name}"
    return f"{source}:{actor}" if name == DELEGATION else actor


def source_of(actor: str) -> Source:
    """Return whose word a verdict of `actor` is (`operator:1000`, `probe:search_issues`).

    Raises ValueError.
    """
    try:
        return ACTORS[actor.partition(":")[0]]
    except KeyError:
        raise ValueError(  # noqa: TRY003 - foreign
            f"the actor {actor!r} of a verdict begins with none of {', '.join(ACTORS)}"
        ) from None


def new_operation(fact: Fact, data: CommandAccepted) -> OperationRecord:
    """Return the operation that the acceptance of a call makes."""
    assert fact.operation_id is not None
    assert fact.command_id is not None
    assert fact.run_id is not None
    assert data.tool is not None
    assert data.args_digest is not None
    write = data.write is not False
    return OperationRecord(
        operation_id=fact.operation_id,
        command_id=fact.command_id,
        run_id=fact.run_id,
        origin=fact.origin,
        tool=data.tool,
        args_digest=data.args_digest,
        write=write,
        identical=data.identical or IDENTICAL_DEFAULT,
        repeat=data.repeat is True,
        state=State.ACCEPTED,
        effect=Effect.UNKNOWN,
        effect_by=None,
        best_effort=False,
        settled=False,
        guards=write,
        reason=None,
        error_means=None,
        receipt=None,
        attempt_count=0,
        metadata=None,
        accepted_seq=fact.seq,
        started_seq=None,
        result_seq=None,
        accepted_at=fact.at,
        started_at=None,
        ended_at=None,
        deadline_at=None,
        expires_at=data.expires_at,
        parent_operation_id=data.parent_operation_id,
    )


def follow(operation: OperationRecord, fact: Fact) -> dict[str, Any]:
    """Return the members of the operation that the event sets. Raises `IllegalMove`."""
    kind, changes = fact.data.KIND, _set_by(fact.data, fact)
    if kind in MOVING:
        state = advance(operation.state, kind)
        if state is not operation.state:
            changes["state"] = state
    return changes


def _set_by(data: EventData, fact: Fact) -> dict[str, Any]:
    match data:
        case OperationStarted():
            return {
                "attempt_count": data.attempt,
                "started_seq": fact.seq,
                "started_at": fact.at,
                "deadline_at": data.deadline_at,
                "ended_at": None,
                "reason": None,
                "error_means": None,
            }
        case OperationSucceeded():
            return {"ended_at": fact.at, "result_seq": fact.seq, "receipt": data.receipt, "reason": None}
        case OperationFailed():
            return {
                "ended_at": fact.at,
                "result_seq": fact.seq,
                "receipt": data.receipt,
                "reason": data.reason,
                "error_means": data.error_means,
            }
        case OperationNotExecuted():
            return {"ended_at": fact.at, "reason": data.reason}
        case OperationUnknown():
            return {"ended_at": fact.at, "reason": data.reason, "receipt": data.receipt}
        case _:
            return _set_in_between(data, fact)


def _set_in_between(data: EventData, fact: Fact) -> dict[str, Any]:
    match data:
        case ApprovalRequested():
            # it may have ended before, and somebody wants another attempt
            return {"ended_at": None, "reason": None}
        case AttemptEnded():
            # no attempt runs now, so none can be overdue
            answered = data.result is not None or data.result_truncated
            return {"deadline_at": None, **({"result_seq": fact.seq} if answered else {})}
        case LateResult():
            means = {} if data.error_means is None else {"error_means": data.error_means}
            return {"result_seq": fact.seq, "receipt": data.receipt, **means}
        case OperationAnnotated():
            return {"metadata": data.metadata}
        case _:
            return {}


def judged(
    operation: OperationRecord, changes: dict[str, Any], known: Iterable[Evidence]
) -> tuple[OperationRecord, bool]:
    """Return the operation with `changes`, its effect judged by all the evidence that is known now.

    And whether it is listed as unsettled.
    """
    standing = Standing(
        write=operation.write,
        state=changes.get("state", operation.state),
        judgement=judge(known, changes.get("attempt_count", operation.attempt_count)),
        error_means=changes.get("error_means", operation.error_means),
    )
    judgement = standing.judgement
    now = {
        **changes,
        "effect": judgement.effect,
        "effect_by": judgement.by,
        "best_effort": judgement.best_effort,
        "settled": is_settled(standing),
        "guards": guards(standing),
    }
    return changed(operation, now), is_listed(standing)


def erasable(operation: OperationRecord) -> bool:
    """Whether a judged operation's content may be erased, once its receipt is acknowledged."""
    return is_erasable(standing_of(operation))


def standing_of(operation: OperationRecord) -> Standing:
    """Return what decides how a judged operation is treated."""
    return Standing(
        write=operation.write,
        state=operation.state,
        judgement=Judgement(operation.effect, operation.effect_by),
        error_means=operation.error_means,
    )


def evidence(data: EventData, operation: OperationRecord, seen: int) -> tuple[Evidence, ...]:
    """Return what the event says about which attempts.

    `seen` is the newest attempt that a verdict could know of.
    """
    match data:
        case OperationSucceeded():
            return (Evidence(data.attempt or data.attempts, Effect.OCCURRED, _answerer(data.source)),)
        case OperationFailed():
            return (Evidence(data.attempt or data.attempts, data.effect, _answerer(data.source)),)
        case OperationNotExecuted():
            return (Evidence(max(operation.attempt_count, 1), Effect.NONE, Source.DAEMON),)
        case AttemptEnded():
            if data.effect is None:
                return ()
            source = Source.DAEMON if data.outcome == "not_executed" else _answerer(data.source)
            return (Evidence(data.attempt, data.effect, source),)
        case LateResult():
            return (Evidence(data.attempt, data.effect, Source.PROVIDER),)
        case OperationReconciled():
            source = source_of(data.actor)
            return tuple(Evidence(attempt, data.effect, source) for attempt in range(1, max(seen, 1) + 1))
        case _:
            return ()


def _answerer(source: Literal["shim"] | None) -> Source:
    return Source.PROVIDER if source is None else Source(source)


def attempt_end(data: EventData, operation: OperationRecord) -> AttemptEnd | None:
    """Return which attempt the event ends, and how; None where it ends none."""
    match data:
        case OperationSucceeded():
            return AttemptEnd(data.attempt or data.attempts, data.phase, "succeeded", None, data.duration_ms)
        case OperationFailed():
            attempt = data.attempt or data.attempts
            return AttemptEnd(attempt, data.phase, "failed", data.reason, data.duration_ms)
        case OperationNotExecuted():
            return AttemptEnd(operation.attempt_count, None, "not_executed", data.reason, None)
        case OperationUnknown():
            return AttemptEnd(operation.attempt_count, data.phase, "unknown", data.reason, None)
        case AttemptEnded():
            return AttemptEnd(data.attempt, data.phase, data.outcome, data.reason, data.duration_ms)
        case _:
            return None
