"""What the gateway adds to a call: side by side, in one run, with the same server called directly."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from statistics import median, quantiles
from time import perf_counter
from typing import Final

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.report import add
from tests.system.agents import ERAS, Era, agent
from tests.system.sandbox import SERVER, Sandbox, sandbox
from tests.system.test_gateway_runs import folder, pid_of
from tests.system.test_measures import cpu_s
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

WARM: Final = 20
CALLS: Final = 200
ADDED_S_MAX: Final = 0.03
"""Ten times what it adds on a quiet machine, fsyncs included; held against the quickest calls of each."""
CPU_S_MAX: Final = 0.04
"""Ten times what a call costs the relay and the daemon in CPU time there."""


@asynccontextmanager
async def direct(made: Sandbox) -> AsyncGenerator[Client]:
    """Connect a client to the counting server itself."""
    server = [sys.executable, "-I", "-S", str(SERVER), str(made.ledger)]
    parameters = StdioServerParameters(command=server[0], args=server[1:])
    async with Client(stdio_client(parameters), mode="legacy") as client:
        yield client


async def timed(client: Client, tool: str, number: int) -> float:
    """Return how long a call took."""
    began = perf_counter()
    result = await client.call_tool(tool, {"n": number})
    assert not result.is_error
    return perf_counter() - began


@pytest.mark.parametrize("era", ERAS)
async def test_what_the_gateway_adds_to_a_call(zygote: Zygote, pytestconfig: pytest.Config, era: Era) -> None:
    """The journal's two fsyncs, two more hops, and nothing else that would be felt."""
    without: list[float] = []
    with_it: list[float] = []
    async with sandbox(zygote, None, gateway={}) as made:
        life = await made.execute()
        await life.ready()
        async with direct(made) as alone, agent(made, era=era, program=folder(made, "here")) as through:
            for number in range(WARM):
                await timed(alone, "count", -number)
                await timed(through.client, "counter__count", -number)
            pids = (pid_of(made, "here"), life.pid)
            before = [cpu_s(pid) for pid in pids]
            for number in range(1, CALLS + 1):
                without.append(await timed(alone, "count", number))
                with_it.append(await timed(through.client, "counter__count", number))
            relay, daemon = ((cpu_s(pid) - at) / CALLS for pid, at in zip(pids, before, strict=True))
    added_ms = (median(with_it) - median(without)) * 1000
    least_ms = (quantiles(with_it, n=10)[0] - quantiles(without, n=10)[0]) * 1000
    text = (
        f"a call of a stdio server ({era}): {median(without) * 1000:.2f} ms, through the gateway "
        f"{median(with_it) * 1000:.2f} ms; added at the median: {added_ms:.2f} ms, at the tenth "
        f"{least_ms:.2f} ms; CPU of the relay {relay * 1000:.2f} ms, of the daemon {daemon * 1000:.2f} ms"
    )
    add(pytestconfig, "measures", text)
    assert min(with_it) - min(without) < ADDED_S_MAX
    assert relay + daemon < CPU_S_MAX
