"""An event loop in virtual time, on which simulated processes live and die.

Nothing waits: where nothing is ready, the clock is set to the next timer. There are no threads and no
sockets. Whatever is called in the context of a process that was killed is dropped; so a process ends between
any two steps, without a `finally` of it running, as SIGKILL ends one.

The order of everything follows from the seed. What asyncio and anyio order by memory addresses (sets of tasks
and of scopes) is ordered by numbers here.
"""

import asyncio
import heapq
import math
from asyncio import Handle, TimerHandle
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar
from itertools import count
from typing import Any, Final, cast

from anyio._backends import _asyncio as backend

STEPS_MAX: Final = 200_000
"""Steps of one world: far beyond any that comes to rest."""


class Process:
    """Whose steps can be counted, and ended."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.steps = 0
        self.dies_at: int | None = None
        """The step after which it is killed."""
        self.on_death: Callable[[], None] = lambda: None


PROCESS: Final[ContextVar[Process | None]] = ContextVar("PROCESS", default=None)


class NeverAtRest(Exception):
    """The world goes on and on: somebody is in a busy loop."""


class Deadlock(Exception):
    """Everybody waits, and nothing will ever happen."""


class Task(asyncio.Task[Any]):
    """A task that sets keep in an order that does not depend on where it lies in memory."""

    _numbers = count()

    def __init__(
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        loop: asyncio.AbstractEventLoop,
        **named: Any,  # noqa: ANN401 - asyncio's
    ) -> None:
        self.number = next(Task._numbers)
        super().__init__(coro, loop=loop, **named)

    def __hash__(self) -> int:
        return self.number

    def __repr__(self) -> str:
        return f"<task {self.number}>"

    def forget(self) -> None:
        """Let nobody complain that it never ended."""
        setattr(self, "_log_destroy_pending", False)  # noqa: B010 - it has no type


class Scope(backend.CancelScope):
    """Likewise, a cancel scope."""

    __slots__ = ("number",)
    _numbers = count()

    def __init__(self, *, deadline: float = math.inf, shield: bool = False) -> None:
        self.number = next(Scope._numbers)
        super().__init__(deadline=deadline, shield=shield)

    def __hash__(self) -> int:
        return self.number


def order_scopes() -> None:
    """Let anyio make scopes of our kind in this process from now on."""
    anyios: Any = backend
    anyios.CancelScope = Scope


def begin_numbering() -> None:
    """Count tasks and scopes from 0 again: a world's numbers are its own."""
    Task._numbers = count()
    Scope._numbers = count()


def _process(handle: Handle) -> Process | None:
    """Return the process that a handle belongs to. It has a context, for which asyncio has no type."""
    context = cast("Context", handle._context)  # type: ignore[attr-defined]
    return context.get(PROCESS)


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs one world. `time()` is virtual, in seconds from 0."""

    def __init__(self) -> None:
        super().__init__()
        # what the base class fills, and has no types for
        self._handles = cast("deque[Handle]", vars(self)["_ready"])
        self._timers = cast("list[TimerHandle]", vars(self)["_scheduled"])
        self._now = 0.0
        self.steps = 0
        self.unhandled: list[str] = []
        self._tasks: list[Task] = []
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._note)

    def time(self) -> float:
        return self._now

    def _note(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        exception: BaseException | None = context.get("exception")
        if exception is not None and isinstance(exception.__cause__, GeneratorExit):
            return  # a dead process is unwound, which no kernel would do: nobody is there to catch it
        self.unhandled.append(f"{context.get('message')}: {exception!r}")

    def _write_to_self(self) -> None:
        """Nobody sleeps, so nobody is to be woken."""

    def _run_once(self) -> None:
        """Run everything that is ready now, or let time pass until something is."""
        ready = self._handles
        if not ready:
            self._let_time_pass()
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process = _process(handle)
            if process is None:
                self.steps += 1
                handle._run()
            elif process.alive:
                self._step(handle, process)
        if self.steps > STEPS_MAX:
            raise NeverAtRest(f"{self.steps} steps, {self._now:.3f} s")

    def _step(self, handle: Handle, process: Process) -> None:
        self.steps += 1
        process.steps += 1
        handle._run()
        if process.steps == process.dies_at and process.alive:
            process.alive = False
            process.on_death()

    def _let_time_pass(self) -> None:
        scheduled = self._timers
        while scheduled:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False  # type: ignore[attr-defined]
            if handle._cancelled:
                continue
            process = _process(handle)
            if process is not None and not process.alive:
                continue
            self._now = max(self._now, handle.when())
            self._handles.append(handle)
            return
        raise Deadlock(f"at {self._now:.3f} s")

    def _make_task(
        self,
        _loop: asyncio.AbstractEventLoop,
        coro: Any,  # noqa: ANN401 - asyncio's
        **named: Any,  # noqa: ANN401 - likewise
    ) -> Task:
        """Make a task that lives as long as the world: nobody collects what a dead process has left."""
        task = Task(coro, loop=self, **named)
        self._tasks.append(task)
        return task

    def _asyncgen_firstiter_hook(self, agen: object) -> None:
        """What a dead process has left behind is not ended politely."""

    def _asyncgen_finalizer_hook(self, agen: object) -> None:
        """Likewise."""

    def abandon(self) -> None:
        """End the world: what was still waiting is unwound, and whatever it says to that is not heard."""
        for task in self._tasks:
            if not task.done():
                task.forget()
                with suppress(BaseException):
                    cast("Coroutine[Any, Any, Any]", task.get_coro()).close()
            # what anyio knows of a task holds the task itself: one that never ended is remembered for ever
            cast("Any", backend)._task_states.pop(task, None)
            asyncio._unregister_task(task)
        self._tasks.clear()
        self._handles.clear()
        self._timers.clear()
        self.close()
