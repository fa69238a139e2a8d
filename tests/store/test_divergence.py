"""Two words of the highest rank that contradict each other: an event of its own, once for each pair."""

import json

import pytest

from store.checks import bounded
from store.events import Draft
from store.journal import Journal
from store.lifecycle import Effect
from store.records import JsonObject, OperationRecord
from tests.store.compared import differences
from tests.store.conftest import Open
from tests.store.drafts import (
    accepted,
    attempt_failed,
    failed,
    late,
    operation_id,
    reconciled,
    recording,
    started,
    succeeded,
    unknown,
)

pytestmark = pytest.mark.anyio

BEGUN = (accepted(1), started(1))


async def told(journal: Journal) -> tuple[OperationRecord, list[JsonObject]]:
    """Operation 1, and how often it diverged; the rebuilt projections agree."""
    found = await journal.read(lambda view: view.operation(operation_id(1)))
    events = await journal.read(lambda view: view.events(0, 100, 10**7))
    assert await journal.read(differences) == ()
    assert found is not None
    frames = [json.loads(event.body) for event in events if event.body is not None]
    return found, [frame["data"] for frame in frames if frame["kind"] == "operation.diverged"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (failed(1, effect=Effect.NONE), late(1)),
        (succeeded(1), late(1, effect=Effect.NONE)),
        (succeeded(1), reconciled(1, Effect.NONE, actor="shim:1")),
        (unknown(1), None),
    ],
)
async def test_the_second_word_is_recorded_with_the_contradiction(
    opened: Open, first: Draft, second: Draft | None
) -> None:
    """Both are named, in one transaction, and what happened is not taken back."""
    async with opened() as journal:
        await journal.transact(recording(*BEGUN, first))
        if second is None:
            await journal.transact(recording(late(1, effect=Effect.NONE)))
            second = late(1)
        before = await journal.read(lambda view: view.last_seq)
        await journal.transact(recording(second))
        found, diverged = await told(journal)
    assert found.effect is Effect.OCCURRED
    assert [item["evidence"] for item in diverged] == [[before, before + 1]]


async def test_each_pair_is_reported_once(opened: Open) -> None:
    """The third word contradicts one of the two before it; what was said already is not said again."""
    async with opened() as journal:
        await journal.transact(recording(*BEGUN, unknown(1)))
        await journal.transact(recording(late(1), late(1, effect=Effect.NONE)))
        await journal.transact(recording(late(1, effect=Effect.NONE), late(1, effect=Effect.UNKNOWN)))
        _, diverged = await told(journal)
    assert [item["evidence"] for item in diverged] == [[4, 5], [4, 7]]


def nothing(*_: object) -> tuple[Draft, ...]:
    """What follows from any event."""
    return ()


async def test_a_contradiction_that_nobody_said_is_found(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: without what follows from an event, verify says what is missing."""
    monkeypatch.setattr("store.consequences.of_event", nothing)
    async with opened() as journal:
        await journal.transact(recording(*BEGUN, failed(1, effect=Effect.NONE), late(1)))
        found, diverged = await told(journal)
        checks = [check for check in bounded() if check.name == "effects"]
        await journal.read(lambda view: [check.page(view) for check in checks])
    assert (found.effect, diverged) == (Effect.OCCURRED, [])
    (finding,) = checks[0].findings
    assert "contradicts itself, and no event says so" in finding.problem


async def test_weaker_words_and_other_attempts_contradict_nothing(opened: Open) -> None:
    """What a stronger word settles is no contradiction, and each attempt has its own truth."""
    async with opened() as journal:
        await journal.transact(
            recording(*BEGUN, attempt_failed(1, Effect.NONE), started(1, attempt=2), succeeded(1, attempts=2))
        )
        await journal.transact(
            recording(reconciled(1, Effect.NONE), reconciled(1, Effect.NONE, actor="probe:x"))
        )
        _, diverged = await told(journal)
    assert diverged == []
