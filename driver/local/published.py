"""What every answer looks like: the models that the OpenAPI document is made of.

Part of `driver.local`, pure: imports pydantic and the store's vocabulary. `driver.local.shapes` makes the
answers; a test that asks a served API for all of them holds the two together. Every member is always there,
and there are no others: what a model forgets, or has too many of, does not validate.
"""

from typing import Annotated, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from store.lifecycle import Effect, Source, State
from store.records import Origin

T = TypeVar("T")

Count = Annotated[int, Field(ge=0)]
Seq = Annotated[int, Field(ge=1)]
Time = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")]
Hex32 = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
Hex64 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Published(BaseModel):
    """What every part of an answer holds to."""

    model_config = ConfigDict(extra="forbid")


class Fault(Published):
    """One wrong part of a request."""

    name: str
    message: str


class ProblemDetails(Published):
    """A refusal (RFC 9457). `errors` is there where parts of the request are wrong."""

    type: str
    title: str
    status: Annotated[int, Field(ge=400, le=599)]
    code: str
    detail: str
    errors: list[Fault] = []


class Page(Published, Generic[T]):
    """A part of a list; `next` is the `cursor` of the part behind it."""

    items: list[T]
    next: str | None
    truncated: bool


class Link(Published):
    """The link to the control plane; `url` is null stand-alone, `last_error` while it is connected."""

    connected: bool
    since: Time | None
    url: str | None
    last_error: str | None


class JournalFile(Published):
    """The journal's file; without room new calls are refused, `no_room`."""

    bytes: Count
    wal_bytes: Count
    last_commit_at: Time | None
    has_room: bool
    sqlite_version: str


class Incidents(Published):
    """What somebody should look into, counted since the daemon's start."""

    diverged: Count
    duplicated: Count


class Gateway(Published):
    """The front door for agents; `listen` is its address over TCP, if it has one."""

    connections: Count
    listen: str | None


class Status(Published):
    """The daemon. Every state has its count."""

    state: Literal["starting", "ready", "draining", "fenced"]
    driver_id: str
    journal_id: Hex32
    boot_id: Hex32
    link: Link
    last_seq: Count
    acked_seq: Count
    counts: dict[State, Count]
    unsettled: Count
    oldest_unsettled_age_s: Annotated[float, Field(ge=0)] | None
    dead_letters: Count
    incidents: Incidents
    journal: JournalFile
    gateway: Gateway | None
    fence: str | None
    integrity: str
    fault_injection: list[str]


class Healthy(Published):
    """The journal can commit."""

    healthy: Literal[True]


class Ready(Published):
    """New calls are taken."""

    ready: Literal[True]
    state: Literal["ready"]


class Draining(Published):
    """The daemon begins to stop."""

    state: Literal["draining"]


class Operation(Published):
    """An operation, as lists have it."""

    operation_id: str
    command_id: str
    run_id: str
    origin: Origin
    tool: str
    args_digest: Hex64
    state: State
    effect: Effect
    effect_by: Source | None
    best_effort: bool
    settled: bool
    reason: str | None
    receipt: JsonValue
    attempt_count: Count
    metadata: dict[str, str] | None
    accepted_at: Time
    started_at: Time | None
    ended_at: Time | None
    deadline_at: Time | None


class Command(Published):
    """A command; `accepted_seq` and `kind` are null where it was refused for good."""

    command_id: str
    run_id: str | None
    kind: str | None
    origin: Origin
    content_digest: Hex64
    operation_id: str | None
    accepted_seq: Seq | None
    accepted_at: Time
    expires_at: Time | None
    receipt_seq: Seq | None
    receipt_kind: str | None


class Delivery(Published):
    """One arrival of a command."""

    at: Time
    answer: str


class Erasing(Published):
    """How far the erasure of a large run has come. `left` counts commands whose content is still to go."""

    erased: Count
    unsettled: Count
    unacknowledged: Count
    left: Count


class CommandAlone(Command):
    """One command, with its deliveries; `erasing` is null unless it erases a run, and is not done yet."""

    deliveries: list[Delivery]
    erasing: Erasing | None


class Attempt(Published):
    """One execution, with the contract that it was started under."""

    attempt: Seq
    idempotency_key: str
    key_carrier: str
    idempotent: bool
    dedupe_horizon_s: float | None
    started_seq: Seq
    started_at: Time
    deadline_at: Time
    phase: str | None
    outcome: str | None
    reason: str | None
    ended_at: Time | None
    duration_ms: int | None


class Evidence(Published):
    """One thing that was learned about an attempt."""

    attempt: Seq
    seq: Seq
    at: Time
    effect: Effect
    source: Source
    actor: str | None


class Approval(Published):
    """One request for a person's approval, and what was decided."""

    approval_id: str
    args_digest: Hex64
    definition_digest: Hex64 | None
    expires_at: Time
    requested_at: Time
    decision: Literal["grant", "deny"] | None
    approver: str | None
    label: str | None
    reason: str | None
    decided_at: Time | None


class Told(Published):
    """What one event says."""

    seq: Seq
    at: Time


class LateResult(Told):
    """A provider's answer that came after the operation had ended."""

    attempt: Seq
    effect: Effect
    error: JsonValue
    receipt: JsonValue


class Look(Told):
    """What a probe found."""

    verdict: Literal["occurred", "absent", "duplicated", "undetermined"]
    matches: Count | None
    detail: str | None


class Word(Told):
    """What an operator, a probe, a supervisor or the daemon concluded."""

    effect: Effect
    actor: str
    label: str | None
    basis: str
    note: str | None
    evidence: list[str] | None
    started_seq: int | None


class Divergence(Told):
    """Two events of the highest rank that contradict each other."""

    evidence: list[int]
    detail: str | None


class Reference(Told):
    """What the host said of the operation."""

    metadata: dict[str, str]


class Compensation(Published):
    """The operation that takes this one back."""

    operation_id: str
    state: State
    effect: Effect
    seq: Seq | None


class OperationAlone(Operation):
    """The whole story of one operation. `arguments` is null once they were erased."""

    arguments: dict[str, JsonValue] | None
    command: Command | None
    deliveries: list[Delivery]
    attempts: list[Attempt]
    evidence: list[Evidence]
    events: list[Seq]
    approvals: list[Approval]
    late_results: list[LateResult]
    probes: list[Look]
    verdicts: list[Word]
    divergences: list[Divergence]
    annotations: list[Reference]
    compensation: Compensation | None
    compensates: str | None
    parent_operation_id: str | None
    child_run_id: str | None
    child_ops_total: Count | None
    child_ops_unresolved: Count | None
    allowed: list[str]
    result: JsonValue


class Settled(Operation):
    """An operation after a verdict, and the event that holds it."""

    seq: Seq | None


class Run(Published):
    """A run."""

    run_id: str
    ended: bool
    outcome: str | None
    operations: Count
    unsettled: Count
    first_at: Time
    last_at: Time


class RunAlone(Run):
    """One run, and the runs that it continues."""

    resumes: list[str]


class DeadLetter(Published):
    """An event that the plane did not take."""

    seq: Seq
    kind: str
    code: str
    message: str
    at: Time
    requeued_as: Seq | None


class Requeued(Published):
    """What a dead letter was reported again as."""

    seq: Seq
    requeued_as: Seq


class Wall(Published):
    """What a triage model would be shown of a run: `text`, under `system`."""

    run_id: str
    run_ended: bool
    unsettled: Count
    waiting_for_probes: Count
    shown: Count
    left_out: Count
    split: str = ""
    digest: Hex64
    size: Count
    model: str
    prompt_version: int | str
    operations: list[dict[str, JsonValue]]
    neighbours: list[dict[str, JsonValue]]
    system: str
    text: str


class OperationCommand(Published):
    """A command about an operation: it is recorded."""

    command_id: str
    operation_id: str


class ApprovalCommand(OperationCommand):
    """A decision: it is recorded."""

    approval_id: str


class RunCommand(Published):
    """A command about a run: it is recorded."""

    command_id: str
    run_id: str


class Kept(Published):
    """What an erasure left alone."""

    unsettled: Count
    unacknowledged: Count
    operation_ids: list[str]
    truncated: bool


class Erased(RunCommand):
    """What an erasure came to; null of a large run, which goes on: its command's receipt says so then."""

    erased: Count | None
    kept: Kept | None


class Unfenced(Published):
    """The daemon may act again."""

    reason: str
    journal_id: Hex32
    previous_journal_id: Hex32 | None
    unknown: Count


class OpenApi(BaseModel):
    """This document."""

    model_config = ConfigDict(extra="allow")

    openapi: str
