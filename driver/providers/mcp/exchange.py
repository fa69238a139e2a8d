"""One request on a wire and its reply, and what every wire can do.

Part of `driver.providers.mcp`; imports its `jsonrpc` and `driver.core.attempts`.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from driver.core.attempts import HttpStatus, NotSent, Phase, Silence
from driver.providers.mcp.jsonrpc import RequestId
from driver.providers.mcp.sdk import SdkSide
from store.records import JsonObject

Reply: TypeAlias = JsonObject | HttpStatus | NotSent | Silence
"""A response's envelope, an HTTP status in its place, or why there is none."""

NO_HEADERS: Final[Mapping[str, str]] = {}


def _ignore(_phase: Phase) -> None:
    """For requests whose phases nobody asks about."""


class Exchange:
    """One request: what is sent, whom to tell how far it got, and what came back."""

    def __init__(
        self,
        request_id: RequestId,
        message: JsonObject,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        on_phase: Callable[[Phase], None] = _ignore,
    ) -> None:
        self.request_id = request_id
        self.message = message
        self.headers = headers
        self.on_phase = on_phase
        self.reply: Reply | None = None
        """The last word: nothing can come after it."""
        self.disturbance: Silence | None = None
        """Why there is no point in waiting on, while an answer may still come."""
        self._news = anyio.Event()

    async def wait(self) -> None:
        """Wait for a reply or a disturbance."""
        await self._news.wait()

    def resolve(self, reply: Reply) -> None:
        """End the exchange; the first reply counts."""
        if self.reply is None:
            self.reply = reply
            self._news.set()

    def disturb(self, why: Silence) -> None:
        """Let whoever waits go on without a reply."""
        if self.reply is None and self.disturbance is None:
            self.disturbance = why
            self._news.set()

    def listen_on(self) -> None:
        """Nobody asks about phases any more, and `wait` waits for the reply alone."""
        self.on_phase = _ignore
        if self.reply is None:
            self.disturbance = None
            self._news = anyio.Event()


class WireWatcher(Protocol):
    """Whoever owns a wire."""

    def on_garbage(self) -> None:
        """Something came that is no message; the exchanges under way were disturbed."""
        ...

    def on_tools_changed(self) -> None:
        """The peer says that its tool list is another one now."""
        ...

    def on_told(self, message: JsonObject) -> None:
        """The peer says something else unasked: how far it is, or that it lists other things now."""
        ...

    def on_expired(self) -> None:
        """The peer knows this connection no more; another one has to be made."""
        ...


class Wire(Protocol):
    """A connection to a peer that carries requests, and nothing else. All but `run` must not block."""

    sdk: SdkSide
    """The side that the SDK's session speaks to: handshake, and answers to the peer's own requests."""
    ended: anyio.Event
    """Set as soon as nothing can come over it any more; every exchange has its reply by then."""
    why: Silence | None
    """What ended it; None before that, and where only `stop` ends it."""

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Open the wire, serve it until it ends or `stop` is called, and close it, all in this task.

        Raises `driver.providers.mcp.child.SpawnFailed` before it is open, and nothing afterwards.
        """
        ...

    def submit(self, exchange: Exchange) -> None:
        """Send the request as soon as the wire takes it, and resolve the exchange with what comes back."""
        ...

    def withdraw(self, exchange: Exchange) -> bool:
        """True where provably nothing of the request has left, and now nothing will."""
        ...

    def cancel(self, exchange: Exchange) -> None:
        """Tell the peer that nobody waits for this request any more.

        An answer may come all the same, except where the protocol knows no other sign than to hang up.
        """
        ...

    def forget(self, exchange: Exchange) -> None:
        """Drop whatever still comes for this exchange."""
        ...

    def stop(self) -> None:
        """Let `run` close the wire and return."""
        ...
