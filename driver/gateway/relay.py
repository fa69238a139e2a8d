"""`effectd mcp`: carries an agent's MCP messages to the daemon, over as many lives of it as it takes.

Part of `driver.gateway`; imports anyio and those of its siblings that do the same.

Theory of operation
-------------------
What the client asks is remembered (`ledger`) until it is answered. While there is a connection it is sent at
once. When the connection is lost, everything that is unanswered is asked again on the next one, calls under
the command id that they got in the beginning: the daemon answers from its journal what it knows.

A session of the older era begins with a handshake, which a new daemon has not seen: it is made again in the
client's words, and its answer dropped. In the newer era each request says all that is needed.

Requests of the server's own (a question to the user) belong to the connection that they came on. Their ids
carry its number: an answer that comes when that connection is gone belongs to nobody.

While there is no daemon, what was never sent is answered after `down_s`: clients can begin, and calls are
refused. A call that may have been sent waits for `away_s`.
"""

import json
import math
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import anyio
from anyio.abc import ByteStream

from driver.gateway import offline
from driver.gateway.ledger import CALL, Entry, Ledger
from driver.gateway.lines import Lines, LineTooLong
from driver.gateway.stdio import Input, Output
from driver.gateway.wire import (
    DELIVERED,
    GREETING_BYTES_MAX,
    LINE_BYTES_MAX,
    Greeting,
    Json,
    Message,
    line,
    member,
    read,
)

ANSWER_BYTES_MAX: Final = 33_554_432
"""One message of the daemon: a provider's answer, whose bound (`answer_max_bytes`) is the provider's."""
RETRY_S: Final = (0.02, 0.05, 0.1, 0.2, 0.5)
"""Pauses before the next look for the daemon; the last one from then on."""
LINGER_S: Final = 1.0
"""How long answers are waited for when the client has closed its end."""
PARSE_ERROR: Final = -32_700
HANDSHAKE: Final = "effectd-handshake"
"""Begins the ids of handshakes that are made again."""
LISTEN: Final = "subscriptions/listen"
"""A request that is answered when nobody listens any more."""

_ID: Final = re.compile(rb'"id"\s*:\s*(-?[0-9]+|"[^"\\]*")')


class NotServed(Exception):
    """The daemon does not serve this relay: `code` says why."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class ClientGone(Exception):
    """The client does not read any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    """Where the daemon is looked for, whom the relay speaks for, and how long it does without the daemon."""

    socket: Path
    run_id: str
    resumes: tuple[str, ...] = ()
    down_s: float = 5.0
    """How long a request that was never sent waits for a daemon."""
    away_s: float = 300.0
    """How long a call that may have been sent waits for the daemon to come back."""


class Relay:
    """One client's relay, from its first message to its last."""

    def __init__(self, settings: RelaySettings, client_in: Input, client_out: Output) -> None:
        self._settings = settings
        self._greeting = Greeting(instance=uuid4().hex, run_id=settings.run_id, resumes=settings.resumes)
        self._in = client_in
        self._out = client_out
        self._ledger = Ledger()
        self._link: _Link | None = None
        self._links = 0
        self._handshake: Message | None = None
        """The client's `initialize`, once it is answered."""
        self._initialized = False
        self._answered_alone = False
        """Whether a list was answered without the daemon: the client has to ask again."""
        self._asked: set[str] = set()
        """The ids, for the client, of the server's requests that it has not answered."""
        self._where = str(settings.socket)
        self._changed = anyio.Event()

    async def run(self) -> None:
        """Carry messages until the client closes its end, and a moment longer for what is under way."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._connect)
                tasks.start_soon(self._watch)
                await self._listen()
                with anyio.move_on_after(LINGER_S):
                    while any(entry.method != LISTEN for entry in self._ledger):
                        await self._change()
                tasks.cancel_scope.cancel()
        except* ClientGone:
            pass  # nobody reads any more; what runs goes on, and is in the journal

    # ------------------------------------------------------------ the client

    async def _listen(self) -> None:
        lines = Lines(LINE_BYTES_MAX)
        while True:
            try:
                data = await lines.next(self._in)
            except LineTooLong:
                await self._oversize(await lines.skip(self._in))
                continue
            if data is None:
                return
            if data and not data.isspace():
                await self._from_client(data)

    async def _oversize(self, head: bytes) -> None:
        """Answer a message that is too long to be carried, as far as it says which one it is."""
        method = CALL if b'"tools/call"' in head else "other"
        entry = Entry({"id": _early(head), "method": method})
        text = f"The message is longer than {LINE_BYTES_MAX:,} bytes: send less at once."
        await self._to_client(offline.refused(entry, "oversize", text))

    async def _from_client(self, data: bytes) -> None:
        message = read(data)
        if message is None:
            error: Message = {"code": PARSE_ERROR, "message": "no JSON-RPC message"}
            await self._to_client({"jsonrpc": "2.0", "id": None, "error": error})
        elif "method" not in message:
            await self._answer_to_server(message)
        elif "id" in message:
            entry = self._ledger.enter(message)
            self._changed.set()
            await self._ask(entry)
        else:
            await self._notify(message)

    async def _ask(self, entry: Entry) -> None:
        link = self._link
        if link is not None and link.open:
            await link.send(entry.asked(link.journal_id))

    async def _notify(self, message: Message) -> None:
        if message["method"] == "notifications/initialized":
            self._initialized = True
        if message["method"] == "notifications/cancelled":
            entry = self._ledger.find(member(message, "params").get("requestId"))
            if entry is None:
                return
            if not entry.sent:
                self._ledger.settle(entry.id)
                return
            entry.cancelled = message
        link = self._link
        if link is not None and link.open:
            await link.send(message)
            self._forget_cancelled()

    async def _answer_to_server(self, message: Message) -> None:
        """Pass on what the client answers to a request of the server's, if that connection still is there."""
        mine = message.get("id")
        if not isinstance(mine, str) or mine not in self._asked:
            return
        self._asked.discard(mine)
        number, _, theirs = mine.partition(":")
        link = self._link
        if link is not None and link.open and str(link.number) == number:
            await link.send({**message, "id": link.requests.pop(theirs, theirs)})

    async def _to_client(self, message: Message) -> None:
        try:
            await self._out.send(line(message))
        except OSError as error:
            raise ClientGone from error

    # ------------------------------------------------------------ the daemon

    async def _connect(self) -> None:
        """Have a connection to the daemon whenever there is one, until cancelled."""
        failures = 0
        while True:
            try:
                async with await anyio.connect_unix(self._settings.socket) as stream:
                    lines, journal_id = await self._greet(stream)
                    failures = 0
                    await self._serve(stream, lines, journal_id)
            except NotServed as error:
                self._where = f"{self._settings.socket}: {error}"
            except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, LineTooLong) as error:
                self._where = f"{self._settings.socket}: {_why(error)}"
            finally:
                self._lose()
            await anyio.sleep(RETRY_S[min(failures, len(RETRY_S) - 1)])
            failures += 1

    def _lose(self) -> None:
        """Wait for the daemon from now on, with what it may have got."""
        if self._link is not None:
            self._link = None
            for entry in self._ledger:
                entry.since = time.monotonic()
        self._changed.set()

    async def _greet(self, stream: ByteStream) -> tuple[Lines, str | None]:
        """Say whom this is for. Returns the reader, and which journal the daemon has. Raises `NotServed`."""
        lines = Lines(GREETING_BYTES_MAX)
        await stream.send(self._greeting.line())
        reply = await lines.next(stream)
        said = read(reply) if reply is not None else None
        if said is None:
            raise NotServed("closed", "the daemon closed the connection")
        if "refused" in said:
            raise NotServed(str(said["refused"]), str(said.get("message")))
        lines.bytes_max = ANSWER_BYTES_MAX
        journal_id = said.get("journal_id")
        return lines, journal_id if isinstance(journal_id, str) else None

    async def _serve(self, stream: ByteStream, lines: Lines, journal_id: str | None) -> None:
        self._links += 1
        link = _Link(stream, self._links, journal_id)
        await self._withdraw_questions()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._resume, link)
            await self._hear(link, stream, lines)
            link.open = False
            tasks.cancel_scope.cancel()

    async def _hear(self, link: "_Link", stream: ByteStream, lines: Lines) -> None:
        """Take what the daemon says until the connection is over, however it ends."""
        try:
            while (data := await lines.next(stream)) is not None:
                message = read(data)
                if message is not None:
                    await self._from_daemon(link, message)
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, LineTooLong) as error:
            self._where = f"{self._settings.socket}: {_why(error)}"

    async def _resume(self, link: "_Link") -> None:
        """Bring a new connection to where the client is, and ask about everything that is unanswered."""
        if self._handshake is not None:
            await link.handshake(self._handshake, initialized=self._initialized)
        self._link = link
        link.open = True
        for entry in self._ledger:
            await link.send(entry.asked(link.journal_id))
            if entry.cancelled is not None:
                await link.send(entry.cancelled)
        self._forget_cancelled()
        if self._answered_alone and self._handshake is not None:
            self._answered_alone = False
            for name in ("tools", "resources", "prompts"):
                await self._to_client(
                    {"jsonrpc": "2.0", "method": f"notifications/{name}/list_changed", "params": {}}
                )

    async def _from_daemon(self, link: "_Link", message: Message) -> None:
        if "method" in message:
            await self._to_client(self._named(link, message) if "id" in message else message)
            return
        if link.is_handshake(message.get("id")):
            return
        entry = self._ledger.settle(message.get("id"))
        if entry is None:
            return  # nobody wants it any more
        if entry.method == "initialize" and "result" in message:
            self._handshake = entry.message
        await self._to_client(message)
        self._changed.set()
        if entry.command_id is not None:
            params: Message = {"commandId": entry.command_id}
            await link.send({"jsonrpc": "2.0", "method": DELIVERED, "params": params})

    def _named(self, link: "_Link", message: Message) -> Message:
        """A request of the server's under an id that no other connection has."""
        theirs = str(message["id"])
        link.requests[theirs] = message["id"]
        mine = f"{link.number}:{theirs}"
        self._asked.add(mine)
        return {**message, "id": mine}

    async def _withdraw_questions(self) -> None:
        """Tell the client that what an earlier connection asked it is over."""
        for mine in sorted(self._asked):
            params: Message = {"requestId": mine, "reason": "the daemon was restarted"}
            await self._to_client({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        self._asked.clear()

    def _forget_cancelled(self) -> None:
        """Of what is cancelled no answer comes."""
        for entry in self._ledger:
            if entry.cancelled is not None:
                self._ledger.settle(entry.id)
        self._changed.set()

    # ------------------------------------------------------------ without the daemon

    async def _watch(self) -> None:
        """Answer what waited too long for a daemon, until cancelled."""
        while True:
            due_s = min((self._due_s(entry) for entry in self._ledger), default=None)
            if self._link is not None:
                due_s = None
            with anyio.move_on_after(due_s):
                await self._change()
                continue
            for entry in self._ledger:
                if self._link is None and self._due_s(entry) <= 0:
                    await self._answer_alone(entry)

    def _due_s(self, entry: Entry) -> float:
        if entry.method == LISTEN:
            return math.inf  # it goes on with the next daemon
        # nothing is lost with a read that is answered without the daemon
        patience_s = self._settings.away_s if _may_have_happened(entry) else self._settings.down_s
        return max(entry.since + patience_s - time.monotonic(), 0.0)

    async def _answer_alone(self, entry: Entry) -> None:
        self._ledger.settle(entry.id)
        if _may_have_happened(entry):
            await self._to_client(offline.given_up(entry, self._settings.away_s, self._where))
            return
        self._answered_alone = True
        message = offline.answer(entry, self._where)
        if entry.method == "initialize":
            self._handshake = entry.message
            sys.stderr.write(f"effectd: no daemon ({self._where}): start it with 'effectd run'\n")
        await self._to_client(message)

    async def _change(self) -> None:
        await self._changed.wait()
        self._changed = anyio.Event()


class _Link:
    """One connection to the daemon. `open` once what the client says may be sent on it."""

    def __init__(self, stream: ByteStream, number: int, journal_id: str | None) -> None:
        self._stream = stream
        self.journal_id = journal_id
        self._sending = anyio.Lock()
        self._shaken = anyio.Event()
        self.number = number
        self.open = False
        self.requests: dict[str, Json] = {}
        """The server's requests on it, as their ids were."""

    async def send(self, message: Message) -> None:
        """Send a message; where the connection is lost, the next one asks about what is unanswered."""
        try:
            async with self._sending:
                await self._stream.send(line(message))
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self.open = False

    async def handshake(self, message: Message, *, initialized: bool) -> None:
        """Begin the session as the client once did, and wait for the answer to that."""
        await self.send({**message, "id": f"{HANDSHAKE}-{self.number}"})
        await self._shaken.wait()
        if initialized:
            await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def is_handshake(self, request_id: Json) -> bool:
        """Whether a response is the one to a handshake of ours; take note of it."""
        if request_id != f"{HANDSHAKE}-{self.number}":
            return False
        self._shaken.set()
        return True


def _may_have_happened(entry: Entry) -> bool:
    return entry.sent and entry.method == CALL


def _early(head: bytes) -> Json:
    """Return the id that stands in the beginning of a message; None where none does."""
    found = _ID.search(head)
    value: Json = None if found is None else json.loads(found[1])
    return value


def _why(error: Exception) -> str:
    return "there is none" if isinstance(error, FileNotFoundError) else (str(error) or type(error).__name__)
