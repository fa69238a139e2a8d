"""The kinds of commands, and what `data` each of them takes.

Part of `driver.core`, pure: pydantic at the edge; imports `store.records`, `store.lifecycle` and
`driver.core.fields`. Definitions: docs/protocol.md, section 4. Unknown members are ignored here, though they
count in the content digest; null stands for an absent optional member.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Annotated, ClassVar, Final, Generic, Literal, TypeAlias, TypeVar, get_args

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from driver.core.fields import (
    AnyText,
    CommandIdField,
    Flag,
    Name,
    Note,
    Object,
    OperationIdField,
    RunIdField,
    explain,
    has_default,
    validated,
)
from store.lifecycle import Effect
from store.records import OPERATION_RETRY, TOOL_CALL, JsonObject

RESUMES_MAX: Final = 64
"""Runs that one call can continue."""
EVIDENCE_MAX: Final = 32
"""References that one verdict can cite, each a text as long as a note."""
METADATA_BYTES_MAX: Final = 4_096
"""The values of an annotation together, in bytes of UTF-8 (docs/protocol.md, section 4)."""


def _fits_metadata(metadata: dict[str, str]) -> dict[str, str]:
    if sum(len(value.encode("utf-8")) for value in metadata.values()) > METADATA_BYTES_MAX:
        raise PydanticCustomError(
            "too_many_bytes",
            "the values must be at most {limit} bytes of UTF-8 in all",
            {"limit": METADATA_BYTES_MAX},
        )
    return metadata


MetadataKey = Literal["id", "title", "url", "normalized_title", "scope_identity"]
Metadata = Annotated[dict[MetadataKey, AnyText], AfterValidator(_fits_metadata)]
EffectField = Annotated[Effect, Field(strict=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallData:
    """One call of a tool: one operation. `resumes` are run ids that this run continues."""

    KIND: ClassVar[str] = TOOL_CALL
    tool: Name
    arguments: Object
    repeat: Flag = False
    resumes: Annotated[tuple[RunIdField, ...], Field(max_length=RESUMES_MAX)] = ()
    parent_operation_id: OperationIdField | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelData:
    """Cancel one command."""

    KIND: ClassVar[str] = "command.cancel"
    target_command_id: CommandIdField
    reason: Note | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCancelData:
    """Cancel every open command of the run."""

    KIND: ClassVar[str] = "run.cancel"
    reason: Note | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEndData:
    """The run gets no more calls."""

    KIND: ClassVar[str] = "run.end"
    outcome: Note | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproveData:
    """A human's decision about one request."""

    KIND: ClassVar[str] = "operation.approve"
    operation_id: OperationIdField
    approval_id: Name
    decision: Literal["grant", "deny"]
    approver: Name
    reason: Note | None = None
    label: Name | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileData:
    """An operator's verdict about an operation."""

    KIND: ClassVar[str] = "operation.reconcile"
    operation_id: OperationIdField
    effect: EffectField
    actor: Name
    note: Note
    evidence: Annotated[tuple[Note, ...], Field(max_length=EVIDENCE_MAX)] = ()
    override: Flag = False
    label: Name | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeData:
    """Run the operation's declared probe now."""

    KIND: ClassVar[str] = "operation.probe"
    operation_id: OperationIdField


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryData:
    """Another attempt with the same key, where rule R allows it."""

    KIND: ClassVar[str] = OPERATION_RETRY
    operation_id: OperationIdField


@dataclass(frozen=True, slots=True, kw_only=True)
class CompensateData:
    """Run the operation's declared compensation."""

    KIND: ClassVar[str] = "operation.compensate"
    operation_id: OperationIdField


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCompensateData:
    """Compensate the run, newest first."""

    KIND: ClassVar[str] = "run.compensate"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotateData:
    """The host's own reference for the operation."""

    KIND: ClassVar[str] = "operation.annotate"
    operation_id: OperationIdField
    metadata: Metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class TriageData:
    """Wake the supervisor for the run."""

    KIND: ClassVar[str] = "run.triage"


@dataclass(frozen=True, slots=True, kw_only=True)
class EraseData:
    """Erase the content of the run's settled operations."""

    KIND: ClassVar[str] = "run.erase"


CommandData: TypeAlias = (
    ToolCallData
    | CancelData
    | RunCancelData
    | RunEndData
    | ApproveData
    | ReconcileData
    | ProbeData
    | RetryData
    | CompensateData
    | RunCompensateData
    | AnnotateData
    | TriageData
    | EraseData
)
COMMAND_TYPES: Final[tuple[type[CommandData], ...]] = get_args(CommandData)
"""Every kind, in the order of docs/protocol.md."""

KINDS: Final = tuple(data.KIND for data in COMMAND_TYPES)
"""The names of all kinds."""

STARTS_WORK: Final = frozenset(
    data.KIND for data in (ToolCallData, RetryData, CompensateData, RunCompensateData)
)
"""The kinds that can be refused `overloaded`, `draining` or `no_room` while they are new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidData:
    """`data` that its kind does not take: what a final refusal says."""

    code: Literal["invalid", "unknown_kind"]
    message: str


D = TypeVar("D", bound=CommandData)


class _Shape(Generic[D]):
    def __init__(self, data: type[D]) -> None:
        self.adapter: TypeAdapter[D] = TypeAdapter(data)
        self.optional = frozenset(item.name for item in fields(data) if has_default(item))


_SHAPES: Final[Mapping[str, _Shape[CommandData]]] = MappingProxyType(
    {data.KIND: _Shape[CommandData](data) for data in COMMAND_TYPES}
)


def parse_data(kind: str, data: JsonObject) -> CommandData | InvalidData:
    """Return `data` as what `kind` takes, or why it is not that. Never raises."""
    shape = _SHAPES.get(kind)
    if shape is None:
        return InvalidData(
            code="unknown_kind", message=f"no command has the kind {kind!r}; {', '.join(KINDS)}"
        )
    try:
        return validated(shape.adapter, shape.optional, data)
    except ValidationError as error:
        return InvalidData(code="invalid", message=f"{kind}: {explain(error)}")
