"""One request, from its connection to its answer.

Part of `driver.providers.http`; imports its `answers`, `driver.core`, and the HTTP library.

Theory of operation
-------------------
A request has a task of its own, `run`, which outlives its caller's patience, so that a late answer is heard.
The library tells each of its steps before the step (its `trace` extension). Just before the first byte it
stands still until somebody calls `release`: until then the connection is made, TLS included, and nothing of
the request has left. From there on `begun` holds, and what fails is a `Silence`; what fails before is
`NotSent`. There is no third way: the library is called once, sends what it is given once, and has no retries.

The phases of an answer are told by whoever waits for it: it is one only when it is there whole.
"""

import select
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias, cast, runtime_checkable

import anyio
import httpx2
import structlog

from driver.core.attempts import NotSent, Phase, Silence
from driver.providers.http.answers import Answer, UnusableBody, read

CONNECT_S: Final = 10.0
"""To connect, and once more for TLS; a call's own deadline may end it earlier."""
HOLD_S: Final = 20.0
"""A request that is ready to go and is not released within this is taken back: its caller has gone."""

Reply: TypeAlias = Answer | NotSent | Silence

log: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


class _Withdrawn(Exception):
    """The request was taken back before its first byte."""


class _Spoiled(Exception):
    """The connection is of no use any more, before the first byte."""


@runtime_checkable
class _NetworkStream(Protocol):
    """What the library's trace hands over with a new connection."""

    def get_extra_info(self, info: str) -> object: ...

    async def aclose(self) -> None: ...


class _Descriptor(Protocol):
    def fileno(self) -> int: ...


class Exchange:
    """One request. `run` it in a task of its own."""

    def __init__(self, request: httpx2.Request, answer_max_bytes: int) -> None:
        self._request = request
        self._answer_max_bytes = answer_max_bytes
        self._scope = anyio.CancelScope()
        self._released = anyio.Event()
        self._stream: _NetworkStream | None = None
        self._connected = False
        self._withdrawn = False
        self._answering = False
        self.begun = False
        """Whether the first byte may have left."""
        self.whole = False
        """Whether all of the request was written."""
        self.on_phase: Callable[[Phase], None] = _unheard
        self.poised = anyio.Event()
        """Set once the connection stands, or never will."""
        self.ended = anyio.Event()
        """Set once there is a `reply`."""
        self.reply: Reply | None = None

    async def run(self, transport: httpx2.AsyncBaseTransport) -> None:
        """Connect, wait for `release`, send, and read the answer. Raises nothing of its own."""
        try:
            with self._scope:
                self.reply = await self._sent(transport)
        except _Withdrawn:
            pass
        except _Spoiled:
            message = f"{self._where} hung up, or spoke, before the request was sent"
            self.reply = NotSent(reason="connect_failed", message=message)
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            self.reply = self._failed(error)
        except Exception as error:
            # a bug, here or in the library, ends this call alone
            log.exception("exchange_broken")
            message = f"internal error in the provider: {type(error).__name__}"
            self.reply = self._silent(Silence(cause="internal", message=message))
        finally:
            if self.reply is None:
                closed = Silence(cause="connection_lost", message="the connection was closed on our side")
                self.reply = self._silent(closed)
            self.ended.set()
            self.poised.set()
            await self._close_what_is_left()

    # ------------------------------------------------------------ what its owner does

    def release(self) -> None:
        """Let the first byte leave, as soon as there is a connection."""
        self._released.set()

    def withdraw(self) -> bool:
        """Take the request back. True where nothing of it has left, and nothing will."""
        if self.begun:
            return False
        # the scope alone is not enough: a step that is ready to run runs before the cancellation is seen
        self._withdrawn = True
        self._scope.cancel()
        return True

    def hang_up(self) -> None:
        """Close the connection, whatever happens on it."""
        self._scope.cancel()

    @property
    def stale(self) -> bool:
        """Whether a request that is ready to go would be lost: the server has given the connection up."""
        return self.ended.is_set() or self._spoiled()

    # ------------------------------------------------------------ what the library does

    async def _sent(self, transport: httpx2.AsyncBaseTransport) -> Answer | Silence:
        self._request.extensions = {
            "timeout": {"connect": CONNECT_S, "read": None, "write": None, "pool": None},
            "trace": self._trace,
        }
        response = await transport.handle_async_request(self._request)
        try:
            return await read(response, self._answer_max_bytes)
        except UnusableBody as unusable:
            return Silence(cause="protocol_error", message=unusable.detail)

    async def _trace(self, event: str, info: Mapping[str, object]) -> None:
        """Told by the library of each step, before the step."""
        match event.rpartition(".")[0].rpartition(".")[2], event.rpartition(".")[2]:
            case "connect_tcp", "started":
                self.on_phase(Phase.CONNECTING)
            case "connect_tcp", "complete":
                self._note_stream(info.get("return_value"))
            case "send_request_headers", "started":
                await self._go()
            case "send_request_body", "complete":
                self.whole = True
                self.on_phase(Phase.WRITTEN)
            case "receive_response_headers", "complete":
                self._answering = True
            case _:
                pass

    async def _go(self) -> None:
        """Stand still until released; whoever returns from here may write."""
        self._connected = True
        self.poised.set()
        with anyio.move_on_after(HOLD_S):
            await self._released.wait()
        if self._withdrawn or not self._released.is_set():
            raise _Withdrawn
        if self._spoiled():
            raise _Spoiled
        self.begun = True
        self.on_phase(Phase.WRITING)

    def _note_stream(self, stream: object) -> None:
        if isinstance(stream, _NetworkStream):
            self._stream = stream

    def _spoiled(self) -> bool:
        """Whether the server has closed its side, or said something that can be no answer yet.

        Under TLS it may have sent what belongs to the handshake, so only the first shows.
        """
        if self._stream is None:
            return False
        descriptor = cast("_Descriptor", self._stream.get_extra_info("socket")).fileno()
        if descriptor < 0:
            return True
        poll = select.poll()
        poll.register(
            descriptor, select.POLLRDHUP | (0 if self._request.url.scheme == "https" else select.POLLIN)
        )
        return bool(poll.poll(0))

    async def _close_what_is_left(self) -> None:
        """A handshake that is cancelled leaves its connection to nobody."""
        if self._stream is not None and not self._connected:
            with anyio.CancelScope(shield=True):
                await self._stream.aclose()

    # ------------------------------------------------------------ how it fails

    def _silent(self, silence: Silence) -> NotSent | Silence:
        return silence if self.begun else NotSent(reason="connect_failed", message=silence.message)

    def _failed(self, error: Exception) -> NotSent | Silence:
        detail = str(error) or type(error).__name__
        if not self.begun:
            return NotSent(reason="connect_failed", message=f"cannot connect to {self._where}: {detail}")
        if isinstance(error, httpx2.LocalProtocolError):
            # the library's words may quote a header
            return Silence(cause="internal", message="the HTTP library refused to send the request")
        if self._heard_garbage(error):
            return Silence(cause="protocol_error", message=f"what {self._where} sent is no HTTP")
        return Silence(cause="connection_lost", message=f"the connection to {self._where} was lost: {detail}")

    @property
    def _where(self) -> str:
        url = self._request.url
        return f"{url.host}:{url.port or url.scheme}"

    def _heard_garbage(self, error: Exception) -> bool:
        """Whether what came is no HTTP.

        The library raises the same error where the peer just went away. Before the head of a response it has
        a parser's error inside only for garbage; behind it the parser's words tell the two apart.
        """
        if not isinstance(error, httpx2.RemoteProtocolError):
            return False
        if self._answering:
            return not str(error).startswith("peer closed connection")
        cause = error.__cause__
        return cause is not None and any(isinstance(inner, Exception) for inner in cause.args)


def _unheard(phase: Phase) -> None:
    """Nobody waits for this request yet, or any more."""
    del phase
