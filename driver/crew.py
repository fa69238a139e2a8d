"""Tasks that carry out one attempt after another.

Part of `driver`; imports nothing of ours, and whoever has quick work may have it. To start a task in a task
group costs more than all that the event loop does for a quick attempt, so a task that has finished one waits
for the next.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TypeAlias

from anyio.abc import TaskGroup

Work: TypeAlias = Callable[[], Coroutine[None, None, None]]


class Crew:
    """As many tasks of one group as there is work at once, of which `kept_max` wait for more.

    Each has the context (PEP 567) of the work that it was started for, with what later work has set there:
    work must set whatever it reads.
    """

    def __init__(self, kept_max: int) -> None:
        self._kept_max = kept_max
        self._idle: list[asyncio.Future[Work]] = []

    def carry_out(self, work: Work, tasks: TaskGroup) -> None:
        """Begin `work` in a task of `tasks`. What it raises ends the group."""
        while self._idle:
            waiter = self._idle.pop()
            if not waiter.done():  # nobody was cancelled while waiting
                waiter.set_result(work)
                return
        tasks.start_soon(self._carry_out_all, work)

    async def _carry_out_all(self, work: Work) -> None:
        while True:
            await work()
            del work  # what an attempt held is not kept until the next one
            if len(self._idle) >= self._kept_max:
                return
            waiter: asyncio.Future[Work] = asyncio.get_running_loop().create_future()
            self._idle.append(waiter)
            work = await waiter
