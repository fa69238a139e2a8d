"""An operation that was delegated to another run is judged by what that run's operations did."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

import pytest
from anyio import to_thread

from store.comparison import differences
from store.events import Draft
from store.journal import Journal
from store.lifecycle import Effect, Source
from store.records import JsonObject, OperationRecord, StoredEvent
from store.settings import JournalSettings
from store.verify import verify_file
from tests.store.conftest import Open
from tests.store.drafts import (
    accepted,
    accepted_command,
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


CHILDREN = [
    pytest.param(
        (*child(2, not_executed(2)), *child(3, not_executed(3))),
        Effect.NONE,
        Source.DAEMON,
        0,
        id="nothing ran",
    ),
    pytest.param(
        (*ran(2, failed(2, effect=Effect.NONE)),),
        Effect.NONE,
        Source.DAEMON,
        0,
        id="proven to have done nothing",
    ),
    pytest.param(
        (*ran(2, succeeded(2)), *child(3, not_executed(3))),
        Effect.OCCURRED,
        Source.DAEMON,
        0,
        id="all settled",
    ),
    pytest.param(
        (*ran(2, failed(2)),),
        Effect.OCCURRED,
        Source.DAEMON,
        0,
        id="a failure that was reported is settled",
    ),
    pytest.param(
        (*ran(2, failed(2, unsettled=True)),),
        Effect.UNKNOWN,
        None,
        1,
        id="a failure that settles nothing",
    ),
    pytest.param(
        (*ran(2, unknown(2), reconciled(2, Effect.OCCURRED)), *ran(3, succeeded(3))),
        Effect.OCCURRED,
        Source.OPERATOR,
        0,
        id="an operator's word",
    ),
    pytest.param(
        (*ran(2, unknown(2), reconciled(2, Effect.NONE)), *child(3, not_executed(3))),
        Effect.NONE,
        Source.OPERATOR,
        0,
        id="an operator's word that nothing happened",
    ),
    pytest.param(
        (
            *ran(2, unknown(2), reconciled(2, Effect.NONE, actor="probe:find")),
            *ran(3, unknown(3), reconciled(3, Effect.NONE)),
        ),
        Effect.NONE,
        Source.PROBE,
        0,
        id="the weakest of them is a probe",
    ),
    pytest.param((*ran(2, succeeded(2)), *ran(3, unknown(3))), Effect.UNKNOWN, None, 1, id="one is unknown"),
    pytest.param((*ran(2, succeeded(2)), *ran(3)), Effect.UNKNOWN, None, 1, id="one still runs"),
    pytest.param(
        (*ran(2, unknown(2), reconciled(2, Effect.NONE, actor="supervisor:rules")),),
        Effect.UNKNOWN,
        None,
        1,
        id="a supervisor's guess",
    ),
    pytest.param(
        (*child(2, not_executed(2)), *ran(3, succeeded(3), parent=None)),
        Effect.OCCURRED,
        Source.DAEMON,
        0,
        id="another of the run",
    ),
    pytest.param(
        (*child(2, not_executed(2)), *ran(3, unknown(3), parent=7)),
        Effect.NONE,
        Source.DAEMON,
        0,
        id="another that serves another",
    ),
]


@pytest.mark.parametrize("end", [unknown(1), failed(1)], ids=["unknown", "failed"])
@pytest.mark.parametrize(("children", "effect", "source", "unresolved"), CHILDREN)
@pytest.mark.parametrize("first", ["the child", "the parent"])
async def test_a_parent_is_judged_by_its_ended_child_run(
    opened: Open,
    children: Sequence[Draft],
    effect: Effect,
    source: Source | None,
    unresolved: int,
    end: Draft,
    first: str,
) -> None:
    """Whichever ends first: nothing executed is `none`, all settled `occurred`, the rest stays unknown.

    And it is as certain as the least certain of the children.
    """
    parts = [(*ENDED,), (end,)]
    async with opened() as journal:
        await journal.transact(recording(*PARENT, *children))
        for part in parts if first == "the child" else reversed(parts):
            await journal.transact(recording(*part))
        found = await judged(journal)
        told = await journal.read(lambda view: view.delegation(operation_id(1)))
        words = await said(journal, "operation.reconciled")
        (ended,) = (event for event in await said(journal, end.data.KIND) if "child_run_id" in event)
        assert await journal.read(differences) == ()
    assert found.effect is effect
    assert found.effect_by is source
    assert told is not None
    assert (told.run_ids, told.ended, told.unresolved) == (("child",), True, unresolved)
    assert (ended["child_run_id"], ended["child_ops_total"]) == ("child", told.total)
    assert ended["child_ops_unresolved"] == unresolved
    mine = [word for word in words if word["basis"] == "delegation"]
    assert [(word["effect"], word["actor"]) for word in mine] == (
        [] if source is None else [(effect, f"{source}:delegation")]
    )


@pytest.mark.parametrize("end", [unknown(1), failed(1)])
async def test_nothing_is_concluded_before_the_child_run_has_ended(opened: Open, end: Draft) -> None:
    """It might still do more."""
    async with opened() as journal:
        await journal.transact(recording(*PARENT, *child(2, not_executed(2)), end))
        found = await judged(journal)
    assert (found.effect, found.effect_by) == (Effect.UNKNOWN, None)


async def test_a_parent_that_succeeded_is_judged_by_its_own_answer(opened: Open) -> None:
    """Its provider spoke for it."""
    async with opened() as journal:
        await journal.transact(recording(*PARENT, *child(2, not_executed(2)), succeeded(1), *ENDED))
        assert await said(journal, "operation.reconciled") == []
        found = await judged(journal)
    assert (found.effect, found.effect_by) == (Effect.OCCURRED, Source.PROVIDER)


async def test_every_child_run_must_have_ended(opened: Open) -> None:
    """Of several, the counts are summed, and the first one is named."""
    second = (accepted_command(91, "run.end", {}, run="child-2"), completed(91))
    async with opened() as journal:
        await journal.transact(
            recording(
                *PARENT, *child(2, not_executed(2)), *ran(3, succeeded(3), run="child-2"), unknown(1), *ENDED
            )
        )
        assert (await judged(journal)).effect is Effect.UNKNOWN
        await journal.transact(recording(*second))
        found = await judged(journal)
        told = await journal.read(lambda view: view.delegation(operation_id(1)))
        (word,) = await said(journal, "operation.reconciled")
    assert found.effect is Effect.OCCURRED
    assert told is not None
    assert (told.run_ids, told.total) == (("child", "child-2"), 2)
    assert word["evidence"] == ["run:child", "run:child-2"]


async def test_what_is_learned_of_a_child_later_settles_its_parent(opened: Open) -> None:
    """A late answer to the last unsettled child is the parent's evidence, in the same transaction."""
    async with opened() as journal:
        await journal.transact(recording(*PARENT, *ran(2, unknown(2)), unknown(1), *ENDED))
        assert (await judged(journal)).effect is Effect.UNKNOWN
        await journal.transact(recording(late(2)))
        found = await judged(journal)
        told = [event.kind for event in await journal.read(lambda view: view.events(0, 100, 10**7))]
    assert (found.effect, found.effect_by) == (Effect.OCCURRED, Source.DAEMON)
    assert told[-2:] == ["operation.late_result", "operation.reconciled"]


async def test_a_child_that_was_believed_idle_and_was_not_is_a_contradiction(opened: Open) -> None:
    """The daemon's two words about the parent differ: the careful one stands, and somebody should look."""
    async with opened() as journal:
        await journal.transact(
            recording(*PARENT, *ran(2, failed(2, effect=Effect.NONE)), unknown(1), *ENDED, late(2))
        )
        found = await judged(journal)
        diverged = await said(journal, "operation.diverged")
    assert (found.effect, found.effect_by) == (Effect.OCCURRED, Source.DAEMON)
    assert len(diverged) == 2  # the child's own, and its parent's


async def test_children_of_the_parents_own_run_are_those_that_name_it(opened: Open) -> None:
    """A run that serves one of its own operations does not count for it as a whole."""
    end = (accepted_command(90, "run.end", {}), completed(90))
    async with opened() as journal:
        await journal.transact(
            recording(*PARENT, *child(2, not_executed(2), run="run-1"), accepted(3), started(3), succeeded(3))
        )
        await journal.transact(recording(unknown(1), *end))
        found = await judged(journal)
    assert found.effect is Effect.NONE


def ends_of(*runs: str) -> tuple[Draft, ...]:
    """The end of each of these runs."""
    return tuple(
        draft
        for n, run in enumerate(runs, 80)
        for draft in (accepted_command(n, "run.end", {}, run=run), completed(n))
    )


CIRCLES = [
    pytest.param((*ran(2, unknown(2), parent=2),), ("child",), id="itself"),
    pytest.param(
        (*ran(2, unknown(2), parent=3), *ran(3, unknown(3), parent=2, run="child-2")),
        ("child", "child-2"),
        id="each other",
    ),
    pytest.param(
        (
            *ran(2, unknown(2), parent=4),
            *ran(3, unknown(3), parent=2, run="child-2"),
            *ran(4, unknown(4), parent=3, run="child-3"),
        ),
        ("child", "child-2", "child-3"),
        id="three of them",
    ),
    pytest.param(
        (
            *ran(2, unknown(2), parent=None),
            *child(3, not_executed(3), parent=4),
            *ran(4, unknown(4), parent=2, run="child-2"),
        ),
        ("child", "child-2"),
        id="by the run that another's call is of",
    ),
]


@pytest.mark.parametrize(("circle", "runs"), CIRCLES)
@pytest.mark.parametrize("effect", [Effect.NONE, Effect.OCCURRED])
async def test_operations_in_a_circle_prove_nothing_of_each_other(
    opened: Open, circle: Sequence[Draft], runs: Sequence[str], effect: Effect
) -> None:
    """Parents are what hosts say: what was said of one of them would come back to it as its own proof."""
    async with opened() as journal:
        await journal.transact(recording(*circle, *ends_of(*runs)))
        await journal.transact(recording(reconciled(2, effect)))
        words = await said(journal, "operation.reconciled")
        found = await judged(journal, 2)
        assert await journal.read(lambda view: view.delegation(operation_id(2))) is None
        assert await journal.read(differences) == ()
    assert [word["actor"] for word in words] == ["operator:1000"]
    assert (found.effect, found.effect_by) == (effect, Source.OPERATOR)


async def test_what_serves_two_parents_of_one_run_is_no_circle(opened: Open) -> None:
    """Calls of a run that serve its own operations are theirs alone, and not the run's."""
    calls = (
        *ran(2, unknown(2), parent=None),
        *ran(3, unknown(3), parent=None),
        *ran(4, succeeded(4), parent=2),
        *child(5, not_executed(5), parent=3),
    )
    async with opened() as journal:
        await journal.transact(recording(*calls, *ends_of("child")))
        assert [(await judged(journal, n)).effect for n in (2, 3)] == [Effect.OCCURRED, Effect.NONE]


async def test_no_word_gains_rank_on_its_way_up(opened: Open) -> None:
    """A grandchild's is an operator's: so is its parent's, and that one's; an answer raises all of them."""
    family = (*PARENT, unknown(1), *ran(2, unknown(2)), *ran(3, unknown(3), parent=2, run="child-2"))
    async with opened() as journal:
        await journal.transact(recording(*family, *ends_of("child", "child-2")))
        await journal.transact(recording(reconciled(3, Effect.OCCURRED)))
        assert [(await judged(journal, n)).effect_by for n in (1, 2, 3)] == [Source.OPERATOR] * 3
        await journal.transact(recording(late(3)))
        sources = [(await judged(journal, n)).effect_by for n in (1, 2, 3)]
        assert await said(journal, "operation.diverged") == []
    assert sources == [Source.DAEMON, Source.DAEMON, Source.PROVIDER]


async def test_a_persons_word_about_the_parent_stands(opened: Open) -> None:
    """What somebody says of the children is worth no more than what somebody said of the parent itself."""
    async with opened() as journal:
        await journal.transact(
            recording(*PARENT, unknown(1), reconciled(1, Effect.NONE), *ran(2, unknown(2)), *ends_of("child"))
        )
        await journal.transact(recording(reconciled(2, Effect.OCCURRED)))
        assert len(await said(journal, "operation.reconciled")) == 2
        assert (await judged(journal)).effect is Effect.NONE


async def test_a_word_that_follows_an_operators_moves_with_it(opened: Open) -> None:
    """The override of a child's verdict is its parent's, too: that it did nothing must not be believed on."""
    async with opened() as journal:
        await journal.transact(recording(*PARENT, unknown(1), *ran(2, unknown(2)), *ends_of("child")))
        await journal.transact(recording(reconciled(2, Effect.NONE)))
        assert (await judged(journal)).effect is Effect.NONE
        await journal.transact(recording(reconciled(2, Effect.OCCURRED)))
        found = await judged(journal)
    assert (found.effect, found.effect_by) == (Effect.OCCURRED, Source.OPERATOR)


async def test_nothing_is_concluded_while_a_child_run_has_something_to_do(opened: Open) -> None:
    """An attempt that was asked for may still happen: of another child run's end nothing follows before."""
    retry = accepted_command(70, "operation.retry", {"operation_id": operation_id(2)}, run="child")
    async with opened() as journal:
        await journal.transact(
            recording(
                *PARENT,
                *ran(2, failed(2, effect=Effect.NONE)),
                *child(3, not_executed(3), run="child-2"),
                *ends_of("child"),
                retry,
            )
        )
        await journal.transact(recording(unknown(1)))
        end = (accepted_command(91, "run.end", {}, run="child-2"), completed(91))
        await journal.transact(recording(*end))
        assert (await judged(journal)).effect is Effect.UNKNOWN
        await journal.transact(recording(completed(70)))
        assert (await judged(journal)).effect is Effect.NONE


async def test_an_attempt_asked_for_from_another_run_is_waited_for_too(opened: Open) -> None:
    """A command may name any run: what it asks for is still to come, and then nothing follows before."""
    retry = accepted_command(70, "operation.retry", {"operation_id": operation_id(2)}, run="elsewhere")
    async with opened() as journal:
        await journal.transact(
            recording(*PARENT, *ran(2, failed(2, effect=Effect.NONE)), retry, *ENDED, unknown(1))
        )
        assert (await judged(journal)).effect_by is None
        await journal.transact(recording(completed(70)))
        found = await judged(journal)
    assert (found.effect, found.effect_by) == (Effect.NONE, Source.DAEMON)


# ------------------------------------------------------------ what comes later

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
