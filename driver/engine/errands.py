"""Commands whose receipt comes later than their acceptance: a probe, another attempt, a compensation.

Part of `driver.engine`; imports `driver.core` and `store`.

Theory of operation
-------------------
An errand is an accepted command without a receipt that is no call. It is in the journal, and nothing of it
is anywhere else: a process life takes up what the earlier ones left open, in the order of acceptance, once
the plane has confirmed the history; but what only erases waits for nobody. What carries one out (`Carry`) is
therefore given the same errand again after a crash, at any point of it, and derives from the journal how far
it had come; it does nothing twice.

`Errands` commits the receipt that it returns. A drain abandons what is under way, to be taken up again.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus

from driver.core.commands import CommandData, EraseData, InvalidData, ToolCallData, parse_data
from driver.core.strictjson import loads
from driver.engine.commands import Receipt
from driver.engine.surroundings import Surroundings
from store.errors import StoreError
from store.events import CommandFailed, Draft
from store.records import CommandId, CommandRecord, Origin, RunId
from store.transaction import Transaction
from store.view import View

log = structlog.get_logger(__name__)

PAGE: Final = 200
"""Open commands that are read at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """A command that is accepted and has no receipt yet."""

    command_id: CommandId
    run_id: RunId
    origin: Origin
    data: CommandData
    accepted_seq: int
    """What the journal says of it later than this may be its own doing."""


class Postponed(Exception):
    """The daemon may not act now: the errand is to be carried out anew when it may."""


Carry: TypeAlias = Callable[[Errand], Awaitable[Receipt | None]]
"""Carries out the errands of one kind, and returns their receipt, once all that it tells of is durable.

None: the receipt is recorded already. It must be able to go on where a crash, a cancel or its own `Postponed`
has left it.
"""


class Errands:
    """Carries out what was accepted, one task for each, while the daemon may act."""

    def __init__(self, around: Surroundings) -> None:
        self._journal = around.journal
        self._posture = around.posture
        self._boundary = around.boundary
        self._waiting: deque[Errand] = deque()
        self._tasks: TaskGroup | None = None
        self._carriers: Mapping[str, Carry] = {}
        self._under_way = 0

    @property
    def depth(self) -> int:
        """How many errands have no receipt yet."""
        return len(self._waiting) + self._under_way

    async def run(
        self, carriers: Mapping[str, Carry], *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Take up what earlier lives left open, then carry out what is given, until cancelled.

        Cancelling leaves the errands open in the journal.
        """
        self._carriers = carriers
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                self._waiting.extend(await self._left_open())
                self.pump()
                task_status.started()
                await anyio.sleep_forever()
        finally:
            self._tasks = None

    def take(self, errand: Errand) -> None:
        """Carry out a command that was accepted durably."""
        self._waiting.append(errand)
        if self._may_begin(errand):
            self.pump()

    def pump(self) -> None:
        """Begin what waits, if the daemon may act now. To be called when the posture changes."""
        if self._tasks is None:
            return
        waiting = deque[Errand]()
        while self._waiting:
            errand = self._waiting.popleft()
            if self._may_begin(errand):
                self._under_way += 1
                self._tasks.start_soon(self._carry, errand)
            else:
                waiting.append(errand)
        self._waiting.extend(waiting)

    def _may_begin(self, errand: Errand) -> bool:
        if isinstance(errand.data, EraseData):
            return self._posture.fence is None
        return self._posture.may_dispatch

    async def _carry(self, errand: Errand) -> None:
        self._boundary("errand.taken")
        try:
            receipt = await self._carriers[errand.data.KIND](errand)
        except StoreError:
            raise  # a journal that fails stops the daemon
        except Postponed:
            self._under_way -= 1
            self.take(errand)  # at once, where it may act again by now: nobody else would begin it
            return
        except Exception as exc:
            log.exception("errand_failed", command_id=errand.command_id, kind=errand.data.KIND)
            receipt = CommandFailed(
                code="internal", message=f"a bug in effectd: {type(exc).__name__}; see its log"
            )
        self._boundary("errand.done")
        if receipt is None:
            self._under_way -= 1
            return
        draft = Draft(data=receipt, run_id=errand.run_id, command_id=errand.command_id, origin=errand.origin)
        await self._journal.transact(partial(_record, draft=draft))
        self._under_way -= 1

    async def _left_open(self) -> list[Errand]:
        found: list[Errand] = []
        after = 0
        while page := await self._journal.read(partial(_open, after=after)):
            found += [errand for _, errand in page if errand is not None]
            after = page[-1][0]
        return found


def _record(tx: Transaction, draft: Draft) -> None:
    """Record a receipt, unless the command was given one meanwhile: it was cancelled."""
    command = None if draft.command_id is None else tx.command(draft.command_id)
    if command is not None and command.receipt_seq is None:
        tx.append(draft)


def _open(view: View, after: int) -> list[tuple[int, Errand | None]]:
    """Return the errands of one page of open commands, each with the seq of its acceptance."""
    return [
        (command.accepted_seq or 0, _errand(view, command))
        for command in view.open_commands(None, after, PAGE)
    ]


def _errand(view: View, command: CommandRecord) -> Errand | None:
    if command.kind == ToolCallData.KIND:
        return None
    stored = view.command_data(command.command_id)
    assert stored is not None, "what was accepted has data"
    assert stored.body is not None, "what has no receipt is not erased"
    data = parse_data(command.kind, loads(stored.body))
    assert not isinstance(data, InvalidData), "what is invalid is never accepted"
    assert command.run_id is not None, "a command without a usable run is never accepted"
    assert command.accepted_seq is not None, "an open command was accepted"
    return Errand(
        command_id=command.command_id,
        run_id=command.run_id,
        origin=command.origin,
        data=data,
        accepted_seq=command.accepted_seq,
    )
