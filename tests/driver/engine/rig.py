"""A real journal with the real engine around it, and a provider that does what a test says.

`ScriptedProvider` keeps the promises of `driver.providers.protocol.Provider`.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
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
from driver.engine.desk import ControlDesk, Identity
from driver.engine.dispatcher import Dispatcher
from driver.engine.intake import Intake
from driver.engine.posture import Limits, Posture
from driver.engine.recovery import recover
from driver.providers.protocol import Progress
from store.journal import Journal, open_journal
from store.records import BootId, CommandId, JournalId, JsonObject, OperationRecord, RunId, StoredEvent
from store.settings import JournalSettings
from store.view import View

SCOPE = "test"
RUN = RunId("run-1")


class Clock:
    """Wall-clock time that a test can move."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@dataclass
class ScriptedProvider:
    """Counts what it executes. `gate` holds an execution up after its effect until the test opens it."""

    name: str = "tools"
    connected: bool = True
    objection: NotSent | None = None
    answer: Report = field(default_factory=lambda: Answered(result={"content": []}))
    fails: Exception | None = None
    held_at: Phase | None = None
    """The phase at which a call stands still until `gate` is set."""
    gate: anyio.Event = field(default_factory=anyio.Event)
    arrived: anyio.Event = field(default_factory=anyio.Event)
    executed: list[ToolCall] = field(default_factory=list[ToolCall])
    prepared: list[ToolCall] = field(default_factory=list[ToolCall])
    held_in_prepare: bool = False

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await anyio.sleep_forever()

    def ready(self, call: ToolCall) -> bool:
        del call
        return self.connected and self.objection is None

    async def prepare(self, call: ToolCall) -> NotSent | None:
        self.prepared.append(call)
        if self.held_in_prepare:
            self.arrived.set()
            await self.gate.wait()
        return self.objection

    async def dispatch(self, call: ToolCall, progress: Progress) -> Report:
        for phase in (Phase.CONNECTING, Phase.WRITING, Phase.WRITTEN, Phase.ANSWERED):
            progress(phase)
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
        return self.answer

    async def close(self) -> None: ...


@dataclass
class Rig:
    """One process life of the engine."""

    journal: Journal
    provider: ScriptedProvider
    posture: Posture
    dispatcher: Dispatcher
    intake: Intake
    desk: ControlDesk
    clock: Clock

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
        while True:
            committed = anyio.Event()
            end = self.journal.subscribe(partial(_set, committed))
            try:
                found = await self.operation(command_id)
                if found.ended_at is not None:
                    return found
                with anyio.fail_after(5):
                    await committed.wait()
            finally:
                end()


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
    values = {"inflight_max": 8, "queue_max": 100, "run_unsettled_max": 100, "drain_s": 0.2} | changes
    return Limits(
        inflight_max=int(values["inflight_max"]),
        queue_max=int(values["queue_max"]),
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
    boundary: Callable[[str], None] = lambda _name: None,
) -> AsyncGenerator[Rig]:
    """Open the journal in `folder`, recover, and run the engine until the block ends."""
    clock = Clock()
    settings = JournalSettings(state_dir=folder / "state", runtime_dir=folder / "run")
    (folder / "run").mkdir(exist_ok=True)
    async with open_journal(settings, clock=clock, new_id=lambda: uuid4().hex) as journal:
        rig = _build(journal, provider, clock, contract, bounds or limits(), boundary)
        rig.posture.confirmed = confirmed
        recovered = await recover(journal, boundary)
        async with anyio.create_task_group() as tasks:
            await tasks.start(rig.dispatcher.run)
            rig.dispatcher.enqueue(recovered.waiting)
            rig.posture.ready = True
            yield rig
            tasks.cancel_scope.cancel()


def _build(
    journal: Journal,
    provider: ScriptedProvider,
    clock: Clock,
    contract: Contract | None,
    bounds: Limits,
    boundary: Callable[[str], None],
) -> Rig:
    posture = Posture(fence=None, confirmed=True)
    contracts = Contracts(tools={ToolName("tools", "act"): contract or Contract()})
    providers = {"tools": provider}
    dispatcher = Dispatcher(
        journal=journal,
        providers=providers,
        contracts=contracts,
        posture=posture,
        limits=bounds,
        clock=clock,
        boundary=boundary,
    )
    intake = Intake(
        journal=journal,
        dispatcher=dispatcher,
        providers=providers,
        contracts=contracts,
        posture=posture,
        limits=bounds,
        scope=SCOPE,
        boundary=boundary,
    )
    identity = Identity(
        driver_id="sbx-1",
        boot_id=BootId(uuid4().hex),
        software="effectd/test",
        inflight_max=8,
        tombstone_days=365,
    )
    desk = ControlDesk(
        journal=journal, intake=intake, dispatcher=dispatcher, posture=posture, identity=identity
    )
    return Rig(journal, provider, posture, dispatcher, intake, desk, clock)
