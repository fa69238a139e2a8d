"""What an event changes: the projections of an operation as functions of its record and the event.

Part of `store`, pure: imports its lifecycle, events and records. `store.tables` writes what these functions
return, both when an event is first recorded and when `effectd verify` rebuilds everything from the events:
one code, so the two cannot disagree.

The rules of evidence, one place: an answer of the provider, or what a shim recorded that outlived the
daemon, speaks of its attempt; `not_executed` is the daemon's proof about the newest attempt; an attempt that
is not the operation's end brings what its own end proves; a verdict (of an operator, a probe or a supervisor,
or the daemon's own about a delegation) looked at the world, and so speaks of every attempt that had been
started when it was given.
`operation.unknown` says nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import singledispatch
from operator import attrgetter
from typing import Any, Final, Literal

from store.events import (
    ApprovalRequested,
    AttemptEnded,
    CommandAccepted,
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
    StoredEvent,
    Timestamp,
)
from store.values import light

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

    @classmethod
    def of(cls, event: StoredEvent, data: EventData, origin: Origin, base: int = 0) -> "Fact":
        """Return the fact that a stored event stands for; its history began after the seq `base`."""
        return cls(
            seq=event.seq,
            at=event.at,
            data=data,
            run_id=event.run_id,
            command_id=event.command_id,
            operation_id=event.operation_id,
            origin=origin,
            base=base,
        )


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd:
    """How one attempt ended."""

    attempt: int
    phase: str | None
    outcome: str
    reason: str | None
    duration_ms: int | None


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
    changes = _follow(fact.data, fact)
    if fact.data.KIND in MOVING:
        state = advance(operation.state, fact.data.KIND)
        if state is not operation.state:
            changes["state"] = state
    return changes


@singledispatch
def _follow(data: EventData, fact: Fact) -> dict[str, Any]:
    return {}


@_follow.register
def _(data: ApprovalRequested, fact: Fact) -> dict[str, Any]:
    # it may have ended before, and somebody wants another attempt
    return {"ended_at": None, "reason": None}


@_follow.register
def _(data: OperationStarted, fact: Fact) -> dict[str, Any]:
    return {
        "attempt_count": data.attempt,
        "started_seq": fact.seq,
        "started_at": fact.at,
        "deadline_at": data.deadline_at,
        "ended_at": None,
        "reason": None,
        "error_means": None,
    }


@_follow.register
def _(data: AttemptEnded, fact: Fact) -> dict[str, Any]:
    # no attempt runs now, so none can be overdue
    answered = data.result is not None or data.result_truncated
    return {"deadline_at": None, **({"result_seq": fact.seq} if answered else {})}


@_follow.register
def _(data: OperationSucceeded, fact: Fact) -> dict[str, Any]:
    return {"ended_at": fact.at, "result_seq": fact.seq, "receipt": data.receipt, "reason": None}


@_follow.register
def _(data: OperationFailed, fact: Fact) -> dict[str, Any]:
    return {
        "ended_at": fact.at,
        "result_seq": fact.seq,
        "receipt": data.receipt,
        "reason": data.reason,
        "error_means": data.error_means,
    }


@_follow.register
def _(data: OperationNotExecuted, fact: Fact) -> dict[str, Any]:
    return {"ended_at": fact.at, "reason": data.reason}


@_follow.register
def _(data: OperationUnknown, fact: Fact) -> dict[str, Any]:
    return {"ended_at": fact.at, "reason": data.reason, "receipt": data.receipt}


@_follow.register
def _(data: LateResult, fact: Fact) -> dict[str, Any]:
    means = {} if data.error_means is None else {"error_means": data.error_means}
    return {"result_seq": fact.seq, "receipt": data.receipt, **means}


@_follow.register
def _(data: OperationAnnotated, fact: Fact) -> dict[str, Any]:
    return {"metadata": data.metadata}


def judged(
    operation: OperationRecord, changes: dict[str, Any], known: Iterable[Evidence]
) -> tuple[OperationRecord, bool]:
    """Return the operation with `changes`, its effect judged by all the evidence that is known now.

    And whether it is listed as unsettled.
    """
    # one copy at the end: an operation has thirty members, and this runs twice for each call
    standing = Standing(
        write=operation.write,
        state=changes.get("state", operation.state),
        judgement=judge(known, changes.get("attempt_count", operation.attempt_count)),
        error_means=changes.get("error_means", operation.error_means),
    )
    # `dataclasses.replace` takes twice as long
    values: dict[str, Any] = dict(zip(_MEMBERS, _members(operation), strict=True))
    values.update(changes)
    values["effect"] = standing.judgement.effect
    values["effect_by"] = standing.judgement.by
    values["best_effort"] = standing.judgement.best_effort
    values["settled"] = is_settled(standing)
    values["guards"] = guards(standing)
    return OperationRecord(**values), is_listed(standing)


_MEMBERS: Final = tuple(item.name for item in fields(OperationRecord))
_members: Final = attrgetter(*_MEMBERS)


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


@singledispatch
def evidence(data: EventData, operation: OperationRecord, seen: int) -> tuple[Evidence, ...]:
    """Return what the event says about which attempts.

    `seen` is the newest attempt that a verdict could know of.
    """
    return ()


def _answerer(source: Literal["shim"] | None) -> Source:
    return Source.PROVIDER if source is None else Source(source)


@evidence.register
def _(data: AttemptEnded, operation: OperationRecord, seen: int) -> tuple[Evidence, ...]:
    if data.effect is None:
        return ()
    source = Source.DAEMON if data.outcome == "not_executed" else _answerer(data.source)
    return (Evidence(data.attempt, data.effect, source),)


@evidence.register
def _(data: OperationSucceeded, operation: OperationRecord, seen: int) -> tuple[Evidence, ...]:
    return (Evidence(data.attempt or data.attempts, Effect.OCCURRED, _answerer(data.source)),)


@evidence.register
def _(data: OperationFailed, operation: OperationRecord, seen: int) -> tuple[Evidence, ...]:
    return (Evidence(data.attempt or data.attempts, data.effect, _answerer(data.source)),)


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
        attempt=data.attempt,
        phase=data.phase,
        outcome=data.outcome,
        reason=data.reason,
        duration_ms=data.duration_ms,
    )


@attempt_end.register
def _(data: OperationSucceeded, operation: OperationRecord) -> AttemptEnd | None:
    return AttemptEnd(
        attempt=data.attempt or data.attempts,
        phase=data.phase,
        outcome="succeeded",
        reason=None,
        duration_ms=data.duration_ms,
    )


@attempt_end.register
def _(data: OperationFailed, operation: OperationRecord) -> AttemptEnd | None:
    return AttemptEnd(
        attempt=data.attempt or data.attempts,
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
