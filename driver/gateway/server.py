"""The gateway, put together and run: what the composition root builds one of.

Part of `driver.gateway`; imports the SDK's server side and its siblings. Importing this costs most of a
second and of the memory: import it only where there is a gateway.
"""

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import anyio
import structlog
from anyio.abc import SocketListener, TaskStatus

from driver.gateway.approvals import Approvals
from driver.gateway.calls import Calls, Tally
from driver.gateway.catalogue import Catalogue
from driver.gateway.front import Context, Front
from driver.gateway.http import Http, HttpSettings, turn_of
from driver.gateway.limits import GatewayLimits
from driver.gateway.own import OwnTools
from driver.gateway.passing import Passing
from driver.gateway.sockets import Session, Sockets
from driver.gateway.sources import Sources
from driver.gateway.turns import Turn
from driver.gateway.waiting import Waits

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """What the gateway needs to know."""

    allow_self_approval: bool = False
    http: HttpSettings | None = None
    limits: GatewayLimits = field(default_factory=GatewayLimits)


class Gateway:
    """The gateway of one process life. `waits` hears the engine and the providers from the beginning on."""

    def __init__(self, sources: Sources, settings: GatewaySettings) -> None:
        self._sources = sources
        self._settings = settings
        self._catalogue: Catalogue | None = None
        self._calls: Calls | None = None
        self.waits: Final = Waits(self._list_changed)

    @property
    def tally(self) -> Tally:
        """What it did since its start."""
        return Tally() if self._calls is None else self._calls.tally

    async def flush(self) -> None:
        """Wait, within bounds, until agents have the answers that are there: the daemon is about to end."""
        if self._calls is not None:
            await self._calls.flush()

    async def run(
        self,
        listener: socket.socket,
        peer_uid: Callable[[socket.socket], int],
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve relays on `listener` until cancelled. `peer_uid` says who is at the end of a connection.

        Cancelling it ends no call: what runs goes on, and its outcome is in the journal.
        """
        end = self._sources.journal.subscribe(self.waits.hear)
        try:
            async with anyio.create_task_group() as tasks:
                limits, sources = self._settings.limits, self._sources
                self._calls = calls = Calls(sources, self.waits, limits, tasks)
                self._catalogue = Catalogue(sources.providers, sources.contract, limits, self._changed)
                self._front = front = Front(
                    calls,
                    self._catalogue,
                    Passing(sources.providers, limits, self._catalogue.is_late),
                    OwnTools(sources, limits),
                    Approvals(sources, allowed=self._settings.allow_self_approval),
                    limits,
                    _turn_of,
                )
                tasks.start_soon(self._catalogue.watch)
                sockets = Sockets(front, calls, limits, peer_uid)
                tasks.start_soon(sockets.serve, await SocketListener.from_socket(listener))
                if self._settings.http is not None:
                    http = Http(front, calls, limits, self._settings.http, os.geteuid())
                    await tasks.start(http.serve)
                    log.info("gateway_listening", address=self._settings.http.address)
                task_status.started()
        finally:
            end()

    def _list_changed(self, provider: str) -> None:
        log.debug("provider_lists_changed", provider=provider)
        if self._catalogue is not None:
            self._catalogue.mark()

    async def _changed(self, lists: frozenset[str]) -> None:
        await self._front.changed(lists)


def _turn_of(ctx: Context) -> Turn:
    session = ctx.lifespan_context
    return session if isinstance(session, Session) else turn_of(ctx)
