"""What the engine answers to one delivery of a command: the link session turns it into frames.

Part of `driver.core`, pure: imports `store.records` only.
"""

from dataclasses import dataclass
from typing import TypeAlias

from store.records import StoredEvent


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
