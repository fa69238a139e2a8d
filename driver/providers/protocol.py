"""What every kind of provider can do: the one interface that the engine knows.

Part of `driver.providers`; imports `driver.core.attempts` and the store's values.

A provider sends a call once at most and reports facts; it knows nothing of journals, retries or judgements.
The order is `prepare` (or a `ready` that said yes), then the intent is made durable, then `dispatch`.
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from driver.core.attempts import NotSent, Phase, Report, ToolCall
from store.records import OperationId

Progress: TypeAlias = Callable[[Phase], None]
"""Told of each phase that an attempt reaches, before what the phase permits. It must not raise.

A phase is taken back only from `writing` to `connecting`, where it is proven by then that nothing has left: a
program that could not be executed after all.
"""

LateResults: TypeAlias = Callable[[OperationId, int, Report], None]
"""Told of an answer that came after `dispatch` ended without one: the operation, the attempt, the answer."""


class Provider(Protocol):
    """One configured provider. Its methods may be called by many tasks at once, once `run` has started."""

    @property
    def name(self) -> str:
        """The provider's name in the configuration."""
        ...

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Own everything that the provider starts, until `close` is called or the task is cancelled.

        Either way nothing that it started is left running when this returns; that takes a few seconds at
        most. Where attempts survive the daemon (`driver.providers.readoption`), a cancelled one leaves them
        to the next life: it means that the daemon gives up without an outcome. `close` ends them.
        """
        ...

    def ready(self, call: ToolCall) -> bool:
        """True where `dispatch` would send `call` now: nothing is to be started, `prepare` does not object.

        Acceptance and intent may then share a commit.
        """
        ...

    async def prepare(self, call: ToolCall) -> NotSent | None:
        """Start and connect what `call` needs, and look whether the tool exists and accepts these arguments.

        None: it may be dispatched. Never sends the call; takes a bounded time; may be cancelled at any point.
        """
        ...

    async def dispatch(self, call: ToolCall, progress: Progress) -> Report:
        """Send `call` once, at most, and return what was seen of its end within `call.timeout_s` seconds.

        Cancelling the caller's scope withdraws a call of which nothing has left yet; otherwise the peer is
        told, and an answer may still come late. `Cancelled` is raised then, and the last phase reported tells
        the two apart. An answer that was there before the cancel took effect may be returned all the same.
        """
        ...

    async def close(self) -> None:
        """End everything, calls in flight included, and return when it has ended."""
        ...
