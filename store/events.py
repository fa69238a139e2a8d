"""Every kind of event, defined once: its fields, and whether it can be a receipt.

Part of `store`, pure: imports only the standard library and `store`'s own values. The JSON Schema and the
table in `docs/protocol.md` are generated from these classes. The fields are those of the wire (`data` of an
`event` frame, whose bytes `store.wire` makes); one marked `optional()` is left out where it is None, every
other one is always present.
`source` stands where the answer was found after the daemon had died that asked for it: in whose record.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from store.declared import EventData, optional
from store.lifecycle import Effect
from store.records import (
    Chain,
    CommandId,
    Digest,
    Identical,
    JournalId,
    JsonObject,
    JsonValue,
    OperationId,
    Origin,
    RunId,
    Timestamp,
)
from store.values import light


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAccepted(EventData):
    """Acceptance: durable before it is sent. The optional fields are those of a `tool.call`."""

    KIND: ClassVar[str] = "command.accepted"
    kind: str
    content_digest: Digest
    tool: str | None = optional()
    args_digest: Digest | None = optional()
    write: bool | None = optional()
    identical: Identical | None = optional()
    expires_at: Timestamp | None = optional()
    repeat: bool | None = optional()
    resumes: tuple[RunId, ...] | None = optional()
    parent_operation_id: OperationId | None = optional()
    payload_digest: Digest | None = optional()
    traceparent: str | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRefused(EventData):
    """A refusal that is remembered: the same command gets the same answer for ever."""

    KIND: ClassVar[str] = "command.refused"
    TERMINAL: ClassVar[bool] = True
    code: Literal[
        "invalid",
        "unknown_kind",
        "unknown_run",
        "run_ended",
        "lookalike_unsettled",
        "duplicate_completed",
        "duplicate_failed",
        "duplicate_unknown",
    ]
    message: str
    content_digest: Digest
    twin_operation_id: OperationId | None = optional()
    resumes: tuple[RunId, ...] | None = optional()
    """What its run continues, as far as that is known: nothing else might ever say so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandCompleted(EventData):
    """The receipt of a command other than `tool.call` that did what it was asked."""

    KIND: ClassVar[str] = "command.completed"
    TERMINAL: ClassVar[bool] = True
    result: JsonValue
    result_truncated: bool | None = optional()
    payload_digest: Digest | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFailed(EventData):
    """The receipt of a command other than `tool.call` that could not do what it was asked."""

    KIND: ClassVar[str] = "command.failed"
    TERMINAL: ClassVar[bool] = True
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequested(EventData):
    """A human is asked, for one request and one attempt."""

    KIND: ClassVar[str] = "operation.approval_requested"
    approval_id: str
    tool: str
    args_digest: Digest
    arguments: JsonObject | None
    expires_at: Timestamp
    definition_digest: Digest | None = optional()
    arguments_truncated: bool | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalDecided(EventData):
    """What the human said."""

    KIND: ClassVar[str] = "operation.approval_decided"
    approval_id: str
    decision: Literal["grant", "deny"]
    approver: str
    reason: str | None
    label: str | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationStarted(EventData):
    """The intent, with the contract that the attempt runs under: durable before any byte leaves."""

    KIND: ClassVar[str] = "operation.started"
    tool: str
    attempt: int
    idempotency_key: str
    key_carrier: str
    idempotent: bool
    dedupe_horizon_s: float | None
    args_digest: Digest
    deadline_at: Timestamp
    approval_id: str | None = optional()
    machine_boot_id: str | None = optional()
    machine_uptime_s: float | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded(EventData):
    """The end of an attempt that is not the end of its operation."""

    KIND: ClassVar[str] = "operation.attempt_ended"
    attempt: int
    phase: str | None
    outcome: Literal["failed", "not_executed", "unknown"]
    reason: str | None
    effect: Effect | None = optional()
    error: JsonObject | None = optional()
    error_means: Literal["reported", "none", "unsettled"] | None = optional()
    message: str | None = optional()
    result: JsonValue = optional()
    result_truncated: bool | None = optional()
    receipt: JsonValue = optional()
    duration_ms: int | None = optional()
    source: Literal["shim"] | None = optional()
    payload_digest: Digest | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationSucceeded(EventData):
    """The provider answered that it did it."""

    KIND: ClassVar[str] = "operation.succeeded"
    TERMINAL: ClassVar[bool] = True
    effect: Literal[Effect.OCCURRED] = Effect.OCCURRED
    result: JsonValue
    result_truncated: bool = False
    receipt: JsonValue
    attempts: int
    duration_ms: int
    attempt: int | None = optional()
    phase: str | None = optional()
    receipt_missing: bool | None = optional()
    output_invalid: bool | None = optional()
    source: Literal["shim"] | None = optional()
    payload_digest: Digest | None = optional()
    supersedes: int | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationFailed(EventData):
    """The provider answered with a failure; `effect` is what the tool's contract says that proves."""

    KIND: ClassVar[str] = "operation.failed"
    TERMINAL: ClassVar[bool] = True
    effect: Effect
    error: JsonObject
    error_means: Literal["reported", "none", "unsettled"]
    result: JsonValue
    result_truncated: bool = False
    receipt: JsonValue
    attempts: int
    attempt: int | None = optional()
    duration_ms: int | None = optional()
    phase: str | None = optional()
    reason: str | None = optional()
    source: Literal["shim"] | None = optional()
    child_run_id: RunId | None = optional()
    child_ops_total: int | None = optional()
    child_ops_unresolved: int | None = optional()
    payload_digest: Digest | None = optional()
    supersedes: int | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationNotExecuted(EventData):
    """Provably nothing was dispatched."""

    KIND: ClassVar[str] = "operation.not_executed"
    TERMINAL: ClassVar[bool] = True
    effect: Literal[Effect.NONE] = Effect.NONE
    reason: Literal[
        "expired",
        "cancelled",
        "approval_denied",
        "approval_expired",
        "deadline",
        "connect_failed",
        "spawn_failed",
        "invalid_arguments",
        "unknown_tool",
        "intent_not_acknowledged",
        "draining",
        "fenced",
    ]
    message: str | None = optional()
    supersedes: int | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationUnknown(EventData):
    """Dispatched, or possibly dispatched, and the outcome is not known."""

    KIND: ClassVar[str] = "operation.unknown"
    TERMINAL: ClassVar[bool] = True
    effect: Literal[Effect.UNKNOWN] = Effect.UNKNOWN
    reason: Literal[
        "crash_window",
        "execution_timeout",
        "connection_lost",
        "cancelled_after_dispatch",
        "protocol_error",
        "gateway_error",
        "redirected",
        "task_pending",
        "journal_lost",
        "rolled_back",
    ]
    phase: str | None
    attempts: int
    message: str | None = optional()
    receipt: JsonValue = optional()
    child_run_id: RunId | None = optional()
    child_ops_total: int | None = optional()
    child_ops_unresolved: int | None = optional()
    supersedes: int | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class LateResult(EventData):
    """A provider's answer that came after the operation had ended `unknown`, or after a verdict."""

    KIND: ClassVar[str] = "operation.late_result"
    attempt: int
    effect: Effect
    result: JsonValue
    result_truncated: bool = False
    receipt: JsonValue
    error: JsonObject | None = optional()
    error_means: Literal["reported", "none", "unsettled"] | None = optional()
    payload_digest: Digest | None = optional()
    supersedes: int | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationProbed(EventData):
    """What a declared read found in the world."""

    KIND: ClassVar[str] = "operation.probed"
    verdict: Literal["occurred", "absent", "duplicated", "undetermined"]
    matches: int | None
    detail: str | None
    supersedes: int | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationReconciled(EventData):
    """A verdict: of an operator, a probe or a supervisor, or of the daemon about what was delegated."""

    KIND: ClassVar[str] = "operation.reconciled"
    effect: Effect
    actor: str
    basis: str
    note: str
    evidence: tuple[str, ...]
    started_seq: int | None
    label: str | None = optional()
    supersedes: int | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationAnnotated(EventData):
    """The host's own reference for the operation."""

    KIND: ClassVar[str] = "operation.annotated"
    metadata: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCompensated(EventData):
    """The declared compensation of the operation ended."""

    KIND: ClassVar[str] = "operation.compensated"
    compensation_operation_id: OperationId
    effect: Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationDiverged(EventData):
    """Two pieces of evidence of the highest rank contradict each other."""

    KIND: ClassVar[str] = "operation.diverged"
    evidence: tuple[int, int]
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorVerdict(EventData):
    """What the triage model said of one wall; each operation's verdict follows as `operation.reconciled`."""

    KIND: ClassVar[str] = "supervisor.verdict"
    verdict_kind: Literal["reconciliation"] = "reconciliation"
    needs_attention: bool
    summary: str
    causes: tuple[str, ...]
    remedies: tuple[str, ...]
    lesson: str
    operation_ids: tuple[OperationId, ...]
    wall_digest: Digest
    model: str
    status: str
    prompt_version: str | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverStarted(EventData):
    """The daemon opened the journal."""

    KIND: ClassVar[str] = "driver.started"
    software: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverRecovered(EventData):
    """What the daemon found of its earlier lives, and what it did about it."""

    KIND: ClassVar[str] = "driver.recovered"
    waiting: int
    unknown: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFenced(EventData):
    """The daemon stopped acting: its journal is not the history that somebody else has seen."""

    KIND: ClassVar[str] = "driver.fenced"
    reason: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverUnfenced(EventData):
    """The fence was lifted: by an operator, or, with `plane` as the actor, that of a restored backup."""

    KIND: ClassVar[str] = "driver.unfenced"
    reason: str
    actor: str
    previous_journal_id: JournalId | None = optional()
    previous_seq: int | None = optional()
    previous_chain: Chain | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverStopping(EventData):
    """The daemon drains and stops."""

    KIND: ClassVar[str] = "driver.stopping"
    reason: str


EVENT_TYPES: Final[tuple[type[EventData], ...]] = (
    CommandAccepted,
    CommandRefused,
    CommandCompleted,
    CommandFailed,
    ApprovalRequested,
    ApprovalDecided,
    OperationStarted,
    AttemptEnded,
    OperationSucceeded,
    OperationFailed,
    OperationNotExecuted,
    OperationUnknown,
    LateResult,
    OperationProbed,
    OperationReconciled,
    OperationAnnotated,
    OperationCompensated,
    OperationDiverged,
    SupervisorVerdict,
    DriverStarted,
    DriverRecovered,
    DriverFenced,
    DriverUnfenced,
    DriverStopping,
)
"""Every kind that effectd records, in the order of `docs/protocol.md`."""

for _event in EVENT_TYPES:
    light(_event)

BY_KIND: Final[Mapping[str, type[EventData]]] = {event.KIND: event for event in EVENT_TYPES}


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An event before it is committed: the journal adds `seq`, `at`, `terminal`, `supersedes` and `chain`.

    `payload` are the bytes kept outside the chain under their digest (the command's `data`, or a result that
    the event is too small for). `redact` are the paths that the call's contract withholds: where there are
    any, digests in the event are made under the folder's key, and the call's `data` is erased in time. What
    an acceptance says of them holds for all later events of its operation.
    """

    data: EventData
    run_id: RunId | None = None
    command_id: CommandId | None = None
    operation_id: OperationId | None = None
    origin: Origin = Origin.LOCAL
    best_effort: bool = False
    payload: bytes | None = None
    redact: tuple[str, ...] = ()
