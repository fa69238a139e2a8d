"""The composition root: builds every part from the configuration, and runs them under one task group.

Part of `driver`; may import everything of it, and `store`. Only `driver.cli` imports it.

Order at the start: the journal is opened under its lock, the local sockets answer (`starting`), recovery
decides what an earlier life left open, providers and dispatcher run, and only then the plane is called. At
SIGTERM the daemon drains within `drain_s`, keeps in the journal what was not delivered, and exits 0.

Exit codes: 0 stopped as asked; 2 configuration, or a journal that must not be opened; 70 the journal failed
while the daemon ran, and the restart reads what is true; 71 no room to copy a journal whose fsync failed.
"""

import gc
import os
import resource
import signal
import socket
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import anyio
import anyio.abc
import structlog
from anyio.abc import TaskStatus

from driver import assembly, faults, notify, orphans, triage, watchdog
from driver import log as log_setup
from driver.config.contracts import contracts
from driver.config.models import Config
from driver.core.answers import Answer, Requeueing, Submission
from driver.core.attempts import Report
from driver.core.contracts import Contract
from driver.core.frames import CommandFrame
from driver.core.groups import innermost
from driver.core.unfencing import Unfenced, Unfencing
from driver.engine.announcements import announce
from driver.engine.calling import CANCEL_DRAIN_S
from driver.engine.desk import Identity
from driver.engine.engine import Engine
from driver.engine.machine import machine
from driver.engine.posture import Posture
from driver.engine.pruning import prune
from driver.engine.recovery import Recovered
from driver.engine.supervision import outside
from driver.engine.surroundings import Surroundings, nobody_hears
from driver.engine.terms import Terms
from driver.faults import Boundary, Drill
from driver.hangup import hangup
from driver.link.link import Link
from driver.link.watermark import OwnWatermark
from driver.local.peers import credentials
from driver.local.server import serve_local
from driver.local.sockets import listen
from driver.local.sources import GatewayFacts, LinkFacts, StatusFacts
from driver.metrics.exposition import Metrics, Moment
from driver.providers.command.shim import kernel
from driver.providers.command.spool import Spool
from driver.providers.protocol import Provider
from driver.providers.serving import NOBODY
from store.errors import FolderUnusable, JournalFailed, NoRoomForGeneration
from store.events import DriverStarted, DriverStopping
from store.journal import Journal, open_journal
from store.records import BootId, JsonObject, OperationId, OperationRecord, Origin, RunId, timestamp
from store.transaction import Transaction
from store.view import View
from supervisor.loop import Supervisor
from supervisor.wall import Wall

if TYPE_CHECKING:
    from driver.gateway.server import Gateway

EXIT_STOPPED: Final = 0
EXIT_REFUSED: Final = 2
EXIT_JOURNAL_FAILED: Final = 70
"""EX_SOFTWARE of sysexits.h: a service manager restarts it."""
EXIT_NO_ROOM_FOR_COPY: Final = 71
"""EX_OSERR of sysexits.h: restarting does not help until there is room."""

GATEWAY_MODE: Final = 0o660
"""Of `gateway.sock`: agents of the group are let in."""
HEALTH_S: Final = 10.0
"""A journal that has not committed for this long is not healthy, where no watchdog says how long that is."""
FLUSH_S: Final = 2.0
"""How long a stop waits for the plane to acknowledge the last receipts; the next life sends the rest."""
STOP_MARGIN_S: Final = 10.0
"""What is left for closing the providers and the journal, after the drain."""
UMASK: Final = 0o077
"""Whatever the daemon creates is its owner's alone; sockets are opened to their group on purpose."""

log = structlog.get_logger(__name__)


def main(config: Config) -> int:
    """Run the daemon until it is told to stop, and return its exit code.

    Raises a `driver.faults.FaultError`; for a journal that must not be opened the
    `store.errors.OpenRefused` that says why, and nothing was changed then; and
    `driver.local.errors.SocketError` where the local sockets cannot be made.
    """
    _harden()
    # what the program is made of stays: a look for garbage in it would hold up everything for 0.1 s
    gc.freeze()
    with log_setup.unhindered(config.log.level, config.log.format) as outlet:
        return _main(config, outlet)


def _main(config: Config, lines: log_setup.Lines) -> int:
    drill = faults.drill(os.environ)
    if drill.words:
        log.warning("fault_injection", faults=drill.words)
    code = EXIT_STOPPED
    try:
        _run(config, drill, lines)
    except NoRoomForGeneration as error:
        log.critical("no_room_for_copy", error=str(error))
        code = EXIT_NO_ROOM_FOR_COPY
    except JournalFailed as error:
        log.critical("journal_failed", error=str(error))
        code = EXIT_JOURNAL_FAILED
    return code


def _harden() -> None:
    """Let nothing of this process be read by others: its files, its memory, what a crash would leave."""
    os.umask(UMASK)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    kernel.hide()


def _run(config: Config, drill: Drill, lines: log_setup.Lines) -> None:
    """Run the event loop; where one thing went wrong, that is raised, and not the groups around it."""
    try:
        anyio.run(_serve, config, drill, lines)
    except BaseExceptionGroup as group:
        raise innermost(group) from group


async def _serve(config: Config, drill: Drill, lines: log_setup.Lines) -> None:
    boundary = faults.boundary(drill.kill)
    boot_id = BootId(uuid4().hex)
    # on every line of this life: lines of many daemons end up in one place
    structlog.contextvars.bind_contextvars(driver_id=config.driver.id, boot_id=boot_id)
    # before anything is opened: a signal in the middle of the start is heeded once the start is whole
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, *hangup()) as signals:
        async with open_journal(
            assembly.journal_settings(config), clock=_now, new_id=lambda: uuid4().hex, boundary=boundary
        ) as journal:
            await Daemon(config, journal, boot_id, boundary, drill, lines).run(signals)


def _uid_of(connection: socket.socket) -> int:
    return credentials(connection).uid


def _now() -> datetime:
    return datetime.now(UTC)


class Daemon:
    """One process life. Implements `Sources` of `driver.local`, and of `driver.gateway`."""

    def __init__(
        self,
        config: Config,
        journal: Journal,
        boot_id: BootId,
        boundary: Boundary,
        drill: Drill,
        lines: log_setup.Lines,
    ) -> None:
        self._config = config
        self._lines = lines
        self._boundary = boundary
        self._drill = drill
        self._identity = Identity(
            driver_id=config.driver.id,
            boot_id=boot_id,
            software=f"effectd/{version('effectd')}",
            inflight_max=config.driver.max_inflight,
            tombstone_days=int(config.journal.tombstone_days),
        )
        self.journal = journal
        self._gateway = assembly.gateway(config, self)
        alone = config.control is None
        self._posture = Posture(fence=None, confirmed=alone, alone=alone)
        self._providers: Mapping[str, Provider] = assembly.providers(
            config, self._late, NOBODY if self._gateway is None else self._gateway.waits
        )
        self._terms = Terms(contracts(config), self._providers)
        around = Surroundings(
            journal=journal,
            providers=self._providers,
            terms=self._terms,
            posture=self._posture,
            limits=assembly.limits(config),
            scope=config.scope,
            clock=_now,
            machine=machine(),
            boundary=boundary,
            traces=assembly.traces(config, self._identity.software),
            answered=nobody_hears if self._gateway is None else self._gateway.waits.answered,
            lose=drill.lose,
        )
        self._engine = Engine(around)
        self._supervisor = Supervisor(
            journal, triage.model(config, os.environ), triage.settings(config.supervisor), outside(around)
        )
        self._watched_s = watchdog.interval_s(os.environ, os.getpid())
        self._told_to_stop, self._why_to_stop = anyio.Event(), ""
        self._link = self._control_link()
        self._metrics = Metrics(journal, config.providers, self._moment)

    async def run(self, signals: AsyncIterator[signal.Signals]) -> None:
        """Serve until one of `signals`, or an operator's word, then drain.

        Returns when everything that was started has ended.
        """
        await self._engine.fences.resume()
        if self._link is None:
            # nobody else will hold these events: what is committed counts as acknowledged
            own = await OwnWatermark.of(self.journal)
            self.journal.subscribe(own.move)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(orphans.bury)
            await tasks.start(serve_local, self, assembly.local_settings(self._config))
            await self._start(tasks)
            tasks.start_soon(self._heed, signals)
            await self._told_to_stop.wait()
            await self._stop(self._why_to_stop)
            tasks.cancel_scope.cancel()

    async def _heed(self, signals: AsyncIterator[signal.Signals]) -> None:
        async for number in signals:
            self.drain(number.name)

    def drain(self, reason: str) -> None:
        """Begin to stop: no new work, what runs may finish within `drain_s`, then the process ends."""
        if not self._told_to_stop.is_set():
            self._why_to_stop = reason
            self._told_to_stop.set()

    async def _start(self, tasks: anyio.abc.TaskGroup) -> None:
        self._make_work_dir()
        started = DriverStarted(software=self._identity.software)
        await self.journal.transact(lambda tx: announce(tx, started))
        await self._metrics.recall()
        recovered = await self._engine.recover()
        await self._tidy_spool(recovered)
        for provider in self._providers.values():
            await tasks.start(provider.run)
        await tasks.start(self._engine.run, recovered)
        self._posture.ready = True
        if self._link is not None:
            tasks.start_soon(self._link.run)
        tasks.start_soon(self._supervisor.run)
        tasks.start_soon(prune, self.journal, assembly.retention(self._config))
        if self._gateway is not None:
            await tasks.start(self._serve_gateway, self._gateway)
        gc.freeze()  # and so does what the configuration had loaded, as in `main`
        log.info(
            "ready",
            waiting=len(recovered.waiting),
            running=len(recovered.running),
            unknown=recovered.unknown,
            control=self._link is not None,
            gateway=self._gateway is not None,
        )
        notify.notify(f"READY=1\nSTATUS={self._in_words()}")
        if self._watched_s is not None:
            tasks.start_soon(watchdog.watch, self.journal, self._watched_s, self._in_words)

    async def _serve_gateway(self, gateway: "Gateway", *, task_status: TaskStatus[None]) -> None:
        """Let agents in; from `task_status` on their calls can be taken."""
        path = self._config.gateway_socket
        listener = await anyio.to_thread.run_sync(listen, path, GATEWAY_MODE)
        try:
            await gateway.run(listener.socket, _uid_of, task_status=task_status)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(listener.close)

    async def _tidy_spool(self, recovered: Recovered) -> None:
        """Remove what a crash between a command's outcome and its clean-up has left."""
        running = (found.assignment for found in recovered.running)
        keep = {(assignment.operation_id, assignment.attempt) for assignment in running}
        await anyio.to_thread.run_sync(Spool(assembly.spool(self._config)).tidy, keep)

    def _make_work_dir(self) -> None:
        """Make the folder that providers run in, before anything is recorded."""
        try:
            self._config.work_dir.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise FolderUnusable(self._config.work_dir, error) from error

    async def _stop(self, reason: str) -> None:
        """Drain within the bound; what was not delivered stays in the journal for the next start."""
        log.info("stopping", reason=reason, running=self._engine.dispatcher.slots.in_use)
        # whatever drain_s is, the service manager waits for its end
        longest_s = self._config.driver.drain_s + 2 * CANCEL_DRAIN_S + FLUSH_S + STOP_MARGIN_S
        notify.notify(f"STOPPING=1\nEXTEND_TIMEOUT_USEC={round(longest_s * 1e6)}\nSTATUS={self._in_words()}")
        self._posture.draining = True
        await self.journal.transact(lambda tx: announce(tx, DriverStopping(reason=reason)))
        await self._engine.dispatcher.drain()
        if self._gateway is not None:
            await self._gateway.flush()
        if self._link is not None and self._link.statistics().connected:
            with anyio.move_on_after(FLUSH_S):
                statistics = self.journal.statistics()
                await self._link.acknowledged(statistics.last_seq - statistics.base)

    def status(self) -> StatusFacts:
        """Return what is true now, for the local API."""
        return StatusFacts(
            state=self._posture.state,
            driver_id=self._identity.driver_id,
            boot_id=self._identity.boot_id,
            link=self._link_facts(),
            integrity="ok",
            fault_injection=self._drill.words,
            diverged=self._metrics.tallies.divergences,
            duplicated=self._metrics.tallies.duplicated,
            gateway=self._gateway_facts(),
        )

    def withheld(self, tool: str) -> tuple[str, ...]:
        """Return the paths that today's contract of a tool withholds, for the local API."""
        redact = self._terms.lookup(tool).redact
        return () if redact is None else redact.paths

    def allowed(self, view: View, record: OperationRecord) -> tuple[str, ...]:
        """Return what may be done now about an operation, for the local API."""
        return self._engine.remedies.allowed(view, record)

    async def wall(self, run_id: RunId) -> Wall | None:
        """Return what the supervisor's model would be shown of a run, for the local API."""
        return await self._supervisor.wall(run_id)

    @property
    def triage_model(self) -> str:
        """Whom the supervisor asks, for the local API."""
        return self._supervisor.model_name

    async def submit(self, kind: str, run_id: RunId, data: JsonObject) -> Submission:
        """Record and do a command that was given on this machine."""
        return await self._engine.local.submit(kind, run_id, data)

    @property
    def providers(self) -> Mapping[str, Provider]:
        """All providers, for the gateway."""
        return self._providers

    @property
    def scope(self) -> str:
        """What operation ids are made within, for the gateway."""
        return self._config.scope

    @property
    def stopping(self) -> bool:
        """Whether the daemon drains, for the gateway."""
        return self._posture.draining

    def contract(self, tool: str) -> Contract:
        """Return what holds for a tool today, for the gateway."""
        return self._terms.lookup(tool)

    async def deliver(self, frame: CommandFrame) -> Answer:
        """Take a call of an agent."""
        (answer,) = await self._engine.intake.deliver([frame], Origin.GATEWAY)
        return answer

    async def requeue(self, seq: int) -> Requeueing:
        """Report a dead letter again, for an operator on this machine."""
        return await self._engine.local.requeue(seq)

    async def unfence(self, actor: str, *, accept_rollback: bool) -> Unfencing:
        """Lift the fence, for an operator on this machine; then say hello to the plane anew."""
        found = await self._engine.fences.lift(accept_rollback=accept_rollback, actor=actor)
        if self._link is not None and isinstance(found, Unfenced):
            self._link.renew()
        return found

    async def metrics(self) -> bytes:
        """Return the metrics of this process life, for the local API."""
        return await self._metrics.exposition()

    async def ailment(self) -> str | None:
        """Return None while the journal can commit within the watchdog's interval, else what is wrong."""
        patience_s = self._watched_s or HEALTH_S
        with anyio.move_on_after(patience_s):
            await self.journal.transact(Transaction.beat)
            return None
        return f"the journal has not committed anything for {patience_s:g} s: look at the disk"

    def _in_words(self) -> str:
        """Return the state in one line, for whoever asks the service manager."""
        running, waiting = self._engine.dispatcher.slots.in_use, self._engine.dispatcher.depth
        return f"{self._posture.state}: {running} running, {waiting} waiting"

    def _late(self, operation_id: OperationId, attempt: int, report: Report) -> None:
        self._engine.dispatcher.late(operation_id, attempt, report)

    def _control_link(self) -> Link | None:
        control = self._config.control
        if control is None:
            return None
        return Link(
            settings=assembly.link_settings(control),
            journal=self.journal,
            desk=self._engine.control_desk(self._identity),
            software=self._identity.software,
            clock=_now,
            boundary=self._boundary,
        )

    def _moment(self) -> Moment:
        link = None if self._link is None else self._link.statistics()
        return Moment(
            software=self._identity.software,
            state=self._posture.state,
            connected=None if link is None else link.connected,
            connections=0 if link is None else link.welcomes,
            running=self._engine.dispatcher.slots.in_use,
            waiting=self._engine.dispatcher.depth,
            refused=self._engine.intake.refused,
            asked=self._supervisor.calls,
            lines_dropped=self._lines.dropped,
            gateway=None if self._gateway is None else self._gateway.tally,
        )

    def _gateway_facts(self) -> GatewayFacts | None:
        table = self._config.gateway
        if self._gateway is None or table is None:
            return None
        return GatewayFacts(connections=self._gateway.tally.connections, listen=table.listen or None)

    def _link_facts(self) -> LinkFacts:
        if self._link is None:
            return LinkFacts(connected=False, since=None, url=None)
        status = self._link.statistics()
        return LinkFacts(
            connected=status.connected,
            since=timestamp(status.since),
            url=status.url,
            last_error=status.last_error,
            acked_seq=status.acked_seq,
        )
