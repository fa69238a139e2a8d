"""An operation of several attempts: each ends once, brings its own evidence, and all of them decide."""

from dataclasses import replace

import pytest

from store.events import AttemptEnded, Draft, OperationFailed, OperationSucceeded
from store.journal import Journal
from store.lifecycle import Effect, Source, State
from store.records import OperationRecord
from tests.store.compared import differences
from tests.store.conftest import Open
from tests.store.drafts import (
    accepted,
    attempt_ended,
    attempt_failed,
    attempt_unsent,
    failed,
    late,
    not_executed,
    operation_id,
    recording,
    started,
    succeeded,
    unknown,
)

pytestmark = pytest.mark.anyio


async def found_in(journal: Journal) -> OperationRecord:
    """Operation 1, as it is now."""
    found = await journal.read(lambda view: view.operation(operation_id(1)))
    assert found is not None
    return found


async def test_attempts_that_sent_nothing_prove_together_that_nothing_happened(opened: Open) -> None:
    """Each has its own proof; the operation's last word adds that of the newest."""
    async with opened() as journal:
        first = (accepted(1), started(1), attempt_unsent(1), started(1, attempt=2))
        await journal.transact(recording(*first))
        assert (await found_in(journal)).effect is Effect.UNKNOWN
        await journal.transact(recording(not_executed(1)))
        found = await found_in(journal)
    assert (found.state, found.effect, found.effect_by) == (State.NOT_EXECUTED, Effect.NONE, Source.DAEMON)


async def test_one_attempt_that_may_have_happened_is_enough_for_unknown(opened: Open) -> None:
    """However often later ones sent nothing, or failed for certain."""
    drafts = (
        accepted(1),
        started(1),
        attempt_ended(1),
        started(1, attempt=2),
        attempt_failed(1, Effect.NONE, attempt=2),
        started(1, attempt=3),
        attempt_unsent(1, attempt=3),
        unknown(1, attempts=3),
    )
    async with opened() as journal:
        await journal.transact(recording(*drafts))
        found = await found_in(journal)
        attempts = await journal.read(lambda view: view.attempts(operation_id(1)))
        evidence = await journal.read(lambda view: view.evidence(operation_id(1)))
    assert (found.state, found.effect, found.effect_by, found.settled) == (
        State.UNKNOWN,
        Effect.UNKNOWN,
        None,
        False,
    )
    assert [(item.outcome, item.reason) for item in attempts] == [
        ("unknown", "connection_lost"),
        ("failed", None),
        ("not_executed", "connect_failed"),
    ]
    assert [(item.attempt, item.effect, item.source) for item in evidence] == [
        (2, Effect.NONE, Source.PROVIDER),
        (3, Effect.NONE, Source.DAEMON),
    ]


async def test_between_two_attempts_nothing_can_be_overdue(opened: Open) -> None:
    """The deadline is an attempt's own, and goes with it."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1)))
        assert (await found_in(journal)).deadline_at is not None
        await journal.transact(recording(attempt_ended(1)))
        assert (await found_in(journal)).deadline_at is None
        await journal.transact(recording(started(1, attempt=2)))
        assert (await found_in(journal)).deadline_at is not None


async def test_an_answer_to_an_earlier_attempt_is_that_attempts_evidence(opened: Open) -> None:
    """`attempt` names it where it is not the newest, whose own end stays as it was."""
    drafts = (accepted(1), started(1), attempt_ended(1), started(1, attempt=2), attempt_unsent(1, attempt=2))
    answer = succeeded(1, attempts=2)
    assert isinstance(answer.data, OperationSucceeded)
    async with opened() as journal:
        await journal.transact(recording(*drafts, replace(answer, data=replace(answer.data, attempt=1))))
        found = await found_in(journal)
        attempts = await journal.read(lambda view: view.attempts(operation_id(1)))
        evidence = await journal.read(lambda view: view.evidence(operation_id(1)))
    assert (found.state, found.effect) == (State.SUCCEEDED, Effect.OCCURRED)
    assert [item.outcome for item in attempts] == ["unknown", "not_executed"]
    assert [(item.attempt, item.effect) for item in evidence] == [(2, Effect.NONE), (1, Effect.OCCURRED)]


async def test_an_error_answer_can_be_restated_as_the_operations_end(opened: Open) -> None:
    """What the newest answered attempt said is the receipt, though a later one sent nothing."""
    drafts = (
        accepted(1),
        started(1),
        attempt_failed(1, Effect.NONE),
        started(1, attempt=2),
        attempt_unsent(1, attempt=2),
    )
    end = failed(1, effect=Effect.NONE, attempts=2)
    assert isinstance(end.data, OperationFailed)
    async with opened() as journal:
        await journal.transact(recording(*drafts, replace(end, data=replace(end.data, attempt=1))))
        found = await found_in(journal)
    assert (found.state, found.effect, found.settled) == (State.FAILED, Effect.NONE, True)


async def test_the_answer_of_an_attempt_is_kept_whole(opened: Open) -> None:
    """Between attempts too, the newest answer can be read, even where its event was cut."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1)))
        await journal.transact(recording(attempt_failed(1, Effect.UNKNOWN, result={"text": "x" * 100_000})))
        result = await journal.read(lambda view: view.result(operation_id(1)))
    assert result is not None
    assert len(result) > 100_000


async def test_an_attempt_without_an_answer_leaves_the_newest_one_readable(opened: Open) -> None:
    """A late answer stays the operation's result, however the next attempt ends."""
    drafts = (accepted(1), started(1), attempt_ended(1), started(1, attempt=2), late(1))
    async with opened() as journal:
        await journal.transact(recording(*drafts, attempt_unsent(1, attempt=2)))
        found = await found_in(journal)
        assert await journal.read(lambda view: view.result(operation_id(1))) == b'{"content":["late"]}'
    assert (found.state, found.effect) == (State.STARTED, Effect.OCCURRED)


async def test_what_several_attempts_made_can_be_rebuilt(opened: Open) -> None:
    """The events alone make the same attempts, evidence and effect again."""
    drafts = (
        accepted(1),
        started(1),
        attempt_failed(1, Effect.NONE, result={"text": "busy"}),
        started(1, attempt=2),
        attempt_ended(1, attempt=2),
        started(1, attempt=3),
        attempt_unsent(1, attempt=3),
        unknown(1, attempts=3),
        late(1, attempt=2),
    )
    async with opened() as journal:
        await journal.transact(recording(*drafts))
        assert await journal.read(differences) == ()


@pytest.mark.parametrize(
    "draft", [succeeded(1), failed(1, effect=Effect.NONE)], ids=lambda draft: draft.data.KIND
)
async def test_what_a_shim_recorded_is_its_evidence(opened: Open, draft: Draft) -> None:
    """It ranks as the provider's own answer, is named as what it is, and is rebuilt the same."""
    assert isinstance(draft.data, OperationSucceeded | OperationFailed)
    found_later = replace(draft, data=replace(draft.data, source="shim"))
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), found_later))
        found = await found_in(journal)
        assert (found.effect, found.effect_by, found.settled) == (draft.data.effect, Source.SHIM, True)
        assert await journal.read(differences) == ()


async def test_the_end_of_an_attempt_may_be_a_shims_record_too(opened: Open) -> None:
    """Each attempt has the source that told of its end."""
    ended = attempt_failed(1, Effect.NONE)
    assert isinstance(ended.data, AttemptEnded)
    found_later = replace(ended, data=replace(ended.data, source="shim"))
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), found_later))
        await journal.transact(recording(started(1, attempt=2), failed(1, effect=Effect.NONE, attempts=2)))
        evidence = await journal.read(lambda view: view.evidence(operation_id(1)))
        assert [item.source for item in evidence] == [Source.SHIM, Source.PROVIDER]
        assert await journal.read(differences) == ()
