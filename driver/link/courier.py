"""Carries commands from the socket to the desk, and the answers back, in batches.

Part of `driver.link`. It outlives connections: a socket that dies while its commands are being committed
must not cancel whoever commits them. What a dead socket still had waiting is dropped: the plane delivers it
again.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio

from driver.core.answers import Answer
from driver.core.signals import Delivery
from driver.link.desk import Desk
from store.values import light

BATCH_MAX: Final = 128
"""Commands delivered at once: enough to share a commit, few enough for their answers to fit in memory."""
WAITING_MAX: Final = 1_024
"""Commands that may wait for the desk; beyond it, nothing is read from the socket."""
WAITING_BYTES_MAX: Final = 8_388_608
"""The same in bytes."""

_Fencing = Callable[[], Awaitable[None]]

AnswerTo = Callable[[Answer], Awaitable[None]]
"""Takes the answer to one command; returns at once where its connection has ended."""


@light
@dataclass(frozen=True, slots=True)
class _Parcel:
    frame: Delivery
    size: int
    answer_to: AnswerTo


class Courier:
    """Between any number of connections, one after the other, and the desk.

    One task delivers, and may have to wait until a connection takes its answers; another raises fences, which
    wait for nobody.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._waiting: deque[_Parcel] = deque()
        self._waiting_bytes = 0
        self._fences: deque[_Fencing] = deque()
        # made once, and set and cleared for each batch
        self._work = asyncio.Event()
        self._room = asyncio.Event()
        self._alarm = anyio.Event()
        self._fenced = anyio.Event()

    async def run(self) -> None:
        """Deliver until cancelled. An exception of the desk is the daemon's failure: raised in a group."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._raise_fences)
            await self._deliver_all()

    def carry(self, frame: Delivery, size: int, answer_to: AnswerTo) -> None:
        """Take a command of `size` bytes to the desk, after those before it."""
        self._waiting.append(_Parcel(frame, size, answer_to))
        self._waiting_bytes += size
        self._work.set()

    @property
    def is_full(self) -> bool:
        """Whether no further command may be carried now."""
        return len(self._waiting) >= WAITING_MAX or self._waiting_bytes >= WAITING_BYTES_MAX

    async def wait_for_room(self) -> None:
        """Return once another command may be carried."""
        while self.is_full:
            self._room.clear()
            await self._room.wait()

    def drop_waiting(self) -> None:
        """Forget what was not delivered yet: its connection has ended."""
        self._waiting.clear()
        self._waiting_bytes = 0
        self._room.set()

    def raise_fence(self, reason: str, detail: str) -> None:
        """Have the desk raise a fence at once, before any further batch is delivered."""
        self._fences.append(partial(self._desk.fence, reason, detail))
        self._alarm.set()

    def lift_fence(self, lifted: Callable[[], None]) -> None:
        """Have the desk lift a fence that the plane's word was waited for, and then call `lifted`."""

        async def lift() -> None:
            await self._desk.agree()
            lifted()

        self._fences.append(lift)
        self._alarm.set()

    async def fence_raised(self) -> None:
        """Return once no fence waits to be raised, or lifted."""
        while self._fences:
            await self._fenced.wait()

    async def _raise_fences(self) -> None:
        while True:
            if not self._fences:
                self._alarm = anyio.Event()
                await self._alarm.wait()
            else:
                await self._fences[0]()
                self._fences.popleft()
                self._fenced.set()
                self._fenced = anyio.Event()

    async def _deliver_all(self) -> None:
        while True:
            await self.fence_raised()
            if self._waiting:
                await self._deliver()
            else:
                self._work.clear()
                await self._work.wait()

    async def _deliver(self) -> None:
        batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), BATCH_MAX))]
        self._waiting_bytes -= sum(parcel.size for parcel in batch)
        self._room.set()
        answers = await self._desk.deliver([parcel.frame for parcel in batch])
        for parcel, answer in zip(batch, answers, strict=True):
            await parcel.answer_to(answer)
