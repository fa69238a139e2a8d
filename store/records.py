"""The values that the journal hands out: identities, and one record for each projection.

Part of `store`, pure: imports `store.declared`, `store.lifecycle` and `store.values`. Everything here is
frozen; nothing here knows SQL, a clock or the network. What the journal takes in, drafts of events, stands in
`store.events`.

Times are RFC 3339 text in UTC with microseconds and a final `Z` (`2026-11-29T10:40:19.925541Z`), which sorts
as text in the order of time.
"""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, Generic, Literal, NewType, Protocol, TypeAlias, TypeVar, Union

from store.declared import EventData
from store.lifecycle import Effect, Source, State
from store.values import light

JournalId = NewType("JournalId", str)
"""One history of one journal file: 32 lower-case hex digits."""
BootId = NewType("BootId", str)
"""One process life of the daemon: 32 lower-case hex digits."""
RunId = NewType("RunId", str)
CommandId = NewType("CommandId", str)
OperationId = NewType("OperationId", str)
"""`op_` and 32 hex digits; also the idempotency key of every attempt."""
Digest = NewType("Digest", str)
"""SHA-256 (or HMAC-SHA-256) as 64 lower-case hex digits."""
Chain = NewType("Chain", str)
"""The running hash of a journal as of one `seq`: 32 lower-case hex digits."""
Timestamp = NewType("Timestamp", str)

# Not `TypeAliasType`: pyright loses the recursion where a module names JsonObject first.
JsonValue: TypeAlias = Union[bool, int, float, str, "list[JsonValue]", "dict[str, JsonValue]", None]
JsonObject: TypeAlias = dict[str, JsonValue]


FRAME_BYTES_MAX: Final = 1_048_576
"""The largest frame either side takes, unless it says otherwise (docs/protocol.md, section 1)."""
TOOL_CALL: Final = "tool.call"
"""The one kind of command that becomes an operation."""
OPERATION_RETRY: Final = "operation.retry"
"""The one that asks for another attempt of an operation."""
COMPENSATION_PREFIX: Final = "compensate:"
"""Begins the id of the command that compensates an operation; the rest is that operation's id."""
Identical: TypeAlias = Literal["guard-unsettled", "once-per-run", "allow"]
"""What a contract says of equal calls in a run."""
IDENTICAL_DEFAULT: Final[Identical] = "guard-unsettled"
"""What it says where it does not say."""


class Origin(StrEnum):
    """Where a command came from."""

    PLANE = "plane"
    GATEWAY = "gateway"
    LOCAL = "local"


def timestamp(moment: datetime) -> Timestamp:
    """Return `moment` (which must be aware) in the journal's text form."""
    return Timestamp(moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z")


def moment(text: Timestamp) -> datetime:
    """Return the aware `datetime` that `timestamp` made `text` from."""
    return datetime.fromisoformat(text)


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """One committed event, ready to be sent.

    `body` is the frame exactly as it went, and will go, over the wire; it is None where the event was erased
    or only its place in the chain is kept.
    """

    seq: int
    kind: str
    at: Timestamp
    run_id: RunId | None
    command_id: CommandId | None
    operation_id: OperationId | None
    terminal: bool
    digest: Digest
    chain: Chain
    body: bytes | None
    requeue_of: int | None = None
    """The dead letter that it only reports again, where its commit announces it; what is read back later does
    not say."""
    data: EventData | None = field(default=None, compare=False, repr=False)
    """What it says, where its commit announces it: a listener need not parse its body."""


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRecord:
    """A command that was accepted, or refused for good (then `accepted_seq` is None, and `kind` is empty)."""

    command_id: CommandId
    run_id: RunId | None
    """None where a refused command named none that could be used."""
    kind: str
    origin: Origin
    content_digest: Digest
    operation_id: OperationId | None
    accepted_seq: int | None
    accepted_at: Timestamp
    receipt_seq: int | None
    receipt_kind: str | None
    expires_at: Timestamp | None


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """A command that was pruned after its time: it is never executed again."""

    command_id: CommandId
    run_id: RunId | None
    kind: str
    """The kind of its receipt."""
    seq: int
    """The receipt's seq."""
    content_digest: Digest
    operation_id: OperationId | None
    effect: Effect | None
    """The effect of a call as it was last known."""


class Twin(Protocol):
    """A write with the same arguments as another one: what a look-alike is judged by, pruned or not."""

    @property
    def operation_id(self) -> OperationId:
        """Its operation."""
        ...

    @property
    def state(self) -> State:
        """What the daemon did with it."""
        ...

    @property
    def effect(self) -> Effect:
        """What is known to have happened."""
        ...

    @property
    def effect_by(self) -> Source | None:
        """Who says so."""
        ...

    @property
    def guards(self) -> bool:
        """Whether a look-alike of it is a likely resend."""
        ...


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedTwin:
    """What a tombstone says of a write: a `Twin`, as an `OperationRecord` is."""

    operation_id: OperationId
    state: State
    effect: Effect
    effect_by: Source | None
    guards: bool


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class StoredData:
    """A command's `data` as it was received. `body` is None once it was erased."""

    body: bytes | None
    redact: tuple[str, ...]
    """The paths that the contract withholds: nobody is shown what they lead to."""

    @property
    def arguments(self) -> "JsonObject | None":
        """The arguments of a call, whole; None once they were erased."""
        if self.body is None:
            return None
        arguments: JsonObject = json.loads(self.body)["arguments"]
        return arguments


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRecord:
    """One tool call as the events so far tell it. `started_seq` is the newest `operation.started`."""

    operation_id: OperationId
    command_id: CommandId
    run_id: RunId
    origin: Origin
    tool: str
    args_digest: Digest
    write: bool
    identical: str
    repeat: bool
    state: State
    effect: Effect
    effect_by: Source | None
    best_effort: bool
    settled: bool
    guards: bool
    reason: str | None
    error_means: str | None
    receipt: JsonValue
    attempt_count: int
    metadata: dict[str, str] | None
    accepted_seq: int
    started_seq: int | None
    result_seq: int | None
    accepted_at: Timestamp
    started_at: Timestamp | None
    ended_at: Timestamp | None
    deadline_at: Timestamp | None
    expires_at: Timestamp | None
    parent_operation_id: OperationId | None


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One execution of an operation: the contract that it was started under, and how far it got."""

    operation_id: OperationId
    attempt: int
    idempotency_key: str
    key_carrier: str
    idempotent: bool
    dedupe_horizon_s: float | None
    started_seq: int
    started_at: Timestamp
    deadline_at: Timestamp
    phase: str | None
    outcome: str | None
    reason: str | None
    ended_at: Timestamp | None
    duration_ms: int | None


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRecord:
    """One thing that was learned about one attempt: which event says it, and who."""

    operation_id: OperationId
    attempt: int
    seq: int
    at: Timestamp
    effect: Effect
    source: Source
    actor: str | None


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run: whether it was ended, and how many of its writes are unsettled."""

    run_id: RunId
    ended: bool
    outcome: str | None
    operations: int
    unsettled: int
    first_at: Timestamp
    last_at: Timestamp


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class TriageRecord:
    """How often a triage model was asked about a run since its last verdict, and when it may be again."""

    run_id: RunId
    attempts: int
    not_before: Timestamp


Side: TypeAlias = Literal["before", "after"]


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationRecord:
    """What a reading command printed before an attempt began, or after it had ended."""

    operation_id: OperationId
    attempt: int
    side: Side
    at: Timestamp
    text: str


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRecord:
    """One arrival of a command at the daemon."""

    command_id: CommandId
    at: Timestamp
    answer: str


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """An event that the plane, or a limit of its, refused: kept, and left out of the stream."""

    seq: int
    kind: str
    code: str
    message: str
    at: Timestamp
    requeued_as: int | None


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class OperationFilter:
    """Which operations a list shows; None means any. `reason` takes the words of docs/local-api.md."""

    state: State | None = None
    effect: Effect | None = None
    run_id: RunId | None = None
    tool: str | None = None
    unsettled: bool = False
    reason: str | None = None
    inferred: bool = False
    """Only what a supervisor has closed, and nobody else; not together with `unsettled` or `reason`."""


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A history that the file held before its present one; its numbers are in the file's counting.

    `base` is the seq before its first event, `last` that of its last one, and `acked` its watermark.
    """

    journal_id: JournalId
    base: int
    last: int
    chain: Chain
    acked: int
    ended_at: Timestamp


T = TypeVar("T")


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """A bounded part of a list. `next` is the cursor of the following page, or None at the end."""

    items: tuple[T, ...]
    next: int | None


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """Why the daemon dispatches nothing and sends nothing, until somebody lifts it."""

    reason: str
    detail: str
    at: Timestamp
