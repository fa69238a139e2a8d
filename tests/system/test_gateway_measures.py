"""What the gateway adds to a call: side by side, in one run, with the same server called directly."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from statistics import median
from time import perf_counter
from typing import Final

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.report import add
from tests.system.agents import agent
from tests.system.sandbox import SERVER, Sandbox, sandbox
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CALLS: Final = 100
ADDED_S_MAX: Final = 0.03
"""Ten times what it adds on a quiet machine, fsyncs included; held against the quickest calls of each."""


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


async def test_what_the_gateway_adds_to_a_call(zygote: Zygote, pytestconfig: pytest.Config) -> None:
    """The journal's two fsyncs, two more hops, and nothing else that would be felt."""
    without: list[float] = []
    with_it: list[float] = []
    async with sandbox(zygote, None, gateway={}) as made:
        await (await made.execute()).ready()
        async with direct(made) as alone, agent(made) as through:
            await timed(alone, "count", -1)
            await timed(through.client, "counter__count", -1)
            for number in range(CALLS):
                without.append(await timed(alone, "count", number))
                with_it.append(await timed(through.client, "counter__count", number))
    added_ms = (median(with_it) - median(without)) * 1000
    text = (
        f"a call of a stdio server: {median(without) * 1000:.2f} ms, through the gateway "
        f"{median(with_it) * 1000:.2f} ms; added at the median: {added_ms:.2f} ms"
    )
    add(pytestconfig, "measures", text)
    assert min(with_it) - min(without) < ADDED_S_MAX
