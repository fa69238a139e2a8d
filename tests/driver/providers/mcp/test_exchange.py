"""How long an exchange is waited for: until its reply, a disturbance, or a deadline."""

import math

import anyio
import pytest

from driver.core.attempts import Silence
from driver.providers.mcp.exchange import Exchange
from store.records import JsonObject

pytestmark = pytest.mark.anyio

REPLY: JsonObject = {"jsonrpc": "2.0", "id": 1, "result": {}}
GARBAGE = Silence(cause="protocol_error", message="the server sent no JSON")


@pytest.mark.parametrize("deadline", [math.inf, 0.0], ids=["without a deadline", "after the deadline"])
async def test_what_has_come_is_not_waited_for(deadline: float) -> None:
    """A reply that is there counts, however late it is asked for."""
    exchange = Exchange(1, {})
    exchange.resolve(REPLY)
    with anyio.fail_after(30):
        await exchange.wait(deadline)
    assert exchange.reply == REPLY


async def test_a_deadline_ends_the_wait_and_not_the_exchange() -> None:
    """Whoever listens on hears the reply all the same, and a disturbance wakes nobody."""
    exchange = Exchange(1, {})
    with anyio.fail_after(30):
        await exchange.wait(anyio.current_time())
        assert exchange.reply is None
        exchange.disturb(GARBAGE)
        exchange.listen_on()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exchange.wait)
            await anyio.wait_all_tasks_blocked()
            exchange.resolve(REPLY)
    assert exchange.reply == REPLY


async def test_who_is_cancelled_leaves_the_exchange_as_it_is() -> None:
    """The reply that comes next is there for whoever waits next."""
    exchange = Exchange(1, {})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exchange.wait, anyio.current_time() + 3_600)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    exchange.resolve(REPLY)
    with anyio.fail_after(30):
        await exchange.wait()
    assert exchange.reply == REPLY
