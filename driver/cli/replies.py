"""What the daemon's local API answers, as typed values: the edge where the command line reads its JSON.

Part of `driver.cli`; imports pydantic and the store's vocabulary. Unknown members are ignored, so that a
newer daemon can be asked by an older command.
"""

from datetime import datetime
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, RootModel

from store.lifecycle import Effect, State

T = TypeVar("T")


class Reply(BaseModel):
    """What every part of an answer holds to."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Fault(Reply):
    """One wrong part of a request."""

    name: str
    message: str


class ProblemReply(Reply):
    """An RFC 9457 problem."""

    status: int
    code: str
    detail: str
    errors: tuple[Fault, ...] = ()


class Page(Reply, Generic[T]):
    """A part of a list."""

    items: tuple[T, ...]
    next: str | None
    truncated: bool


class Link(Reply):
    """The link to the control plane."""

    connected: bool
    since: datetime | None
    url: str | None
    last_error: str | None = None


class Gateway(Reply):
    """The front door for agents."""

    connections: int
    listen: str | None


class JournalFile(Reply):
    """The journal's file."""

    bytes: int
    wal_bytes: int
    last_commit_at: datetime | None
    has_room: bool = True
    sqlite_version: str | None = None


class Incidents(Reply):
    """What somebody should look into, counted since the daemon's start."""

    diverged: int = 0
    duplicated: int = 0


class Status(Reply):
    """`GET /v1/status`."""

    state: str
    driver_id: str
    journal_id: str
    boot_id: str
    link: Link
    last_seq: int
    acked_seq: int
    counts: dict[str, int]
    unsettled: int
    oldest_unsettled_age_s: float | None
    dead_letters: int = 0
    incidents: Incidents = Incidents()
    journal: JournalFile
    gateway: Gateway | None = None
    fence: str | None
    integrity: str
    fault_injection: tuple[str, ...]


class Operation(Reply):
    """An operation, as lists have it."""

    operation_id: str
    command_id: str
    run_id: str
    origin: str
    tool: str
    state: State
    effect: Effect
    effect_by: str | None
    best_effort: bool
    settled: bool
    reason: str | None
    receipt: JsonValue
    attempt_count: int
    metadata: dict[str, str] | None
    accepted_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    deadline_at: datetime | None
    allowed: tuple[str, ...] | None = None
    """The commands about it that would be taken now; lists do not say."""


class Command(Reply):
    """The command that an operation came from; `kind` is None where it was refused for good."""

    kind: str | None
    accepted_seq: int | None
    accepted_at: datetime
    expires_at: datetime | None
    receipt_seq: int | None
    receipt_kind: str | None


class Erasing(Reply):
    """How far the erasure of a large run has come."""

    erased: int
    unsettled: int
    unacknowledged: int
    left: int


class CommandReply(Command):
    """A command alone."""

    operation_id: str | None
    erasing: Erasing | None = None


class Delivery(Reply):
    """One arrival of a command."""

    at: datetime
    answer: str


class Attempt(Reply):
    """One execution."""

    attempt: int
    idempotency_key: str
    key_carrier: str
    started_seq: int
    started_at: datetime
    deadline_at: datetime
    phase: str | None
    outcome: str | None
    reason: str | None
    ended_at: datetime | None
    duration_ms: int | None


class Evidence(Reply):
    """One thing that was learned about an attempt."""

    attempt: int
    seq: int
    at: datetime
    effect: Effect
    source: str
    actor: str | None


class Approval(Reply):
    """One request for a person's approval, and what was decided."""

    approval_id: str
    requested_at: datetime
    expires_at: datetime
    decision: str | None
    approver: str | None
    label: str | None
    reason: str | None
    decided_at: datetime | None


class LateResult(Reply):
    """A provider's answer that came after the operation had ended."""

    seq: int
    at: datetime
    attempt: int
    effect: Effect
    error: JsonValue = None
    receipt: JsonValue = None


class Look(Reply):
    """What a probe found."""

    seq: int
    at: datetime
    verdict: str
    matches: int | None
    detail: str | None


class Verdict(Reply):
    """What an operator, a probe, a supervisor or the daemon concluded."""

    seq: int
    at: datetime
    effect: Effect
    actor: str
    label: str | None
    note: str | None
    evidence: tuple[str, ...] | None


class Divergence(Reply):
    """Two events of the highest rank that contradict each other."""

    seq: int
    at: datetime
    evidence: tuple[int, ...]
    detail: str


class Annotation(Reply):
    """What the host said of the operation."""

    seq: int
    at: datetime
    metadata: dict[str, str]


class Compensation(Reply):
    """The operation that takes this one back."""

    operation_id: str
    state: State
    effect: Effect
    seq: int | None


class VerdictReply(Operation):
    """`POST /v1/operations/{id}/reconcile`."""

    seq: int


class CommandGiven(Reply):
    """What was accepted: the command's id, and the operation that it is about."""

    command_id: str
    operation_id: str


class RunCommandGiven(Reply):
    """What was accepted: the command's id, and the run that it is about."""

    command_id: str
    run_id: str


class Kept(Reply):
    """What an erasure left alone."""

    unsettled: int
    unacknowledged: int
    operation_ids: tuple[str, ...]
    truncated: bool


class ErasedReply(RunCommandGiven):
    """`POST /v1/runs/{id}/erase`, or the receipt of that; null of a large run: its receipt says so later."""

    erased: int | None
    kept: Kept | None


class WallReply(Reply):
    """What a triage model would be shown of a run."""

    text: str
    digest: str
    size: int
    model: str
    unsettled: int
    shown: int
    left_out: int
    waiting_for_probes: int


class UnfenceReply(Reply):
    """`POST /v1/unfence`."""

    reason: str
    journal_id: str
    previous_journal_id: str | None
    unknown: int


class Story(Operation):
    """An operation alone."""

    args_digest: str
    arguments: JsonValue
    """None once they were erased: every call has some."""
    result: JsonValue
    command: Command | None = None
    deliveries: tuple[Delivery, ...]
    attempts: tuple[Attempt, ...]
    evidence: tuple[Evidence, ...]
    events: tuple[int, ...]
    approvals: tuple[Approval, ...] = ()
    late_results: tuple[LateResult, ...] = ()
    probes: tuple[Look, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    divergences: tuple[Divergence, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    compensation: Compensation | None = None
    compensates: str | None = None
    parent_operation_id: str | None = None
    child_run_id: str | None = None
    child_ops_total: int | None = None
    child_ops_unresolved: int | None = None


class Run(Reply):
    """A run."""

    run_id: str
    ended: bool
    outcome: str | None
    operations: int
    unsettled: int
    first_at: datetime
    last_at: datetime


class Event(Reply):
    """One line of `GET /v1/events`."""

    journal_id: str
    seq: int
    kind: str
    at: datetime
    run_id: str | None
    command_id: str | None
    operation_id: str | None
    terminal: bool
    best_effort: bool
    data: dict[str, JsonValue] = Field(default_factory=dict)


class DeadLetter(Reply):
    """An event that the plane did not take; `requeued_as` is the event that reports it again, if any."""

    seq: int
    kind: str
    code: str
    message: str
    at: datetime
    requeued_as: int | None


class RequeuedReply(Reply):
    """`POST /v1/dead-letters/{seq}/requeue`."""

    seq: int
    requeued_as: int


class VerifyProgress(Reply):
    """How far a check of the journal is."""

    type: Literal["progress"] = "progress"
    check: str
    done: int
    total: int | None


class VerifyFinding(Reply):
    """One thing that is wrong with the journal."""

    type: Literal["finding"] = "finding"
    check: str
    subject: str
    problem: str


class VerifyResult(Reply):
    """The last line: everything was looked at, or `message` says why it was not."""

    type: Literal["result"] = "result"
    ok: bool
    message: str | None = None


class VerifyLine(
    RootModel[Annotated[VerifyProgress | VerifyFinding | VerifyResult, Field(discriminator="type")]]
):
    """One line of `POST /v1/verify`."""


class BackupResult(Reply):
    """The last line: the backup is whole, or `message` says why there is none."""

    type: Literal["result"] = "result"
    ok: bool
    file: str | None = None
    bytes: int | None = None
    journal_id: str | None = None
    last_seq: int | None = None
    made_at: str | None = None
    message: str | None = None


class BackupLine(RootModel[Annotated[VerifyProgress | BackupResult, Field(discriminator="type")]]):
    """One line of `POST /v1/backup`."""
