"""What was said of a delegated operation stands only as long as the records of its child runs say so."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

import pytest
from anyio import to_thread

from store.events import Draft
from store.lifecycle import Effect, Source
from store.settings import JournalSettings
from store.verify import verify_file
from store.view import View
from tests.store.compared import differences
from tests.store.conftest import Open
from tests.store.delegated import PARENT, child, end_of, ends_of, judged, ran, said
from tests.store.drafts import (
    accepted,
    accepted_command,
    approval_requested,
    completed,
    failed,
    late,
    not_executed,
    operation_id,
    reconciled,
    recording,
    started,
    succeeded,
    unknown,
)

pytestmark = pytest.mark.anyio

NOW = datetime(2030, 1, 1, tzinfo=UTC)

IDLE = (*PARENT, *ran(2, failed(2, effect=Effect.NONE)), unknown(1), *ends_of("child"))
"""A parent that counts as `none`, by the answer to its only child."""
LATER_END = (accepted_command(95, "run.end", {}, run="child-2"), completed(95))
LATER = [
    pytest.param(child(3, run="child-2"), Effect.UNKNOWN, None, id="it waits"),
    pytest.param(ran(3, succeeded(3), run="child-2"), Effect.UNKNOWN, None, id="it may call more"),
    pytest.param(
        (*ran(3, unknown(3), run="child-2"), *LATER_END), Effect.UNKNOWN, None, id="nobody knows about it"
    ),
    pytest.param(
        (*ran(3, succeeded(3), run="child-2"), *LATER_END), Effect.OCCURRED, Source.DAEMON, id="an answer"
    ),
    pytest.param(
        (*ran(3, unknown(3), run="child-2"), reconciled(3, Effect.OCCURRED), *LATER_END),
        Effect.OCCURRED,
        Source.OPERATOR,
        id="an operator's word",
    ),
    pytest.param(
        (*ran(3, unknown(3), run="child-2"), *LATER_END, reconciled(3, Effect.OCCURRED, actor="probe:find")),
        Effect.OCCURRED,
        Source.PROBE,
        id="a probe's word",
    ),
    pytest.param(
        (*child(3, not_executed(3), run="child-2"), *LATER_END), Effect.NONE, Source.DAEMON, id="nothing"
    ),
    pytest.param(
        (*ran(3, unknown(3), run="child-2"), *LATER_END, reconciled(3, Effect.NONE)),
        Effect.NONE,
        Source.OPERATOR,
        id="nothing, says an operator",
    ),
    pytest.param(
        (
            *ran(3, unknown(3), run="child-2"),
            *LATER_END,
            reconciled(3, Effect.NONE, actor="supervisor:rules"),
        ),
        Effect.UNKNOWN,
        None,
        id="nothing, a supervisor guesses",
    ),
]


@pytest.mark.parametrize(("later", "effect", "source"), LATER)
async def test_none_stands_only_as_long_as_no_other_child_run_may_have_done_something(
    opened: Open, later: Sequence[Draft], effect: Effect, source: Source | None
) -> None:
    """Whatever the earlier word was worth: it was not about the run that began later."""
    async with opened() as journal:
        await journal.transact(recording(*IDLE))
        assert (await judged(journal)).effect is Effect.NONE
        await journal.transact(recording(*later))
        found = await judged(journal)
        assert await said(journal, "operation.diverged") == []
        assert await journal.read(differences) == ()
    assert (found.effect, found.effect_by) == (effect, source)
    assert found.settled == (source is not None)


@pytest.mark.parametrize(
    "later",
    [
        pytest.param((*child(3, not_executed(3), run="child-2"),), id="nothing"),
        pytest.param((*ran(3, unknown(3), run="child-2"),), id="nobody knows"),
        pytest.param((*ran(3, unknown(3), run="child-2"), reconciled(3, Effect.NONE)), id="none"),
        pytest.param((*ran(3, unknown(3), run="child-2"), reconciled(3, Effect.OCCURRED)), id="occurred"),
    ],
)
async def test_what_happened_stands_whatever_a_later_child_run_did(
    opened: Open, later: Sequence[Draft]
) -> None:
    """It is known by the answer to a child, and nothing that another one did takes that back."""
    async with opened() as journal:
        await journal.transact(recording(*PARENT, *ran(2, succeeded(2)), unknown(1), *ends_of("child")))
        await journal.transact(recording(*later, *LATER_END))
        found = await judged(journal)
        words = await said(journal, "operation.reconciled")
    assert (found.effect, found.effect_by) == (Effect.OCCURRED, Source.DAEMON)
    assert [word["effect"] for word in words if word["basis"] == "delegation"] == ["occurred"]


async def test_none_is_taken_back_where_less_is_known_of_a_child_than_was(opened: Open) -> None:
    """A child was tried again after all, and lost: what its run did is not known any more."""
    async with opened() as journal:
        await journal.transact(recording(*IDLE))
        await journal.transact(recording(started(2, attempt=2), unknown(2, attempts=2)))
        found = await judged(journal)
    assert (found.effect, found.effect_by, found.settled) == (Effect.UNKNOWN, None, False)


async def test_none_is_taken_back_all_the_way_up(opened: Open) -> None:
    """A grandparent rests on what the parent rests on."""
    family = (*PARENT, unknown(1), *ran(2, unknown(2)))
    third = ran(3, failed(3, effect=Effect.NONE), parent=2, run="child-2")
    async with opened() as journal:
        await journal.transact(recording(*family, *third, *ends_of("child", "child-2")))
        assert [(await judged(journal, n)).effect for n in (1, 2)] == [Effect.NONE] * 2
        await journal.transact(recording(*ran(4, unknown(4), parent=2, run="child-3")))
        assert [(await judged(journal, n)).effect for n in (1, 2)] == [Effect.UNKNOWN] * 2
        end = (accepted_command(96, "run.end", {}, run="child-3"), completed(96))
        await journal.transact(recording(reconciled(4, Effect.OCCURRED), *end))
        found = [await judged(journal, n) for n in (1, 2)]
        assert await journal.read(differences) == ()
    assert [(item.effect, item.effect_by) for item in found] == [(Effect.OCCURRED, Source.OPERATOR)] * 2


async def test_a_persons_word_outlives_the_one_that_is_taken_back(opened: Open) -> None:
    """It was about the parent itself, and a person may change it: what outranked it is gone."""
    async with opened() as journal:
        await journal.transact(
            recording(*PARENT, *ran(2, failed(2, effect=Effect.NONE)), unknown(1), reconciled(1, Effect.NONE))
        )
        await journal.transact(recording(*ends_of("child")))
        assert (await judged(journal)).effect_by is Source.DAEMON
        await journal.transact(recording(*ran(3, unknown(3), run="child-2")))
        await journal.transact(recording(reconciled(3, Effect.OCCURRED), *LATER_END))
        found = await judged(journal)
    assert (found.effect, found.effect_by) == (Effect.NONE, Source.OPERATOR)


AGAIN = [
    pytest.param(unknown(1, attempts=2), False, id="unknown"),
    pytest.param(failed(1, effect=Effect.NONE, attempts=2), True, id="nothing, by its own answer"),
    pytest.param(not_executed(1), False, id="never left"),
]


@pytest.mark.parametrize(("end", "diverges"), AGAIN)
@pytest.mark.parametrize("after", [False, True], ids=["meanwhile", "afterwards"])
async def test_a_parent_that_was_tried_again_is_judged_by_all_its_child_runs(
    opened: Open, settings: JournalSettings, end: Draft, *, diverges: bool, after: bool
) -> None:
    """The attempt that `none` allowed stays allowed, and what the first one had done comes to light."""
    second = ran(3, unknown(3), run="child-2")
    async with opened() as journal:
        await journal.transact(recording(*IDLE, started(1, attempt=2, idempotent=False)))
        await journal.transact(recording(*((end, *second) if after else (*second, end))))
        assert (await judged(journal)).effect is Effect.UNKNOWN
        await journal.transact(recording(reconciled(3, Effect.OCCURRED), *LATER_END))
        found = await judged(journal)
        assert await said(journal, "operation.diverged") == []
        await journal.transact(recording(late(3)))
        assert (await judged(journal)).effect is Effect.OCCURRED
        assert bool(await said(journal, "operation.diverged")) == diverges
    assert (found.effect, found.effect_by) == (Effect.OCCURRED, Source.OPERATOR)
    look = partial(verify_file, settings, lambda _: None, now=NOW, deep=True)
    assert await to_thread.run_sync(look) == ()


OPEN = [
    pytest.param((approval_requested(1),), id="waits for a person"),
    pytest.param((started(1, attempt=2, idempotent=False),), id="runs again"),
]


@pytest.mark.parametrize("state", OPEN)
async def test_none_is_taken_back_while_its_parent_is_open(opened: Open, state: Sequence[Draft]) -> None:
    """Another attempt must not rest on a word that is none any more, once a person grants it."""
    async with opened() as journal:
        await journal.transact(recording(*IDLE, *state))
        await journal.transact(recording(*ran(3, succeeded(3), run="child-2")))
        found = await judged(journal)
        words = await journal.read(lambda view: view.evidence(operation_id(1)))
        assert await journal.read(differences) == ()
    assert found.effect is Effect.UNKNOWN
    assert [word for word in words if word.effect is Effect.NONE] == []


@pytest.mark.parametrize("state", OPEN)
async def test_a_late_answer_of_a_child_reaches_a_parent_that_is_open(
    opened: Open, state: Sequence[Draft]
) -> None:
    """It was idle by what was known, and its answer says otherwise."""
    async with opened() as journal:
        await journal.transact(recording(*PARENT, *ran(2, unknown(2)), unknown(1), *ends_of("child")))
        await journal.transact(recording(reconciled(2, Effect.NONE), *state))
        await journal.transact(recording(late(2)))
        words = await journal.read(lambda view: view.evidence(operation_id(1)))
    assert [word for word in words if word.effect is Effect.NONE] == []


async def test_none_is_taken_back_though_something_is_still_to_come(opened: Open) -> None:
    """What is to come may say more; that it did nothing is not known meanwhile."""
    probe = accepted_command(70, "operation.probe", {"operation_id": operation_id(2)}, run="child")
    async with opened() as journal:
        await journal.transact(recording(*PARENT, *ran(2, unknown(2)), unknown(1), *ends_of("child")))
        await journal.transact(recording(reconciled(2, Effect.NONE)))
        assert (await judged(journal)).effect is Effect.NONE
        await journal.transact(recording(probe))
        await journal.transact(recording(late(2)))
        found = await judged(journal)
        await journal.transact(recording(completed(70)))
        after = await judged(journal)
    assert (found.effect, found.settled, found.guards) == (Effect.UNKNOWN, False, True)
    assert (after.effect, after.effect_by) == (Effect.OCCURRED, Source.DAEMON)


async def test_a_child_run_proves_nothing_of_an_attempt_that_began_behind_it(opened: Open) -> None:
    """What that one has called for may only now be on its way."""
    async with opened() as journal:
        await journal.transact(
            recording(*IDLE, started(1, attempt=2, idempotent=False), unknown(1, attempts=2))
        )
        before = await judged(journal)
        words = await journal.read(lambda view: view.evidence(operation_id(1)))
        await journal.transact(recording(*child(3, not_executed(3), run="child-2"), *LATER_END))
        after = await judged(journal)
        assert await journal.read(differences) == ()
    assert before.effect is Effect.UNKNOWN
    assert [word.attempt for word in words] == [1]
    assert (after.effect, after.effect_by) == (Effect.NONE, Source.DAEMON)


@pytest.mark.parametrize("state", [(), *OPEN])
async def test_a_child_is_held_back_while_anything_rests_on_it(opened: Open, state: Sequence[Draft]) -> None:
    """Its parent counts as not having happened, waits for a person because of that, or was tried again."""
    async with opened() as journal:
        await journal.transact(recording(*IDLE, *state))
        assert await journal.read(lambda view: view.idle_parent(operation_id(2))) == operation_id(1)


@pytest.mark.parametrize("second", [succeeded(3), unknown(3)], ids=["which happened", "which is unknown"])
async def test_a_child_is_held_back_for_ever_once_its_parent_was_tried_again(
    opened: Open, second: Draft
) -> None:
    """The second attempt stands in its place; the second one's own child is judged by itself."""
    async with opened() as journal:
        await journal.transact(recording(*IDLE, started(1, attempt=2, idempotent=False)))
        await journal.transact(recording(*ran(3, second, run="child-2"), *LATER_END, unknown(1, attempts=2)))
        held = [await journal.read(partial(View.idle_parent, operation_id=operation_id(n))) for n in (2, 3)]
    assert held == [operation_id(1), None]


async def test_a_grandchild_is_held_back_too(opened: Open) -> None:
    """Its grandparent was tried again because of it, whatever is known of its parent since."""
    family = (*PARENT, unknown(1), *ran(2, unknown(2)))
    third = ran(3, failed(3, effect=Effect.NONE), parent=2, run="child-2")
    async with opened() as journal:
        await journal.transact(recording(*family, *third, *ends_of("child", "child-2")))
        await journal.transact(recording(started(1, attempt=2, idempotent=False)))
        await journal.transact(recording(*child(4, run="child-3", parent=2)))
        assert (await judged(journal, 2)).effect is Effect.UNKNOWN
        held = await journal.read(lambda view: view.idle_parent(operation_id(3)))
    assert held == operation_id(1)


async def test_what_follows_goes_up_as_far_as_there_are_parents(opened: Open) -> None:
    """An answer at the bottom of a long line settles all of it, in one unit."""
    depth = 400
    line = [accepted(1, tool="agents/ask", run="run-1"), started(1)]
    for n in range(2, depth + 1):
        line += [accepted(n, run=f"run-{n}", parent=n - 1), started(n)]
    ends = [draft for n in range(2, depth + 1) for draft in end_of(depth + n, f"run-{n}")]
    async with opened() as journal:
        await journal.transact(recording(*line, *(unknown(n) for n in range(1, depth + 1)), *ends))
        await journal.transact(recording(late(depth)))
        found = await judged(journal)
    assert (found.effect, found.effect_by) == (Effect.OCCURRED, Source.DAEMON)
