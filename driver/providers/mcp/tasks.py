"""A task that a server gave a handle for in place of a result: asked after until it has ended.

Part of `driver.providers.mcp`; imports its `exchange` and `jsonrpc`, and `driver.core`.

Theory of operation
-------------------
Two eras have tasks of two shapes. Up to 2025-11-25 the handle stands in a member of its own, and the result
of an ended task is asked for by `tasks/result`; the extension of 2026-07-28 has the handle's members in the
result itself, and the answer in that of `tasks/get`. Both are understood from either, by what is there.

Only a clear word ends a task: `completed` with an answer that can be had, `failed`, or `cancelled`. Whatever
else a peer says about it (that it works on, that it wants input, an error, a status that does not exist)
settles nothing, and it is asked again. What cannot be asked after at all is left as it is: the handle is the
provider's reference, and whoever has it can still look.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import anyio
from mcp_types import METHOD_NOT_FOUND

from driver.core.attempts import Answered, PeerError, Report
from driver.providers.mcp.exchange import Reply
from driver.providers.mcp.jsonrpc import report_of
from store.records import JsonObject

POLL_S_MIN: Final = 0.5
POLL_S_MAX: Final = 10.0
"""A server's own hint is followed within these."""
POLL_S: Final = 1.0
"""Where it gives none."""
ASK_S: Final = 10.0
"""For the reply to one question about a task."""

Ask: TypeAlias = Callable[[str, JsonObject, float], Awaitable[Reply | None]]
"""Sends a request about a task; returns its reply, or None where none came within so many seconds."""
Read: TypeAlias = Callable[[JsonObject], Report]
"""Returns what a response means, as one to the call itself."""


class PeerTask:
    """One task. `ended` is set where nothing more can come from the peer."""

    def __init__(self, handle: JsonObject, *, ask: Ask, read: Read, ended: anyio.Event) -> None:
        self._id = handle.get("taskId")
        self._first = handle
        self._ask_peer = ask
        self._read = read
        self._ended = ended
        self._poll_s = POLL_S
        self._told = False

    async def outcome(self) -> Report | None:
        """Ask until the task has ended, and return what came of it; None where nobody can tell any more."""
        return await self._follow(self._first)

    async def cancel(self) -> Report | None:
        """Tell the peer that nobody wants the task any more, and return what came of it all the same.

        None where nobody can tell, and where it was cancelled: it stopped somewhere, and that is all.
        """
        self._told = True
        report = await self._follow(self._state(await self._ask("tasks/cancel")))
        return None if isinstance(report, Answered) and report.interrupted else report

    async def _follow(self, state: JsonObject) -> Report | None:
        while isinstance(self._id, str) and not self._ended.is_set():
            report = await self._end(state)
            if report is not None:
                return report
            await self._rest(state)
            reply = await self._ask("tasks/get")
            if isinstance(reply, dict) and _is_unheard_of(reply):
                return None
            state = self._state(reply)
        return None

    async def _end(self, state: JsonObject) -> Report | None:
        """Return what came of the task; None where it has not ended, or its answer cannot be had now."""
        match state.get("status"):
            case "completed":
                answer = await self._answer(state)
                return answer if isinstance(answer, Answered) else None
            case "failed":
                return await self._failure(state)
            case "cancelled":
                return Answered(result=state, is_error=True, code="task_cancelled", interrupted=True)
            case _:
                return None

    async def _failure(self, state: JsonObject) -> Report:
        """The task's own error, where it can be had; that it failed has been said already."""
        answer = await self._answer(state)
        if isinstance(answer, PeerError) or (isinstance(answer, Answered) and answer.is_error):
            return answer
        return Answered(result=state, is_error=True, code="task_failed")

    async def _answer(self, state: JsonObject) -> Report | None:
        for member in ("result", "error"):
            if member in state:
                return self._read({member: state[member]})
        reply = await self._ask("tasks/result")
        return self._read(reply) if isinstance(reply, dict) else None

    async def _rest(self, state: JsonObject) -> None:
        """Wait as long as the peer wants, but not after it has ended."""
        self._poll_s = POLL_S_MIN if self._told else poll_s(state, self._poll_s)
        with anyio.move_on_after(self._poll_s):
            await self._ended.wait()

    async def _ask(self, method: str) -> Reply | None:
        return await self._ask_peer(method, {"taskId": self._id}, ASK_S)

    def _state(self, reply: Reply | None) -> JsonObject:
        """What the peer says about the task; nothing where it speaks of another one, or not at all."""
        state = reply.get("result") if isinstance(reply, dict) else None
        return state if isinstance(state, dict) and state.get("taskId", self._id) == self._id else {}


def poll_s(state: JsonObject, otherwise: float) -> float:
    """Return the seconds until the next question: the peer's hint within bounds, `otherwise` without one."""
    hint = state.get("pollInterval", state.get("pollIntervalMs"))
    if not isinstance(hint, int | float) or isinstance(hint, bool):
        return otherwise
    # bounded first: a division by 1,000 can be too much for a number that JSON can write
    return min(max(hint, POLL_S_MIN * 1000), POLL_S_MAX * 1000) / 1000


def _is_unheard_of(reply: JsonObject) -> bool:
    """Whether the peer has no such method: asking again would be in vain."""
    report = report_of(reply)
    return isinstance(report, PeerError) and report.code == METHOD_NOT_FOUND
