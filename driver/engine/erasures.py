"""The erasures of runs that take more than one commit: errands, which the next process life takes up again.

Part of `driver.engine`; imports its own siblings and `store`.
"""

from functools import partial
from typing import Final

import anyio

from driver.engine.erasing import go_on_erasing
from driver.engine.errands import Errand, Postponed
from driver.engine.posture import Posture
from store.events import CommandCompleted
from store.journal import Journal
from store.transaction import Transaction

PAUSE_S: Final = 0.005
"""Between two steps: every other commit is one of somebody else, if there is anybody."""


class Eraser:
    """Carries them out. It asks no provider, and so needs no plane that has confirmed the history."""

    def __init__(self, journal: Journal, posture: Posture) -> None:
        self._journal = journal
        self._posture = posture

    async def carry(self, errand: Errand) -> CommandCompleted | None:
        """Erase what is left of the run, and return the receipt; None where the command has one by now."""
        while True:
            if self._posture.fence is not None:
                raise Postponed  # what it holds may be what tells two histories apart
            over, receipt = await self._journal.transact(partial(_step, errand=errand))
            if over:
                return receipt
            await anyio.sleep(PAUSE_S)


def _step(tx: Transaction, errand: Errand) -> tuple[bool, CommandCompleted | None]:
    """Take one step. Returns whether it was the last one, and the receipt."""
    command = tx.command(errand.command_id)
    if command is None or command.receipt_seq is not None:
        return True, None  # a rollback was accepted
    so_far = tx.walk(errand.command_id)
    assert so_far is not None, "what was not erased at once was walked in the commit that accepted it"
    receipt = go_on_erasing(tx, errand.command_id, errand.run_id, so_far)
    return receipt is not None, receipt
