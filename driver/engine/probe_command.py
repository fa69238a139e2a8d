"""`operation.probe`: a look that somebody asked for, now.

Part of `driver.engine`; imports `driver.core`, its own siblings and `store`. The command is refused in the
transaction that accepts it where nobody can look; else it is an errand, and its receipt says what was found.
Looking is reading: it may be done for any operation that has ended, and what is known better stands.
"""

from functools import partial

from driver.core.commands import ProbeData
from driver.core.probes import Finding
from driver.engine.commands import Done, Given, Receipt
from driver.engine.errands import Errand
from driver.engine.looks import found_since
from driver.engine.probing import NoLook, Prober
from driver.engine.surroundings import Surroundings
from store.events import CommandCompleted, CommandFailed
from store.records import OperationId
from store.transaction import Transaction


class ProbeCommand:
    """Accepts and carries out the commands of this kind."""

    def __init__(self, around: Surroundings, prober: Prober) -> None:
        self._journal = around.journal
        self._prober = prober

    def accept(self, tx: Transaction, given: Given, data: ProbeData) -> Done:
        """Refuse what nobody can look at; leave the others open."""
        del given
        refusal = self._prober.refusal(tx, data.operation_id)
        return Done(receipt=None if refusal is None else _failed(refusal))

    async def carry(self, errand: Errand) -> Receipt:
        """Look, and return the receipt. A look that an earlier process life recorded for it is the one."""
        data = errand.data
        assert isinstance(data, ProbeData), "an errand has the data of its kind"
        recorded = partial(found_since, operation_id=data.operation_id, after_seq=errand.accepted_seq)
        found = await self._journal.read(recorded) or await self._prober.look(data.operation_id)
        return _failed(found) if isinstance(found, NoLook) else _completed(data.operation_id, found)


def _completed(operation_id: OperationId, found: Finding) -> CommandCompleted:
    # its detail may quote a provider, and stands in the operation's own event: that is what erasing finds
    return CommandCompleted(
        result={"operation_id": operation_id, "verdict": found.verdict, "matches": found.matches}
    )


def _failed(refusal: NoLook) -> CommandFailed:
    return CommandFailed(code=refusal.code, message=refusal.message)
