"""Every frame of `effectd.v1`, defined once, for both ends.

Part of `driver.core`, pure: imports `store.records` and `driver.core.fields`. `driver.core.codec` reads and
writes them, `driver.core.schema` makes the JSON Schema from them. A member with a default is optional on the
wire, and is left out where it is None; all others are always present.
"""

from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field
from pydantic_core import PydanticCustomError

from driver.core.fields import (
    AnyText,
    BootIdField,
    ChainField,
    CommandIdField,
    Count,
    Flag,
    JournalIdField,
    Name,
    Object,
    OperationIdField,
    PlaneCommandIdField,
    Positive,
    RunIdField,
    TimestampField,
    TraceParent,
)
from store.records import FRAME_BYTES_MAX as FRAME_BYTES_MAX  # noqa: PLC0414 - the plane may not import store
from store.records import Chain, CommandId, JournalId, JsonValue, RunId

PROTOCOL: Final = 1
"""The version that `hello` names."""
SUBPROTOCOL: Final = "effectd.v1"
"""The WebSocket subprotocol of that version."""
FRAME_BYTES_MIN: Final = 256
"""The least that a plane can announce: no event is shorter, so below it nothing could ever be sent."""
WINDOW: Final = 256
"""Unacknowledged events in flight, where a plane names no number of its own."""
EXPIRES_MS_MAX: Final = 3_153_600_000_000
"""The longest expiry of a command: a hundred years, so that every date it leads to can be written."""

CLOSE_GOING_AWAY: Final = 1000
CLOSE_RESTARTING: Final = 1012
CLOSE_SUPERSEDED: Final = 4001
CLOSE_PROTOCOL_ERROR: Final = 4002
CLOSE_NOT_AUTHORISED: Final = 4003


# ------------------------------------------------------------ plane → daemon


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """The plane's answer to `hello`: where it stands in this journal, and what it can take."""

    type: Literal["welcome"] = "welcome"
    session_id: Name | None = None
    acked_seq: Count
    acked_chain: ChainField | None = None
    window: Positive = WINDOW
    max_frame_bytes: Annotated[int, Field(strict=True, ge=FRAME_BYTES_MIN)] = FRAME_BYTES_MAX

    def __post_init__(self) -> None:
        """Refuse a watermark that names no history."""
        if self.acked_seq > 0 and self.acked_chain is None:
            raise PydanticCustomError("chain_missing", "acked_chain is required where acked_seq is above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """The plane will not talk to this daemon; it closes the socket next."""

    type: Literal["reject"] = "reject"
    code: Name
    message: AnyText = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """Every event up to `seq` is durable at the plane."""

    type: Literal["ack"] = "ack"
    seq: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Nack:
    """The plane does not take this one event (`busy`: not now)."""

    type: Literal["nack"] = "nack"
    seq: Positive
    code: Literal["invalid", "retired", "busy", "conflict"]
    message: AnyText = ""
    retry_after_ms: Count | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFrame:
    """One delivery of a command. `data` is as received, and belongs to `kind`."""

    type: Literal["command"] = "command"
    command_id: PlaneCommandIdField
    run_id: RunIdField
    kind: Name
    data: Object = field(default_factory=dict[str, JsonValue])
    expires_in_ms: Annotated[int, Field(strict=True, ge=1, le=EXPIRES_MS_MAX)] | None = None
    delivered_to: tuple[JournalIdField, ...] = ()
    traceparent: TraceParent = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidCommand:
    """A command that cannot be executed but can be answered: it is refused for good, with `invalid`.

    `run_id` is None where even that is unusable. `content` is `[kind, run_id, data]` as received (null for
    what is absent, {} for absent data), so that a redelivery can be recognised by
    `identity.content_digest(*content)`.
    """

    command_id: CommandId
    run_id: RunId | None
    content: tuple[JsonValue, JsonValue, JsonValue]
    message: str


# ------------------------------------------------------------ daemon → plane


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The daemon's first frame: who it is, and where its journal stands."""

    type: Literal["hello"] = "hello"
    protocol: Positive
    driver_id: Name
    journal_id: JournalIdField
    boot_id: BootIdField
    software: Name
    capabilities: tuple[Name, ...]
    last_seq: Count
    acked_seq: Count
    unsettled: Count
    max_inflight: Positive
    tombstone_days: Positive
    state: Literal["ready", "draining", "fenced"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFrame:
    """The envelope of a committed event. `data` belongs to `kind`."""

    type: Literal["event"] = "event"
    journal_id: JournalIdField
    seq: Positive
    kind: Name
    at: TimestampField
    run_id: RunIdField | None
    command_id: CommandIdField | None
    operation_id: OperationIdField | None
    origin: Literal["plane", "gateway", "local"]
    terminal: Flag
    best_effort: Flag
    data: Object
    chain: ChainField


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidEvent:
    """A frame that holds a place in the stream, and is no event: the plane answers with a nack `invalid`."""

    journal_id: JournalId
    seq: int
    chain: Chain
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Retention pruned the events `from` to `to`; `chain` is the chain as of `to`."""

    type: Literal["gap"] = "gap"
    from_: Annotated[Positive, Field(alias="from")]
    to: Positive
    chain: ChainField

    def __post_init__(self) -> None:
        """Refuse a gap that runs backwards."""
        if self.to < self.from_:
            raise PydanticCustomError("backwards", "'to' must not be below 'from'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A plain refusal: it is not remembered, and the command can be delivered again."""

    type: Literal["refused"] = "refused"
    command_id: CommandIdField
    code: Literal["conflict", "overloaded", "draining", "fenced", "no_room"]
    message: AnyText = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retired:
    """The command was executed long ago: its events are gone, and this is what is left of its receipt."""

    type: Literal["retired"] = "retired"
    command_id: CommandIdField
    operation_id: OperationIdField | None
    kind: Name
    effect: Literal["none", "occurred", "unknown"] | None
    journal_id: JournalIdField
    seq: Positive


# ------------------------------------------------------------ either way


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorFrame:
    """What the peer could not make sense of. It is logged, and never answered."""

    type: Literal["error"] = "error"
    code: Name
    message: AnyText = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadFrame:
    """Text that is no frame of this direction: `answer` is what goes back."""

    code: str
    message: str

    @property
    def answer(self) -> ErrorFrame:
        """The `error` frame that tells the peer."""
        return ErrorFrame(code=self.code, message=self.message)


FromPlane: TypeAlias = Welcome | Reject | Ack | Nack | CommandFrame | ErrorFrame
FromDaemon: TypeAlias = Hello | EventFrame | Gap | Refused | Retired | ErrorFrame
Frame: TypeAlias = FromPlane | FromDaemon

PLANE_FRAMES: Final[tuple[type[FromPlane], ...]] = (Welcome, Reject, Ack, Nack, CommandFrame, ErrorFrame)
DAEMON_FRAMES: Final[tuple[type[FromDaemon], ...]] = (Hello, EventFrame, Gap, Refused, Retired, ErrorFrame)
