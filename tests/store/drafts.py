"""Drafts of events, short to write.

Operation `n` belongs to command `cmd-n` and, unless told, to run `run-1`.
"""

import json
from collections.abc import Callable
from dataclasses import replace

from store.events import (
    ApprovalRequested,
    AttemptEnded,
    CommandAccepted,
    CommandCompleted,
    CommandRefused,
    Draft,
    DriverStarted,
    LateResult,
    OperationAnnotated,
    OperationFailed,
    OperationNotExecuted,
    OperationReconciled,
    OperationStarted,
    OperationSucceeded,
    OperationUnknown,
)
from store.lifecycle import Effect
from store.records import CommandId, Digest, JsonValue, OperationId, Origin, RunId, StoredEvent, Timestamp
from store.transaction import Transaction

LATER = Timestamp("2031-01-01T00:00:00.000000Z")
ALIKE = Digest("a" * 64)


def command_id(n: int) -> CommandId:
    """The id of command `n`."""
    return CommandId(f"cmd-{n}")


def operation_id(n: int) -> OperationId:
    """The id of operation `n`."""
    return OperationId(f"op_{n:032x}")


def digest(n: int) -> Digest:
    """A digest that no other number has."""
    return Digest(f"{n:064x}")


def accepted(
    n: int,
    *,
    run: str = "run-1",
    tool: str = "issues/create",
    write: bool = True,
    args: Digest | None = None,
    resumes: tuple[RunId, ...] | None = None,
    expires_at: Timestamp | None = None,
    parent: int | None = None,
) -> Draft:
    """The acceptance of call `n`, which serves operation `parent`."""
    return Draft(
        data=CommandAccepted(
            kind="tool.call",
            content_digest=digest(n),
            tool=tool,
            args_digest=args or digest(n),
            write=write,
            identical="guard-unsettled",
            repeat=False,
            resumes=resumes,
            expires_at=expires_at,
            parent_operation_id=None if parent is None else operation_id(parent),
        ),
        run_id=RunId(run),
        command_id=command_id(n),
        operation_id=operation_id(n),
        origin=Origin.PLANE,
        payload=json.dumps({"tool": tool, "arguments": {"n": n}}).encode(),
    )


REDACT = ("arguments.token", "result.structuredContent")


def token(n: int) -> bytes:
    """What call `n` of a redacting tool must not leave behind."""
    return f"canary-{n:032x}".encode()


def secret(n: int, *, run: str = "run-1", padding: int = 0, args: Digest | None = None) -> Draft:
    """The acceptance of call `n` of a tool whose contract withholds something."""
    data = {"tool": "vault/store", "arguments": {"token": token(n).decode(), "padding": "x" * padding}}
    return replace(
        accepted(n, run=run, tool="vault/store", args=args), payload=json.dumps(data).encode(), redact=REDACT
    )


def accepted_command(
    n: int, kind: str, data: JsonValue, *, run: str = "run-1", target: int | None = None
) -> Draft:
    """The acceptance of a command that is not a call."""
    return Draft(
        data=CommandAccepted(kind=kind, content_digest=digest(n)),
        run_id=RunId(run),
        command_id=command_id(n),
        operation_id=None if target is None else operation_id(target),
        origin=Origin.PLANE,
        payload=json.dumps(data).encode(),
    )


def completed(n: int, result: JsonValue = None) -> Draft:
    """The receipt of a command that is not a call."""
    return Draft(data=CommandCompleted(result=result), command_id=command_id(n))


def refused(n: int, *, run: str = "run-1") -> Draft:
    """A final refusal."""
    return Draft(
        data=CommandRefused(code="invalid", message="no tool", content_digest=digest(n)),
        run_id=RunId(run),
        command_id=command_id(n),
        origin=Origin.PLANE,
    )


def started(n: int, *, attempt: int = 1, deadline_at: Timestamp = LATER, idempotent: bool = True) -> Draft:
    """The intent of an attempt."""
    return Draft(
        data=OperationStarted(
            tool="issues/create",
            attempt=attempt,
            idempotency_key=operation_id(n),
            key_carrier="meta",
            idempotent=idempotent,
            dedupe_horizon_s=None,
            args_digest=digest(n),
            deadline_at=deadline_at,
        ),
        operation_id=operation_id(n),
    )


def attempt_ended(n: int, *, attempt: int = 1) -> Draft:
    """The end of an attempt that is not the operation's."""
    data = AttemptEnded(attempt=attempt, phase="written", outcome="unknown", reason="connection_lost")
    return Draft(data=data, operation_id=operation_id(n))


def attempt_unsent(n: int, *, attempt: int = 1) -> Draft:
    """The end of an attempt that provably sent nothing."""
    data = AttemptEnded(
        attempt=attempt,
        phase="connecting",
        outcome="not_executed",
        reason="connect_failed",
        effect=Effect.NONE,
    )
    return Draft(data=data, operation_id=operation_id(n))


def attempt_failed(n: int, effect: Effect, *, attempt: int = 1, result: JsonValue = None) -> Draft:
    """The end of an attempt that the provider answered with an error."""
    data = AttemptEnded(
        attempt=attempt,
        phase="answered",
        outcome="failed",
        reason=None,
        effect=effect,
        error={"code": "http_503", "message": "busy"},
        error_means="none" if effect is Effect.NONE else "unsettled",
        result=result,
        duration_ms=5,
    )
    return Draft(data=data, operation_id=operation_id(n))


def succeeded(
    n: int, *, attempts: int = 1, result: JsonValue = None, receipt: JsonValue = "issue-7"
) -> Draft:
    """The provider's answer that it did it."""
    data = OperationSucceeded(
        result={"content": []} if result is None else result,
        receipt=receipt,
        attempts=attempts,
        duration_ms=12,
        phase="answered",
    )
    return Draft(data=data, operation_id=operation_id(n))


def failed(
    n: int,
    *,
    effect: Effect = Effect.UNKNOWN,
    unsettled: bool = False,
    attempts: int = 1,
    result: JsonValue = None,
) -> Draft:
    """The provider's answer that it failed."""
    data = OperationFailed(
        effect=effect,
        error={"code": 500, "message": "no"},
        error_means="unsettled" if unsettled else "reported",
        result=result,
        receipt=None,
        attempts=attempts,
        phase="answered",
    )
    return Draft(data=data, operation_id=operation_id(n))


def approval_requested(n: int) -> Draft:
    """A person is asked about it."""
    data = ApprovalRequested(
        approval_id=f"apr-{n}", tool="issues/create", args_digest=digest(n), arguments={}, expires_at=LATER
    )
    return Draft(data=data, operation_id=operation_id(n))


def not_executed(n: int) -> Draft:
    """The daemon's proof that nothing was dispatched."""
    return Draft(data=OperationNotExecuted(reason="cancelled"), operation_id=operation_id(n))


def unknown(n: int, *, attempts: int = 1) -> Draft:
    """An outcome that was lost."""
    return Draft(
        data=OperationUnknown(reason="crash_window", phase="written", attempts=attempts),
        operation_id=operation_id(n),
    )


def late(n: int, *, effect: Effect = Effect.OCCURRED, attempt: int = 1) -> Draft:
    """An answer that came too late."""
    data = LateResult(attempt=attempt, effect=effect, result={"content": ["late"]}, receipt="late-7")
    return Draft(data=data, operation_id=operation_id(n))


def reconciled(
    n: int, effect: Effect, *, actor: str = "operator:1000", started_seq: int | None = None
) -> Draft:
    """A verdict."""
    data = OperationReconciled(
        effect=effect, actor=actor, basis="operator", note="looked", evidence=(), started_seq=started_seq
    )
    return Draft(data=data, operation_id=operation_id(n), best_effort=actor.startswith("supervisor"))


def annotated(n: int) -> Draft:
    """The host's own reference."""
    return Draft(data=OperationAnnotated(metadata={"ticket": "T-1"}), operation_id=operation_id(n))


def driver_started() -> Draft:
    """An event that belongs to no command."""
    return Draft(data=DriverStarted(software="effectd/0.1.0"))


def recording(*drafts: Draft) -> Callable[[Transaction], tuple[StoredEvent, ...]]:
    """A unit that records these, in order."""

    def unit(tx: Transaction) -> tuple[StoredEvent, ...]:
        return tuple(tx.append(draft) for draft in drafts)

    return unit
