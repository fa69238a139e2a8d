"""The link to the control plane: one connection after the other, for as long as the daemon lives.

Part of `driver.link`; imports `driver.core` and `store`. No outage and no close code ends it; only 4001
(another life of this driver has taken over) makes it wait for an operator.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from random import SystemRandom
from typing import Final, Literal, TypeAlias

import anyio
import structlog
from anyio.abc import TaskStatus

from driver.core.backoff import ceiling_delay_s, delay_s
from driver.core.frames import (
    CLOSE_NOT_AUTHORISED,
    CLOSE_PROTOCOL_ERROR,
    CLOSE_RESTARTING,
    CLOSE_SUPERSEDED,
    SUBPROTOCOL,
)
from driver.core.signals import FenceReason
from driver.link.conversation import Conversation, Parting
from driver.link.courier import Courier
from driver.link.desk import Desk
from driver.link.dial import dial, shown_url
from driver.link.errors import LinkError
from driver.link.settings import LinkSettings
from driver.link.socket import Socket
from driver.link.token import Token, read_token
from driver.link.watermark import Watermark
from store.journal import Journal
from store.marks import SUPERSEDED
from store.view import View

log = structlog.get_logger(__name__)

LinkState: TypeAlias = Literal["connecting", "connected", "waiting", "superseded"]
Dial: TypeAlias = Callable[[LinkSettings, Token, str], Awaitable[Socket]]
"""Opens a socket to the plane, or raises a `LinkError`: shows the token, and calls itself by the text."""

_CHANCE: Final = SystemRandom().random
_DISAPPOINTING: Final = frozenset({CLOSE_PROTOCOL_ERROR, CLOSE_NOT_AUTHORISED})
"""Close codes after which the same would happen again: they do not make the next wait short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkStatistics:
    """The link as it is now. `connected` means welcomed by the plane; `since` is when that last changed."""

    connected: bool
    state: LinkState
    since: datetime
    url: str
    attempts: int
    """Tries to connect since the plane last welcomed this daemon."""
    welcomes: int
    """Times that the plane welcomed this daemon."""
    last_error: str | None
    acked_seq: int | None
    """The plane's watermark on this connection: the journal's own is written lazily."""


class Link:
    """Owns the socket. Commands go to the desk, the journal's events to the plane."""

    def __init__(
        self,
        *,
        settings: LinkSettings,
        journal: Journal,
        desk: Desk,
        software: str,
        clock: Callable[[], datetime],
        boundary: Callable[[str], None] = lambda _name: None,
        chance: Callable[[], float] = _CHANCE,
        dial: Dial = dial,
    ) -> None:
        self._settings = settings
        self._journal = journal
        self._desk = desk
        self._software = software
        self._clock = clock
        self._boundary = boundary
        self._chance = chance
        self._dial = dial
        self._courier = Courier(desk)
        self._watermark = Watermark(journal)
        self._url = shown_url(settings.url)
        self._conversation: Conversation | None = None
        self._connected = False
        self._welcomes = 0
        self._since = clock()
        self._state: LinkState = "connecting"
        self._attempts = 0
        self._failures = 0
        self._last_error: str | None = None
        self._warned_of_mode = False
        self._renewed = anyio.Event()

    def statistics(self) -> LinkStatistics:
        """Return a frozen view of the link."""
        session = None if self._conversation is None else self._conversation.statistics()
        return LinkStatistics(
            connected=self._connected,
            state=self._state,
            since=self._since,
            url=self._url,
            attempts=self._attempts,
            welcomes=self._welcomes,
            last_error=self._last_error,
            acked_seq=None if session is None else session.acked_seq,
        )

    async def acknowledged(self, seq: int) -> None:
        """Return once the plane has acknowledged every event up to `seq`. Put a bound around it."""
        await self._watermark.reached(seq)

    def renew(self) -> None:
        """Say hello again, now: the daemon was unfenced, or its journal has become another one."""
        self._renewed.set()
        if self._conversation is not None:
            self._conversation.hang_up(1000, "the daemon says hello again")

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Keep the daemon connected until cancelled; raises what the desk or the journal raise, in a group.

        Cancelled, it closes the socket with 1001, within a bound. What was not acknowledged is sent after
        the next connect.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._courier.run)
            task_status.started()
            while True:
                await self._wait_while_superseded()
                await self._rest(await self._attempt())

    # ------------------------------------------------------------ one try

    async def _attempt(self) -> float:
        """Connect, and talk until the connection ends. Returns the seconds to wait before the next try."""
        self._state = "connecting"
        self._attempts += 1
        token: Token | None = None
        try:
            token = await self._read_token()
            socket = await self._dial(self._settings, token, self._software)
        except LinkError as error:
            self._last_error = str(error)
            log.warning("link_failed", url=self._url, error=str(error), attempts=self._attempts)
            return await self._delay_after(error, token)
        log.info("link_opened", url=self._url)
        if socket.subprotocol is None:
            log.warning("subprotocol_not_selected", url=self._url, offered=SUBPROTOCOL)
        self._conversation = Conversation(
            socket,
            journal=self._journal,
            desk=self._desk,
            courier=self._courier,
            watermark=self._watermark,
            dead_after_s=self._settings.dead_after_s,
            boundary=self._boundary,
            welcomed=self._welcome,
        )
        try:
            parting = await self._conversation.run()
        finally:
            self._conversation = None
            self._note_connected(connected=False)
        return await self._part(parting, token)

    async def _read_token(self) -> Token:
        token = await read_token(self._settings.token_file)
        if token.readable_by_others and not self._warned_of_mode:
            self._warned_of_mode = True
            log.warning("token_readable_by_others", path=str(self._settings.token_file), advice="chmod 600")
        return token

    def _welcome(self) -> None:
        log.info("link_connected", url=self._url, attempts=self._attempts)
        self._attempts = 0
        self._welcomes += 1
        self._last_error = None
        self._state = "connected"
        self._note_connected(connected=True)

    def _note_connected(self, *, connected: bool) -> None:
        if connected is not self._connected:
            self._connected, self._since = connected, self._clock()

    # ------------------------------------------------------------ how long to wait

    async def _part(self, parting: Parting, token: Token) -> float:
        self._last_error = parting.reason
        log.warning("link_closed", url=self._url, code=parting.code, reason=parting.reason)
        # a fence that the plane's last word raised must be durable before anything else is tried
        await self._courier.fence_raised()
        if parting.code == CLOSE_SUPERSEDED:
            self._state = "superseded"
            return 0.0
        if parting.code == CLOSE_RESTARTING or (parting.welcomed and parting.code not in _DISAPPOINTING):
            self._failures = 0
        if parting.code == CLOSE_NOT_AUTHORISED and not await self._has_new_token(token):
            return ceiling_delay_s(self._chance())
        return self._backoff()

    async def _delay_after(self, error: LinkError, token: Token | None) -> float:
        if not error.hopeless or (error.unauthorised and await self._has_new_token(token)):
            return self._backoff()
        return ceiling_delay_s(self._chance())

    async def _has_new_token(self, shown: Token | None) -> bool:
        """Whether the token file says something else by now than what the plane was shown."""
        try:
            return shown is not None and (await read_token(self._settings.token_file)).value != shown.value
        except LinkError:
            return False

    def _backoff(self) -> float:
        self._failures += 1
        return delay_s(self._failures, self._chance())

    async def _rest(self, seconds: float) -> None:
        """Wait, but not once the daemon has something new to say."""
        if self._state == "superseded":
            return
        self._state = "waiting"
        with anyio.move_on_after(seconds):
            await self._renewed.wait()
        self._renewed = anyio.Event()

    async def _wait_while_superseded(self) -> None:
        """Hold still while another life of this driver has the plane's ear, this boot or before it.

        The journal alone says whether that is so: a renewal may have been asked for before the takeover.
        """
        while await self._journal.read(_is_superseded):
            self._state = "superseded"
            log.error("link_superseded", url=self._url, advice="effectd unfence, once the other life is gone")
            await self._renewed.wait()
            self._renewed = anyio.Event()
            self._failures = 0


def _is_superseded(view: View) -> bool:
    """Whether another life has taken over, by a fence of its own or beside another one."""
    fence = view.fence
    return fence is not None and (fence.reason == FenceReason.SUPERSEDED or view.mark(SUPERSEDED) is not None)
