"""The list of tools, where providers are slow: what one of them costs the others."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import pytest

from driver.core.contracts import Contract
from driver.gateway.catalogue import Catalogue
from driver.gateway.limits import GatewayLimits
from driver.gateway.passing import Passing
from store.records import JsonObject, JsonValue
from tests.driver.engine.rig import ScriptedProvider

pytestmark = pytest.mark.anyio

GUARD_S: Final = 60.0
LIMITS: Final = GatewayLimits(list_s=2.0, poll_s=0.05)
"""Who answers at once must not seem late where the machine pauses for a while."""


class Shelf(ScriptedProvider):
    """A provider of one tool, and of one resource, which it tells while it is `open`."""

    def __init__(self, *, is_open: bool = True) -> None:
        super().__init__()
        self.open = anyio.Event()
        self.asked = 0
        self.entries: list[JsonValue] = [{"uri": "x://1", "name": "one"}]
        if is_open:
            self.open.set()

    async def definitions(self) -> tuple[JsonObject, ...]:
        self.asked += 1
        await self.open.wait()
        return ({"name": "read", "inputSchema": {"type": "object"}},)

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        del method, params
        await self.open.wait()
        return {"result": {"resources": self.entries}}


@asynccontextmanager
async def catalogue(**shelves: Shelf) -> AsyncGenerator[tuple[Catalogue, Passing, anyio.Event]]:
    """Yield a list that is watched, and what is set when clients are told of a change."""
    told = anyio.Event()

    async def changed(lists: frozenset[str]) -> None:
        if "tools" in lists:
            told.set()

    made = Catalogue(shelves, lambda _: Contract(), LIMITS, changed)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.watch)
        yield made, Passing(shelves, LIMITS, made.is_late), told
        tasks.cancel_scope.cancel()


def names(listed: list[Any]) -> list[str]:
    """Return the names of what is listed."""
    return [str(item["name"]) for item in listed]


async def test_a_provider_that_hangs_holds_up_one_list_and_no_other() -> None:
    """Its tools come when it has come, and whoever has the list is told so."""
    hanging = Shelf(is_open=False)
    async with catalogue(good=Shelf(), hanging=hanging) as (made, passing, told):
        begun = anyio.current_time()
        assert names(await made.tools()) == ["good__read"]
        assert anyio.current_time() - begun >= LIMITS.list_s
        with anyio.fail_after(GUARD_S):
            for _ in range(200):  # far longer than the guard, if each had to wait
                assert names(await made.tools()) == ["good__read"]
                assert names(await passing.resources()) == ["one"]
                assert await made.resolve("nowhere__read") is None
            assert str(await made.resolve("hanging__read")) == "hanging/read"
            assert not told.is_set()
            hanging.open.set()
            await told.wait()
        assert names(await made.tools()) == ["good__read", "hanging__read"]
        assert names(await passing.resources()) == ["one", "one"]


async def test_a_provider_that_is_late_is_asked_once_at_a_time() -> None:
    """However often the list is looked at meanwhile."""
    hanging = Shelf(is_open=False)
    async with catalogue(good=Shelf(), hanging=hanging) as (made, _, told):
        await made.tools()
        for _ in range(10):
            made.mark()
            await anyio.wait_all_tasks_blocked()
        assert hanging.asked == 2, "by the list that it held up, and by whoever waits for it"
        assert not told.is_set()


async def test_a_provider_that_hangs_later_keeps_its_tools() -> None:
    """They are listed as they were last; a call says what is wrong."""
    shelf = Shelf()
    async with catalogue(good=Shelf(), shelf=shelf) as (made, _passing, _told):
        assert names(await made.tools()) == ["good__read", "shelf__read"]
        shelf.open = anyio.Event()
        assert names(await made.tools()) == ["good__read", "shelf__read"]
        assert made.is_late("shelf")
        assert str(await made.resolve("shelf__read")) == "shelf/read"


async def test_an_entry_that_no_client_could_read_costs_no_other_its_place() -> None:
    """Whatever a provider lists: clients get what fits, of this provider and of the others."""
    bad = Shelf()
    bad.entries = [{"uri": "x://2", "name": 5}, {"uri": "x://3"}, "four", {"uri": "x://5", "name": "five"}]
    async with catalogue(good=Shelf(), bad=bad) as (_made, passing, _told):
        assert names(await passing.resources()) == ["five", "one"]
