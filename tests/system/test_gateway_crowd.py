"""As many agents as the gateway serves at once, and one more."""

import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from time import perf_counter
from typing import Any, Final

import anyio
import pytest

from driver.gateway.connection import Connection
from driver.gateway.limits import GatewayLimits
from driver.gateway.lines import Lines
from driver.gateway.wire import Greeting, Message, line
from tests.report import add
from tests.system.agents import Agent, Told, agent
from tests.system.sandbox import Sandbox, standing
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.kill, pytest.mark.lane]

RELAYS: Final = 48
"""Processes of `effectd mcp` at once."""
STARTING: Final = 4
"""So many of them start at a time."""
GUARD_S: Final = 300.0


class Relay:
    """A connection like a relay's, without its process."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lines = Lines(10_000_000)

    async def greet(self, run_id: str) -> dict[str, Any]:
        """Return what a greeting is answered with."""
        with suppress(OSError):  # it may be refused before it has spoken
            await self._connection.send(Greeting(instance=run_id, run_id=run_id).line())
        return await self.hear()

    async def call(self, number: int) -> dict[str, Any]:
        """Open a session, and return the result of one call."""
        params: dict[str, Any] = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "crowd", "version": "1"},
        }
        await self.ask(1, "initialize", params)
        await self._connection.send(line({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        meta = {"dev.effectd/command-id": f"gateway:{number:032x}"}
        params = {"name": "counter__count", "arguments": {"n": number}, "_meta": meta}
        found: dict[str, Any] = (await self.ask(2, "tools/call", params))["result"]
        return found

    async def ask(self, request_id: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the response to a request."""
        message: Message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        await self._connection.send(line(message))
        while True:
            heard = await self.hear()
            if heard.get("id") == request_id:
                return heard

    async def hear(self) -> dict[str, Any]:
        """Return the next message."""
        with anyio.fail_after(GUARD_S):
            data = await self._lines.next(self._connection)
        assert data is not None
        found: dict[str, Any] = json.loads(data)
        return found


@asynccontextmanager
async def connected(made: Sandbox) -> AsyncGenerator[Relay]:
    """Connect one."""
    async with Connection(await anyio.connect_unix(made.runtime / "gateway.sock")) as connection:
        yield Relay(connection)


async def test_all_connections_that_there_may_be_are_served_at_once_and_the_next_is_told_so(
    zygote: Zygote, pytestconfig: pytest.Config
) -> None:
    """256 calls at once, each made once; the 257th connection is refused, until one of them has gone."""
    count = GatewayLimits().connections_max
    results: list[dict[str, Any]] = []
    async with standing(zygote, gateway={}) as made:
        async with AsyncExitStack() as crowd:
            relays = [await crowd.enter_async_context(connected(made)) for _ in range(count - 1)]
            last = await crowd.enter_async_context(AsyncExitStack())
            relays.append(await last.enter_async_context(connected(made)))
            for number, one in enumerate(relays):
                assert "refused" not in await one.greet(f"run-{number}")

            async def call(one: Relay, number: int) -> None:
                results.append(await one.call(number))

            began = perf_counter()
            async with anyio.create_task_group() as tasks:
                for number, one in enumerate(relays):
                    tasks.start_soon(call, one, number)
            took_s = perf_counter() - began
            async with connected(made) as another:
                assert (await another.greet("one-more"))["refused"] == "busy"
            await last.aclose()
            await served(made)
        done = made.effects()
    assert [result["_meta"]["dev.effectd/outcome"] for result in results] == ["succeeded"] * count
    assert sorted(effect["arguments"]["n"] for effect in done) == list(range(count))
    add(pytestconfig, "measures", f"{count} relays with a call each, all at once: {took_s:.2f} s")


async def served(made: Sandbox) -> None:
    """Return once a connection is served, as a relay does: it looks again."""
    with anyio.fail_after(GUARD_S):
        while True:
            async with connected(made) as one:
                if "refused" not in await one.greet("later"):
                    return
            await anyio.sleep(0.02)


async def test_many_relays_outlive_the_daemon_together(zygote: Zygote, pytestconfig: pytest.Config) -> None:
    """Each has a call under way when the daemon is killed; each gets its answer, and no effect is doubled."""
    told: dict[int, Told] = {}
    starting = anyio.Semaphore(STARTING)
    async with standing(zygote, gateway={}) as made:
        life = made.lives[-1]
        gate = made.root / "gate"
        began = perf_counter()

        async def work(number: int) -> None:
            async with AsyncExitStack() as stack:
                async with starting:
                    one: Agent = await stack.enter_async_context(agent(made, f"run-{number}"))
                told[number] = await one.call("counter__slow", n=number, until=str(gate))

        async with anyio.create_task_group() as tasks:
            for number in range(RELAYS):
                tasks.start_soon(work, number)
            await made.effects_reach(RELAYS)
            await life.kill()
            gate.touch()
            await made.start().ready()
        took_s = perf_counter() - began
        effects = [effect["arguments"]["n"] for effect in made.effects()]
    assert sorted(effects) == list(range(RELAYS))
    assert {item.outcome for item in told.values()} == {"unknown"}
    assert len(told) == RELAYS
    text = (
        f"{RELAYS} relays, from the start of the first to the answer of the last over a kill: {took_s:.1f} s"
    )
    add(pytestconfig, "measures", text)
