"""Looks at the world around an attempt, by the reading command of its contract, and keeps what it saw.

Part of `driver.engine`; imports `driver.core`, `driver.providers` and `store`.

What was seen is no evidence by rank: it stands on the wall, for whoever judges the operation. It stays out of
the events, and is kept without what the contract withholds; where results are withheld nothing is looked at:
nobody knows which part of an output is one. A look that fails leaves nothing behind, and costs at most the
bound of its provider.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import anyio
import structlog

from driver.core.attempts import ToolCall
from driver.core.contracts import ToolName
from driver.core.reports import Redactor
from driver.engine.assignments import Assignment
from driver.engine.history import arguments_of
from driver.engine.surroundings import Surroundings
from driver.engine.withheld import redactor
from driver.providers.observing import Observing
from store.records import JsonObject, OperationId, OperationRecord, Side
from store.view import View

log = structlog.get_logger(__name__)

LOOKING_S: Final = 30.0
"""How long all the looks together may take that stand before one wall."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """One look: around which attempt, and what must not be told of it."""

    operation_id: OperationId
    attempt: int
    tool: str
    arguments: JsonObject
    withholding: Redactor | None
    side: Side


class Observer:
    """Looks before an attempt, and after it; where a crash came between, when the wall is built."""

    def __init__(self, around: Surroundings) -> None:
        self._journal = around.journal
        self._terms = around.terms
        self._observing = {
            name: provider for name, provider in around.providers.items() if isinstance(provider, Observing)
        }

    def observes(self, tool: str) -> bool:
        """Whether there is anything to look with. Costs nothing."""
        name = ToolName.parse(tool)
        provider = self._observing.get(name.provider)
        return provider is not None and provider.observes(name.tool)

    async def look(self, assignment: Assignment, side: Side) -> None:
        """Look, and return once what was seen is fsynced. The first look at each side stands."""
        if not self.observes(assignment.tool):
            return
        await self._look(
            _Look(
                operation_id=assignment.operation_id,
                attempt=assignment.attempt,
                tool=assignment.tool,
                arguments=assignment.arguments,
                withholding=assignment.redactor,
                side=side,
            )
        )

    async def look_again(self, records: Sequence[OperationRecord]) -> None:
        """Look at what ended without anybody looking: a crash, or a look that failed, came between."""
        with anyio.move_on_after(LOOKING_S):
            for record in records:
                if record.attempt_count and self.observes(record.tool):
                    await self._look_back(record)

    async def _look_back(self, record: OperationRecord) -> None:
        def read(view: View) -> tuple[JsonObject | None, Redactor | None]:
            return arguments_of(view, record), redactor(view, record, self._terms.lookup(record.tool))

        arguments, withholding = await self._journal.read(read)
        if arguments is None:
            return
        await self._look(
            _Look(
                operation_id=record.operation_id,
                attempt=record.attempt_count,
                tool=record.tool,
                arguments=arguments,
                withholding=withholding,
                side="after",
            )
        )

    async def _look(self, look: _Look) -> None:
        if look.withholding is not None and look.withholding.redaction.withholds_results:
            return
        text = await self._seen(look)
        if text is None:
            log.warning("observation_failed", operation_id=look.operation_id, side=look.side)
            return
        kept = text if look.withholding is None else look.withholding.message(text)
        await self._journal.transact(
            lambda tx: tx.note_observation(look.operation_id, look.attempt, look.side, kept)
        )

    async def _seen(self, look: _Look) -> str | None:
        name = ToolName.parse(look.tool)
        call = ToolCall(
            operation_id=look.operation_id,
            attempt=look.attempt,
            tool=name.tool,
            arguments=look.arguments,
            key=look.operation_id if self._terms.lookup(look.tool).carries_key else None,
            timeout_s=0.0,
        )
        try:
            return await self._observing[name.provider].observe(call)
        except Exception as error:
            log.exception("provider_failed", operation_id=look.operation_id, error=type(error).__name__)
            return None
