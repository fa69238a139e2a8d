"""What the link session is told, and what it asks for: the two vocabularies between it and its shell.

Part of `driver.core`, pure: imports `store.records` and the frames. Signals go in, orders come out; the shell
carries out every order in the sequence given, and none of them waits.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias

from driver.core.answers import Answer
from driver.core.frames import CommandFrame, Hello, InvalidCommand
from store.records import Chain, StoredEvent
from store.values import light

Delivery: TypeAlias = CommandFrame | InvalidCommand
"""One arrival of a command, well-formed or not: the engine answers either."""


class FenceReason(StrEnum):
    """Why this journal is not, or no longer, the one that the plane goes by."""

    SUPERSEDED = "superseded"
    """Another life of this driver_id has taken over (close code 4001)."""
    ROLLED_BACK = "rolled_back"
    """The plane has acknowledged events that this journal does not have."""
    FORKED = "forked"
    """The plane acknowledged another history than this journal's."""
    CONFLICT = "conflict"
    """The plane saw other bytes under a seq of this journal."""
    RESTORED = "restored_backup"
    """This journal was restored from a backup: until the plane or an operator agrees, it may be too old."""


# ------------------------------------------------------------ signals: what happened


@dataclass(frozen=True, slots=True)
class Opened:
    """The socket is open. `hello` says where the journal stands at this moment."""

    hello: Hello
    fence: str | None = None
    """Why the daemon is fenced, where `hello` says that it is."""
    base: int = 0
    """For the shell: how the journal's file calls the seq 0 of this history."""


@light
@dataclass(frozen=True, slots=True)
class Received:
    """A message arrived: text, or the bytes of a binary frame."""

    data: str | bytes


@light
@dataclass(frozen=True, slots=True)
class Committed:
    """The journal committed these events: each commit is told once, in order."""

    events: tuple[StoredEvent, ...]


@dataclass(frozen=True, slots=True)
class EventsRead:
    """The answer to `ReadEvents`: events after `after` in order, and which of them are dead letters."""

    after: int
    events: tuple[StoredEvent, ...]
    parked: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class ChainRead:
    """The answer to `ReadChain`: None where that `seq` was pruned."""

    seq: int
    chain: Chain | None


@light
@dataclass(frozen=True, slots=True)
class Answered:
    """The engine's answer to one `Deliver`."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class Resumed:
    """The pause that `PauseStream` asked for is over."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The socket is closed, by whomever."""

    code: int
    reason: str


Signal: TypeAlias = Opened | Received | Committed | EventsRead | ChainRead | Answered | Resumed | Closed


# ------------------------------------------------------------ orders: what is to be done


@light
@dataclass(frozen=True, slots=True)
class Send:
    """Send one text frame."""

    frame: bytes | str


@dataclass(frozen=True, slots=True)
class ReadEvents:
    """Read events after `after`: at most `limit`, and about `bytes_max` of them, but one if there is one."""

    after: int
    limit: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class ReadChain:
    """Read the chain as of `seq`."""

    seq: int


@light
@dataclass(frozen=True, slots=True)
class Acknowledge:
    """The plane's watermark is `seq`. It may ride with the next commit."""

    seq: int


@dataclass(frozen=True, slots=True)
class AnnounceFrameBytes:
    """The plane takes frames up to `limit` bytes: events to come are cut to it."""

    limit: int


@dataclass(frozen=True, slots=True)
class Park:
    """Keep this event as a dead letter. It may ride with the next commit."""

    seq: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class RaiseFence:
    """Stop acting, durably."""

    reason: FenceReason
    detail: str


@dataclass(frozen=True, slots=True)
class LiftFence:
    """The plane knows a restored journal as a history it has seen: begin another, then say hello again."""


@light
@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand this to the engine; its answer comes back as `Answered`."""

    frame: Delivery


@dataclass(frozen=True, slots=True)
class HistoryConfirmed:
    """The plane knows this journal as the history it has seen: what waits from earlier boots may go."""


@dataclass(frozen=True, slots=True)
class PauseStream:
    """Signal `Resumed` after this long."""

    ms: int


@dataclass(frozen=True, slots=True)
class CloseLink:
    """Close the socket, after what was sent."""

    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class Note:
    """Something for the log and for `status`: what was wrong with a frame of ours, or of the plane's."""

    what: Literal["rejected", "plane_error", "frame_refused"]
    code: str
    message: str


Order: TypeAlias = (
    Send
    | ReadEvents
    | ReadChain
    | Acknowledge
    | AnnounceFrameBytes
    | Park
    | RaiseFence
    | LiftFence
    | Deliver
    | HistoryConfirmed
    | PauseStream
    | CloseLink
    | Note
)
