"""What a call came to, as the gateway's parts hand it to each other.

Part of `driver.gateway`; imports `driver.core`, the store's events and values.
"""

from dataclasses import dataclass
from typing import TypeAlias

from driver.core.attempts import Report
from store.events import CommandRefused, OperationFailed, OperationUnknown
from store.records import CommandId, Digest, JsonObject, OperationId, RunId, Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The journal has its last word: the kind and the data of the receipt, committed.

    `report` is what was seen of the end, as it came; None where that is not in memory. `replayed`: the word
    was there before this was asked.
    """

    operation_id: OperationId
    kind: str
    data: JsonObject
    report: Report | None = None
    decided: JsonObject | None = None
    """The decision about the newest request for approval."""
    replayed: bool = False

    @property
    def taken(self) -> bool:
        """Whether it was taken as an operation: of a refusal nobody says that it was delivered."""
        return self.kind != CommandRefused.KIND

    @property
    def uncertain(self) -> bool:
        """Whether nobody knew what had happened when it ended."""
        unsettled = self.kind == OperationFailed.KIND and self.data.get("error_means") == "unsettled"
        return unsettled or self.kind == OperationUnknown.KIND


@dataclass(frozen=True, slots=True, kw_only=True)
class NotTaken:
    """Nothing was executed, and nothing will be: `code` is a stable word, `message` says what to do."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """Nothing was executed, because of an equal call: `twin`; `undelivered` where nobody heard its answer."""

    code: str
    twin: OperationId
    undelivered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Retired:
    """It was executed so long ago that only its end is known."""

    operation_id: OperationId | None
    kind: str
    effect: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """It goes on, and is not waited for any longer."""

    operation_id: OperationId
    approval_id: str | None = None
    expires_at: Timestamp | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskUser:
    """It waits for an approval, and the client is to ask its user: `result` says so in MCP's words."""

    result: JsonObject


Outcome: TypeAlias = Ended | NotTaken | Alike | Retired | Running | AskUser


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The call that an answer is about."""

    command_id: CommandId
    run_id: RunId
    digest: Digest
    certain: bool = True
    """Whether it says what happened. Else an equal call is told, once somebody has found that out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """An answer, and the call that it is about; None where it is about none that was executed."""

    result: JsonObject
    about: Delivered | None = None
