"""One request over HTTP: who asks, and whether the answer was heard.

Part of `driver.gateway`; imports starlette, the SDK's names of versions and its siblings.

**When an answer counts as heard.** When the kernel has the last byte of it, and the client had not hung up by
then, nor taken its question back. It is the JSON-RPC response that has to be out, not the end of the stream
that it stands in: clients hang up once they have what they wanted. Nobody can know from here whether a
program read what its kernel holds.
"""

import json
import re
from collections.abc import Callable
from typing import Final

import anyio
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Message, Send

from driver.gateway.outcomes import Delivered
from driver.gateway.patience import CONNECTION, Patience
from driver.gateway.runs import Speaker
from driver.gateway.sessions import Sessions, client_digest, run_of
from store.records import CommandId, RunId

RUN: Final = "effectd-run"
RESUMES: Final = "effectd-resumes"
SESSION: Final = "mcp-session-id"
HEAD_BYTES: Final = 512
"""Within these the JSON of a part of an answer begins: an event of a stream has something before it."""

_VERSION: Final = re.compile(r"/[^\s;()]*")
"""In what a client calls itself: it may have another one after its next start."""


class Exchange:
    """One request over HTTP. Implements `driver.gateway.turns.Turn`; `send` stands for ASGI's.

    `delivered` is told of what was heard, and `let_go` of what nobody will hear any more.
    """

    def __init__(
        self,
        request: Request,
        *,
        uid: int,
        sessions: Sessions,
        delivered: Callable[[Delivered], None],
        let_go: Callable[[CommandId], None],
        stall_s: float,
        send: Send,
    ) -> None:
        connection = request.scope[CONNECTION]
        assert isinstance(connection, Patience)
        self._connection = connection
        self._request = request
        self._uid = uid
        self._sessions = sessions
        self._delivered = delivered
        self._let_go = let_go
        self._stall_s = stall_s
        self._send = send
        self._heads: tuple[bytes, ...] = ()
        """What the response begins with, as either of the SDK's transports writes it."""
        self._about: Delivered | None = None
        self._given_up = False
        self._over = False
        self.heard: Delivered | None = None
        """The call whose answer was heard."""

    @property
    def gone(self) -> bool:
        """See `Turn.gone`: never. In the era that has no sessions, to hang up is to cancel."""
        return False

    @property
    def key(self) -> str:
        """See `Turn.key`."""
        return f"http:{self._request.headers.get(SESSION, '')}"

    async def introduced(self) -> Speaker:
        """See `Turn.introduced`."""
        headers = self._request.headers
        client = _VERSION.sub("", headers.get("user-agent", ""))
        resumes = tuple(map(RunId, listed(headers.get(RESUMES, ""))))
        session = session_of(headers)
        own = client_digest(client)[:16] if session is None else session
        if named := headers.get(RUN):
            run_id = RunId(named)
        elif session is None:
            run_id = RunId(f"http-{own}")
        else:
            run_id = run_of(session, client)
            resumes = await self._sessions.continued(session, client, resumes)
        return Speaker(holder=f"http:{own}", run_id=run_id, resumes=resumes, uid=self._uid, relayed=False)

    def asks(self, request_id: str | int) -> None:
        """Take note under which id the response goes out."""
        ids = {json.dumps(request_id, ensure_ascii=ascii_alone) for ascii_alone in (True, False)}
        self._heads = tuple(f'{{"jsonrpc":"2.0","id":{said},"result":'.encode() for said in ids)

    def answers(self, asked: CommandId, about: Delivered) -> None:
        """See `Turn.answers`."""
        del asked
        self._about = about
        if self._over:
            self._let_go(about.command_id)

    def end(self) -> None:
        """Take note that nothing goes out any more: whoever stops waits for nobody to hear this answer."""
        self._over = True
        if self._about is not None and self.heard is None:
            self._let_go(self._about.command_id)

    def give_up(self) -> None:
        """Take note that the client wants no answer any more: whatever goes out now, it does not hear."""
        self._given_up = True

    async def send(self, message: Message) -> None:
        """Pass a part of the answer on. A client that leaves it unread for too long is cut off."""
        about = self._about if self.heard is None and self._is_response(message) else None
        is_there = about is not None and self._connection.is_there()
        with anyio.move_on_after(self._stall_s) as patience:
            await self._send(message)
            is_there = await self._connection.drained() and is_there
        if patience.cancelled_caught:
            self._connection.cut()
        elif about is not None and is_there and not self._given_up:
            self.heard = about
            self._delivered(about)

    def _is_response(self, message: Message) -> bool:
        """Whether a part of an answer is the result that was asked for.

        The end of a stream says nothing: one whose session ends, or whose daemon does, ends without it.
        """
        body: bytes = message.get("body", b"")
        begins = body[:HEAD_BYTES].find(b"{")
        return begins >= 0 and body.startswith(self._heads, begins)


def session_of(headers: Headers) -> str | None:
    """Return the session that a request is of, where its era has any.

    In the other one it is whatever the client likes, and no part of a run's name.
    """
    version = headers.get("mcp-protocol-version")
    return headers.get(SESSION) if version is None or version in HANDSHAKE_PROTOCOL_VERSIONS else None


def listed(text: str) -> list[str]:
    """Return the names in a header that lists some."""
    return [name.strip() for name in text.split(",") if name.strip()]
