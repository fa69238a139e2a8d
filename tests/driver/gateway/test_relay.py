"""The relay without a daemon, and what it keeps of a call from one connection to the next."""

import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from anyio.abc import SocketStream

from driver.gateway.lines import Lines
from driver.gateway.relay import Relay, RelaySettings
from driver.gateway.stdio import Input, Output
from driver.gateway.wire import (
    ASKED_AT,
    CLOSED,
    COMMAND_ID,
    DELIVERED,
    UNHEARD,
    Greeting,
    Message,
    line,
    read_greeting,
)

pytestmark = pytest.mark.anyio

GUARD_S: Final = 60.0


@pytest.fixture
def lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a relay whose client has closed its end wait as long as any guard."""
    monkeypatch.setattr("driver.gateway.relay.LINGER_S", GUARD_S)


class Client:
    """The agent's end of a relay."""

    def __init__(self, to_relay: int, from_relay: int) -> None:
        self._descriptor = to_relay
        self._to = Output(to_relay)
        self._from = Input(from_relay)
        self._lines = Lines(10_000_000)

    async def say(self, method: str, request_id: int | None = None, **params: Any) -> None:  # noqa: ANN401 - JSON
        message: Message = {"jsonrpc": "2.0", "method": method, "params": params}
        if request_id is not None:
            message["id"] = request_id
        await self._to.send(line(message))

    async def raw(self, data: bytes) -> None:
        await self._to.send(data)

    def close(self) -> None:
        """Close the writing end, and keep its number."""
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, self._descriptor)
        os.close(nothing)

    async def line(self) -> bytes:
        with anyio.fail_after(GUARD_S):
            data = await self._lines.next(self._from)
        assert data is not None
        return data

    async def hear(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(await self.line())
        return found


@asynccontextmanager
async def relay(folder: Path, *, down_s: float = 5.0, away_s: float = 300.0) -> AsyncGenerator[Client]:
    """Run a relay in this process, over pipes."""
    there, to_relay = os.pipe()
    from_relay, back = os.pipe()
    for descriptor in (there, to_relay, from_relay, back):
        os.set_blocking(descriptor, False)
    wanted = RelaySettings(socket=folder / "gateway.sock", run_id="run-1", down_s=down_s, away_s=away_s)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Relay(wanted, Input(there), Output(back)).run)
        try:
            yield Client(to_relay, from_relay)
        finally:
            tasks.cancel_scope.cancel()
            for descriptor in (there, to_relay, from_relay, back):
                os.close(descriptor)


class Daemon:
    """The daemon's end of one connection."""

    def __init__(self, stream: SocketStream) -> None:
        self.stream = stream
        self._lines = Lines(10_000_000)
        self._begun = b""

    async def greet(self) -> str:
        return (await self.greeting()).instance

    async def greeting(self) -> Greeting:
        data = await self._lines.next(self.stream)
        greeting = read_greeting(data or b"")
        assert greeting is not None
        await self.stream.send(line({"effectd": "gateway", "version": 1}))
        return greeting

    async def begins(self) -> None:
        """Return once the first byte of a message is here."""
        with anyio.fail_after(GUARD_S):
            self._begun = await self.stream.receive(1)

    async def hear(self) -> dict[str, Any]:
        with anyio.fail_after(GUARD_S):
            data = await self._lines.next(self.stream)
        assert data is not None
        found: dict[str, Any] = json.loads(self._begun + data)
        self._begun = b""
        return found

    async def say(self, message: Message) -> None:
        await self.stream.send(line(message))

    async def ends(self) -> bool:
        with anyio.fail_after(GUARD_S):
            return await self._lines.next(self.stream) is None


@asynccontextmanager
async def daemons(folder: Path) -> AsyncGenerator[Callable[[], Awaitable[Daemon]]]:
    """Listen as a daemon does; yields what returns the next connection."""
    send, receive = anyio.create_memory_object_stream[Daemon](8)

    async def take(stream: SocketStream) -> None:
        async with stream:
            await send.send(Daemon(stream))
            await anyio.sleep_forever()

    listener = await anyio.create_unix_listener(folder / "gateway.sock")
    async with listener, send, receive, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, take)
        yield receive.receive
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def met(folder: Path) -> AsyncGenerator[tuple[Daemon, Client]]:
    """A daemon that has greeted the relay of a client, and that client."""
    async with daemons(folder) as connection, relay(folder) as client:
        daemon = await connection()
        await daemon.greet()
        yield daemon, client


@asynccontextmanager
async def asked(folder: Path) -> AsyncGenerator[tuple[Daemon, Client, str]]:
    """The same, once the client has made call 7 and the daemon has it; and the command that it is."""
    async with met(folder) as (daemon, client):
        await client.say("tools/call", 7, name="x__y", arguments={})
        yield daemon, client, (await daemon.hear())["params"]["_meta"][COMMAND_ID]


async def test_without_a_daemon_a_client_can_begin_and_no_call_is_executed(tmp_path: Path) -> None:
    """It is answered after a moment: a handshake, empty lists, and a tool error that says what to do."""
    async with relay(tmp_path, down_s=0.05) as client:
        await client.say("initialize", 1, protocolVersion="2025-06-18", capabilities={}, clientInfo={})
        assert (await client.hear())["result"]["protocolVersion"] == "2025-06-18"
        await client.say("tools/list", 2)
        assert (await client.hear())["result"] == {"tools": []}
        await client.say("tools/call", 3, name="x__y", arguments={})
        result = (await client.hear())["result"]
        assert result["isError"] is True
        assert result["content"][0]["text"].startswith("refused (down): nothing was executed")


async def test_a_call_keeps_its_id_over_connections(tmp_path: Path) -> None:
    """What is unanswered when the connection is lost is asked about again, under the same command id."""
    async with daemons(tmp_path) as connection, relay(tmp_path) as client:
        first = await connection()
        instance = await first.greet()
        await client.say("tools/call", 7, name="x__y", arguments={}, _meta={COMMAND_ID: "forged"})
        asked = await first.hear()
        minted = asked["params"]["_meta"][COMMAND_ID]
        assert minted.startswith("gateway:")
        await first.stream.aclose()
        second = await connection()
        assert await second.greet() == instance
        again = await second.hear()
        assert again["params"]["_meta"][COMMAND_ID] == minted
        assert again["params"]["_meta"][ASKED_AT] > 0
        await second.say({"jsonrpc": "2.0", "id": 7, "result": {"content": []}})
        assert (await client.hear())["id"] == 7
        delivered = await second.hear()
        assert (delivered["method"], delivered["params"]) == (DELIVERED, {"commandId": minted})


async def test_a_session_is_opened_again_in_the_clients_words(tmp_path: Path) -> None:
    """The new daemon sees the handshake that the client once made; the client sees nothing of it."""
    async with daemons(tmp_path) as connection, relay(tmp_path) as client:
        first = await connection()
        await first.greet()
        await client.say("initialize", 1, protocolVersion="2025-11-25", clientInfo={"name": "c"})
        await first.say({"jsonrpc": "2.0", "id": (await first.hear())["id"], "result": {}})
        await client.hear()
        await client.say("notifications/initialized")
        await first.hear()
        await first.stream.aclose()
        second = await connection()
        await second.greet()
        handshake = await second.hear()
        assert (handshake["method"], handshake["params"]["clientInfo"]) == ("initialize", {"name": "c"})
        await second.say({"jsonrpc": "2.0", "id": handshake["id"], "result": {}})
        assert (await second.hear())["method"] == "notifications/initialized"
        await client.say("ping", 2)
        await second.say({"jsonrpc": "2.0", "id": (await second.hear())["id"], "result": {}})
        assert (await client.hear())["id"] == 2


async def test_an_answer_to_a_question_of_a_dead_daemon_reaches_nobody(tmp_path: Path) -> None:
    """A user's yes to one question must not become the yes to the next daemon's, which has the same id."""
    async with daemons(tmp_path) as connection, relay(tmp_path) as client:
        first = await connection()
        await first.greet()
        await first.say({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": {}})
        question = await client.hear()
        await first.stream.aclose()
        second = await connection()
        await second.greet()
        withdrawn = await client.hear()
        assert withdrawn["params"]["requestId"] == question["id"]
        await second.say({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": {}})
        newer = await client.hear()
        assert newer["id"] != question["id"]
        for request_id in (question["id"], newer["id"]):
            await client.raw(line({"jsonrpc": "2.0", "id": request_id, "result": {"action": "accept"}}))
        answer = await second.hear()
        assert answer == {"jsonrpc": "2.0", "id": 1, "result": {"action": "accept"}}


async def test_a_call_that_may_have_been_sent_is_never_said_to_have_done_nothing(tmp_path: Path) -> None:
    """A daemon that got it and stays away: it may have happened, and is not to be repeated."""
    async with daemons(tmp_path) as connection, relay(tmp_path, down_s=0.01, away_s=0.05) as client:
        first = await connection()
        await first.greet()
        await client.say("tools/call", 7, name="x__y", arguments={})
        await first.hear()
        (tmp_path / "gateway.sock").unlink()
        await first.stream.aclose()
        text = (await client.hear())["result"]["content"][0]["text"]
        assert text.startswith("unknown: this call may have happened")
        assert "try again" not in text.lower()


async def test_a_message_that_is_too_long_is_answered_and_left_out(tmp_path: Path) -> None:
    """The next one is carried as ever."""
    async with relay(tmp_path, down_s=0.01) as client:
        huge = line({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"x": "y" * 5_000_000}})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.raw, huge)
            refused = await client.hear()
            assert refused["id"] == 5
            assert refused["result"]["content"][0]["text"].startswith("refused (oversize)")
        await client.say("ping", 6)
        assert (await client.hear()) == {"jsonrpc": "2.0", "id": 6, "result": {}}


@pytest.mark.parametrize(
    ("text", "answered"),
    [
        ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{"n":NaN}}}', 1),
        ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{"n":1e999}}}', 1),
        ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{"n":1,"n":2}}}', 1),
        ('{"method":"tools/call","params":{"id":2,"n":NaN},"jsonrpc":"2.0","id":1}', 1),
        ('{"jsonrpc":"2.0","id":1.5,"method":"tools/call","params":{}}', 1.5),
        ('{"jsonrpc":"2.0","id":01,"method":"tools/call","params":{}}', None),
        ('{"jsonrpc":"2.0","id":null,"method":"ping"}', None),
        ('{"jsonrpc":"2.0","id":1,"method":5}', 1),
        ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}', 1),
        ('{"jsonrpc":"1.0","id":1,"method":"ping"}', 1),
        ('{"jsonrpc":"2.0","id":"\\ud800","method":"tools/call","params":{}}', "\ud800"),
        ('{"jsonrpc":"2.0","id":"é","method":"tools/call","params":{"arguments":{"n":NaN}}}', "é"),
        ('{"jsonrpc":"2.0","id":"a\\"b","method":"tools/call","params":{"arguments":{"n":NaN}}}', 'a"b'),
        ("[]", None),
        ("{", None),
    ],
)
async def test_what_no_daemon_could_read_is_answered_by_the_relay(
    tmp_path: Path, text: str, answered: float | str | None
) -> None:
    """It executes nothing, leaves the relay as it was, and nobody waits for an answer that never comes."""
    async with relay(tmp_path, down_s=GUARD_S) as client:
        await client.raw(text.encode() + b"\n")
        heard = await client.hear()
        assert heard["id"] == answered
        said = heard.get("error") or heard["result"]["_meta"]
        assert said.get("code") in (-32_600, -32_700) or said["dev.effectd/outcome"] == "refused"


async def test_an_id_that_waits_for_its_answer_is_not_taken_twice(tmp_path: Path) -> None:
    """Else the first answer that came would be taken for both, and one of them for delivered."""
    async with asked(tmp_path) as (daemon, client, _):
        await client.raw(b'{"jsonrpc":"2.0","id":"7","method":"tools/call","params":{"name":"x__z"}}\n')
        assert (await client.hear())["error"]["code"] == -32_600
        await daemon.say({"jsonrpc": "2.0", "id": 7, "result": {"content": []}})
        assert (await client.hear())["id"] == 7


async def test_an_id_of_a_cancelled_call_gets_no_other_call_its_answer(tmp_path: Path) -> None:
    """The answer was on its way when the call was cancelled: it is not that of the next one of this id."""
    async with asked(tmp_path) as (daemon, client, _):
        await client.say("notifications/cancelled", requestId=7)
        assert (await daemon.hear())["method"] == "notifications/cancelled"
        await client.say("tools/call", 7, name="x__z", arguments={})
        await daemon.say({"jsonrpc": "2.0", "id": 7, "result": {"content": []}})
        assert "nothing was executed" in (await client.hear())["error"]["message"]
        await client.say("tools/call", 8, name="x__z", arguments={})
        assert (await daemon.hear())["id"] == 8
        await daemon.say({"jsonrpc": "2.0", "id": 8, "result": {"content": []}})
        assert (await client.hear())["id"] == 8


async def test_what_only_the_relay_says_is_nothing_from_a_client(tmp_path: Path) -> None:
    """Else an agent could say that it has an answer, or is gone, and its equal call would be a new one."""
    async with met(tmp_path) as (daemon, client):
        await client.say("ping", 1)
        assert (await daemon.hear())["method"] == "ping"
        for word in (CLOSED, DELIVERED, UNHEARD):
            await client.say(word, commandId="gateway:1")
        await client.say("notifications/other")
        assert (await daemon.hear())["method"] == "notifications/other"


async def test_an_answer_reaches_the_client_as_the_daemon_wrote_it(tmp_path: Path) -> None:
    """Byte for byte: it may be long, and is not the relay's to read."""
    async with asked(tmp_path) as (daemon, client, _):
        await daemon.stream.send(b'{"jsonrpc":"2.0","id":7,"result":{ "content":[], "n":1.50 }}\n')
        assert await client.line() == b'{"jsonrpc":"2.0","id":7,"result":{ "content":[], "n":1.50 }}'


async def test_a_message_that_is_too_long_is_answered_whose_id_stands_at_its_end(tmp_path: Path) -> None:
    """Some clients write it there."""
    async with relay(tmp_path, down_s=0.01) as client:
        huge = line({"method": "tools/call", "params": {"x": "y" * 5_000_000}, "jsonrpc": "2.0", "id": 5})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.raw, huge)
            refused = await client.hear()
            assert (refused["id"], refused["result"]["isError"]) == (5, True)


async def test_an_answer_that_crosses_a_cancellation_was_not_heard(tmp_path: Path) -> None:
    """The client had given up: the daemon is told so before it gets what the client sends next."""
    async with asked(tmp_path) as (daemon, client, command_id):
        await daemon.say({"jsonrpc": "2.0", "id": 7, "result": {"content": []}})
        assert (await daemon.hear())["method"] == DELIVERED
        await client.say("notifications/cancelled", requestId=7)
        await client.say("tools/call", 8, name="x__y", arguments={})
        assert await daemon.hear() == {
            "jsonrpc": "2.0",
            "method": UNHEARD,
            "params": {"commandId": command_id},
        }
        assert (await daemon.hear())["method"] == "tools/call"


LONG: Final = "x" * 3_000_000
"""More than a socket takes that nobody reads."""


async def is_taken_in(client: Client) -> None:
    """Return once the relay has read all that the client has said: it refuses an id that waits."""
    await client.say("tools/call", 1, name="x__y", arguments={})
    assert (await client.hear())["error"]["code"] == -32600


async def test_a_call_that_is_cancelled_before_it_was_sent_is_never_sent(tmp_path: Path) -> None:
    """Though it waited when the connection was opened, and another one was still being sent."""
    async with relay(tmp_path) as client:
        await client.say("tools/call", 1, name="x__y", arguments={"text": LONG})
        await client.say("tools/call", 2, name="x__y", arguments={})
        await is_taken_in(client)
        async with daemons(tmp_path) as connection:
            daemon = await connection()
            await daemon.greet()
            await daemon.begins()
            await client.say("notifications/cancelled", requestId=2)
            await is_taken_in(client)
            await client.say("tools/call", 3, name="x__y", arguments={})
            assert [(await daemon.hear())["id"] for _ in range(2)] == [1, 3]
            await client.say("tools/call", 4, name="x__y", arguments={})
            assert (await daemon.hear())["id"] == 4


async def test_a_call_is_asked_about_anew_before_its_cancel_is_passed_on(tmp_path: Path) -> None:
    """The next daemon knows what is cancelled: it had been told of the call only by the one before it."""
    async with relay(tmp_path) as client, daemons(tmp_path) as connection:
        first = await connection()
        await first.greet()
        await client.say("tools/call", 1, name="x__y", arguments={"text": LONG})
        await client.say("tools/call", 2, name="x__y", arguments={})
        assert [(await first.hear())["id"] for _ in range(2)] == [1, 2]
        await first.stream.aclose()
        second = await connection()
        await second.greet()
        await second.begins()
        await client.say("notifications/cancelled", requestId=2)
        await is_taken_in(client)
        heard = [await second.hear() for _ in range(3)]
        assert [message.get("id") for message in heard] == [1, 2, None]
        assert heard[2]["params"] == {"requestId": 2}


@pytest.mark.usefixtures("lingering")
async def test_a_client_that_has_closed_its_end_hears_nothing(tmp_path: Path) -> None:
    """What is written to it then is not delivered: whoever starts it anew may ask for the same."""
    async with asked(tmp_path) as (daemon, client, _):
        client.close()
        assert (await daemon.hear())["method"] == CLOSED
        await daemon.say({"jsonrpc": "2.0", "id": 7, "result": {"content": []}})
        assert (await client.hear())["id"] == 7
        assert await daemon.ends()


@pytest.mark.usefixtures("lingering")
async def test_a_daemon_that_comes_back_is_told_that_the_client_has_closed_its_end(tmp_path: Path) -> None:
    """In the greeting: from the first moment on nobody takes the run for one that asks for more."""
    async with daemons(tmp_path) as connection, relay(tmp_path) as client:
        first = await connection()
        assert (await first.greeting()).closed is False
        await client.say("tools/call", 7, name="x__y", arguments={})
        await first.hear()
        client.close()
        assert (await first.hear())["method"] == CLOSED
        await first.stream.aclose()
        second = await connection()
        assert (await second.greeting()).closed is True
