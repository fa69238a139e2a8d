"""Five agents with fifty calls at once, and a daemon that is killed under them at any moment.

No call has two effects, and every agent gets an honest answer to each of its calls: a success that happened,
a word that it may have happened, or a refusal of what did not.
"""

import random
from collections import Counter
from typing import Any, Final

import anyio
import pytest

from tests.system.agents import ERAS, Agent, Era, Told, agent
from tests.system.sandbox import Sandbox, sandbox
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.kill, pytest.mark.lane]

AGENTS: Final = 5
CALLS: Final = 10
"""Of each agent, all at once."""
KILLS: Final = 8
SEED: Final = 20261130
BEHIND_S_MAX: Final = 0.02
"""How long after an effect the kill comes, at most: a call of an agent takes about as long."""


@pytest.mark.parametrize("era", ERAS)
async def test_fifty_calls_of_five_agents_outlive_kills_of_the_daemon(zygote: Zygote, era: Era) -> None:
    """0 duplicates, and 0 lies, whichever moment the daemon dies in."""
    rng = random.Random(SEED)
    tables: dict[str, Any] = {"gateway": {}}
    total = Counter[str]()
    for _ in range(KILLS):
        async with sandbox(zygote, None, **tables) as made:
            told = await fifty_calls(made, era, rng)
            await judge(made, told)
            total.update(item.outcome for item in told.values())
    assert sum(total.values()) == AGENTS * CALLS * KILLS
    assert total["succeeded"] > 0
    assert total["unknown"] > 0, "no kill came while a call was under way"


async def fifty_calls(made: Sandbox, era: Era, rng: random.Random) -> dict[int, Told]:
    """Return what each call was answered with, by its number, over one kill of the daemon.

    It comes a moment after so many of the effects, neither more nor less likely on a machine that is slow.
    """
    effects, behind_s = rng.randrange(AGENTS * CALLS), rng.random() * BEHIND_S_MAX
    life = made.start()
    await life.ready()
    told: dict[int, Told] = {}

    async def ask(one: Agent, number: int) -> None:
        told[number] = await one.call("counter__slow", n=number, seconds=0.01)

    async def work(number: int, started: anyio.Event) -> None:
        async with agent(made, f"run-{number}", era=era) as one:
            await one.tools()
            started.set()
            async with anyio.create_task_group() as calls:
                for call in range(CALLS):
                    calls.start_soon(ask, one, number * CALLS + call)

    async with anyio.create_task_group() as agents:
        events = [anyio.Event() for _ in range(AGENTS)]
        for number, event in enumerate(events):
            agents.start_soon(work, number, event)
        await events[0].wait()
        await made.effects_reach(effects)
        await anyio.sleep(behind_s)  # the moment of the kill is the point
        await life.kill()
        await made.start().ready()
    return told


async def judge(made: Sandbox, told: dict[int, Told]) -> None:
    """Hold what the agents were told against what really happened."""
    effects = Counter(effect["arguments"]["n"] for effect in made.effects())
    assert max(effects.values(), default=0) <= 1, "an effect happened twice"
    assert set(told) == set(range(AGENTS * CALLS)), "an agent got no answer"
    for number, item in told.items():
        happened = effects[number] == 1
        match item.outcome:
            case "succeeded":
                assert happened, f"call {number} did not happen"
            case "unknown":
                assert "try again" not in item.text.lower()
            case outcome:
                assert outcome in ("refused", "not_executed"), outcome
                assert not happened, f"call {number} happened, and its agent was told {item.text}"
