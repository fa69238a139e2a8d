"""What the configuration promises about each tool, as values that decisions are made from.

Part of `driver.core`, pure: imports `driver.core.{expressions,redaction,templates}` and `store.records`.
`driver.config` validates the TOML and builds these; nothing here repeats its checks, except those without
which a decision would be wrong.

Every default is the careful one: a tool that nobody declared is a write, without a promise of idempotency.

    ContractError
     ├── InvalidKeyCarrier      `key` names no way to carry an idempotency key
     └── ContradictoryContract  a contract promises what another member of it rules out
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal, Self, TypeAlias

from driver.core.expressions import Expression
from driver.core.redaction import Redaction
from driver.core.templates import Template
from store.records import IDENTICAL_DEFAULT, Identical
from store.values import light

ToolEffect: TypeAlias = Literal["read", "write"]
RetryRule: TypeAlias = Literal["never", "same-key"]
ApprovalRule: TypeAlias = Literal["none", "required"]
ErrorMeans: TypeAlias = Literal["reported", "none", "unsettled"]

META_KEY: Final = "dev.effectd/idempotency-key"
"""Where `key = "meta"` puts the idempotency key within a call's `_meta`."""
SEP3182_FIELD: Final = "idempotencyKey"
"""The member of `tools/call`'s params that SEP-3182 proposed."""

NAMES_KEPT: Final = 1_024
"""Names that are taken apart once: each step of a call asks for the parts of the same one."""

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class ContractError(Exception):
    """A contract that cannot be acted upon."""


class InvalidKeyCarrier(ContractError):
    """`text` is none of the forms of `key`."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(
            f"key = {text!r} names no way to carry an idempotency key: "
            'use "none", "meta", "argument:NAME", "header:NAME" or "sep3182"'
        )


class ContradictoryContract(ContractError):
    """`key = value` needs something that the contract does not say."""

    def __init__(self, key: str, value: str, needs: str) -> None:
        self.key = key
        self.needs = needs
        super().__init__(f"contradictory tool contract: {key} = {value} needs {needs}")


@dataclass(frozen=True, slots=True)
class NoKey:
    """The idempotency key does not travel."""

    def __str__(self) -> str:
        return "none"


@dataclass(frozen=True, slots=True)
class MetaKey:
    """In the call's `_meta`, as `META_KEY`."""

    def __str__(self) -> str:
        return "meta"


@dataclass(frozen=True, slots=True)
class ArgumentKey:
    """As the tool's argument `name`, which a caller may then not supply."""

    name: str

    def __str__(self) -> str:
        return f"argument:{self.name}"


@dataclass(frozen=True, slots=True)
class HeaderKey:
    """As the HTTP header `name`."""

    name: str

    def __str__(self) -> str:
        return f"header:{self.name}"


@dataclass(frozen=True, slots=True)
class Sep3182Key:
    """As the member `SEP3182_FIELD` beside the call's name and arguments."""

    def __str__(self) -> str:
        return "sep3182"


KeyCarrier: TypeAlias = NoKey | MetaKey | ArgumentKey | HeaderKey | Sep3182Key
"""How an idempotency key travels; `str()` gives the form that the configuration and the journal use."""


def parse_key_carrier(text: str) -> KeyCarrier:
    """Return the carrier that `text` (a provider's `key`) names. Raises `InvalidKeyCarrier`."""
    match text.partition(":"):
        case ("none", "", ""):
            return NoKey()
        case ("meta", "", ""):
            return MetaKey()
        case ("sep3182", "", ""):
            return Sep3182Key()
        case ("argument", ":", name) if name:
            return ArgumentKey(name)
        case ("header", ":", name) if _HEADER_NAME.fullmatch(name):
            return HeaderKey(name)
        case _:
            raise InvalidKeyCarrier(text)


@light
@dataclass(frozen=True, slots=True)
class ToolName:
    """A tool as commands name it: the provider up to the first `/`, and the tool's own name behind it."""

    provider: str
    tool: str

    @classmethod
    @lru_cache(maxsize=NAMES_KEPT)
    def parse(cls, text: str) -> Self:
        """Return the two parts of `text`; `tool` is empty where there is no `/`, and names no tool then."""
        provider, _, tool = text.partition("/")
        return cls(provider, tool)

    def __str__(self) -> str:
        return f"{self.provider}/{self.tool}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """How to read after a write whether it happened: `tool`, which is a read, is one of the same provider.

    `matches` sees what the arguments see, and the answer as `result`; it yields a whole number or a boolean.
    """

    tool: str
    arguments: Template
    matches: Expression
    visible_after_s: float = 5.0
    """From when the attempt can no longer land; before this, no match says nothing."""
    attempts: int = 6
    authoritative_absence: bool = False
    """Whether no match proves that it did not happen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compensation:
    """The call that takes the effect back: `tool` is one of the same provider."""

    tool: str
    arguments: Template


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """What is promised about one tool. Durations are seconds. Raises `ContradictoryContract`."""

    declared: bool = False
    effect: ToolEffect = "write"
    idempotent: bool = False
    dedupe_horizon_s: float | None = None
    key_carrier: KeyCarrier = field(default_factory=NoKey)
    retry: RetryRule = "never"
    retry_attempts: int = 3
    retry_backoff_s: float = 1.0
    execution_s: float = 60.0
    held_s: float = 0.0
    """How long the plane may take to acknowledge an intent before it is acted on; 0 where it need not."""
    late_result_s: float = 60.0
    """How long an attempt can still land after its call has ended; 0 where it is gone by then."""
    approval: ApprovalRule = "none"
    approval_expires_s: float = 3600.0
    error_means: ErrorMeans = "reported"
    identical: Identical = IDENTICAL_DEFAULT
    redact: Redaction | None = None
    receipt: Expression | None = None
    probe: Probe | None = None
    compensate: Compensation | None = None

    def __post_init__(self) -> None:
        if self.idempotent and self.dedupe_horizon_s is None:
            raise ContradictoryContract("idempotent", "true", "dedupe_horizon_s")
        if self.retry == "same-key" and not self.may_repeat:
            needs = 'idempotent = true, a provider whose key is not "none", and approval = "none"'
            raise ContradictoryContract("retry", '"same-key"', needs)

    @property
    def write(self) -> bool:
        """True where an execution may change the world."""
        return self.effect == "write"

    @property
    def budget_s(self) -> float:
        """How long after its intent an attempt is over."""
        return self.held_s + self.execution_s

    @property
    def carries_key(self) -> bool:
        """True where the provider gets to see the idempotency key."""
        return not isinstance(self.key_carrier, NoKey)

    @property
    def may_repeat(self) -> bool:
        """True where the daemon may by itself send the same key again."""
        return self.idempotent and self.carries_key and self.approval == "none"


UNDECLARED: Final = Contract()
"""What holds for a tool of a provider that nobody configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contracts:
    """All contracts: the declared tools, and for each provider what holds for its undeclared ones."""

    tools: Mapping[ToolName, Contract] = field(default_factory=dict[ToolName, Contract])
    undeclared: Mapping[str, Contract] = field(default_factory=dict[str, Contract])

    def lookup(self, tool: str) -> Contract:
        """Return the contract of `tool` as a command names it; what nobody declared is a careful write."""
        name = ToolName.parse(tool)
        return self.tools.get(name) or self.undeclared.get(name.provider, UNDECLARED)
