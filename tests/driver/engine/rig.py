"""A real journal with the real engine around it, and a provider that does what a test says.

`ScriptedProvider` keeps the promises of `driver.providers.protocol.Provider`.
"""

import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from uuid import uuid4

import anyio
from anyio.abc import TaskStatus

from driver.core.attempts import Answered, NotSent, Phase, Report, Silence, ToolCall
from driver.core.contracts import Contract, Contracts, ToolName
from driver.core.frames import CommandFrame
from driver.core.identity import definition_digest
from driver.core.retry import MachineClock
from driver.engine.desk import ControlDesk, Identity, LocalDesk
from driver.engine.dispatcher import Dispatcher
from driver.engine.engine import Engine
from driver.engine.intake import Intake
from driver.engine.posture import Limits, Posture
from driver.engine.recovery import Recovered
from driver.engine.surroundings import Surroundings
from driver.engine.terms import Terms
from driver.engine.traces import UNTRACED, Traces
from driver.providers.protocol import LateResults, Progress
from store.journal import Journal, open_journal
from store.records import (
    BootId,
    CommandId,
    Digest,
    JournalId,
    JsonObject,
    OperationId,
    OperationRecord,
    RunId,
    StoredEvent,
)
from store.settings import JournalSettings
from store.view import View

SCOPE = "test"
RUN = RunId("run-1")
DECLARED = Contract(declared=True)
QUIET_LOOKS = 4
"""Steps of the engine that a step can lead to without an event in between, and one more."""


class Clock:
    """Wall-clock time that a test can move, and the machine's own."""

    def __init__(self) -> None:
        self.ahead = timedelta()
        self.slept_s = 0.0

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def pass_by(self, seconds: float) -> None:
        """Let time pass, by all clocks."""
        self.ahead += timedelta(seconds=seconds)
        self.slept_s += seconds

    def machine(self) -> MachineClock:
        return MachineClock("boot-1", time.monotonic() + self.slept_s)


@dataclass
class ScriptedProvider:
    """Counts what it executes. `gate` holds an execution up after its effect until the test opens it."""

    name: str = "tools"
    connected: bool = True
    objection: NotSent | None = None
    objections: list[NotSent] = field(default_factory=list[NotSent])
    """What `prepare` says first, one for each time it is asked."""
    refusals: list[NotSent] = field(default_factory=list[NotSent])
    """What `dispatch` says first, before anything leaves."""
    answers: list[Report] = field(default_factory=list[Report])
    """What executions come to first; then it is `answer`."""
    answer: Report = field(default_factory=lambda: Answered(result={"content": []}))
    fails: Exception | None = None
    held_at: Phase | None = None
    """The phase at which a call stands still until `gate` is set."""
    gate: anyio.Event = field(default_factory=anyio.Event)
    arrived: anyio.Event = field(default_factory=anyio.Event)
    executed: list[ToolCall] = field(default_factory=list[ToolCall])
    prepared: list[ToolCall] = field(default_factory=list[ToolCall])
    held_in_prepare: bool = False
    read_only: bool = False
    """Whether the tool is described, to be believed, as one that only reads."""
    parting: Report | None = None
    """What is heard of a call after it was cancelled."""
    deaf: bool = False
    """Whether a cancelled call is listened to without an end."""
    closed: bool = False
    """Whether what unanswered calls were sent over is known to be closed."""
    late: LateResults | None = None
    served: JsonObject = field(default_factory=lambda: {"name": "act"})
    """The tool's definition."""

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await anyio.sleep_forever()

    def ready(self, call: ToolCall) -> bool:
        del call
        return self.connected and self.objection is None and not self.objections

    async def prepare(self, call: ToolCall) -> NotSent | None:
        self.prepared.append(call)
        if self.held_in_prepare:
            self.arrived.set()
            await self.gate.wait()
        return self.objections.pop(0) if self.objections else self.objection

    async def dispatch(self, call: ToolCall, progress: Progress) -> Report:
        await anyio.lowlevel.checkpoint_if_cancelled()
        for phase in (Phase.CONNECTING, Phase.WRITING, Phase.WRITTEN, Phase.ANSWERED):
            progress(phase)
            if phase is Phase.CONNECTING and self.refusals:
                return self.refusals.pop(0)
            if phase is Phase.WRITING:
                self.executed.append(call)
            if self.held_at is phase:
                self.arrived.set()
                with anyio.move_on_after(call.timeout_s):
                    await self.gate.wait()
                if not self.gate.is_set():
                    return Silence(cause="deadline", message="no answer in time")
            if phase is Phase.WRITTEN and self.fails is not None:
                raise self.fails
        return self.answers.pop(0) if self.answers else self.answer

    def reads(self, tool: str) -> bool:
        return self.read_only and self.connected

    async def definition(self, tool: str) -> Digest | NotSent:
        return definition_digest(self.served)

    async def listened(self, operation_id: OperationId, attempt: int) -> None:
        if self.parting is not None and self.late is not None:
            self.late(operation_id, attempt, self.parting)
        elif self.deaf:
            await anyio.sleep_forever()

    def may_land(self, operation_id: OperationId, attempt: int) -> bool:
        return not self.closed

    async def close(self) -> None: ...


@dataclass
class Rig:
    """One process life of the engine."""

    journal: Journal
    provider: ScriptedProvider
    posture: Posture
    engine: Engine
    identity: Identity
    clock: Clock
    recovered: Recovered
    desk: ControlDesk = field(init=False)

    def __post_init__(self) -> None:
        self.desk = self.engine.control_desk(self.identity)

    @property
    def dispatcher(self) -> Dispatcher:
        """What executes."""
        return self.engine.dispatcher

    @property
    def intake(self) -> Intake:
        """What takes commands in."""
        return self.engine.intake

    @property
    def local(self) -> LocalDesk:
        """Where commands are given on this machine."""
        return self.engine.local

    async def events(self) -> list[StoredEvent]:
        """Everything that the journal holds, but the daemon's news of itself."""
        found = await self.journal.read(lambda view: view.events(0, 1_000, 16_000_000))
        return [event for event in found if not event.kind.startswith("driver.")]

    async def kinds(self) -> list[str]:
        """What happened, in order."""
        return [event.kind for event in await self.events()]

    async def operation(self, command_id: str = "cmd-1") -> OperationRecord:
        """The operation of a command."""

        def find(view: View) -> OperationRecord:
            command = view.command(CommandId(command_id))
            assert command is not None
            assert command.operation_id is not None
            found = view.operation(command.operation_id)
            assert found is not None
            return found

        return await self.journal.read(find)

    async def settled(self, command_id: str = "cmd-1") -> OperationRecord:
        """The operation of a command, once its outcome is committed."""
        return await self.until(lambda found: found.ended_at is not None, command_id)

    async def reaches(self, kind: str, count: int = 1) -> None:
        """Return once the journal has so many events of this kind."""
        while True:
            committed = anyio.Event()
            end = self.journal.subscribe(partial(_set, committed))
            try:
                if (await self.kinds()).count(kind) >= count:
                    return
                with anyio.fail_after(30):
                    await committed.wait()
            finally:
                end()

    async def until(
        self, reached: Callable[[OperationRecord], bool], command_id: str = "cmd-1"
    ) -> OperationRecord:
        """The operation of a command, once it is as `reached` wants it."""
        while True:
            committed = anyio.Event()
            end = self.journal.subscribe(partial(_set, committed))
            try:
                found = await self.operation(command_id)
                if reached(found):
                    return found
                with anyio.fail_after(30):
                    await committed.wait()
            finally:
                end()

    async def quiet(self) -> None:
        """Return once everything has happened that can happen without time, and without anybody outside."""
        still, last = 0, -1
        while still < QUIET_LOOKS:
            await anyio.wait_all_tasks_blocked()
            seq = await self.journal.transact(lambda tx: tx.last_seq)
            still = still + 1 if seq == last else 0
            last = seq

    async def attempts(self, command_id: str = "cmd-1") -> list[tuple[str | None, str | None]]:
        """How each attempt of a command's operation ended, and why."""
        found = await self.operation(command_id)
        attempts = await self.journal.read(lambda view: view.attempts(found.operation_id))
        return [(attempt.outcome, attempt.reason) for attempt in attempts]

    async def last(self, command_id: str = "cmd-1") -> JsonObject:
        """The data of the newest event of a command's operation."""
        found = await self.operation(command_id)
        event = [event for event in await self.events() if event.operation_id == found.operation_id][-1]
        assert event.body is not None
        data: JsonObject = json.loads(event.body)["data"]
        return data


def _set(event: anyio.Event, _events: Sequence[StoredEvent]) -> None:
    event.set()


def call(
    command_id: str = "cmd-1",
    *,
    run_id: RunId = RUN,
    tool: str = "tools/act",
    arguments: JsonObject | None = None,
    repeat: bool = False,
    expires_in_ms: int | None = None,
    delivered_to: tuple[str, ...] = (),
) -> CommandFrame:
    """A `tool.call` of the scripted provider."""
    data: JsonObject = {"tool": tool, "arguments": arguments or {"n": 1}}
    if repeat:
        data["repeat"] = True
    return CommandFrame(
        command_id=CommandId(command_id),
        run_id=run_id,
        kind="tool.call",
        data=data,
        expires_in_ms=expires_in_ms,
        delivered_to=tuple(JournalId(journal) for journal in delivered_to),
    )


def command(kind: str, command_id: str, *, run_id: RunId = RUN, **data: str) -> CommandFrame:
    """A command of another kind."""
    return CommandFrame(command_id=CommandId(command_id), run_id=run_id, kind=kind, data=dict(data))


def limits(**changes: float) -> Limits:
    """Bounds that no test reaches by chance."""
    values = {
        "inflight_max": 8,
        "queue_max": 100,
        "approvals_max": 100,
        "run_unsettled_max": 100,
        "drain_s": 0.2,
    } | changes
    return Limits(
        inflight_max=int(values["inflight_max"]),
        queue_max=int(values["queue_max"]),
        approvals_max=int(values["approvals_max"]),
        run_unsettled_max=int(values["run_unsettled_max"]),
        drain_s=values["drain_s"],
    )


@asynccontextmanager
async def engine(
    folder: Path,
    provider: ScriptedProvider,
    *,
    contract: Contract | None = None,
    bounds: Limits | None = None,
    confirmed: bool = True,
    clock: Clock | None = None,
    undeclared: bool = False,
    others: Mapping[str, Contract] | None = None,
    boundary: Callable[[str], None] = lambda _name: None,
    lose: str | None = None,
    traces: Traces = UNTRACED,
) -> AsyncGenerator[Rig]:
    """Open the journal in `folder`, recover, and run the engine until the block ends."""
    clock = clock or Clock()
    tools = {} if undeclared else {"act": contract or DECLARED, **(others or {})}
    contracts = Contracts(tools={ToolName("tools", name): item for name, item in tools.items()})
    terms = Terms(contracts, {"tools": provider})
    settings = JournalSettings(state_dir=folder / "state", runtime_dir=folder / "run")
    (folder / "run").mkdir(exist_ok=True)
    async with open_journal(settings, clock=clock, new_id=lambda: uuid4().hex) as journal:
        rig = _build(journal, provider, clock, terms, bounds or limits(), boundary, lose, traces)
        rig.recovered = await rig.engine.recover()
        rig.posture.confirmed = confirmed
        provider.late = rig.dispatcher.late
        async with anyio.create_task_group() as tasks:
            await tasks.start(rig.engine.run, rig.recovered)
            rig.posture.ready = True
            yield rig
            tasks.cancel_scope.cancel()


def _build(
    journal: Journal,
    provider: ScriptedProvider,
    clock: Clock,
    terms: Terms,
    bounds: Limits,
    boundary: Callable[[str], None],
    lose: str | None,
    traces: Traces,
) -> Rig:
    posture = Posture(fence=None, confirmed=True)
    around = Surroundings(
        journal=journal,
        providers={"tools": provider},
        terms=terms,
        posture=posture,
        limits=bounds,
        scope=SCOPE,
        clock=clock,
        machine=clock.machine,
        boundary=boundary,
        traces=traces,
        lose=lose,
    )
    identity = Identity(
        driver_id="sbx-1",
        boot_id=BootId(uuid4().hex),
        software="effectd/test",
        inflight_max=8,
        tombstone_days=365,
    )
    return Rig(journal, provider, posture, Engine(around), identity, clock, Recovered(waiting=(), unknown=0))
