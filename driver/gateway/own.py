"""Three small tools of our own, for looking: none that settles, retries, approves or repeats anything.

Part of `driver.gateway`; imports `driver.core`, `store` and its siblings.

An agent sees the operations of its own run and of those that it continues, directly or through others, which
is where a call is looked for that stands in the way of an equal one; and no others.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

import anyio

from driver.core.answers import Done, NotDone
from driver.core.commands import ProbeData
from driver.gateway.answers import error
from driver.gateway.limits import GatewayLimits
from driver.gateway.runs import Speaker
from driver.gateway.sources import Sources
from driver.gateway.waiting import data_of
from driver.gateway.words import caution, quoted
from store.events import CommandCompleted, CommandFailed
from store.records import JsonObject, OperationFilter, OperationId, OperationRecord, RunId, StoredEvent
from store.view import View

OPERATIONS: Final = "effectd__operations"
OPERATION: Final = "effectd__operation"
PROBE: Final = "effectd__probe"
LIST_MAX: Final = 50
RUNS: Final = 64
"""Runs whose operations are read in one step: nobody is kept from writing for longer."""
PROBE_S: Final = 30.0
"""How long the verdict of a probe is waited for."""

_LOOKS: Final[JsonObject] = {"readOnlyHint": True, "openWorldHint": False}
_BY_ID: Final[JsonObject] = {
    "type": "object",
    "properties": {"operation_id": {"type": "string", "description": "op_ and 32 hex digits"}},
    "required": ["operation_id"],
    "additionalProperties": False,
}

DEFINITIONS: Final[tuple[JsonObject, ...]] = (
    {
        "name": OPERATIONS,
        "title": "What became of this run's calls",
        "description": "Lists the recorded tool calls of this run, and of those that it continues, newest "
        "first: state, effect, and whether it is settled. With unsettled=true only those that may have "
        "happened and nobody knows yet.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "unsettled": {"type": "boolean", "default": False},
                "limit": {"type": "integer", "minimum": 1, "maximum": LIST_MAX, "default": 20},
            },
            "additionalProperties": False,
        },
        "annotations": _LOOKS,
    },
    {
        "name": OPERATION,
        "title": "What became of one call",
        "description": "Shows one recorded tool call of this run: its state, what is known of its effect and "
        "who says so, and its result where there is one. Changes nothing.",
        "inputSchema": _BY_ID,
        "annotations": _LOOKS,
    },
    {
        "name": PROBE,
        "title": "Look whether a call has happened",
        "description": "Looks in the provider, with the read that its contract declares, whether a call of "
        "this run that may have happened did. Changes nothing there; what is found is recorded.",
        "inputSchema": _BY_ID,
        "annotations": {"readOnlyHint": True, "openWorldHint": True},
    },
)


_Show: TypeAlias = Callable[[OperationRecord], Awaitable[JsonObject]]


class OwnTools:
    """Answers the calls of our own tools."""

    def __init__(self, sources: Sources, limits: GatewayLimits) -> None:
        self._sources = sources
        self._limits = limits

    async def answer(self, name: str, arguments: JsonObject, speaker: Speaker) -> JsonObject | None:
        """Return the result of one of our tools; None where there is none of that name."""
        match name:
            case "effectd__operations":
                return await self._operations(arguments, speaker)
            case "effectd__operation":
                return await self._about(arguments, speaker, self._operation)
            case "effectd__probe":
                return await self._about(arguments, speaker, self._look)
            case _:
                return None

    async def _operations(self, arguments: JsonObject, speaker: Speaker) -> JsonObject:
        unsettled, limit = arguments.get("unsettled", False), arguments.get("limit", 20)
        wrong = set(arguments) - {"unsettled", "limit"}
        if wrong or not isinstance(unsettled, bool) or isinstance(limit, bool) or not isinstance(limit, int):
            return _invalid("unsettled takes true or false, limit a whole number, and there is nothing else")
        if not 1 <= limit <= LIST_MAX:
            return _invalid(f"limit takes 1 to {LIST_MAX}")
        journal = self._sources.journal
        runs = await journal.read(lambda view: view.continued(speaker.run_id, speaker.resumes))
        found: list[OperationRecord] = []
        for begin in range(0, len(runs), RUNS):
            some = partial(_newest, runs=runs[begin : begin + RUNS], unsettled=unsettled, limit=limit)
            found = _newest_of([*found, *await journal.read(some)], limit)
        return _told({"run_id": speaker.run_id, "operations": [_shown(record) for record in found]})

    async def _operation(self, record: OperationRecord) -> JsonObject:
        stored = await self._sources.journal.read(lambda view: view.result(record.operation_id))
        shown = _shown(record)
        if stored is not None:
            fits = len(stored) <= self._limits.result_shown_bytes_max
            shown["result"] = (
                json.loads(stored) if fits else f"({len(stored)} bytes: too long to be shown here)"
            )
        return _told(shown)

    async def _about(self, arguments: JsonObject, speaker: Speaker, show: _Show) -> JsonObject:
        found = arguments.get("operation_id")
        if not isinstance(found, str) or set(arguments) != {"operation_id"}:
            return _invalid("operation_id is required, and there is nothing else")
        record = await self._sources.journal.read(partial(_seen, speaker=speaker, wanted=OperationId(found)))
        if record is None:
            return error(f"not_found: this run has no operation {quoted(found)}.", "not_found")
        return await show(record)

    async def _look(self, record: OperationRecord) -> JsonObject:
        """Probe, and wait for the word of the probe's own command."""
        heard: dict[str, StoredEvent] = {}
        news = anyio.Event()

        def hear(events: Sequence[StoredEvent]) -> None:
            for event in events:
                if event.command_id is not None and event.kind in (CommandCompleted.KIND, CommandFailed.KIND):
                    heard[event.command_id] = event
                    news.set()

        end = self._sources.journal.subscribe(hear)
        try:
            data: JsonObject = {"operation_id": record.operation_id}
            done = await self._sources.submit(ProbeData.KIND, record.run_id, data)
            if isinstance(done, NotDone):
                return error(f"refused ({done.code}): nothing was looked at. {done.message}", "refused")
            with anyio.move_on_after(PROBE_S):
                while done.result is None and done.command_id not in heard:
                    await news.wait()
                    news = anyio.Event()
        finally:
            end()
        return await self._looked(record, done, heard.get(done.command_id))

    async def _looked(self, record: OperationRecord, done: Done, event: StoredEvent | None) -> JsonObject:
        now = await self._sources.journal.read(lambda view: view.operation(record.operation_id))
        shown = _shown(now or record)
        shown["probe"] = done.result
        if event is not None and event.body is not None:
            data = data_of(event.body)
            shown["probe"] = data.get("result", data)
        return _told(shown)


def _seen(view: View, *, speaker: Speaker, wanted: OperationId) -> OperationRecord | None:
    """Return an operation, if it is of the run or of one that this continues, directly or through others."""
    record = view.operation(wanted)
    if record is None or record.run_id == speaker.run_id:
        return record
    return record if record.run_id in view.continued(speaker.run_id, speaker.resumes) else None


def _newest(view: View, *, runs: Sequence[RunId], unsettled: bool, limit: int) -> list[OperationRecord]:
    pages = (
        view.operations(OperationFilter(run_id=run_id, unsettled=unsettled), None, limit).items
        for run_id in runs
    )
    return _newest_of([record for page in pages for record in page], limit)


def _newest_of(found: Sequence[OperationRecord], limit: int) -> list[OperationRecord]:
    return sorted(found, key=lambda record: record.accepted_seq, reverse=True)[:limit]


def _shown(record: OperationRecord) -> JsonObject:
    shown: JsonObject = {
        "operation_id": record.operation_id,
        "run_id": record.run_id,
        "tool": record.tool,
        "state": record.state.value,
        "effect": record.effect.value,
        "effect_by": record.effect_by,
        "best_effort": record.best_effort,
        "settled": record.settled,
        "reason": record.reason,
        "receipt": record.receipt,
        "attempts": record.attempt_count,
        "accepted_at": record.accepted_at,
        "ended_at": record.ended_at,
    }
    found = caution(record)
    return shown if found is None else {"caution": found, **shown}


def _told(value: JsonObject) -> JsonObject:
    text = json.dumps(value, ensure_ascii=False)
    return {"content": [{"type": "text", "text": text}], "structuredContent": value, "isError": False}


def _invalid(message: str) -> JsonObject:
    return error(f"invalid_arguments: nothing was looked at; {message}.", "invalid_arguments")
