"""What an append assigns, what it refuses, and what follows from it in the projections."""

import hashlib
import json
from dataclasses import replace
from functools import partial

import pytest

from store.errors import ImpossibleEvent
from store.events import (
    ApprovalDecided,
    ApprovalRequested,
    CommandAccepted,
    CommandFailed,
    Draft,
    OperationAnnotated,
    SupervisorVerdict,
)
from store.journal import Journal
from store.lifecycle import Effect, IllegalMove, Source, State
from store.records import (
    Chain,
    Digest,
    JsonObject,
    OperationId,
    OperationRecord,
    Origin,
    RunId,
    StoredEvent,
    Timestamp,
)
from store.transaction import Transaction
from store.view import DELIVERIES_MAX
from tests.store.conftest import Open
from tests.store.drafts import (
    accepted,
    accepted_command,
    attempt_ended,
    command_id,
    completed,
    driver_started,
    failed,
    late,
    not_executed,
    operation_id,
    reconciled,
    recording,
    refused,
    started,
    succeeded,
    unknown,
)

pytestmark = pytest.mark.anyio


def frame(event: StoredEvent) -> JsonObject:
    """The frame that goes over the wire."""
    assert event.body is not None
    parsed: JsonObject = json.loads(event.body)
    return parsed


def data(event: StoredEvent) -> JsonObject:
    """The event's own members."""
    found = frame(event)["data"]
    assert isinstance(found, dict)
    return found


async def operation(journal: Journal, n: int) -> OperationRecord:
    """The operation as the journal has it now."""
    found = await journal.read(lambda view: view.operation(operation_id(n)))
    assert found is not None
    return found


async def test_events_are_numbered_without_gaps_and_chained(opened: Open) -> None:
    """Each frame's bytes, up to its last member and closed, extend the hash of all before it."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1)))
        await journal.transact(recording(succeeded(1)))
        events = await journal.read(lambda view: view.events(0, 100, 1_000_000))
        link = await journal.read(lambda view: view.chain_at(0))
    assert [event.seq for event in events] == [1, 2, 3]
    for event in events:
        assert event.body is not None
        head, _, tail = event.body.rpartition(b',"chain":')
        inner = hashlib.sha256(head + b"}").hexdigest()
        assert link is not None
        link = Chain(hashlib.sha256((link + inner).encode()).hexdigest()[:32])
        assert tail == b'"%s"}' % link.encode()
        assert (event.digest, event.chain) == (inner, link)


async def test_the_envelope_is_whole(opened: Open) -> None:
    """All members are always present, null where none applies."""
    async with opened() as journal:
        (own,) = await journal.transact(recording(driver_started()))
        (call,) = await journal.transact(recording(accepted(1)))
        journal_id = await journal.read(lambda view: view.journal_id)
    assert list(frame(own)) == list(frame(call))
    assert {name: frame(own)[name] for name in ("run_id", "command_id", "operation_id", "origin")} == {
        "run_id": None,
        "command_id": None,
        "operation_id": None,
        "origin": "local",
    }
    assert frame(call)["journal_id"] == journal_id
    assert frame(call)["at"] == call.at


async def test_an_operations_event_belongs_to_its_command(opened: Open) -> None:
    """Run, command and origin are those of the operation, whoever recorded the event."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1, run="run-9"), started(1)))
        (event,) = await journal.transact(recording(succeeded(1)))
    assert (event.run_id, event.command_id, frame(event)["origin"]) == ("run-9", "cmd-1", "plane")


async def test_the_first_outcome_is_the_receipt_and_the_next_supersedes_it(opened: Open) -> None:
    """One event of a command is terminal; what is learned later names it."""
    async with opened() as journal:
        events = await journal.transact(
            recording(accepted(1), started(1), unknown(1), late(1), reconciled(1, Effect.OCCURRED))
        )
        command = await journal.read(lambda view: view.command(command_id(1)))
    assert [event.terminal for event in events] == [False, False, True, False, False]
    assert [data(event).get("supersedes") for event in events] == [None, None, None, 3, 3]
    assert command is not None
    assert (command.receipt_seq, command.receipt_kind) == (3, "operation.unknown")


async def test_a_second_attempts_outcome_supersedes_the_first_ones(opened: Open) -> None:
    """Rule R: another attempt with the same key; the receipt stays the one that was given."""
    async with opened() as journal:
        events = await journal.transact(
            recording(
                accepted(1),
                started(1),
                unknown(1),
                started(1, attempt=2),
                succeeded(1, attempts=2),
            )
        )
        found = await operation(journal, 1)
        attempts = await journal.read(lambda view: view.attempts(operation_id(1)))
    assert [event.terminal for event in events] == [False, False, True, False, False]
    assert data(events[-1])["supersedes"] == 3
    assert (found.state, found.effect, found.attempt_count) == (State.SUCCEEDED, Effect.OCCURRED, 2)
    assert [(attempt.attempt, attempt.outcome) for attempt in attempts] == [(1, "unknown"), (2, "succeeded")]


@pytest.mark.parametrize(
    ("before", "illegal"),
    [
        ([], started(1)),
        ([accepted(1)], succeeded(1)),
        ([accepted(1)], accepted(1)),
        ([accepted(1), started(1), succeeded(1)], failed(1)),
        ([accepted(1), started(1), succeeded(1)], started(1, attempt=2)),
        ([accepted(1), started(1), succeeded(1)], unknown(1)),
        ([accepted(1), not_executed(1)], not_executed(1)),
    ],
)
async def test_an_illegal_event_changes_nothing(opened: Open, before: list[Draft], illegal: Draft) -> None:
    """It raises before a byte is written, in mid-unit as well: a bug of ours, never the world's."""

    def try_it(tx: Transaction) -> bool:
        with pytest.raises((IllegalMove, ImpossibleEvent)):
            tx.append(illegal)
        return tx.keep()

    async with opened() as journal:
        await journal.transact(recording(driver_started(), *before))
        before_it = await journal.read(lambda view: (view.last_seq, view.chain, view.counts()))
        assert await journal.transact(try_it) is False
        assert await journal.read(lambda view: (view.last_seq, view.chain, view.counts())) == before_it


@pytest.mark.parametrize(
    "impossible",
    [
        completed(9),
        completed(1),
        Draft(data=CommandFailed(code="x", message="y"), command_id=command_id(2)),
        replace(accepted(3), operation_id=None),
        replace(accepted(3), run_id=None),
        replace(accepted(3), command_id=None),
        replace(driver_started(), payload=b"{}"),
        replace(refused(3), operation_id=OperationId("op_none")),
    ],
)
async def test_an_event_that_contradicts_the_journal_changes_nothing(opened: Open, impossible: Draft) -> None:
    """Receipts of unknown commands, second receipts, calls without identity, unnamed payloads."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), accepted_command(2, "run.end", {}), completed(2)))
        with pytest.raises(ImpossibleEvent, match="bug in effectd"):
            await journal.transact(recording(impossible))
        assert await journal.read(lambda view: view.last_seq) == 3


async def test_a_call_moves_through_its_states(opened: Open) -> None:
    """Approval, intent, an attempt that is not the end, the end: each in the record, and in the counts."""
    asked = ApprovalRequested(
        approval_id="ap-1",
        tool="issues/create",
        args_digest=Digest("a" * 64),
        arguments=None,
        expires_at=Timestamp("2030-01-02T00:00:00.000000Z"),
    )
    decided = ApprovalDecided(approval_id="ap-1", decision="grant", approver="operator:1000", reason=None)
    states: list[State] = []
    async with opened() as journal:
        for draft in (
            accepted(1),
            Draft(data=asked, operation_id=operation_id(1)),
            Draft(data=decided, operation_id=operation_id(1)),
            started(1),
            attempt_ended(1),
            started(1, attempt=2),
            succeeded(1, attempts=2),
        ):
            await journal.transact(recording(draft))
            states.append((await operation(journal, 1)).state)
            counts = await journal.read(lambda view: view.counts())
            assert {state for state, count in counts.items() if count} == {states[-1]}
        found = await operation(journal, 1)
        attempts = await journal.read(lambda view: view.attempts(operation_id(1)))
    assert states == [
        State.ACCEPTED,
        State.AWAITING_APPROVAL,
        State.AWAITING_APPROVAL,
        State.STARTED,
        State.STARTED,
        State.STARTED,
        State.SUCCEEDED,
    ]
    assert (found.started_seq, found.result_seq, found.receipt, found.settled) == (6, 7, "issue-7", True)
    assert [(attempt.outcome, attempt.phase) for attempt in attempts] == [
        ("unknown", "written"),
        ("succeeded", "answered"),
    ]


async def test_evidence_is_kept_in_order_and_judged(opened: Open) -> None:
    """A supervisor's word is overridden by an operator's, and that by a late answer; each is kept."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), unknown(1)))
        steps: list[tuple[Effect, Source | None, bool, bool]] = []
        for draft in (
            reconciled(1, Effect.OCCURRED, actor="supervisor:rules"),
            reconciled(1, Effect.NONE, actor="probe:search"),
            reconciled(1, Effect.NONE, actor="operator:1000"),
            late(1),
        ):
            found = await operation(journal, 1)
            steps.append((found.effect, found.effect_by, found.settled, found.guards))
            await journal.transact(recording(draft))
        found = await operation(journal, 1)
        steps.append((found.effect, found.effect_by, found.settled, found.guards))
        evidence = await journal.read(lambda view: view.evidence(operation_id(1)))
    assert steps == [
        (Effect.UNKNOWN, None, False, True),
        (Effect.OCCURRED, Source.SUPERVISOR, True, True),
        (Effect.NONE, Source.PROBE, True, False),
        (Effect.NONE, Source.OPERATOR, True, False),
        (Effect.OCCURRED, Source.PROVIDER, True, False),
    ]
    assert [(item.source, item.actor) for item in evidence] == [
        (Source.SUPERVISOR, "supervisor:rules"),
        (Source.PROBE, "probe:search"),
        (Source.OPERATOR, "operator:1000"),
        (Source.PROVIDER, None),
    ]
    assert found.state is State.UNKNOWN


async def test_a_verdict_speaks_of_every_attempt_that_it_could_know(opened: Open) -> None:
    """An operator who looked after two attempts settles both; an attempt that began later stays open."""
    async with opened() as journal:
        events = await journal.transact(
            recording(accepted(1), started(1), unknown(1), started(1, attempt=2), unknown(1, attempts=2))
        )
        await journal.transact(recording(reconciled(1, Effect.NONE, started_seq=events[1].seq)))
        assert (await operation(journal, 1)).effect is Effect.UNKNOWN
        await journal.transact(recording(reconciled(1, Effect.NONE, started_seq=events[3].seq)))
        found = await operation(journal, 1)
        assert (found.effect, found.effect_by) == (Effect.NONE, Source.OPERATOR)
        await journal.transact(recording(started(1, attempt=3)))
        assert (await operation(journal, 1)).effect is Effect.UNKNOWN


async def test_a_verdict_of_nobody_is_refused(opened: Open) -> None:
    """Evidence has a source with a rank, or it is none."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), unknown(1)))
        with pytest.raises(ValueError, match="'agent:x'"):
            await journal.transact(recording(reconciled(1, Effect.NONE, actor="agent:x")))
        assert await journal.read(lambda view: view.last_seq) == 3


async def test_what_listens_to_reads_and_failures(opened: Open) -> None:
    """A read is never listed nor guards; a failure is listed only where its contract says so."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1, write=False), started(1), unknown(1)))
        await journal.transact(recording(accepted(2), started(2), failed(2)))
        await journal.transact(recording(accepted(3), started(3), failed(3, unsettled=True)))
        await journal.transact(recording(accepted(4), started(4), failed(4, effect=Effect.NONE)))
        await journal.transact(recording(accepted(5), not_executed(5)))
        assert await journal.read(lambda view: view.unsettled()[0]) == 1
        standing = [
            (found.settled, found.guards) for found in [await operation(journal, n) for n in range(1, 6)]
        ]
        assert standing == [(True, False), (True, False), (False, True), (True, False), (True, False)]
        run = await journal.read(lambda view: view.run(RunId("run-1")))
        assert run is not None
        assert (run.operations, run.unsettled) == (5, 1)


async def test_a_final_refusal_is_remembered(opened: Open) -> None:
    """It is its own receipt, and makes no operation."""
    async with opened() as journal:
        (event,) = await journal.transact(recording(refused(1)))
        command = await journal.read(lambda view: view.command(command_id(1)))
    assert event.terminal
    assert command is not None
    assert (command.accepted_seq, command.receipt_seq, command.receipt_kind) == (None, 1, "command.refused")


async def test_a_run_ends_with_the_receipt_of_its_command(opened: Open) -> None:
    """`run.end` needs no word of its own: its acceptance and its receipt say all."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), accepted_command(2, "run.end", {"outcome": "done"})))
        run = await journal.read(lambda view: view.run(RunId("run-1")))
        assert run is not None
        assert not run.ended
        await journal.transact(recording(completed(2)))
        run = await journal.read(lambda view: view.run(RunId("run-1")))
        assert run is not None
        assert (run.ended, run.outcome) == (True, "done")
        await journal.transact(lambda tx: tx.end_run(RunId("run-1"), "done"))
        assert await journal.read(lambda view: view.run(RunId("run-1"))) == run


async def test_runs_resume_runs_transitively(opened: Open) -> None:
    """A recovery of a recovery continues the first run; a circle ends."""
    async with opened() as journal:
        await journal.transact(
            recording(
                accepted(1, run="a"),
                accepted(2, run="b", resumes=(RunId("a"),)),
                accepted(3, run="c", resumes=(RunId("b"),)),
                accepted(4, run="a", resumes=(RunId("c"),)),
            )
        )
        await journal.transact(lambda tx: tx.link_runs(RunId("c"), RunId("b")))
        assert set(await journal.read(lambda view: view.resumed(RunId("c")))) == {"a", "b"}
        assert set(await journal.read(lambda view: view.resumed(RunId("a")))) == {"b", "c"}
        assert await journal.read(lambda view: view.resumed(RunId("d"))) == ()


async def test_a_commands_target_is_found_from_its_events(opened: Open) -> None:
    """An `operation.reconcile` names its operation, and its events belong to that one's story."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), unknown(1)))
        await journal.transact(
            recording(accepted_command(2, "operation.reconcile", {}, target=1), completed(2))
        )
        assert await journal.read(lambda view: view.operation_events(operation_id(1))) == (1, 2, 3, 4, 5)
        event = await journal.read(lambda view: view.event(5))
    assert event is not None
    assert (event.command_id, event.operation_id) == ("cmd-2", operation_id(1))


async def test_annotations_are_kept(opened: Open) -> None:
    """The host's own reference stands in the record, and changes nothing else."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), unknown(1)))
        before = await operation(journal, 1)
        draft = Draft(data=OperationAnnotated(metadata={"id": "7"}), operation_id=operation_id(1))
        await journal.transact(recording(draft))
        assert await operation(journal, 1) == replace(before, metadata={"id": "7"})


async def test_a_supervisors_verdict_belongs_to_its_run_alone(opened: Open) -> None:
    """It names operations, and moves none of them."""
    verdict = SupervisorVerdict(
        needs_attention=False,
        summary="s",
        causes=(),
        remedies=(),
        lesson="",
        operation_ids=(operation_id(1),),
        wall_digest=Digest("b" * 64),
        model="rules",
        status="ok",
    )
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), unknown(1)))
        before = await operation(journal, 1)
        (event,) = await journal.transact(
            recording(Draft(data=verdict, run_id=RunId("run-1"), best_effort=True))
        )
        assert (event.run_id, event.command_id, event.operation_id) == ("run-1", None, None)
        assert frame(event)["best_effort"] is True
        assert await operation(journal, 1) == before


async def test_deliveries_of_a_new_command_are_kept_up_to_the_same_bound(opened: Open) -> None:
    """Also those that come in the commit in which it was taken."""

    def deliver(tx: Transaction) -> None:
        tx.append(accepted(1))
        for n in range(DELIVERIES_MAX + 5):
            tx.note_delivery(command_id(1), f"known-{n}")

    async with opened() as journal:
        await journal.transact(deliver)
        found = await journal.read(lambda view: view.deliveries(command_id(1)))
        assert [item.answer for item in found] == [f"known-{n}" for n in range(5, DELIVERIES_MAX + 5)]


async def test_deliveries_are_kept_up_to_a_bound(opened: Open) -> None:
    """The newest of them, oldest first; a command that nobody knows leaves no trace."""

    def note(n: int, tx: Transaction) -> None:
        tx.note_delivery(command_id(1), f"known-{n}")

    async with opened() as journal:
        await journal.transact(recording(accepted(1), accepted(2)))
        for n in range(DELIVERIES_MAX + 5):
            await journal.transact(partial(note, n))
        await journal.transact(lambda tx: tx.note_delivery(command_id(9), "overloaded"))
        found = await journal.read(lambda view: view.deliveries(command_id(1)))
        assert len(found) == DELIVERIES_MAX
        assert [item.answer for item in found] == [f"known-{n}" for n in range(5, DELIVERIES_MAX + 5)]
        assert await journal.read(
            lambda view: (view.deliveries(command_id(2)), view.deliveries(command_id(9)))
        ) == (
            (),
            (),
        )


async def test_the_watermark_is_set_within_the_journal(opened: Open) -> None:
    """It may go back where the plane says so, and never beyond what was recorded."""
    async with opened() as journal:
        await journal.transact(recording(driver_started(), driver_started()))
        await journal.transact(lambda tx: tx.acknowledge(2))
        await journal.transact(lambda tx: tx.acknowledge(1))
        assert await journal.read(lambda view: view.acked_seq) == 1
        with pytest.raises(ImpossibleEvent, match="-1 is outside 0 to 2"):
            await journal.transact(lambda tx: tx.acknowledge(-1))
        with pytest.raises(ImpossibleEvent, match="3 is outside 0 to 2"):
            await journal.transact(lambda tx: tx.acknowledge(3))


async def test_a_poison_event_is_parked(opened: Open) -> None:
    """It stays in the journal, and is told apart; parking it twice keeps the first reason."""
    async with opened() as journal:
        await journal.transact(recording(driver_started(), driver_started()))
        await journal.transact(lambda tx: tx.park(2, "invalid", "too long"))
        await journal.transact(lambda tx: tx.park(2, "retired", "again"))
        assert await journal.read(lambda view: (view.is_parked(1), view.is_parked(2))) == (False, True)
        (letter,) = await journal.read(lambda view: view.dead_letters(0, 10))
        assert (letter.seq, letter.kind, letter.code, letter.message) == (
            2,
            "driver.started",
            "invalid",
            "too long",
        )
        assert await journal.read(lambda view: view.dead_letters(2, 10)) == ()
        with pytest.raises(ImpossibleEvent):
            await journal.transact(lambda tx: tx.park(3, "invalid", ""))


async def test_a_fence_outlives_the_process(opened: Open) -> None:
    """It stands until it is lifted; a second one does not replace the first."""
    async with opened() as journal:
        await journal.transact(lambda tx: tx.raise_fence("rollback", "seq 7"))
        await journal.transact(lambda tx: tx.raise_fence("superseded", ""))
    async with opened() as journal:
        fence = await journal.read(lambda view: view.fence)
        assert fence is not None
        assert (fence.reason, fence.detail) == ("rollback", "seq 7")
        await journal.transact(lambda tx: tx.lift_fence())
        assert await journal.read(lambda view: view.fence) is None


async def test_what_the_plane_announced_outlives_the_process(opened: Open) -> None:
    """The next life cuts to it before it has heard from the plane."""
    async with opened() as journal:
        await journal.transact(lambda tx: tx.announce_frame_bytes_max(2_000))
    async with opened() as journal:
        events = await journal.transact(recording(accepted(1), started(1), succeeded(1, result="x" * 3_000)))
        assert data(events[-1])["result_truncated"] is True


async def test_compensations_and_kinds_beyond_calls_make_no_operation(opened: Open) -> None:
    """Only a `tool.call` is an operation; any other command is a command."""
    draft = Draft(
        data=CommandAccepted(kind="run.cancel", content_digest=Digest("c" * 64)),
        run_id=RunId("run-1"),
        command_id=command_id(1),
        origin=Origin.LOCAL,
        payload=b"{}",
    )
    async with opened() as journal:
        await journal.transact(recording(draft))
        assert await journal.read(lambda view: sum(view.counts().values())) == 0
        command = await journal.read(lambda view: view.command(command_id(1)))
        assert command is not None
        assert (command.kind, command.receipt_seq) == ("run.cancel", None)
