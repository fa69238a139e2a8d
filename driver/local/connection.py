"""One connection of the local API: uvicorn's HTTP/1.1 protocol, with a peer, and with bounds on slow clients.

Part of `driver.local`; imports uvicorn and its own siblings. uvicorn calls the methods below from the event
loop, never concurrently.

Theory of operation: uvicorn ends a connection that says nothing after an answer, and nothing else. A client
could open many and send a head byte by byte, or never read. So each connection has two timers of ours:

* the **request** timer runs from the connection, or from the end of an answer, until the next request's head
  is complete. Unlike uvicorn's keep-alive timer, a byte now and then does not stop it;
* the **stall** timer runs while our write buffer is over its high-water mark.

Whichever runs out aborts the connection. When a socket has all its connections, the one that has waited
longest for a request makes room for a new one; where all are busy, the new one is told so.

A client that has asked, and says no more (`shutdown(SHUT_WR)`, as `nc -N` and socat do), still hears its
answer: what it asked for is done, and it must not be left in doubt. asyncio looks no further then, so that we
look every `hangup_s` whether it is there.
"""

import asyncio
import json
import select
from typing import Final, cast

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from driver.local.errors import Code, Problem
from driver.local.peers import PEER_STATE, credentials
from driver.local.problems import PROBLEM_JSON, as_json
from driver.local.settings import LocalLimits

_BUSY: Final = Problem(
    Code.BUSY,
    "this socket has all the connections that it may have, and all are in use: try again in a moment",
)


def protocol_of(limits: LocalLimits) -> type[H11Protocol]:
    """Return the protocol class, bound to `limits`: uvicorn makes one instance for each connection."""

    class BoundedConnection(Connection):
        bounds = limits

    return BoundedConnection


class Connection(H11Protocol):
    """uvicorn's protocol, which knows its peer, and does not wait for ever."""

    bounds = LocalLimits()

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.waiting_since: float | None = None
        self._request_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._hangup_timer: asyncio.TimerHandle | None = None
        """Runs from when a client says no more until its connection ends."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Learn the peer, and make room where there is none."""
        super().connection_made(transport)
        try:
            peer = credentials(transport.get_extra_info("socket"))
        except OSError:  # the client is gone already
            transport.abort()
            return
        self.app_state = {**self.app_state, PEER_STATE: peer}
        if len(self.connections) > self.bounds.connections_max and not self._make_room():
            self._answer_and_close(_BUSY)
            return
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        self._stop_waiting()
        self.resume_writing()
        if self._hangup_timer is not None:
            self._hangup_timer.cancel()
        super().connection_lost(exc)

    # True keeps the connection, as asyncio has it, and uvicorn not
    def eof_received(self) -> bool:  # type: ignore[override] # pyright: ignore[reportIncompatibleMethodOverride]
        """Go on with a whole request of a client that says no more; let go of one that is gone."""
        if not self._answering() or self.cycle.more_body or self._hung_up():
            return False
        if self._hangup_timer is None:  # pipelining makes asyncio read the end again
            self._look_whether_it_is_there()
        return True

    def handle_events(self) -> None:
        """Stop the request timer when a request's head is complete."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and not self.cycle.response_complete:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Wait for the next request; what uvicorn does next may find it in its buffer already."""
        if not self.transport.is_closing():
            self._await_request()
        super().on_response_complete()
        if self._hangup_timer is not None and not self._answering():
            self.transport.close()  # nothing more can come

    def pause_writing(self) -> None:
        """The client does not keep up: give it so long, and no longer."""
        super().pause_writing()
        self._stall_timer = self.loop.call_later(self.bounds.stall_s, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP/1.1 request."""
        self._answer_and_close(Problem(Code.INVALID_REQUEST, msg))

    def _answering(self) -> bool:
        # none, before the first request: uvicorn declares it otherwise
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is not None and not cycle.response_complete

    def _hung_up(self) -> bool:
        """Return whether the client has closed its socket, and not only its sending half."""
        watched = select.poll()
        watched.register(self.transport.get_extra_info("socket").fileno(), 0)
        return bool(watched.poll(0))

    def _look_whether_it_is_there(self) -> None:
        if self._hung_up():
            self.transport.abort()
        else:
            self._hangup_timer = self.loop.call_later(self.bounds.hangup_s, self._look_whether_it_is_there)

    def _await_request(self) -> None:
        self._stop_waiting()
        self.waiting_since = self.loop.time()
        self._request_timer = self.loop.call_later(self.bounds.request_s, self._give_up)

    def _stop_waiting(self) -> None:
        self.waiting_since = None
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _give_up(self) -> None:
        """No request came; but a client that still reads its last answer may go on, as a stalled one may."""
        if self.transport.get_write_buffer_size():
            self._request_timer = self.loop.call_later(self.bounds.stall_s, self.transport.abort)
        else:
            self.transport.abort()

    def _make_room(self) -> bool:
        """End the connection that has waited longest for a request; False where all are busy."""
        others = [
            other for other in cast(set[Connection], self.connections) if other.waiting_since is not None
        ]
        if not others:
            return False
        longest = min(others, key=_waiting_since)
        self.connections.discard(longest)  # it is lost in the loop's next turn; this one counts now
        longest.transport.abort()
        return True

    def _answer_and_close(self, problem: Problem) -> None:
        """Write one whole answer past h11, whose state may be an error, and close."""
        body = json.dumps(as_json(problem)).encode("ascii")
        head = (
            f"HTTP/1.1 {problem.status.value} {problem.status.phrase}\r\n"
            f"content-type: {PROBLEM_JSON}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()


def _waiting_since(connection: Connection) -> float:
    assert connection.waiting_since is not None
    return connection.waiting_since
