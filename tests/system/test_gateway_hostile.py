"""Whatever is written to `gateway.sock`: an answer where somebody waits for one, and no harm to others."""

import json
import socket
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final

import anyio
import pytest

from tests.system.agents import agent
from tests.system.sandbox import Sandbox, sandbox, standing
from tests.system.test_gateway_approvals import SELF, waiting
from tests.system.zygote import Zygote

pytestmark = pytest.mark.anyio

GUARD_S: Final = 60.0
STALL_S: Final = 5.0
"""Who is not read for so long is held back: a daemon on a busy machine reads again before."""
FLOOD: Final = 20_000
"""Requests, more than sockets have room for."""
DESCRIPTORS: Final = 48
WITH_FEW: Final = (
    "import os, resource, sys; "
    f"resource.setrlimit(resource.RLIMIT_NOFILE, ({DESCRIPTORS}, {DESCRIPTORS})); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
"""Starts a program with few descriptors."""
GREETING: Final[dict[str, Any]] = {
    "effectd": "gateway",
    "version": 1,
    "instance": "liar",
    "run_id": "mine",
    "resumes": [],
}
HANDSHAKE: Final[dict[str, Any]] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "x", "version": "1"},
}

NO_TIMES: Final = (
    "1e308",
    "1e18",
    "253402300800",
    "99999999999999999999",
    "-1",
    "true",
    '"soon"',
    "null",
    "[]",
    "{}",
)
NO_JSON: Final = (
    '{"n":NaN}',
    '{"n":1e999}',
    '{"label":"\\ud800"}',
    '{"n":1,"n":2}',
    '{"n":' + "[" * 100 + "]" * 100 + "}",
    '{"n":' + "[" * 50_000 + "]" * 50_000 + "}",
    '{"n":' + "9" * 5_000 + "}",
)
NO_CALLS: Final = (
    '"params":{"name":5}',
    '"params":{"name":null,"arguments":{}}',
    '"params":{"name":"counter__count","arguments":[]}',
    '"params":{"name":"counter__count","arguments":"n"}',
    '"params":{"name":"' + "x" * 1_000_000 + '"}',
    '"params":{"name":"\\u0000"}',
    '"params":{"name":"effectd__operation","arguments":{"operation_id":"' + "x" * 1_000_000 + '"}}',
    '"params":{"name":"effectd__operations","arguments":{"limit":true}}',
    '"params":[]',
    '"params":5',
    '"result":{}',
)
NO_GREETINGS: Final[tuple[dict[str, Any], ...]] = (
    {"run_id": "no run"},
    {"run_id": ""},
    {"run_id": "x" * 129},
    {"run_id": 5},
    {"instance": ""},
    {"instance": "x" * 60_000},
    {"instance": None},
    {"resumes": "mine"},
    {"resumes": [5]},
    {"resumes": ["no run"]},
    {"resumes": ["x"] * 65},
    {"version": 2},
    {"version": "1"},
    {"effectd": "control"},
)
NOTHING: Final = (
    b"",
    b"[]",
    b"null",
    b"\xff\xfe\x00",
    b"[" * 100_000,
    b'{"jsonrpc":"2.0","id":"nobody","result":{}}',
    b'{"jsonrpc":"2.0","method":"notifications/dev.effectd/delivered"}',
    b'{"jsonrpc":"2.0","method":"notifications/dev.effectd/delivered","params":{"commandId":[1]}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[1]}}',
    b'{"jsonrpc":"2.0","method":"notifications/nothing","params":{"_meta":5}}',
)


class Liar:
    """A relay that says what it likes."""

    def __init__(self, made: Sandbox) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(GUARD_S)
        self._socket.connect(str(made.runtime / "gateway.sock"))
        self._file = self._socket.makefile("rb")
        self._number = 0
        self.minted = ""
        """The command id of the call that was made last."""

    def greet(self, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """Return what a greeting is answered with."""
        self.write(json.dumps({**GREETING, **changes}).encode())
        return self.read()

    def begin(self) -> None:
        """Greet, and open a session of the older era."""
        assert "refused" not in self.greet()
        self.handshake()

    def handshake(self, **changes: Any) -> None:  # noqa: ANN401 - JSON
        """Open a session of the older era."""
        wanted = json.dumps({**HANDSHAKE, **changes})
        assert "result" in self.ask(f'"method":"initialize","params":{wanted}')
        self.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    def ask(self, rest: str) -> dict[str, Any]:
        """Return the response to a request, of which `rest` is what follows its id."""
        self._number += 1
        self.write(f'{{"jsonrpc":"2.0","id":{self._number},{rest}}}'.encode())
        while True:
            heard = self.read()
            if heard.get("id") == self._number:
                return heard

    def call(self, arguments: str, meta: str = "", *, number: int | None = None) -> dict[str, Any]:
        """Return the response to a call of the counting tool."""
        self.minted = f"gateway:{number or self._number:032x}"
        return self.ask(
            f'"method":"tools/call","params":{{"name":"counter__count","arguments":{arguments},'
            f'"_meta":{{"dev.effectd/command-id":"{self.minted}"{meta}}}}}'
        )

    def say_of(self, command_id: str, word: str) -> None:
        """Say whether an answer was heard."""
        said = {"method": f"notifications/dev.effectd/{word}", "params": {"commandId": command_id}}
        self.write(json.dumps({"jsonrpc": "2.0", **said}).encode())

    def flood(self, rest: str, *, requests: int) -> int:
        """Ask so many times without reading; return how often until nobody has read that for a moment."""
        self._socket.settimeout(STALL_S)
        for number in range(requests):
            try:
                self.write(f'{{"jsonrpc":"2.0","id":{1_000 + number},{rest}}}'.encode())
            except TimeoutError:
                return number
        return requests

    def write(self, data: bytes) -> None:
        """Send a line."""
        self.write_some(data + b"\n")

    def write_some(self, data: bytes) -> None:
        """Send bytes."""
        self._socket.sendall(data)

    def read(self) -> dict[str, Any]:
        """Return the next line; an empty object at the end."""
        data = self._file.readline()
        found: dict[str, Any] = json.loads(data) if data else {}
        return found

    def close(self) -> None:
        """Hang up."""
        self._file.close()
        self._socket.close()


@contextmanager
def liar(made: Sandbox) -> Generator[Liar]:
    """Connect one."""
    one = Liar(made)
    try:
        yield one
    finally:
        one.close()


def outcome(response: dict[str, Any]) -> str:
    """Return the word of a tool result."""
    found: str = response["result"]["_meta"]["dev.effectd/outcome"]
    return found


async def test_hostile_lines_are_answered_and_execute_nothing(zygote: Zygote) -> None:
    """Each with an error for whoever may wait; no answer is longer for it, and no handler fails."""
    async with standing(zygote, gateway={}) as made:
        life = made.lives[-1]

        def lie() -> None:
            with liar(made) as one:
                one.begin()
                for arguments in NO_JSON:
                    assert outcome(one.call(arguments)) == "invalid_arguments", arguments[:80]
                for call in NO_CALLS:
                    response = one.ask(f'"method":"tools/call",{call}')
                    assert "error" in response or response["result"]["isError"], call[:80]
                    assert len(json.dumps(response)) < 2_000, call[:80]
                for data in NOTHING:
                    one.write(data)
                assert one.ask('"method":"ping"')["result"] == {}

        await anyio.to_thread.run_sync(lie)
        assert made.effects() == []
        assert "handler for" not in life.text
        assert not life.lines("gateway_connection_failed")
        async with agent(made, "mine") as honest:
            assert (await honest.call("counter__count", n=1)).outcome == "succeeded"


async def test_a_time_that_is_none_is_long_ago_and_costs_no_call_its_answer(zygote: Zygote) -> None:
    """Of when a call was first asked a relay may say anything: it is answered, and made once."""
    async with standing(zygote, gateway={}) as made:
        life = made.lives[-1]

        def lie() -> None:
            with liar(made) as one:
                one.begin()
                for number, moment in enumerate(NO_TIMES):
                    asked = f',"dev.effectd/asked-at":{moment},"dev.effectd/journal-id":"{"j" * 50_000}"'
                    response = one.call(f'{{"n":{number}}}', asked)
                    assert outcome(response) == "succeeded", moment

        await anyio.to_thread.run_sync(lie)
        assert len(made.effects()) == len(NO_TIMES)
        assert "handler for" not in life.text


async def test_a_greeting_that_is_none_is_refused_with_its_reason(zygote: Zygote) -> None:
    """And the connection ends: nobody is served who does not say for whom."""
    async with standing(zygote, gateway={}) as made:

        def lie() -> None:
            for changes in NO_GREETINGS:
                with liar(made) as one:
                    assert one.greet(**changes)["refused"] in ("greeting", "run"), changes
                    assert one.read() == {}

        await anyio.to_thread.run_sync(lie)


async def test_half_a_line_and_a_line_without_an_end_cost_one_connection(zygote: Zygote) -> None:
    """A relay that stops in the middle, one that never stops, and one that does not even begin."""
    async with standing(zygote, gateway={}) as made:

        def lie() -> None:
            with liar(made) as one:
                one.begin()
                one.write_some(b'{"jsonrpc":"2.0","id":1,"method":"tools/ca')
            with liar(made) as one:
                one.begin()
                with suppress(ConnectionError):
                    for _ in range(100):
                        one.write_some(b"x" * 65_536)
                    assert one.read() == {}
            with liar(made) as one:
                one.write_some(b"x" * 70_000)
                assert one.read()["refused"] == "greeting"

        await anyio.to_thread.run_sync(lie)
        async with agent(made, "mine") as honest:
            assert (await honest.call("counter__count", n=1)).outcome == "succeeded"


async def test_an_answer_that_was_not_heard_after_all_guards_its_call(zygote: Zygote) -> None:
    """A relay takes its word back, in this life of the daemon or the next; nobody else's word counts."""
    async with standing(zygote, gateway={}) as made:
        life = made.lives[-1]

        def call_and_confirm(one: Liar, n: int) -> str:
            assert outcome(one.call(f'{{"n":{n}}}')) == "succeeded"
            one.say_of(one.minted, "delivered")
            return one.minted

        def take_back() -> str:
            with liar(made) as one, liar(made) as other:
                one.begin()
                assert "refused" not in other.greet(run_id="other", instance="other")
                other.handshake()
                other.say_of(call_and_confirm(one, 1), "unheard")
                assert other.ask('"method":"ping"')["result"] == {}
                assert outcome(one.call('{"n":1}')) == "succeeded"
                one.say_of(call_and_confirm(one, 2), "unheard")
                assert outcome(one.call('{"n":2}')) == "refused"
                return call_and_confirm(one, 3)

        def take_back_later(asked: str) -> None:
            with liar(made) as one:
                one.begin()
                one.say_of(asked, "unheard")
                assert outcome(one.call('{"n":3}', number=100)) == "refused"
                assert outcome(one.call('{"n":4}', number=101)) == "succeeded"

        asked = await anyio.to_thread.run_sync(take_back)
        await life.kill()
        await made.start().ready()
        await anyio.to_thread.run_sync(take_back_later, asked)
        assert [effect["arguments"]["n"] for effect in made.effects()] == [1, 1, 2, 3, 4]


async def test_an_id_of_another_call_that_waits_gets_nobody_its_answer(zygote: Zygote) -> None:
    """With other arguments, or in another run: it is refused, nothing is executed, and the first goes on."""
    async with standing(zygote, gateway={}) as made:
        gate = made.root / "gate"

        def asked(tool: str, arguments: dict[str, Any]) -> str:
            meta = {"dev.effectd/command-id": "gateway:same"}
            params = {"name": f"counter__{tool}", "arguments": arguments, "_meta": meta}
            return f'"method":"tools/call","params":{json.dumps(params)}'

        slow = asked("slow", {"until": str(gate)})

        def lie() -> None:
            with liar(made) as one, liar(made) as other:
                one.begin()
                one.write(f'{{"jsonrpc":"2.0","id":"first",{slow}}}'.encode())
                anyio.from_thread.run(made.effects_reach, 1)
                assert "refused" not in other.greet(run_id="other", instance="other")
                other.handshake()
                for response in (one.ask(asked("count", {})), other.ask(slow)):
                    assert response["result"]["_meta"]["dev.effectd/code"] == "conflict"
                gate.touch()
                assert outcome(one.read()) == "succeeded"

        await anyio.to_thread.run_sync(lie)
        assert len(made.effects()) == 1


async def test_a_relay_that_never_reads_is_not_read_any_further(zygote: Zygote) -> None:
    """Its requests wait in its own socket; what they cost the daemon is bounded, and others are served."""
    async with standing(zygote, gateway={}) as made:

        def ask_without_reading() -> int:
            with liar(made) as one:
                one.begin()
                return one.flood('"method":"tools/list"', requests=FLOOD)

        assert await anyio.to_thread.run_sync(ask_without_reading) < FLOOD
        async with agent(made, "honest") as honest:
            assert (await honest.call("counter__count", n=1)).outcome == "succeeded"


async def test_an_answer_of_a_user_that_nobody_can_read_decides_nothing(zygote: Zygote) -> None:
    """The call waits on, until somebody decides; its client is told of that, and of no fault."""
    async with standing(zygote, **SELF) as made:

        def garble() -> dict[str, Any]:
            with liar(made) as one:
                assert "refused" not in one.greet()
                one.handshake(capabilities={"elicitation": {}})
                params = '{"name":"counter__count","arguments":{"n":1}}'
                one.write(f'{{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{params}}}'.encode())
                question = one.read()
                assert question["method"] == "elicitation/create"
                garbled: dict[str, Any] = {
                    "action": "accept",
                    "content": {"decision": "approve", "reason": {"x": []}},
                }
                one.write(json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": garbled}).encode())
                assert one.ask('"method":"ping"')["result"] == {}
                operation = anyio.from_thread.run(waiting, made)
                denied = {"decision": "deny", "reason": "not so"}
                anyio.from_thread.run(made.post, f"/v1/operations/{operation}/approve", denied)
                return one.read()

        assert outcome(await anyio.to_thread.run_sync(garble)) == "denied"
        assert made.effects() == []


async def test_connections_that_take_all_descriptors_do_not_end_the_daemon(zygote: Zygote) -> None:
    """Who is there is served on; who comes is taken when there is a descriptor again."""
    async with sandbox(zygote, None, gateway={}) as made:
        life = await made.execute(sys.executable, "-c", WITH_FEW)
        await life.ready()
        with ExitStack() as crowd:
            async with agent(made) as one:
                assert (await one.call("counter__count", n=1)).outcome == "succeeded"
                for _ in range(2 * DESCRIPTORS):
                    came = crowd.enter_context(socket.socket(socket.AF_UNIX))
                    came.connect(str(made.runtime / "gateway.sock"))
                assert "Too many open files" in (await life.told("gateway_connection_not_taken"))[0]["error"]
                assert (await one.call("counter__count", n=2)).outcome == "succeeded"
        async with agent(made, "run-2") as another:
            assert (await another.call("counter__count", n=3)).outcome == "succeeded"
        assert life.code is None
