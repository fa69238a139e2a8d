"""Questions to the journal: pages, filters, bounds."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

import store.view as view_module
from store.journal import Journal
from store.lifecycle import Effect, State
from store.records import (
    OPERATION_RETRY,
    Digest,
    JsonObject,
    OperationFilter,
    OperationId,
    OperationRecord,
    Origin,
    Page,
    RunId,
    timestamp,
)
from store.transaction import Transaction
from store.twins import TWINS_MAX
from store.view import PAGE_MAX, View
from tests.store.conftest import Clock, Open
from tests.store.drafts import (
    ALIKE,
    accepted,
    accepted_command,
    command_id,
    completed,
    driver_started,
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

STATES = (State.ACCEPTED, State.STARTED, State.SUCCEEDED, State.FAILED, State.NOT_EXECUTED, State.UNKNOWN)


async def fill(journal: Journal, count: int) -> None:
    """Operations 0, 1, …: state by number modulo 6, run by number modulo 2, tool by number modulo 3."""
    for n in range(count):
        drafts = [accepted(n, run=f"run-{n % 2}", tool=f"tool/{n % 3}")]
        match STATES[n % 6]:
            case State.ACCEPTED:
                pass
            case State.STARTED:
                drafts += [started(n)]
            case State.SUCCEEDED:
                drafts += [started(n), succeeded(n)]
            case State.FAILED:
                drafts += [started(n), failed(n, unsettled=n % 4 == 3)]
            case State.NOT_EXECUTED:
                drafts += [not_executed(n)]
            case _:
                drafts += [started(n), unknown(n)]
        await journal.transact(recording(*drafts))


def _page(wanted: OperationFilter, before: int | None, limit: int, view: View) -> Page[OperationRecord]:
    return view.operations(wanted, before, limit)


async def whole(journal: Journal, wanted: OperationFilter, limit: int) -> list[OperationRecord]:
    """All pages together, each checked against its bound."""
    found: list[OperationRecord] = []
    before: int | None = None
    while True:
        page = await journal.read(partial(_page, wanted, before, limit))
        assert len(page.items) <= limit
        found += page.items
        if page.next is None:
            return found
        assert before is None or page.next < before
        before = page.next


FILTERS: list[tuple[OperationFilter, Callable[[OperationRecord], bool]]] = [
    (OperationFilter(), lambda _: True),
    *[(OperationFilter(state=state), lambda found, state=state: found.state is state) for state in STATES],
    *[
        (OperationFilter(effect=effect), lambda found, effect=effect: found.effect is effect)
        for effect in Effect
    ],
    (OperationFilter(run_id=RunId("run-1")), lambda found: found.run_id == "run-1"),
    (OperationFilter(run_id=RunId("run-none")), lambda _: False),
    (OperationFilter(tool="tool/2"), lambda found: found.tool == "tool/2"),
    (OperationFilter(unsettled=True), lambda found: found.state not in STATES[:2] and not found.settled),
    (
        OperationFilter(unsettled=True, run_id=RunId("run-1"), state=State.UNKNOWN),
        lambda found: found.run_id == "run-1" and found.state is State.UNKNOWN and not found.settled,
    ),
    (OperationFilter(reason="crash_window"), lambda found: found.reason == "crash_window"),
    (OperationFilter(reason="cancelled"), lambda found: found.reason == "cancelled"),
    (
        OperationFilter(reason="failed_uncertain"),
        lambda found: found.state is State.FAILED and found.error_means == "unsettled",
    ),
    (OperationFilter(reason="failed_uncertain", state=State.UNKNOWN), lambda _: False),
    (
        OperationFilter(state=State.STARTED, run_id=RunId("run-1"), tool="tool/1"),
        lambda found: found.state is State.STARTED and found.run_id == "run-1" and found.tool == "tool/1",
    ),
]


@pytest.mark.parametrize("window", [1, 7, view_module.WINDOW])
async def test_each_filter_lists_exactly_what_matches(
    opened: Open, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    """Newest first, nothing twice or left out, however long the page or short the window."""
    monkeypatch.setattr(view_module, "WINDOW", window)
    async with opened() as journal:
        await fill(journal, 36)
        every = await whole(journal, OperationFilter(), 5)
        assert [found.operation_id for found in every] == [operation_id(n) for n in reversed(range(36))]
        for wanted, matches in FILTERS:
            for limit in (1, 4, 100):
                expected = [found for found in every if matches(found)]
                assert await whole(journal, wanted, limit) == expected, (wanted, limit)


async def test_a_page_ends_without_a_next_where_nothing_follows(opened: Open) -> None:
    """`next` is None exactly at the end, also where the page is exactly full."""
    async with opened() as journal:
        await fill(journal, 6)
        page = await journal.read(lambda view: view.operations(OperationFilter(), None, 6))
        assert (len(page.items), page.next) == (6, None)
        page = await journal.read(lambda view: view.operations(OperationFilter(), None, 5))
        assert page.next is not None
        rest = await journal.read(lambda view: view.operations(OperationFilter(), page.next, 5))
        assert (len(rest.items), rest.next) == (1, None)


async def test_what_is_unsettled_elsewhere_hides_nothing_of_a_run(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its page looks at its own unsettled operations alone, however many newer ones other runs have."""
    monkeypatch.setattr(view_module, "WINDOW", 4)
    async with opened() as journal:
        for n in range(10):
            run = "run-1" if n in (1, 3) else f"run-other-{n}"
            await journal.transact(recording(accepted(n, run=run), started(n), failed(n, unsettled=True)))
        for reason in (None, "failed_uncertain"):
            wanted = OperationFilter(run_id=RunId("run-1"), unsettled=reason is None, reason=reason)
            page = await journal.read(partial(_page, wanted, None, 4))
            assert [found.operation_id for found in page.items] == [operation_id(3), operation_id(1)]
            assert page.next is None


async def test_stale_in_flight_is_past_its_own_deadline(opened: Open, clock: Clock) -> None:
    """Each operation has its own: what waits for an approval is never stale, what has ended neither."""
    soon, far = timestamp(clock.now + timedelta(seconds=10)), timestamp(clock.now + timedelta(hours=1))
    wanted = OperationFilter(reason="stale_in_flight")
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1, deadline_at=soon)))
        await journal.transact(recording(accepted(2), started(2, deadline_at=far)))
        await journal.transact(recording(accepted(3, expires_at=soon)))
        await journal.transact(recording(accepted(4), started(4, deadline_at=soon), succeeded(4)))
        assert await whole(journal, wanted, 10) == []
        clock.now += timedelta(seconds=60)
        assert [found.operation_id for found in await whole(journal, wanted, 10)] == [
            operation_id(3),
            operation_id(1),
        ]


async def test_open_operations_come_in_the_order_of_their_acceptance(opened: Open) -> None:
    """The cursor is the seq of the acceptance; what has ended is gone."""
    async with opened() as journal:
        await fill(journal, 12)
        found = await journal.read(lambda view: view.open_operations(0, 100))
        assert [item.operation_id for item in found] == [operation_id(n) for n in (0, 1, 6, 7)]
        rest = await journal.read(lambda view: view.open_operations(found[1].accepted_seq, 1))
        assert rest == found[2:3]


async def test_open_commands_have_no_receipt(opened: Open) -> None:
    """Of one run or of all; calls and other commands alike."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1, run="a"), accepted(2, run="b")))
        await journal.transact(recording(accepted_command(3, "run.cancel", {}, run="a"), not_executed(2)))

        def ids(run: RunId | None) -> Callable[[View], list[str]]:
            return lambda view: [item.command_id for item in view.open_commands(run, 0, 10)]

        assert await journal.read(ids(None)) == ["cmd-1", "cmd-3"]
        assert await journal.read(ids(RunId("a"))) == ["cmd-1", "cmd-3"]
        assert await journal.read(ids(RunId("b"))) == []
        await journal.transact(recording(completed(3)))
        assert await journal.read(ids(None)) == ["cmd-1"]


async def test_of_what_is_open_each_retry_is_found(opened: Open) -> None:
    """In the order of their acceptance, of whichever run; no other command, and none that has its receipt."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), unknown(1)))
        for n, kind in enumerate((OPERATION_RETRY, "operation.probe", OPERATION_RETRY, OPERATION_RETRY), 2):
            target: JsonObject = {"operation_id": operation_id(1)}
            await journal.transact(recording(accepted_command(n, kind, target, run=f"run-{n % 3}")))
        await journal.transact(recording(completed(4)))
        found = await journal.read(lambda view: [command.command_id for command in view.open_retries()])
        assert found == [command_id(2), command_id(5)]


async def test_twins_are_alike_writes_guarding_first(opened: Open) -> None:
    """Same arguments, one of the runs, writes only; those that guard come first, each part newest first."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1, args=ALIKE), started(1), unknown(1)))
        await journal.transact(recording(accepted(2, args=ALIKE, run="run-2"), started(2)))
        await journal.transact(recording(accepted(3, args=ALIKE), started(3), succeeded(3)))
        await journal.transact(recording(accepted(4, args=ALIKE, write=False), started(4)))
        await journal.transact(recording(accepted(5), started(5)))
        await journal.transact(recording(accepted(6, args=ALIKE, run="run-3"), started(6)))
        runs = [RunId("run-1"), RunId("run-2"), RunId("run-1")]
        twins = await journal.read(lambda view: view.twins(runs, ALIKE))
        assert [twin.operation_id for twin in twins] == [operation_id(n) for n in (2, 1, 3)]
        assert await journal.read(lambda view: view.twins(runs, Digest("b" * 64))) == ()


async def test_twins_are_bounded(opened: Open) -> None:
    """However many look alike, a guarding one is never crowded out by those that do not guard."""
    async with opened() as journal:
        await journal.transact(recording(accepted(0, args=ALIKE), started(0), unknown(0)))
        for n in range(1, TWINS_MAX + 10):
            await journal.transact(recording(accepted(n, args=ALIKE), started(n), succeeded(n)))
        twins = await journal.read(lambda view: view.twins([RunId("run-1")], ALIKE))
        assert len(twins) == TWINS_MAX
        assert twins[0].operation_id == operation_id(0)
        assert twins[1].operation_id == operation_id(TWINS_MAX + 9)


async def test_events_come_in_pages_of_events_and_of_bytes(opened: Open) -> None:
    """Up to either bound, and at least one: a long event is never a wall."""
    async with opened() as journal:
        events = await journal.transact(recording(*[driver_started() for _ in range(10)]))
        size = len(events[0].body or b"")

        def seqs(after: int, limit: int, bytes_max: int) -> Callable[[View], list[int]]:
            return lambda view: [event.seq for event in view.events(after, limit, bytes_max)]

        assert await journal.read(seqs(0, 4, 1_000_000)) == [1, 2, 3, 4]
        assert await journal.read(seqs(8, 4, 1_000_000)) == [9, 10]
        assert await journal.read(seqs(2, 10, size * 3)) == [3, 4, 5]
        assert await journal.read(seqs(2, 10, 1)) == [3]
        assert await journal.read(seqs(10, 10, 1)) == []
        assert await journal.read(lambda view: view.last_event()) == events[-1]
        assert await journal.read(lambda view: view.event(11)) is None


async def test_the_chain_is_known_at_each_event(opened: Open) -> None:
    """Before the first event it is the journal's id; beyond the last there is none."""
    async with opened() as journal:
        events = await journal.transact(recording(driver_started(), driver_started()))
        found = await journal.read(lambda view: [view.chain_at(seq) for seq in range(4)])
        assert found == [
            await journal.read(lambda view: view.journal_id),
            events[0].chain,
            events[1].chain,
            None,
        ]


async def test_unsettled_are_counted_with_the_oldest(opened: Open) -> None:
    """How many, and since when; a verdict takes one off the list."""
    async with opened() as journal:
        assert await journal.read(lambda view: view.unsettled()) == (0, None)
        first = await journal.transact(recording(accepted(1), started(1), unknown(1)))
        await journal.transact(recording(accepted(2), started(2), unknown(2)))
        assert await journal.read(lambda view: view.unsettled()) == (2, first[-1].at)
        await journal.transact(recording(reconciled(1, Effect.NONE)))
        await journal.transact(recording(late(2)))
        assert await journal.read(lambda view: view.unsettled()) == (0, None)


async def test_runs_come_newest_first(opened: Open) -> None:
    """In pages, with their counts and times."""
    async with opened() as journal:
        for n in range(5):
            await journal.transact(recording(accepted(n, run=f"run-{n}")))
        last = await journal.transact(recording(started(0)))
        page = await journal.read(lambda view: view.runs(None, 2))
        assert [run.run_id for run in page.items] == ["run-4", "run-3"]
        page = await journal.read(lambda view: view.runs(page.next, 10))
        assert [run.run_id for run in page.items] == ["run-2", "run-1", "run-0"]
        assert page.next is None
        assert page.items[-1].last_at == last[0].at
        assert page.items[-1].first_at < last[0].at
        assert await journal.read(lambda view: view.run(RunId("run-9"))) is None


async def test_what_is_unknown_is_none_or_empty(opened: Open) -> None:
    """No question raises for an identity that the journal does not know."""
    nothing = OperationId("op_none")
    async with opened() as journal:
        assert await journal.read(lambda view: (view.operation(nothing), view.result(nothing))) == (
            None,
            None,
        )
        assert await journal.read(lambda view: (view.attempts(nothing), view.evidence(nothing))) == ((), ())
        assert await journal.read(lambda view: view.operation_events(nothing)) == ()
        assert await journal.read(lambda view: view.last_event()) is None


@pytest.mark.parametrize("limit", [0, -1, 10**9])
async def test_no_page_is_longer_than_the_bound(opened: Open, limit: int) -> None:
    """A limit outside its range is brought into it: SQLite takes a negative one for none at all."""
    async with opened() as journal:
        await journal.transact(recording(*[driver_started() for _ in range(PAGE_MAX + 5)]))
        found = await journal.read(lambda view: view.events(0, limit, 10**9))
        assert len(found) == (PAGE_MAX if limit > 0 else 1)


async def test_what_a_supervisor_has_closed_is_found_by_itself(opened: Open) -> None:
    """Whatever else has failed, or is unknown, is not among it, settled by somebody or not."""
    async with opened() as journal:
        for n in range(1, 5):
            await journal.transact(recording(accepted(n), started(n), unknown(n)))
        await journal.transact(recording(reconciled(1, Effect.NONE, actor="supervisor:rules")))
        await journal.transact(recording(reconciled(2, Effect.NONE)))
        await journal.transact(recording(reconciled(3, Effect.NONE, actor="supervisor:rules")))
        await journal.transact(recording(reconciled(3, Effect.OCCURRED)))
        page = await journal.read(lambda view: view.operations(OperationFilter(inferred=True), None, 10))
        assert [record.operation_id for record in page.items] == [operation_id(1)]


async def test_what_a_run_continues_goes_through_those_that_it_names(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything of it is in the journal, too; of more than the bound there is one too many."""
    a, b, c, d = map(RunId, "abcd")
    async with opened() as journal:
        await journal.transact(
            recording(accepted(1, run=a), accepted(2, run=b, resumes=(a,)), accepted(3, run=c, resumes=(b,)))
        )
        assert await journal.read(lambda view: view.continued(d, (c,))) == (d, c, b, a)
        assert await journal.read(lambda view: view.continued(c, ())) == (c, b, a)
        assert await journal.read(lambda view: view.continued(a, (a, a))) == (a,)
        monkeypatch.setattr(view_module, "RESUMED_MAX", 2)
        assert await journal.read(lambda view: view.continued(c, ())) == (c, b, a)
        assert len(await journal.read(lambda view: view.continued(d, (c,)))) == 4


async def test_runs_of_one_beginning_are_found_with_what_guards_in_them(opened: Open) -> None:
    """Whoever has judged it, and after it was pruned: only what is known to have been settled is left out."""
    async with opened() as journal:
        await journal.transact(
            recording(
                *(draft for n in range(1, 6) for draft in (accepted(n, run=f"x-{n}"), started(n))),
                *(unknown(n) for n in (1, 2, 3, 4)),
                succeeded(5),
                reconciled(2, Effect.UNKNOWN),
                reconciled(3, Effect.OCCURRED),
                accepted(6, run="y-6"),
                started(6),
                unknown(6),
            )
        )
        found = await journal.read(lambda view: view.runs_alike("x-", None, 10))
        assert [(run.run_id, guards) for run, guards in found] == [
            ("x-1", True), ("x-2", True), ("x-3", False), ("x-4", True), ("x-5", False),
        ]  # fmt: skip
        rest = await journal.read(lambda view: view.runs_alike("x-", RunId("x-3"), 1))
        assert [run.run_id for run, _ in rest] == ["x-4"]


async def test_answers_without_a_word_are_found_page_by_page(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newer of the two words counts, and other deliveries are none."""
    monkeypatch.setattr(view_module, "ANSWERS", 2)
    async with opened() as journal:
        await journal.transact(
            recording(*(draft for n in range(1, 6) for draft in (accepted(n), started(n), succeeded(n))))
        )
        said = ((1, "heard"), (2, "heard"), (2, "lost"), (3, "lost"), (3, "heard"), (4, "repeated"))
        for n, word in said:
            await journal.transact(partial(Transaction.note_delivery, command_id=command_id(n), answer=word))
        pages: list[tuple[str, ...]] = []
        after: int | None = 0
        while after is not None:
            ask = partial(
                View.answers_of_run,
                run_id=RunId("run-1"),
                origin=Origin.PLANE,
                after=after,
                word="heard",
                but="lost",
            )
            page = await journal.read(ask)
            pages.append(page.items)
            after = page.next
        assert pages == [(command_id(2),), (command_id(4),), (command_id(5),)]
