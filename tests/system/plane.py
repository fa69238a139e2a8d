"""A control plane that does what a test says, on a real socket, and checks every rule of effectd.v1.

It remembers across the daemon's lives what a durable plane remembers: the commands that it gave and to which
journals, every event's bytes, what it acknowledged. It redelivers what has no receipt at each connect. What a
test changes are the attributes of `ScriptedPlane` under "the script".
"""

import json
import socket as sockets
from asyncio.trsock import TransportSocket
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from pathlib import Path
from ssl import SSLContext
from typing import Any, Final, Literal

import anyio
from jsonschema import Draft202012Validator
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from tests.system.history import History, Json

TOKEN: Final = "a-token-of-the-tests"
SUBPROTOCOL: Final = Subprotocol("effectd.v1")
FRAME_BYTES_MAX: Final = 1_048_576
TCP_ESTABLISHED: Final = 1
PATIENCE_S: Final = 60.0
"""How long anything may take before a test gives up: far more than it ever takes, for a busy machine."""
SCHEMA: Final = Path(__file__).resolve().parents[2] / "docs" / "protocol.schema.json"

Fate = Literal["take", "lose", "cut"]
"""What becomes of an event that arrives: it is remembered; lost, and the socket cut; remembered, and cut."""


@dataclass(slots=True, kw_only=True)
class Order:
    """A command that the plane gave, and what came of it."""

    command: Json
    delivered_to: list[str] = field(default_factory=list[str])
    deliveries: int = 0
    answers: list[Json] = field(default_factory=list[Json])
    """The plain refusals and `retired` frames, in order."""


def call(command_id: str, tool: str = "counter/count", *, run_id: str = "run-1", **arguments: object) -> Json:
    """Return a `tool.call` command."""
    data = {"tool": tool, "arguments": arguments}
    return {
        "type": "command",
        "command_id": command_id,
        "run_id": run_id,
        "kind": "tool.call",
        "data": data,
    }


@dataclass(slots=True)
class _Link:
    """One connection of a daemon."""

    socket: ServerConnection
    journal_id: str = ""
    position: int = 0
    """The highest seq that the stream of this connection has reached."""
    welcomed: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the daemon still holds its end. The kernel knows, before anything was read from here.

        Without that a test that has seen a daemon end would take what is left of its connection for the next
        one's, and what it says there nobody hears.
        """
        held: TransportSocket | None = self.socket.transport.get_extra_info("socket")
        if held is None or held.fileno() < 0:  # closed, and not taken away yet
            return False
        return held.getsockopt(sockets.IPPROTO_TCP, sockets.TCP_INFO, 1)[0] == TCP_ESTABLISHED


@dataclass(slots=True)
class ScriptedPlane:
    """See the module. Made by `scripted_plane`."""

    # --- the script
    acks: bool = True
    redelivers: bool = True
    window: int = 256
    max_frame_bytes: int = FRAME_BYTES_MAX
    answer_status: int | None = None
    """An HTTP status that refuses every connection."""
    on_hello: Callable[[Json, History], Json | None] | None = None
    """What to answer in place of the true `welcome`; None: nothing."""
    on_event: Callable[[Json], Fate] = lambda _event: "take"
    on_nack: Callable[[Json], Json | None] = lambda _event: None
    """A `nack` frame to send for an event, in place of an acknowledgement."""
    errors_expected: bool = False
    validates: bool = True
    """Whether frames are held against the schema: half of what the plane does with them."""

    # --- what it saw
    url: str = ""
    histories: dict[str, History] = field(default_factory=dict[str, History])
    orders: dict[str, Order] = field(default_factory=dict[str, Order])
    hellos: list[Json] = field(default_factory=list[Json])
    errors: list[Json] = field(default_factory=list[Json])
    closes: list[int | None] = field(default_factory=list[int | None])
    refused_connections: int = 0
    repeats: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    inherited_receipts: int = 0
    """Receipts that an earlier life committed and a later one delivered."""
    redeliveries: int = 0
    violations: list[str] = field(default_factory=list[str])
    link: _Link | None = None
    _changed: anyio.Event = field(default_factory=anyio.Event)

    # --- what a test asks

    @property
    def history(self) -> History:
        """The journal of the newest hello; an empty one before there was any."""
        return self.histories[self.hellos[-1]["journal_id"]] if self.hellos else History("")

    @property
    def is_connected(self) -> bool:
        """Whether a daemon was welcomed, and is there."""
        return self.link is not None and self.link.welcomed and self.link.is_open

    def receipt(self, command_id: str) -> Json | None:
        """Return the terminal event of a command, of the newest journal that has one."""
        for history in reversed(self.histories.values()):
            if command_id in history.receipts:
                return history.event(history.receipts[command_id])
        return None

    def kinds(self, command_id: str) -> list[str]:
        """Return the kinds of every event about a command, in order."""
        events = [event for history in self.histories.values() for event in history.events()]
        return [event["kind"] for event in events if event["command_id"] == command_id]

    def unanswered(self) -> list[str]:
        """Return the commands that have no receipt."""
        histories = self.histories.values()
        return [name for name in self.orders if not any(name in history.receipts for history in histories)]

    def check(self) -> None:
        """Raise AssertionError where the daemon broke a rule of the protocol."""
        broken = [*self.violations, *(v for history in self.histories.values() for v in history.violations)]
        if self.errors and not self.errors_expected:
            broken.append(f"error frames: {self.errors}")
        assert not broken, "\n".join(broken)

    async def until(self, reached: Callable[[], object], within_s: float = PATIENCE_S) -> None:
        """Return once `reached()` holds; it is asked after every frame, hello and end of a connection."""
        try:
            with anyio.fail_after(within_s):
                while not reached():
                    self.check()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"waited {within_s} s in vain; the plane saw: {self._story()}") from None
        self.check()

    async def receipt_of(self, command_id: str) -> Json:
        """Return the receipt of a command, once there is one."""
        await self.until(lambda: self.receipt(command_id))
        found = self.receipt(command_id)
        assert found is not None
        return found

    async def answered(self) -> None:
        """Return once every command has its receipt."""
        await self.until(lambda: not self.unanswered())

    async def answer_to(self, command_id: str, count: int = 1) -> Json:
        """Return the plain answer number `count` to a command, once it has come."""
        answers = self.orders[command_id].answers
        await self.until(lambda: len(answers) >= count)
        return answers[count - 1]

    async def complaints(self, count: int) -> list[Json]:
        """Return the `error` frames, once there are `count`."""
        await self.until(lambda: len(self.errors) >= count)
        return self.errors

    async def next_receipt(self) -> None:
        """Return once one command more than now has its receipt."""
        answered = len(self.orders) - len(self.unanswered())
        await self.until(lambda: len(self.orders) - len(self.unanswered()) > answered)

    async def connected(self) -> None:
        """Return once a daemon was welcomed."""
        await self.until(lambda: self.is_connected)

    # --- what a test does

    async def give(self, *commands: Json) -> None:
        """Take commands in, and deliver them: now, where a daemon is connected, else when one comes."""
        for command in commands:
            self.orders[command["command_id"]] = Order(command=command)
            await self.deliver(command["command_id"])

    async def deliver(self, command_id: str) -> None:
        """Deliver a command, once more or for the first time. Without a connection it does nothing."""
        link, order = self.link, self.orders[command_id]
        if link is None or not self.is_connected:
            return
        frame = {"delivered_to": list(order.delivered_to), **order.command}
        if link.journal_id not in order.delivered_to:
            order.delivered_to.append(link.journal_id)
        self.redeliveries += order.deliveries > 0
        order.deliveries += 1
        await self.say(frame)

    async def redeliver(self, *command_ids: str) -> None:
        """Deliver commands that have receipts; return once each receipt came again, in the same bytes."""
        history = self.history
        seen = {(history.journal_id, history.receipts[name]): 0 for name in command_ids}
        seen.update((place, self.repeats[place]) for place in seen)
        for name in command_ids:
            await self.deliver(name)
        await self.until(lambda: all(self.repeats[place] > count for place, count in seen.items()))

    async def say(self, frame: Json | str | bytes) -> None:
        """Send a frame, or any text or bytes, to the daemon of the present connection."""
        assert self.link is not None, "no daemon is connected"
        with suppress(ConnectionClosed):
            await self.link.socket.send(json.dumps(frame) if isinstance(frame, dict) else frame)

    async def acknowledge(self) -> None:
        """Acknowledge everything that arrived."""
        history = self.history
        if history.acked < history.last_seq:
            history.acked = history.last_seq
            await self.say({"type": "ack", "seq": history.acked})

    def cut(self) -> None:
        """Break the present connection, as a network does."""
        if self.link is not None:
            self.link.socket.transport.abort()
            self.link = None

    async def close(self, code: int) -> None:
        """End the present connection politely."""
        assert self.link is not None, "no daemon is connected"
        await self.link.socket.close(code)

    # --- the server

    def gate(self, socket: ServerConnection, request: Request) -> Response | None:
        """Look at the handshake."""
        if self.answer_status is not None:
            self.refused_connections += 1
            self.look_again()
            return socket.respond(HTTPStatus(self.answer_status), "as the test says\n")
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.refused_connections += 1
            self.look_again()
            return socket.respond(HTTPStatus.UNAUTHORIZED, "wrong token\n")
        return None

    async def serve(self, socket: ServerConnection) -> None:
        """Talk to one daemon until the connection ends."""
        link = _Link(socket)
        if socket.subprotocol != SUBPROTOCOL:
            self.violations.append(f"the subprotocol was {socket.subprotocol}")
        try:
            async for frame in socket:
                await self._hear(link, frame)
                self.look_again()
        except ConnectionClosed:
            pass
        except Exception as exc:  # noqa: BLE001 - the library would log it, and the test would wait in vain
            self.violations.append(f"the plane failed: {exc!r}")
        self.closes.append(socket.close_code)
        if self.link is link:
            self.link = None
        self.look_again()

    async def _hear(self, link: _Link, frame: str | bytes) -> None:
        if self.link is not link and link.welcomed:
            return
        if isinstance(frame, bytes) or len(frame) > self.max_frame_bytes:
            self.violations.append(f"a binary or oversize frame of {len(frame)}")
            return
        said: Json = json.loads(frame)
        if self.validates:
            self._validate(said)
        match said["type"]:
            case "hello":
                await self._welcome(link, said)
            case "error":
                self.errors.append(said)
            case _ if not link.welcomed:
                self.violations.append(f"{said['type']} before welcome")
            case "event":
                await self._take(link, frame.encode(), said)
            case "gap":
                link.position = self.histories[link.journal_id].skip(said, position=link.position)
            case "refused" | "retired":
                self._answer(said)
            case other:
                self.violations.append(f"a frame of type {other!r}")

    async def _welcome(self, link: _Link, hello: Json) -> None:
        if link.journal_id:
            self.violations.append("a second hello")
        link.journal_id = hello["journal_id"]
        history = self.histories.setdefault(link.journal_id, History(link.journal_id))
        self.hellos.append(hello)
        self.link = link
        welcome = self._true_welcome(history) if self.on_hello is None else self.on_hello(hello, history)
        if welcome is None:
            return
        link.position = welcome.get("acked_seq", 0)
        link.welcomed = welcome["type"] == "welcome"
        await self.say(welcome)
        if self.redelivers and link.welcomed:
            for command_id in self.unanswered():
                await self.deliver(command_id)

    def _true_welcome(self, history: History) -> Json:
        welcome = {
            "type": "welcome",
            "session_id": f"s-{len(self.hellos)}",
            "acked_seq": history.acked,
            "window": self.window,
            "max_frame_bytes": self.max_frame_bytes,
        }
        return {**welcome, "acked_chain": history.chain_at(history.acked)} if history.acked else welcome

    async def _take(self, link: _Link, frame: bytes, event: Json) -> None:
        history = self.histories[link.journal_id]
        seq: int = event["seq"]
        if event["journal_id"] != history.journal_id:
            self.violations.append(f"an event of {event['journal_id']} in the stream of {history.journal_id}")
            return
        fate = self.on_event(event)
        if fate == "lose":
            self.cut()
            return
        repeated, known = seq <= link.position, history.last_seq
        link.position = history.take(frame, event, position=link.position)
        if repeated:
            self.repeats[history.journal_id, seq] += 1
        elif seq - history.acked > self.window:
            self.violations.append(f"event {seq} is beyond the window of {self.window} after {history.acked}")
        self.inherited_receipts += event["terminal"] and known < seq <= self.hellos[-1]["last_seq"]
        if fate == "cut":
            self.cut()
        else:
            await self._reply(history, event)

    async def _reply(self, history: History, event: Json) -> None:
        nack = self.on_nack(event)
        if nack is not None:
            await self.say(nack)
        elif self.acks and event["seq"] > history.acked:
            history.acked = event["seq"]
            await self.say({"type": "ack", "seq": history.acked})

    def _answer(self, said: Json) -> None:
        order = self.orders.get(said["command_id"])
        if order is None:
            self.violations.append(f"an answer to a command that was never given: {said}")
        else:
            order.answers.append(said)

    def _validate(self, said: Json) -> None:
        validator = _validator(said["type"])
        if validator is not None:
            self.violations.extend(
                f"{said['type']} breaks the schema at {fault.json_path}: {fault.message}: {said}"
                for fault in validator.iter_errors(said)
            )

    def look_again(self) -> None:
        """Let whoever waits ask once more whether what it waits for is so."""
        self._changed.set()
        self._changed = anyio.Event()

    def _story(self) -> str:
        events = [
            (event["seq"], event["kind"], event["command_id"])
            for history in self.histories.values()
            for event in history.events()
        ]
        return (
            f"{len(self.hellos)} hellos, the last {self.hellos[-1:]}; closes {self.closes}; "
            f"errors {self.errors}; connected: {self.link is not None}; "
            f"unanswered: {self.unanswered()[:20]}; events: {events[-30:]}"
        )


@cache
def _validator(frame_type: str) -> Any | None:  # noqa: ANN401 - its stubs do not satisfy both type checkers
    """What frames of a type are held against; None for one that the schema does not have."""
    schema: dict[str, Any] = json.loads(SCHEMA.read_text())
    if frame_type not in schema["$defs"]:
        return None
    return Draft202012Validator({"$ref": f"#/$defs/{frame_type}", "$defs": schema["$defs"]})


@asynccontextmanager
async def scripted_plane(
    *, host: str = "127.0.0.1", tls: SSLContext | None = None, plane: ScriptedPlane | None = None
) -> AsyncGenerator[ScriptedPlane]:
    """Serve a `ScriptedPlane` on a free port of `host`. At the end every rule of the protocol must hold."""
    plane = plane or ScriptedPlane()
    async with serve(
        plane.serve,
        host,
        0,
        ssl=tls,
        subprotocols=[SUBPROTOCOL],
        process_request=plane.gate,
        compression=None,
        ping_interval=None,
        max_size=None,
        close_timeout=1,
    ) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        plane.url = f"{'ws' if tls is None else 'wss'}://{host}:{port}/driver"
        yield plane
        plane.check()
