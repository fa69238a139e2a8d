"""Operations that are delegated to child runs, for the tests of what their parents are judged by."""

import json

from store.events import Draft
from store.journal import Journal
from store.records import JsonObject, OperationRecord, StoredEvent
from tests.store.drafts import accepted, accepted_command, completed, operation_id, started

PARENT = (accepted(1, tool="agents/ask"), started(1))
ENDED = (accepted_command(90, "run.end", {}, run="child"), completed(90))


def child(n: int, *ends: Draft, parent: int | None = 1, run: str = "child") -> tuple[Draft, ...]:
    """Operation `n` of the child run."""
    return (accepted(n, run=run, parent=parent), *ends)


def ran(n: int, *ends: Draft, parent: int | None = 1, run: str = "child") -> tuple[Draft, ...]:
    """The same, once it was started."""
    return child(n, started(n), *ends, parent=parent, run=run)


async def judged(journal: Journal, n: int = 1) -> OperationRecord:
    """An operation, as it is now."""
    found = await journal.read(lambda view: view.operation(operation_id(n)))
    assert found is not None
    return found


def data_of(event: StoredEvent) -> JsonObject:
    """What an event says."""
    assert event.body is not None
    data: JsonObject = json.loads(event.body)["data"]
    return data


async def said(journal: Journal, kind: str) -> list[JsonObject]:
    """What the events of one kind say, in order."""
    events = await journal.read(lambda view: view.events(0, 1_000, 16_000_000))
    return [data_of(event) for event in events if event.kind == kind]


def end_of(n: int, run: str) -> tuple[Draft, Draft]:
    """The end of a run, by command `n`."""
    return accepted_command(n, "run.end", {}, run=run), completed(n)


def ends_of(*runs: str) -> tuple[Draft, ...]:
    """The end of each of these runs."""
    return tuple(draft for n, run in enumerate(runs, 80) for draft in end_of(n, run))
