"""A served local API for tests: a real journal, real sockets, real HTTP, and a hand that writes histories."""

import hashlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import anyio
import httpx2

from driver.core.answers import Requeueing, Submission
from driver.core.unfencing import Unfencing
from driver.engine.desk import LocalDesk
from driver.engine.fences import Fences
from driver.engine.remedies import Remedies
from driver.local.server import serve_local
from driver.local.settings import LocalLimits, LocalSettings
from driver.local.sources import LinkFacts, StatusFacts
from store.declared import EventData
from store.events import (
    CommandAccepted,
    CommandRefused,
    Draft,
    DriverStarted,
    OperationStarted,
    OperationSucceeded,
    OperationUnknown,
)
from store.journal import Journal, open_journal
from store.records import (
    BootId,
    CommandId,
    Digest,
    JsonObject,
    JsonValue,
    OperationId,
    OperationRecord,
    Origin,
    RunId,
    timestamp,
)
from store.settings import JournalSettings
from store.transaction import Transaction
from store.view import View
from supervisor.models.rules import RulesModel
from supervisor.wall import Wall
from tests.supervisor.stage import supervising

READY = StatusFacts(
    state="ready",
    driver_id="sbx-7",
    boot_id=BootId("b" * 32),
    link=LinkFacts(connected=False, since=None, url=None),
    integrity="ok",
)


def digest(text: str) -> Digest:
    """Return a digest that stands for `text`."""
    return Digest(hashlib.sha256(text.encode()).hexdigest())


def operation_id(command: str) -> OperationId:
    """Return the id of the command's operation."""
    return OperationId("op_" + digest(command)[:32])


@dataclass
class World:
    """The daemon's other parts, as the local API sees them (`Sources`)."""

    journal: Journal
    runtime_dir: Path
    facts: StatusFacts = READY
    ill: str | None = None
    desk: LocalDesk | None = None
    remedies: Remedies = field(default_factory=lambda: Remedies({}))
    drained: list[str] = field(default_factory=list[str])
    fences: Fences | None = None
    redact: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """What today's contracts withhold, by tool."""

    def status(self) -> StatusFacts:
        return self.facts

    def withheld(self, tool: str) -> tuple[str, ...]:
        return self.redact.get(tool, ())

    def allowed(self, view: View, record: OperationRecord) -> tuple[str, ...]:
        return self.remedies.allowed(view, record)

    async def submit(self, kind: str, run_id: RunId, data: JsonObject) -> Submission:
        assert self.desk is not None, "nobody takes commands in this world"
        return await self.desk.submit(kind, run_id, data)

    async def requeue(self, seq: int) -> Requeueing:
        assert self.desk is not None, "nobody takes commands in this world"
        return await self.desk.requeue(seq)

    def drain(self, reason: str) -> None:
        self.drained.append(reason)

    triage_model: str = "rules"

    async def wall(self, run_id: RunId) -> Wall | None:
        return await supervising(self.journal, RulesModel()).wall(run_id)

    async def unfence(self, actor: str, *, accept_rollback: bool) -> Unfencing:
        assert self.fences is not None, "nobody lifts fences in this world"
        return await self.fences.lift(accept_rollback=accept_rollback, actor=actor)

    async def metrics(self) -> bytes:
        return b"# EOF\n"

    async def ailment(self) -> str | None:
        return self.ill

    @asynccontextmanager
    async def client(self, socket: str = "inspect.sock") -> AsyncGenerator[httpx2.AsyncClient]:
        transport = httpx2.AsyncHTTPTransport(uds=str(self.runtime_dir / socket))
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://effectd", timeout=30, trust_env=False
        ) as client:
            yield client

    async def get(self, path: str, **parameters: str | int) -> httpx2.Response:
        async with self.client() as client:
            return await client.get(path, params={name: str(value) for name, value in parameters.items()})

    async def accept(self, command: str, run: str = "run-1", tool: str = "issues/create") -> None:
        await self.journal.transact(lambda tx: accept(tx, command, run, tool))

    async def refuse(self, command: str, run: str = "run-1") -> None:
        """A command that is not taken, for good."""
        data = CommandRefused(code="run_ended", message="the run has ended", content_digest=digest(command))
        draft = replace(_draft(data, command, run), operation_id=None)
        await self.journal.transact(lambda tx: tx.append(draft))

    async def lose(self, command: str, run: str = "run-1") -> None:
        """An operation whose outcome nobody knows."""

        def unit(tx: Transaction) -> None:
            accept(tx, command, run, "issues/create")
            start(tx, command, run)
            end(tx, command, run, OperationUnknown(reason="crash_window", phase="written", attempts=1))

        await self.journal.transact(unit)

    async def succeed(self, command: str, run: str = "run-1", result: JsonValue = None) -> None:
        def unit(tx: Transaction) -> None:
            accept(tx, command, run, "issues/create")
            start(tx, command, run)
            outcome = OperationSucceeded(result=result, receipt="issue-7", attempts=1, duration_ms=12)
            end(tx, command, run, outcome)

        await self.journal.transact(unit)

    async def chatter(self, count: int) -> None:
        """Append `count` events that mean nothing."""

        def unit(tx: Transaction) -> None:
            for _ in range(count):
                tx.append(Draft(data=DriverStarted(software="effectd/test")))

        await self.journal.transact(unit)


def accept(
    tx: Transaction,
    command: str,
    run: str,
    tool: str,
    *,
    payload: bytes | None = None,
    redact: tuple[str, ...] = (),
) -> None:
    """Record the acceptance of a call."""
    data = CommandAccepted(
        kind="tool.call",
        content_digest=digest(command),
        tool=tool,
        args_digest=digest(tool),
        write=True,
        identical="guard-unsettled",
    )
    payload = payload or b'{"tool":"%s","arguments":{"title":"x"}}' % tool.encode()
    tx.append(replace(_draft(data, command, run, payload=payload), redact=redact))


def start(tx: Transaction, command: str, run: str) -> None:
    """Record its intent."""
    data = OperationStarted(
        tool="issues/create",
        attempt=1,
        idempotency_key=operation_id(command),
        key_carrier="meta",
        idempotent=False,
        dedupe_horizon_s=None,
        args_digest=digest("issues/create"),
        deadline_at=timestamp(datetime(2030, 1, 1, tzinfo=UTC)),
    )
    tx.append(_draft(data, command, run))


def end(tx: Transaction, command: str, run: str, data: EventData) -> None:
    """Record its outcome."""
    tx.append(_draft(data, command, run))


def _draft(data: EventData, command: str, run: str, payload: bytes | None = None) -> Draft:
    return Draft(
        data=data,
        run_id=RunId(run),
        command_id=CommandId(command),
        operation_id=operation_id(command),
        origin=Origin.PLANE,
        payload=payload,
    )


@asynccontextmanager
async def opened(folder: Path) -> AsyncGenerator[World]:
    """A journal in `folder`, and nothing that serves it."""
    runtime_dir = folder / "run"
    runtime_dir.mkdir(mode=0o750, parents=True, exist_ok=True)
    settings = JournalSettings(state_dir=folder / "state", runtime_dir=runtime_dir)
    async with open_journal(settings, clock=lambda: datetime.now(UTC), new_id=lambda: uuid4().hex) as journal:
        yield World(journal=journal, runtime_dir=runtime_dir)


@asynccontextmanager
async def served(folder: Path, **bounds: float) -> AsyncGenerator[World]:
    """The same, served under `bounds` (fields of `LocalLimits`)."""
    limits = replace(LocalLimits(), **bounds)  # type: ignore[arg-type]  # whole numbers where they belong
    async with opened(folder) as world, anyio.create_task_group() as tasks:
        settings = LocalSettings(runtime_dir=world.runtime_dir, limits=limits)

        async def serve(*, task_status: anyio.abc.TaskStatus[None]) -> None:
            await serve_local(world, settings, task_status=task_status)

        await tasks.start(serve)
        yield world
        tasks.cancel_scope.cancel()
