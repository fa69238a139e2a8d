"""What the supervisor needs of the engine: what is withheld, what is still to be probed, whether it may act.

Part of `driver.engine`; imports `driver.core`, `store` and `supervisor`.
"""

from dataclasses import dataclass

from driver.core.reports import Redactor
from driver.engine.looks import probes_to_come
from driver.engine.observing import Observer
from driver.engine.surroundings import Surroundings
from driver.engine.terms import Terms
from driver.engine.withheld import withheld
from store.records import JsonObject, JsonValue, OperationRecord, StoredData
from store.view import View
from supervisor.triage import Outside


def outside(around: Surroundings) -> Outside:
    """Return what the supervisor of this process life stands on."""
    terms, posture = around.terms, around.posture

    def awaits(view: View, record: OperationRecord) -> bool:
        return probes_to_come(view, record, terms.lookup(record.tool))

    return Outside(
        disclosure=Disclosing(terms),
        awaits=awaits,
        observe=Observer(around).look_again,
        may_act=lambda: posture.state == "ready",
        boundary=around.boundary,
    )


class Disclosing:
    """Knows what the contracts withhold: today's, and those under which a call was accepted."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms

    def __call__(self, record: OperationRecord, data: StoredData | None) -> "Disclosed":
        """Return what may be shown of the operation. Takes time in proportion to its arguments."""
        found = withheld(self._terms.lookup(record.tool), data)
        arguments = None if data is None else data.arguments
        if found is None:
            return Disclosed(arguments, None)
        redactor = Redactor(redaction=found, arguments=arguments)
        return Disclosed(redactor.shown_arguments(), redactor)


@dataclass(frozen=True, slots=True)
class Disclosed:
    """What anybody may see of one operation."""

    arguments: JsonObject | None
    redactor: Redactor | None

    def cleared(self, value: JsonValue) -> JsonValue:
        """Return a value that somebody wrote about the call, without what it quotes of what is withheld."""
        if self.redactor is None or value in (None, [], {}):
            return value
        return self.redactor.value(value)
