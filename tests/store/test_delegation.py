"""An operation that was delegated to another run is judged by what that run's operations did."""

from collections.abc import Sequence

import pytest

from store.events import Draft
from store.lifecycle import Effect, Source
from tests.store.compared import differences
from tests.store.conftest import Open
from tests.store.delegated import ENDED, PARENT, child, ends_of, judged, ran, said
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
