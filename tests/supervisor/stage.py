"""A real journal with a supervisor over it, and a model that says what a test wants."""

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import cast
from uuid import uuid4

import anyio

from store.declared import EventData
from store.events import (
    CommandAccepted,
    Draft,
    OperationFailed,
    OperationReconciled,
    OperationStarted,
    OperationSucceeded,
    OperationUnknown,
)
from store.journal import Journal, open_journal
from store.lifecycle import Effect
from store.records import (
    CommandId,
    Digest,
    JsonObject,
    JsonValue,
    OperationId,
    OperationRecord,
    Origin,
    RunId,
    StoredData,
    StoredEvent,
    timestamp,
)
from store.settings import JournalSettings
from store.transaction import Transaction
from store.view import View
from supervisor.loop import Supervisor
from supervisor.models.model import Judged, Model
from supervisor.triage import Outside, Settings
from supervisor.verdict import Answer, Word
from supervisor.wall import Wall

RUN = RunId("run-1")
PATIENCE_S = 60
"""Longer than anything here takes on any machine: it only guards against a hang."""


def operation_id(n: int) -> OperationId:
    """The id of operation `n`."""
    return OperationId(f"op_{n:032x}")


@dataclass(frozen=True)
class Open:
    """Withholds nothing. Implements `Shown`."""

    arguments: JsonObject | None

    def cleared(self, value: JsonValue) -> JsonValue:
        return value


def disclose(record: OperationRecord, data: StoredData | None) -> Open:
    """Show everything (`Disclosure`)."""
    del record
    body = None if data is None else data.body
    return Open(None if body is None else cast("JsonObject", json.loads(body)["arguments"]))


def await_nothing(view: View, record: OperationRecord) -> bool:
    """No probe is to come (`Awaits`)."""
    del view, record
    return False


async def look_at_nothing(records: Sequence[OperationRecord]) -> None:
    """No contract has a reading command."""
    del records


@dataclass
class ScriptedModel:
    """Says what it was told to, and counts what it is asked. Implements `Model`."""

    says: Callable[[Wall], Judged]
    name: str = "scripted"
    is_paid: bool = True
    walls: list[Wall] = field(default_factory=list[Wall])
    asked: anyio.Event = field(default_factory=anyio.Event)

    async def judge(self, wall: Wall) -> Judged:
        self.walls.append(wall)
        self.asked.set()
        await anyio.lowlevel.checkpoint()
        return self.says(wall)


def all_of_them(effect: Effect) -> Callable[[Wall], Judged]:
    """What an obedient model says: the same of every operation."""

    def says(wall: Wall) -> Judged:
        words = tuple(Word(name, effect, "I was told so") for name in wall.operation_ids)
        answer = Answer(needs_attention=False, summary="all the same", words=words)
        return Judged(answer, "answered")

    return says


def lost(
    n: int,
    *,
    run: str = RUN,
    tool: str = "issues/create",
    arguments: JsonObject | None = None,
    message: str | None = None,
    phase: str | None = "written",
) -> Callable[[Transaction], None]:
    """A unit that records an operation whose outcome nobody knows."""
    end = OperationUnknown(reason="execution_timeout", phase=phase, attempts=1, message=message)
    return called(n, end, run=run, tool=tool, arguments=arguments)


def unsettled(
    n: int, text: str, *, result: JsonValue = None, run: str = RUN
) -> Callable[[Transaction], None]:
    """A unit that records an operation that its provider answered with an error that settles nothing."""
    end = OperationFailed(
        effect=Effect.UNKNOWN,
        error={"code": 500, "message": text},
        error_means="unsettled",
        result=result,
        receipt=None,
        attempts=1,
        phase="answered",
    )
    return called(n, end, run=run)


def done(n: int, *, run: str = RUN) -> Callable[[Transaction], None]:
    """A unit that records an operation that succeeded."""
    return called(n, OperationSucceeded(result={}, receipt="7", attempts=1, duration_ms=3), run=run)


def called(
    n: int,
    end: EventData | None,
    *,
    run: str = RUN,
    tool: str = "issues/create",
    arguments: JsonObject | None = None,
    parent: int | None = None,
) -> Callable[[Transaction], None]:
    """A unit that records a call and its end; without one it still runs."""

    def unit(tx: Transaction) -> None:
        digest = Digest(f"{n:064x}")
        accepted = CommandAccepted(
            kind="tool.call",
            content_digest=digest,
            tool=tool,
            args_digest=digest,
            write=True,
            parent_operation_id=None if parent is None else operation_id(parent),
        )
        body = {"tool": tool, "arguments": {"n": n} if arguments is None else arguments}
        tx.append(
            Draft(
                data=accepted,
                run_id=RunId(run),
                command_id=CommandId(f"cmd-{n}"),
                operation_id=operation_id(n),
                origin=Origin.PLANE,
                payload=json.dumps(body).encode(),
            )
        )
        begin(n, tool=tool)(tx)
        if end is not None:
            tx.append(Draft(data=end, operation_id=operation_id(n)))

    return unit


def begin(n: int, *, attempt: int = 1, tool: str = "issues/create") -> Callable[[Transaction], None]:
    """A unit that records the intent of an attempt."""

    def unit(tx: Transaction) -> None:
        data = OperationStarted(
            tool=tool,
            attempt=attempt,
            idempotency_key=operation_id(n),
            key_carrier="none",
            idempotent=False,
            dedupe_horizon_s=None,
            args_digest=Digest(f"{n:064x}"),
            deadline_at=timestamp(tx.now + timedelta(seconds=60)),
        )
        tx.append(Draft(data=data, operation_id=operation_id(n)))

    return unit


def decided(n: int, effect: Effect) -> Callable[[Transaction], None]:
    """A unit that records an operator's verdict."""

    def unit(tx: Transaction) -> None:
        data = OperationReconciled(
            effect=effect,
            actor="operator:1000",
            basis="operator",
            note="looked",
            evidence=(),
            started_seq=None,
        )
        tx.append(Draft(data=data, operation_id=operation_id(n)))

    return unit


def triage_command(n: int, run: str = RUN) -> Callable[[Transaction], None]:
    """A unit that records the acceptance of `run.triage`."""

    def unit(tx: Transaction) -> None:
        data = CommandAccepted(kind="run.triage", content_digest=Digest(f"{n:064x}"))
        command = CommandId(f"cmd-{n}")
        tx.append(Draft(data=data, run_id=RunId(run), command_id=command, origin=Origin.PLANE, payload=b"{}"))

    return unit


@dataclass
class Clock:
    """A clock that a test can move."""

    ahead: timedelta = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@asynccontextmanager
async def journal_at(folder: Path, clock: Callable[[], datetime] | None = None) -> AsyncGenerator[Journal]:
    """Open the journal of a folder; again and again, if it is closed in between."""
    settings = JournalSettings(state_dir=folder / "state", runtime_dir=folder / "run")
    async with open_journal(settings, clock=clock or Clock(), new_id=lambda: uuid4().hex) as journal:
        yield journal


def supervising(
    journal: Journal,
    model: Model,
    *,
    interval_s: float = 0.05,
    max_attempts: int = 3,
    wall_bytes_max: int = 64_000,
    min_age_s: float = 0.0,
    outside: Outside | None = None,
) -> Supervisor:
    """A supervisor over the journal; not running."""
    settings = Settings(
        interval_s=interval_s, max_attempts=max_attempts, wall_bytes_max=wall_bytes_max, min_age_s=min_age_s
    )
    return Supervisor(journal, model, settings, outside or outside_of())


def outside_of(
    *,
    awaits: Callable[[View, OperationRecord], bool] = await_nothing,
    may_act: Callable[[], bool] = lambda: True,
    boundary: Callable[[str], None] = lambda _: None,
) -> Outside:
    """A driver that has nothing to say."""
    return Outside(
        disclosure=disclose, awaits=awaits, observe=look_at_nothing, may_act=may_act, boundary=boundary
    )


@asynccontextmanager
async def running(supervisor: Supervisor) -> AsyncGenerator[None]:
    """Let a supervisor run for the length of the block."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(supervisor.run)
        yield
        tasks.cancel_scope.cancel()


def _note(moved: anyio.Event, events: Sequence[StoredEvent]) -> None:
    del events
    moved.set()


async def until(journal: Journal, holds: Callable[[View], bool]) -> None:
    """Return once this holds of the journal."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            moved = anyio.Event()
            unsubscribe = journal.subscribe(partial(_note, moved))
            try:
                if await journal.read(holds):
                    return
                await moved.wait()
            finally:
                unsubscribe()


def nothing_unsettled(view: View) -> bool:
    """Whether the list is empty."""
    return view.unsettled()[0] == 0


async def events_of(journal: Journal, kind: str) -> list[tuple[StoredEvent, JsonObject]]:
    """All events of a kind, with their data."""
    found: list[StoredEvent] = []
    while page := await journal.read(
        lambda view: view.events(found[-1].seq if found else 0, 500, 10_000_000)
    ):
        found.extend(page)
    return [
        (event, cast("JsonObject", json.loads(event.body or b"")["data"]))
        for event in found
        if event.kind == kind
    ]


def operation(n: int) -> Callable[[View], OperationRecord]:
    """Reads operation `n`."""

    def read(view: View) -> OperationRecord:
        record = view.operation(operation_id(n))
        assert record is not None
        return record

    return read
