"""What the engine answers to one delivery of a command, and to a command that was given on this machine.

The link session turns answers into frames, the local API submissions into HTTP.

Part of `driver.core`, pure: imports `store.records` only.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

from store.records import CommandId, JsonValue, StoredEvent

NO_SUCH_OPERATION: Final = "this journal has no such operation: check the id"
"""What every command is told that names an operation which is not here."""


@dataclass(frozen=True, slots=True)
class Silent:
    """The command is new to the journal: its events come in the stream, and nothing is said beside it."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A frame that stands beside the stream: `refused`, `retired` or `error`."""

    frame: str


@dataclass(frozen=True, slots=True)
class Repeat:
    """The command is known: its acceptance and its receipt, as stored, in the order of their `seq`."""

    events: tuple[StoredEvent, ...]


Answer: TypeAlias = Silent | Reply | Repeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The command was recorded under this id, and did what it was asked: `result` is its receipt's.

    Where the receipt comes later, `result` is None: it is accepted, and will be done.
    """

    command_id: CommandId
    result: JsonValue = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotDone:
    """The command was refused, or failed: `code` is a stable word, `message` says what to do."""

    code: str
    message: str


Submission: TypeAlias = Done | NotDone


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeued:
    """A dead letter is reported again, as the event `requeued_as`: by this demand, or long since."""

    requeued_as: int
    recorded: bool


Requeueing: TypeAlias = Requeued | NotDone
