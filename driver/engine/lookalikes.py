"""The writes that a call, another attempt of one, or a compensation equals: it may be a resend of one.

Part of `driver.engine`; imports `driver.core`, its own siblings and `store`. Works on a view, within one unit
of the journal. Definition: docs/protocol.md, look-alikes.

What another attempt was asked for of is about to run, and guards as what runs does, however it had ended.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from driver.core.admission import judge_twins
from driver.core.commands import ToolCallData
from driver.core.compensation import Refused
from driver.core.contracts import Contract
from driver.core.identity import args_digest
from driver.core.revival import Refusal
from driver.engine.history import arguments_of
from driver.engine.proof import wished_for
from driver.engine.terms import Terms
from driver.engine.withheld import Fingerprints
from store.keys import DigestKey
from store.records import COMPENSATION_PREFIX, Digest, OperationRecord, RunId, Twin
from store.view import RESUMED_MAX, View

TOO_MANY_RUNS: Final = Refused(
    "overloaded",
    f"more than {RESUMED_MAX:,} runs continue its run, or are continued by it, which is more than are looked "
    "through for an equal write: send a new command, in a run that resumes only those with something open",
)


class Lookalikes:
    """Finds what equals a write."""

    def __init__(self, key: DigestKey) -> None:
        self._fingerprints = Fingerprints(key)

    def twins(
        self,
        view: View,
        runs: Sequence[RunId],
        data: ToolCallData,
        contract: Contract,
        recorded: Digest,
    ) -> tuple[Twin, ...]:
        """Return the writes with these arguments in these runs: first those that were asked for again.

        `recorded` is the digest that the arguments are recorded under now.
        """
        alike = self._fingerprints.alike(view, data, contract, recorded)
        found = view.twins(runs, *alike)
        if not found:
            return ()  # as nearly always
        wished = {
            record.operation_id: replace(record, guards=True)
            for record in wished_for(view)
            if record.write and record.run_id in runs and record.args_digest in alike
        }
        return (*wished.values(), *(twin for twin in found if twin.operation_id not in wished))

    def of_attempt(self, view: View, record: OperationRecord, terms: Terms) -> Refusal | None:
        """Return why another attempt of an operation is a likely resend of an equal write; None where not."""
        arguments = arguments_of(view, record)
        if not record.write or arguments is None:
            return None
        data = ToolCallData(tool=record.tool, arguments=arguments)
        found = self.resend(view, record.run_id, data, terms.lookup(record.tool), record)
        return None if found is None else Refusal(found.code, found.message)

    def resend(
        self,
        view: View,
        run_id: RunId,
        data: ToolCallData,
        contract: Contract,
        own: OperationRecord | None = None,
    ) -> Refused | None:
        """Return why a call that the daemon would make in a run may be a resend; None where it is none.

        `own` is its operation, if it is there; without one the call is a compensation. It may have come
        before the other one, so the runs that continue its run are looked through as well. Two that were told
        apart, by whoever gave one as a second one or by what each compensates, are no resends of each other.
        """
        if contract.identical == "allow" or not contract.write:
            return None
        runs = (*view.continued(run_id, ()), *view.continuing(run_id))
        if len(runs) > RESUMED_MAX + 1:
            return TOO_MANY_RUNS
        recorded = args_digest(data.tool, data.arguments, self._fingerprints.digester(contract))
        twins = self.twins(view, tuple(dict.fromkeys(runs)), data, contract, recorded)
        others = [twin for twin in twins if own is None or twin.operation_id != own.operation_id]
        if contract.identical == "guard-unsettled":
            others = list(_not_told_apart(others, compensates=own is None or _compensates(own)))
        found = judge_twins(others, contract.identical, repeat=own is not None and own.repeat)
        return None if found is None else Refused(found.code, found.message)


def _not_told_apart(twins: Iterable[Twin], *, compensates: bool) -> Iterator[Twin]:
    for twin in twins:
        told = isinstance(twin, OperationRecord) and (twin.repeat or (compensates and _compensates(twin)))
        if not told:
            yield twin


def _compensates(record: OperationRecord) -> bool:
    return record.command_id.startswith(COMPENSATION_PREFIX)
