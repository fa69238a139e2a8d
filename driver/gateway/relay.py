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

import math
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from uuid import uuid4

import anyio

from driver.gateway import offline
from driver.gateway.connection import Connection
from driver.gateway.ledger import CALL, Entry, Ledger
from driver.gateway.lines import HEAD_BYTES, Lines, LineTooLong
from driver.gateway.link import Link, NotServed
from driver.gateway.stdio import Input, Output
from driver.gateway.wire import (
    ANSWER_BYTES_MAX,
    CLOSED,
    DELIVERED,
    GREETING_BYTES_MAX,
    LINE_BYTES_MAX,
    OUR_WORD,
    TOO_LONG,
    UNHEARD,
    Greeting,
    Json,
    Message,
    line,
    member,
    objection,
    read,
    response_to,
    told_id,
)

RETRY_S: Final = (0.02, 0.05, 0.1, 0.2, 0.5)
"""Pauses before the next look for the daemon; the last one from then on."""
LINGER_S: Final = 1.0
"""How long answers are waited for when the client has closed its end."""
PARSE_ERROR: Final = -32_700
INVALID_REQUEST: Final = -32_600
LISTEN: Final = "subscriptions/listen"
"""A request that is answered when nobody listens any more."""


class ClientGone(Exception):
    """The client does not read any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    """Where the daemon is looked for, whom the relay speaks for, and how long it does without the daemon."""

    socket: Path
    run_id: str
    resumes: tuple[str, ...] = ()
    start: str = "effectd run"
    """What starts the daemon, for whoever is told that there is none."""
    place: str | None = None
    """Where it was started, where nobody named a run: it continues what was left open from there."""
    down_s: float = 5.0
    """How long a request that was never sent waits for a daemon."""
    away_s: float = 300.0
    """How long a call that may have been sent waits for the daemon to come back."""


class Relay:
    """One client's relay, from its first message to its last."""

    def __init__(self, settings: RelaySettings, client_in: Input, client_out: Output) -> None:
        self._settings = settings
        self._greeting = Greeting(
            instance=uuid4().hex, run_id=settings.run_id, resumes=settings.resumes, place=settings.place
        )
        self._in = client_in
        self._out = client_out
        self._ledger = Ledger()
        self._link: Link | None = None
        self._links = 0
        self._handshake: Message | None = None
        """The client's `initialize`, once it is answered."""
        self._initialized = False
        self._answered_alone = False
        """Whether a list was answered without the daemon: the client has to ask again."""
        self._asked: set[str] = set()
        """The ids, for the client, of the server's requests that it has not answered."""
        self._unheard: list[Json] = []
        """Calls whose answers it had given up on, of which the daemon has not been told."""
        self._where = str(settings.socket)
        self._waits = anyio.Event()
        """Set when something waits for a daemon."""
        self._answered = anyio.Event()

    async def run(self) -> None:
        """Carry messages until the client closes its end, and a moment longer for what is under way."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._connect)
                tasks.start_soon(self._watch)
                await self._listen()
                self._greeting = replace(self._greeting, closed=True)
                with anyio.move_on_after(LINGER_S):
                    await self._tell_closed()
                    while any(entry.method != LISTEN for entry in self._ledger):
                        self._answered = anyio.Event()
                        await self._answered.wait()
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

    async def _oversize(self, ends: bytes) -> None:
        """Answer a message that is too long to be carried, of which only both ends are there."""
        await self._refuse(ends, "oversize", f"{TOO_LONG}.")

    async def _refuse(self, data: bytes, code: str, text: str) -> None:
        """Answer what cannot be carried, as far as it says which one it is."""
        request_id = told_id(data)
        if request_id is None:
            error: Message = {"code": PARSE_ERROR, "message": text}
            await self._to_client({"jsonrpc": "2.0", "id": None, "error": error})
            return
        method = CALL if b'"tools/call"' in data[:HEAD_BYTES] else "other"
        await self._to_client(offline.refused(Entry({"id": request_id, "method": method}), code, text))

    async def _from_client(self, data: bytes) -> None:
        message = read(data)
        if message is None:
            await self._refuse(data, "invalid_message", "The message is no JSON object, or has a key twice.")
        elif (objection := self._objection(message)) is not None:
            error: Message = {"code": INVALID_REQUEST, "message": f"{objection}; nothing was executed"}
            await self._to_client({"jsonrpc": "2.0", "id": message.get("id"), "error": error})
        elif "method" not in message:
            await self._answer_to_server(message)
        elif "id" in message:
            await self._request(message, data)
        else:
            await self._notify(message, data)

    def _objection(self, message: Message) -> str | None:
        """Say why a message is none that anybody could answer; None where it is one."""
        found = objection(message)
        if found is not None or "method" not in message or "id" not in message:
            return found
        if self._ledger.find(message["id"]) is not None:
            return "a request with this id waits for its answer: take another one"
        if self._ledger.is_cancelled(message["id"]):
            return "a request with this id was cancelled: take another one"
        return None

    async def _request(self, message: Message, data: bytes) -> None:
        try:
            entry = self._ledger.enter(message, data)
        except ValueError:
            await self._refuse(data, "invalid_message", "A number in it is larger than any can be.")
            return
        link = self._link
        if link is not None and link.open:
            await link.send(entry.asked(link.journal_id))
        else:
            self._waits.set()

    async def _notify(self, message: Message, data: bytes) -> None:
        if str(message["method"]).startswith(OUR_WORD):
            return
        if message["method"] == "notifications/initialized":
            self._initialized = True
        entry: Entry | None = None
        if message["method"] == "notifications/cancelled":
            request_id = member(message, "params").get("requestId")
            entry = self._ledger.find(request_id)
            if entry is None:
                await self._take_back(request_id)
                return
            if not entry.sent:
                self._ledger.settle(entry.id)
                return
            entry.cancelled = message
        link = self._link
        if link is None or not link.open:
            return
        if entry is None:
            await link.send(data + b"\n")
        elif entry not in link.behind:  # else it is asked about first, and cancelled right after that
            await self._tell_cancelled(link, entry, message)

    async def _take_back(self, request_id: Json) -> None:
        """Have a call guard again whose answer and the client's word that it wants none have crossed."""
        command_id = self._ledger.given_up(request_id)
        if command_id is None:
            return
        self._unheard.append(command_id)
        if self._link is not None and self._link.open:
            await self._tell_unheard(self._link)

    async def _tell_unheard(self, link: Link) -> None:
        waiting, self._unheard = self._unheard, []
        for command_id in waiting:
            await link.tell(UNHEARD, {"commandId": command_id})
        if not link.open:
            self._unheard += waiting  # the next one is told

    async def _tell_closed(self) -> None:
        """Tell the daemon if the client asks for nothing more: whoever starts it anew continues its run."""
        if self._greeting.closed and self._link is not None and self._link.open:
            await self._link.tell(CLOSED)

    async def _answer_to_server(self, message: Message) -> None:
        """Pass on what the client answers to a request of the server's, if that connection still is there."""
        mine = message.get("id")
        if not isinstance(mine, str) or mine not in self._asked:
            return
        self._asked.discard(mine)
        number, _, theirs = mine.partition(":")
        link = self._link
        if link is not None and link.open and str(link.number) == number:
            await link.send(line({**message, "id": link.requests.pop(theirs, theirs)}))

    async def _to_client(self, message: Message) -> None:
        await self._pass_on(line(message))

    async def _pass_on(self, data: bytes) -> None:
        try:
            await self._out.send(data)
        except OSError as error:
            raise ClientGone from error

    # ------------------------------------------------------------ the daemon

    async def _connect(self) -> None:
        """Have a connection to the daemon whenever there is one, until cancelled."""
        failures = 0
        while True:
            try:
                stream = await anyio.connect_unix(self._settings.socket)
                async with Connection(stream) as connection:
                    lines, journal_id = await self._greet(connection)
                    failures = 0
                    await self._serve(connection, lines, journal_id)
            except NotServed as error:
                self._where = f"{self._settings.socket}: {error}"
            except (OSError, LineTooLong) as error:
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
        self._waits.set()

    async def _greet(self, connection: Connection) -> tuple[Lines, str | None]:
        """Say whom this is for. Returns the reader, and which journal the daemon has. Raises `NotServed`."""
        lines = Lines(GREETING_BYTES_MAX)
        with suppress(OSError):  # who is refused may be so before it has spoken
            await connection.send(self._greeting.line())
        reply = await lines.next(connection)
        said = read(reply) if reply is not None else None
        if said is None:
            raise NotServed("closed", "the daemon closed the connection")
        if "refused" in said:
            raise NotServed(str(said["refused"]), str(said.get("message")))
        lines.bytes_max = ANSWER_BYTES_MAX
        self._resume_from(said.get("resumes"))
        journal_id = said.get("journal_id")
        return lines, journal_id if isinstance(journal_id, str) else None

    def _resume_from(self, runs: Json) -> None:
        """Continue the runs that the daemon says, from now on: a call has to stay the same on all links."""
        if self._greeting.place is None:
            return
        found = tuple(run for run in runs if isinstance(run, str)) if isinstance(runs, list) else ()
        self._greeting = replace(self._greeting, place=None, resumes=(*self._greeting.resumes, *found))

    async def _serve(self, connection: Connection, lines: Lines, journal_id: str | None) -> None:
        self._links += 1
        link = Link(connection, self._links, journal_id)
        await self._withdraw_questions()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._resume, link)
            await self._hear(link, connection, lines)
            link.open = False
            tasks.cancel_scope.cancel()

    async def _hear(self, link: Link, connection: Connection, lines: Lines) -> None:
        """Take what the daemon says until the connection is over, however it ends."""
        try:
            while (data := await lines.next(connection)) is not None:
                await self._from_daemon(link, data)
        except (OSError, LineTooLong) as error:
            self._where = f"{self._settings.socket}: {_why(error)}"

    async def _resume(self, link: Link) -> None:
        """Bring a new connection to where the client is, and ask about everything that is unanswered."""
        if self._handshake is not None:
            await link.handshake(self._handshake, initialized=self._initialized)
        self._link = link
        link.open = True
        await self._tell_closed()  # it may have been open when it greeted
        await self._tell_unheard(link)
        link.behind = set(self._ledger)
        for entry in self._ledger:
            await self._ask_again(link, entry)
        if self._answered_alone and self._handshake is not None:
            self._answered_alone = False
            for name in ("tools", "resources", "prompts"):
                await self._to_client(
                    {"jsonrpc": "2.0", "method": f"notifications/{name}/list_changed", "params": {}}
                )

    async def _ask_again(self, link: Link, entry: Entry) -> None:
        """Ask about a request that waits, if it does so still: another one may have taken long to be sent."""
        if self._ledger.find(entry.id) is entry:
            await link.send(entry.asked(link.journal_id))
        link.behind.discard(entry)
        if entry.cancelled is not None:
            await self._tell_cancelled(link, entry, entry.cancelled)

    async def _tell_cancelled(self, link: Link, entry: Entry, message: Message) -> None:
        """Say that a request which the daemon got is not wanted any more: then no answer comes."""
        await link.send(line(message))
        if link.open:
            self._ledger.cancel(entry)
            self._answered.set()

    async def _from_daemon(self, link: Link, data: bytes) -> None:
        found = response_to(data)
        if found is None:
            message = read(data)
            if message is None:
                return
            if "method" in message:
                asked = self._named(link, message) if "id" in message else None
                await (self._pass_on(data + b"\n") if asked is None else self._to_client(asked))
                return
            found = (message.get("id"), "result" in message)
        request_id, succeeded = found
        if link.is_handshake(request_id):
            return
        entry = self._ledger.settle(request_id)
        if entry is None:
            return  # nobody wants it any more
        if entry.method == "initialize" and succeeded:
            self._handshake = entry.message
        self._ledger.passed(entry)
        await self._pass_on(data + b"\n")
        self._answered.set()
        if self._ledger.is_passed(entry) and not self._greeting.closed:
            await link.tell(DELIVERED, {"commandId": entry.command_id})

    def _named(self, link: Link, message: Message) -> Message:
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

    # ------------------------------------------------------------ without the daemon

    async def _watch(self) -> None:
        """Answer what waited too long for a daemon, until cancelled."""
        while True:
            self._waits = anyio.Event()
            waiting = () if self._link is not None else tuple(self._ledger)
            with anyio.move_on_after(min(map(self._due_s, waiting), default=None)):
                await self._waits.wait()
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
        message = offline.answer(entry, self._where, self._settings.start)
        if entry.method == "initialize":
            self._handshake = entry.message
            sys.stderr.write(f"effectd: no daemon ({self._where}): start it with '{self._settings.start}'\n")
        await self._to_client(message)


def _may_have_happened(entry: Entry) -> bool:
    return entry.sent and entry.method == CALL


def _why(error: Exception) -> str:
    return "there is none" if isinstance(error, FileNotFoundError) else (str(error) or type(error).__name__)
