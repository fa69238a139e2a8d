"""The engine, put together: what takes commands in, what carries them out, and what they come to.

Part of `driver.engine`; imports its own siblings. The daemon builds one
for its life, and so do the engine's tests: there is one way to put the parts together.
"""

from collections.abc import Mapping

import anyio
from anyio.abc import TaskStatus

from driver.core.commands import (
    CancelData,
    CompensateData,
    EraseData,
    ProbeData,
    RetryData,
    RunCancelData,
    RunCompensateData,
)
from driver.engine.alarms import raise_alarms
from driver.engine.cancelling import Cancelling
from driver.engine.chronicle import Chronicle
from driver.engine.commands import Commands, Family
from driver.engine.compensating import CompensateCommand, Compensator, RunCompensateCommand
from driver.engine.desk import ControlDesk, Identity, LocalDesk
from driver.engine.dispatcher import Dispatcher
from driver.engine.erasures import Eraser
from driver.engine.errands import Carry, Errands
from driver.engine.fences import Fences
from driver.engine.intake import Intake
from driver.engine.probe_command import ProbeCommand
from driver.engine.probe_loop import ProbeLoop
from driver.engine.probing import Prober
from driver.engine.recovery import Recovered, recover
from driver.engine.remedies import Remedies
from driver.engine.retrying import RetryCommand
from driver.engine.surroundings import Surroundings


class Engine:
    """The parts of one process life."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self.dispatcher = Dispatcher(around)
        self.errands = Errands(around)
        self.fences = Fences(
            journal=around.journal,
            posture=around.posture,
            dispatcher=self.dispatcher,
            new_id=around.new_id,
            pump=self.pump,
        )
        prober = Prober(around)
        self.probes = ProbeLoop(around, prober)
        self._probe_command = ProbeCommand(around, prober)
        self._retry_command = RetryCommand(around, self.dispatcher)
        self._cancelling = Cancelling(around, self.dispatcher)
        compensator = Compensator(around, self.dispatcher)
        self._compensate_command = CompensateCommand(around, compensator)
        self._run_compensate_command = RunCompensateCommand(around, self.dispatcher, compensator)
        self._eraser = Eraser(around.journal, around.posture)
        self.remedies = Remedies(
            {
                "probe": lambda view, record: prober.refusal(view, record.operation_id) is None,
                "retry": self._retry_command.is_allowed,
                "compensate": compensator.is_due,
            }
        )
        self.commands = Commands(self._families())
        self.intake = Intake(around, self.dispatcher, self.commands, self.errands)
        self.local = LocalDesk(
            journal=around.journal, intake=self.intake, posture=around.posture, new_id=around.new_id
        )

    def control_desk(self, identity: Identity) -> ControlDesk:
        """Return where the link hands in what the plane says."""
        return ControlDesk(
            journal=self._around.journal,
            intake=self.intake,
            posture=self._around.posture,
            pump=self.pump,
            fences=self.fences,
            intents=self.dispatcher.intents,
            identity=identity,
            capabilities=self.commands.capabilities,
        )

    async def recover(self) -> Recovered:
        """Decide what earlier lives left open, asking nobody. Returns once that is fsynced."""
        around = self._around
        return await recover(around.journal, around.terms, around.machine, around.boundary)

    async def run(
        self, recovered: Recovered, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Carry on with what was recovered, then with what arrives, until cancelled: drain first.

        The providers must run.
        """
        journal, traces = self._around.journal, self._around.traces
        journal.watch(traces.committed)
        chronicle = Chronicle()
        listeners = (chronicle.hear, raise_alarms, traces.note)
        unsubscribe = [journal.subscribe(listener) for listener in listeners]
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(self.dispatcher.run)
                self.dispatcher.readopt(recovered.running)
                for place in recovered.waiting:
                    traces.recall(place.operation_id, place.traceparent)
                self.dispatcher.enqueue(recovered.waiting)
                await tasks.start(self.errands.run, self._carriers())
                await tasks.start(self.probes.run)
                task_status.started()
        finally:
            for end in unsubscribe:
                end()
            chronicle.tell()
            traces.close()

    def pump(self) -> None:
        """Begin what may begin. To be called when the posture changes."""
        self.errands.pump()  # first: a cancel may have waited
        self.dispatcher.pump()
        self.probes.pump()

    def _families(self) -> Mapping[str, Family]:
        """What does the commands that need more than the journal."""
        return {
            ProbeData.KIND: self._probe_command.accept,
            RetryData.KIND: self._retry_command.accept,
            CompensateData.KIND: self._compensate_command.accept,
            RunCompensateData.KIND: self._run_compensate_command.accept,
        }

    def _carriers(self) -> Mapping[str, Carry]:
        """What carries out the commands whose receipt comes later."""
        return {
            EraseData.KIND: self._eraser.carry,
            ProbeData.KIND: self._probe_command.carry,
            CancelData.KIND: self._cancelling.carry,
            RunCancelData.KIND: self._cancelling.carry,
            RetryData.KIND: self._retry_command.carry,
            CompensateData.KIND: self._compensate_command.carry,
            RunCompensateData.KIND: self._run_compensate_command.carry,
        }
