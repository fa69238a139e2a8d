"""driver.crew: tasks that carry out one attempt after another."""

import asyncio
import weakref
from collections.abc import Coroutine

import anyio
import pytest
from anyio.lowlevel import checkpoint

from driver.crew import Crew

pytestmark = pytest.mark.anyio


class Attempts:
    """Work that notes in which task it ran, and keeps that: else a later one could have its address."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None] | None] = []
        self.gate = anyio.Event()

    def __call__(self) -> Coroutine[None, None, None]:
        return self._run()

    async def _run(self) -> None:
        self.tasks.append(asyncio.current_task())
        await self.gate.wait()


async def _settled() -> None:
    for _ in range(10):
        await checkpoint()


async def test_a_task_carries_out_one_attempt_after_another() -> None:
    """Work that comes when earlier work is over needs no new task."""
    crew, work = Crew(8), Attempts()
    work.gate.set()
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            crew.carry_out(work, tasks)
            await _settled()
        tasks.cancel_scope.cancel()
    assert len(work.tasks) == 5
    assert len(set(work.tasks)) == 1


async def test_no_attempt_waits_for_another() -> None:
    """Work at once has a task each; of these no more are kept than may be."""
    crew, work = Crew(2), Attempts()
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            crew.carry_out(work, tasks)
        await _settled()
        assert len(set(work.tasks)) == 5
        work.gate.set()
        await _settled()
        for _ in range(3):
            crew.carry_out(work, tasks)
        await _settled()
        tasks.cancel_scope.cancel()
    assert len(set(work.tasks[5:]) & set(work.tasks[:5])) == 2


async def test_a_task_that_waits_holds_nothing_of_what_it_did() -> None:
    """The arguments of a call are not kept until the next one."""
    crew, work = Crew(8), Attempts()
    work.gate.set()
    seen = weakref.ref(work)
    async with anyio.create_task_group() as tasks:
        crew.carry_out(work, tasks)
        del work
        await _settled()
        assert seen() is None
        tasks.cancel_scope.cancel()


async def test_what_work_raises_ends_the_group() -> None:
    """A failure is not kept by the task that met it, be it new or kept."""
    crew, work = Crew(8), Attempts()
    work.gate.set()

    async def fail() -> None:
        raise LookupError

    async def meet_it() -> None:
        async with anyio.create_task_group() as tasks:
            crew.carry_out(work, tasks)
            await _settled()
            crew.carry_out(fail, tasks)
            await anyio.sleep_forever()

    with pytest.raises(BaseExceptionGroup) as raised:
        await meet_it()
    assert raised.group_contains(LookupError)


async def test_a_task_that_was_cancelled_is_given_nothing() -> None:
    """Work for another group, after the first has ended, gets a task there."""
    crew, work = Crew(8), Attempts()
    work.gate.set()
    for _ in range(2):
        async with anyio.create_task_group() as tasks:
            crew.carry_out(work, tasks)
            await _settled()
            tasks.cancel_scope.cancel()
    assert len(work.tasks) == 2
