"""Where the local API listens, and every limit of it, named once.

Part of `driver.local`; imports the sockets' names from `driver.config`.
"""

from dataclasses import dataclass, field
from pathlib import Path

from driver.config.sockets import INSPECT_SOCKET, OPERATOR_SOCKET


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalLimits:
    """Each bound of one socket. At a bound a request is refused or a connection closed, and which is said."""

    connections_max: int = 256
    """Open connections; a further one ends the one that has been idle longest. Two sockets at this bound
    leave half of the usual 1,024 file descriptors to everything else."""
    streams_max: int = 64
    """`follow` and `verify` streams at once: they may last for ever, so they may not be all connections."""
    requests_per_s: float = 250.0
    """Of one socket, in the long run: a request costs the event loop up to a millisecond, which everything
    else needs, too."""
    requests_burst: int = 1_000
    """Requests at once, after a pause: 200 people who open a page each, several times."""
    reads_max: int = 4
    """Reads of the journal in flight: commits take turns with them, so a crowd of readers must wait
    outside."""
    header_bytes_max: int = 16_384
    """A request's line and headers, as they came."""
    body_bytes_max: int = 65_536
    request_s: float = 10.0
    """From the connection, or from the last answer, until a request's head is complete, and again for its
    body."""
    stall_s: float = 120.0
    """How long a client may leave its answer unread, with our buffers full, before it is cut off."""
    hangup_s: float = 2.0
    """How soon it is seen that a client is gone that had said before that it says no more."""
    drain_s: float = 2.0
    """How long answers in progress may take once the daemon stops."""
    page_bytes_max: int = 4_194_304
    """A page ends early at this size: receipts may be large, and 500 of them larger than memory."""
    batch_bytes_max: int = 262_144
    """Events written to a stream in one piece; also what one follower may hold in memory unsent."""
    batch_events_max: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """What `serve_local` needs to know."""

    runtime_dir: Path
    allow_self_approval: bool = False
    """Whether the uid behind a call of the gateway may decide about it."""
    limits: LocalLimits = field(default_factory=LocalLimits)

    @property
    def inspect_socket(self) -> Path:
        """The socket for reads, open to the group."""
        return self.runtime_dir / INSPECT_SOCKET

    @property
    def operator_socket(self) -> Path:
        """The socket for everything, open to the owner alone."""
        return self.runtime_dir / OPERATOR_SOCKET
