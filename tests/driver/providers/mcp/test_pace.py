"""How much time a server gets that talks without being asked."""

import anyio
import anyio.lowlevel
import pytest

from driver.providers.mcp.pace import FREE_UNITS, REST_S, TURN_UNITS, UNIT_BYTES, Pace

pytestmark = pytest.mark.anyio

TURNS = 10


async def took_s(pace: Pace, messages: int, size: int = 0) -> float:
    """Return how long it takes to take note of that many messages."""
    began = anyio.current_time()
    for _ in range(messages):
        await pace.said(size)
    return anyio.current_time() - began


async def test_what_is_said_between_two_answers_costs_no_rest_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Progress and log messages in a usual number are taken at full speed, again after each answer."""
    monkeypatch.setattr("driver.providers.mcp.pace.REST_S", 3600.0)
    pace = Pace()
    with anyio.fail_after(60):  # where the first rest would be an hour
        for _ in range(5):
            await took_s(pace, FREE_UNITS)
            pace.answered()


async def test_who_goes_on_and_on_is_read_slowly() -> None:
    """Beyond that each turn costs a rest."""
    pace = Pace()
    await took_s(pace, FREE_UNITS)
    assert await took_s(pace, TURNS * TURN_UNITS) >= TURNS * REST_S


async def test_a_large_message_counts_as_many() -> None:
    """Bytes cost time, too."""
    pace = Pace()
    await took_s(pace, 1, FREE_UNITS * UNIT_BYTES)
    assert await took_s(pace, 1, TURNS * TURN_UNITS * UNIT_BYTES) >= TURNS * REST_S


async def test_others_run_between_two_turns() -> None:
    """Who is read at full speed does not keep the event loop either."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        await took_s(Pace(), FREE_UNITS)
        tasks.cancel_scope.cancel()
    assert turns >= FREE_UNITS // TURN_UNITS - 1
