"""What the local API needs from the rest of the daemon: the one seam between them.

Part of `driver.local`; imports only `driver.core` and `store`. The composition root implements `Sources`;
tests implement it over a real journal.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

from driver.core.answers import Requeueing, Submission
from driver.core.unfencing import Unfencing
from store.journal import Journal
from store.records import BootId, JsonObject, OperationRecord, RunId, Timestamp
from store.view import View
from supervisor.wall import Wall

DriverState = Literal["starting", "ready", "draining", "fenced"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFacts:
    """The link to the control plane: `since` when it is as it is now; `url` is None stand-alone.

    `acked_seq` is what the plane acknowledged on this connection: the journal writes it with its next commit.
    """

    connected: bool
    since: Timestamp | None
    url: str | None
    last_error: str | None = None
    """Why it ended last, or could not begin; None while it is connected."""
    acked_seq: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayFacts:
    """The gateway: how many relays are connected, and the address over TCP, if there is one."""

    connections: int
    listen: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusFacts:
    """What `GET /v1/status` says that the journal does not know.

    `integrity` is one word for what start-up found (`ok`, or what is wrong); `fault_injection` names the
    fault drills that are switched on.
    """

    state: DriverState
    driver_id: str
    boot_id: BootId
    link: LinkFacts
    integrity: str
    fault_injection: tuple[str, ...] = ()
    diverged: int = 0
    """Contradictions among proofs since the daemon's start."""
    duplicated: int = 0
    """Probes since then that found an effect more often than once."""
    gateway: GatewayFacts | None = None
    """None: there is none."""


class Sources(Protocol):
    """The rest of the daemon, as the local API sees it."""

    @property
    def journal(self) -> Journal:
        """The open journal."""
        ...

    def status(self) -> StatusFacts:
        """Return what is true now. Never blocks."""
        ...

    def withheld(self, tool: str) -> tuple[str, ...]:
        """Return the paths that today's contract of a tool withholds. Never blocks."""
        ...

    def allowed(self, view: View, record: OperationRecord) -> tuple[str, ...]:
        """Return the names of the commands about an operation that would be taken now.

        Called in the journal's thread, with a view of it.
        """
        ...

    async def wall(self, run_id: RunId) -> Wall | None:
        """Return what a triage model would be shown of the run now; None where there is no such run."""
        ...

    @property
    def triage_model(self) -> str:
        """Whom the supervisor asks."""
        ...

    async def submit(self, kind: str, run_id: RunId, data: JsonObject) -> Submission:
        """Record and do a command that was given here; return what became of it, once that is fsynced."""
        ...

    async def requeue(self, seq: int) -> Requeueing:
        """Report a dead letter again, once, durably; or return why not. `seq` as the wire counts it."""
        ...

    def drain(self, reason: str) -> None:
        """Begin to stop the daemon, once; `reason` says who wants it. Never blocks."""
        ...

    async def unfence(self, actor: str, *, accept_rollback: bool) -> Unfencing:
        """Lift the fence for `actor`, durably; or return why it stands."""
        ...

    async def metrics(self) -> bytes:
        """Return the daemon's metrics as OpenMetrics text. Raises what reading the journal does."""
        ...

    async def ailment(self) -> str | None:
        """Return None while the journal can commit within the watchdog's interval, else what is wrong."""
        ...
