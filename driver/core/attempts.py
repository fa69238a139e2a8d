"""One attempt at a tool call: what is asked of a provider, how far it got, and what was seen of the end.

Part of `driver.core`, pure: imports only `store.records`. A `Report` holds facts, never a judgement about the
effect: that is `driver.core.classify`'s.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, TypeAlias

from store.records import Digest, JsonObject, JsonValue, OperationId
from store.values import light


class Phase(StrEnum):
    """How far an attempt got, in this order."""

    RESERVED = "reserved"
    CONNECTING = "connecting"
    WRITING = "writing"
    """The first byte of the call may have left: the point of no return."""
    WRITTEN = "written"
    ANSWERED = "answered"

    @property
    def may_have_left(self) -> bool:
        """True from the moment on when a byte of the call may have left this machine."""
        return self in _AFTER_THE_FIRST_BYTE


_AFTER_THE_FIRST_BYTE: Final = frozenset({Phase.WRITING, Phase.WRITTEN, Phase.ANSWERED})


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One attempt, as a provider gets it.

    `tool` is the name within the provider's own list; `key` is None where the contract carries none;
    `timeout_s` counts from the call of `dispatch`; `traceparent` is the W3C header of the command.
    """

    operation_id: OperationId
    attempt: int
    tool: str
    arguments: JsonObject
    key: str | None
    timeout_s: float
    traceparent: str | None = None
    definition: Digest | None = None
    """Of the definition of the tool that a person approved: with another one it must not be sent."""
    alone: bool = False
    """Whether no earlier attempt may be carried out beside it, because the provider does not deduplicate."""


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The provider answered the call: `result` as it came, unknown members and all.

    `output_invalid`: its structured content breaks the tool's own output schema. It is an answer still.
    `code` is the provider's own name for its error, where it has one. `interrupted`: an error that cut the
    work short, at a point that nobody knows: it never proves that nothing happened.
    """

    result: JsonObject
    is_error: bool = False
    output_invalid: bool = False
    code: str | None = None
    interrupted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerError:
    """A JSON-RPC error that the peer itself sent; never one that a library of ours made up."""

    code: int
    message: str
    data: JsonValue = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpStatus:
    """An HTTP response that is not the call's own answer: `result` holds what came with it."""

    status: int
    result: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRequired:
    """The provider wants input that nobody can give before it goes on."""

    result: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPending:
    """A handle in place of a result, and the task was not done by the deadline."""

    handle: JsonObject


NotSentReason: TypeAlias = Literal[
    "connect_failed", "spawn_failed", "invalid_arguments", "unknown_tool", "cancelled", "deadline"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotSent:
    """Provably no byte of this call left."""

    reason: NotSentReason
    message: str


SilenceCause: TypeAlias = Literal["deadline", "connection_lost", "protocol_error", "cancelled", "internal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Nothing that counts as an answer came; `cause` says what ended the wait on our side."""

    cause: SilenceCause
    message: str


Report: TypeAlias = Answered | PeerError | HttpStatus | InputRequired | TaskPending | NotSent | Silence
