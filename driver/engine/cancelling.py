"""`command.cancel` and `run.cancel` before the plane has confirmed the history: they wait for that.

Part of `driver.engine`; imports its own siblings and `store`.

What an earlier life accepted may have gone on in another one, if this journal is a copy: "cancelled,
provably nothing was dispatched" could be a lie. Nothing begins before the plane has confirmed the history, so
such a cancel is an errand until then, and comes before what it cancels. After an accepted rollback it has
failed, and what it was about is unknown.
"""

from driver.core.commands import CancelData, RunCancelData
from driver.engine.commands import ALWAYS, NO_EFFECTS, Effects, Given
from driver.engine.dispatcher import Dispatcher
from driver.engine.errands import Errand, Postponed
from driver.engine.surroundings import Surroundings
from store.events import Draft
from store.transaction import Transaction


class Cancelling:
    """Carries out the cancels that had to wait."""

    def __init__(self, around: Surroundings, dispatcher: Dispatcher) -> None:
        self._journal = around.journal
        self._dispatcher = dispatcher

    async def carry(self, errand: Errand) -> None:
        """Cancel what waits, and record the receipt in the same unit. Raises `Postponed` under a fence."""
        effects = await self._journal.transact(lambda tx: _cancel(tx, errand))
        for ended in effects.ended:
            self._dispatcher.forget(ended)
        for running in effects.cancelling:
            self._dispatcher.cancel(running)


def _cancel(tx: Transaction, errand: Errand) -> Effects:
    command = tx.command(errand.command_id)
    assert command is not None, "an errand is a command"
    if command.receipt_seq is not None:
        return NO_EFFECTS
    if tx.fence is not None:
        raise Postponed
    assert isinstance(errand.data, CancelData | RunCancelData), "an errand has the data of its kind"
    given = Given(
        command_id=errand.command_id,
        run_id=errand.run_id,
        origin=errand.origin,
        data=errand.data,
        confirmed=True,
    )
    done = ALWAYS[errand.data.KIND](tx, given, errand.data)
    assert done.receipt is not None, "nothing is waited for any more"
    tx.append(Draft(data=done.receipt, command_id=errand.command_id))
    return done.effects
