"""Calls that are over, and whose askers have not said that they have the answers: what a stop waits for.

Part of `driver.gateway`; imports anyio and the store's values.
"""

from collections import OrderedDict
from typing import Final

import anyio

from store.records import CommandId, RunId

UNCONFIRMED_MAX: Final = 1_024
"""Answers that a stop waits for: the newest."""


class Unconfirmed:
    """Such calls of one process life."""

    def __init__(self) -> None:
        self._calls: OrderedDict[CommandId, RunId] = OrderedDict()
        self._emptied = anyio.Event()

    def add(self, command_id: CommandId, run_id: RunId) -> None:
        """Wait for somebody to have the answer of a call; of too many, no longer for the oldest."""
        self._calls[command_id] = run_id
        while len(self._calls) > UNCONFIRMED_MAX:
            self._calls.popitem(last=False)

    def let_go(self, command_id: CommandId) -> None:
        """Wait for the answer of a call no longer: somebody has it, or nobody ever will."""
        self._calls.pop(command_id, None)
        if not self._calls:
            self._emptied.set()

    def let_go_of_run(self, run_id: RunId) -> None:
        """Wait for none of a run: nobody is there any more to say that he has them."""
        for command_id in [one for one, its in self._calls.items() if its == run_id]:
            self.let_go(command_id)

    async def none_left(self) -> None:
        """Return once nothing is waited for."""
        while self._calls:
            self._emptied = anyio.Event()
            await self._emptied.wait()
