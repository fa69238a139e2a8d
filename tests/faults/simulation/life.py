"""One process life of the daemon, composed of the real parts as `driver.daemon` composes them."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar, cast

import anyio

from driver.core.attempts import Report, ToolCall
from driver.core.retry import MachineClock
from driver.core.unfencing import Unfenced
from driver.engine.announcements import announce
from driver.engine.calling import CANCEL_DRAIN_S
from driver.engine.desk import Identity
from driver.engine.engine import Engine
from driver.engine.fences import ROLLBACKS
from driver.engine.posture import Limits, Posture
from driver.engine.pruning import prune
from driver.engine.supervision import outside
from driver.engine.surroundings import Surroundings
from driver.engine.terms import Terms
from driver.link.link import Link
from driver.link.settings import LinkSettings
from store.events import DriverStarted, DriverStopping
from store.journal import Journal, open_journal
from store.lifecycle import Effect
from store.records import BootId, OperationFilter, OperationId, OperationRecord, StoredEvent
from store.retention import RetentionSettings
from store.settings import JournalSettings
from store.view import View
from supervisor.loop import Supervisor
from supervisor.models.model import Judged
from supervisor.triage import Settings
from supervisor.verdict import Answer, Word
from supervisor.wall import Wall
from tests.faults.simulation.disk import Disk
from tests.faults.simulation.loop import PROCESS
from tests.faults.simulation.network import DEAD_AFTER_S, Network, dialling
from tests.faults.simulation.tools import CONTRACTS, Caller, ToolProvider, Tools
from tests.faults.simulation.truth import Truth

T = TypeVar("T")

BASE: Final = datetime(2030, 1, 1, tzinfo=UTC)
SCOPE: Final = "simulated"
LIMITS: Final = Limits(inflight_max=3, queue_max=50, approvals_max=50, run_unsettled_max=50, drain_s=3.0)
TRIAGE: Final = Settings(interval_s=20.0, max_attempts=3, wall_bytes_max=100_000, min_age_s=5.0)


class Clocks:
    """The wall clock, which anybody sets, and the machine's own."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        self.boots = 1
        self.booted_at = -1_000.0

    def wall(self) -> datetime:
        """Return what the wall clock shows."""
        return BASE + timedelta(seconds=asyncio.get_running_loop().time() + self.ahead_s)

    def machine(self) -> MachineClock:
        """Return what the machine's clock shows."""
        return MachineClock(f"boot-{self.boots}", asyncio.get_running_loop().time() - self.booted_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What every life of one world shares."""

    folder: Path
    token: Path
    truth: Truth
    tools: Tools
    network: Network
    clocks: Clocks
    rng: Random
    ids: Callable[[], str]
    bold: bool
    """Whether the supervisor's model says more than it knows."""
    keeps_s: float | None
    """For how long what is over is kept; None: for as long as the world lasts."""


class Bold:
    """A model that guesses."""

    name = "bold"
    is_paid = False

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    async def judge(self, wall: Wall) -> Judged:
        words = tuple(
            Word(entry.operation_id, self._rng.choice((Effect.NONE, Effect.OCCURRED)), "a guess")
            for entry in wall.entries
        )
        answer = Answer(
            needs_attention=False, summary="guessed", causes=(), remedies=(), lesson="", words=words
        )
        return Judged(answer, "answered")


class Life(Caller):
    """One life, from the start of its process to its end."""

    def __init__(self, number: int, disk: Disk, around: Around) -> None:
        super().__init__(f"life-{number}", disk)
        self.number = number
        self.around = around
        self.context: Context = copy_context()
        self.context.run(PROCESS.set, self)
        self.confirmed = False
        self.dies_at_boundary: tuple[str, int] | None = None
        self.told_to_stop = asyncio.Event()
        self.ended = asyncio.Event()
        """Stopped by itself."""
        self.journal: Journal | None = None
        self.engine: Engine | None = None
        self.posture = Posture(fence=None, confirmed=False)
        self.link: Link | None = None
        self.ready = False
        self.closing = False
        """Whether it lets go of its journal: it has nothing more to do."""

    @property
    def serves(self) -> bool:
        """Whether it has started, and has its journal open still: its end takes as long as its disk does."""
        return self.alive and self.ready and not self.closing and not self.ended.is_set()

    @property
    def stays(self) -> bool:
        """Whether it serves, and nobody has told it to stop."""
        return self.serves and not self.told_to_stop.is_set()

    def start(self) -> None:
        """Begin to live."""
        self._spawn(self._run())

    def _spawn(self, step: Coroutine[Any, Any, None]) -> None:
        """Run something as the process; the loop keeps it."""
        loop = asyncio.get_running_loop()
        loop.create_task(step, context=self.context)  # noqa: RUF006 - see the docstring

    async def ask(self, question: Callable[[Journal], Awaitable[T]]) -> T:
        """Ask the journal something, as the process would."""
        assert self.journal is not None, "it was opened"
        loop = asyncio.get_running_loop()
        return await loop.create_task(_asked(question, self.journal), context=self.context)

    def close(self) -> None:
        """Let go of the files, as they are, of a process that is dead."""
        for connection in self.connections:
            with suppress(sqlite3.Error):
                connection.interrupt()
                connection.close()

    def unfence(self) -> None:
        """An operator on this machine lifts the fence."""
        self.around.truth.superseded.discard(self.name)
        self._spawn(self._lift())

    async def _lift(self) -> None:
        fence = self.posture.fence
        assert self.engine is not None, "an operator waits until it is ready"
        assert self.link is not None, "likewise"
        if fence is not None:
            found = await self.engine.fences.lift(
                accept_rollback=fence.reason in ROLLBACKS, actor="operator:1"
            )
            if isinstance(found, Unfenced):
                self.link.renew()

    # ------------------------------------------------------------ what the tools and the network see

    def calls(self, call: ToolCall) -> None:
        fence = self.posture.fence
        if fence is not None:
            self.around.truth.blame("I10", f"{call.operation_id} is called under a fence, {fence.reason}")

    def leaves(self, call: ToolCall) -> None:
        contract = CONTRACTS[call.tool]
        self.around.truth.leaves(
            self.number,
            call.operation_id,
            call.attempt,
            approval=contract.approval == "required",
            confirmed=self.confirmed,
            held=contract.held_s > 0,
            write=contract.effect == "write",
        )

    def late(self, operation_id: OperationId, attempt: int, report: Report) -> None:
        assert self.engine is not None, "whoever is answered has called"
        loop = asyncio.get_running_loop()
        loop.call_soon(self.engine.dispatcher.late, operation_id, attempt, report, context=self.context)

    def _pass(self, name: str) -> None:
        """The daemon passes a boundary: it may be its last."""
        if name == "link.welcomed":
            self.confirmed = True
        if self.dies_at_boundary is None or self.dies_at_boundary[0] != name:
            return
        left = self.dies_at_boundary[1] - 1
        self.dies_at_boundary = (name, left)
        if left == 0:
            self.dies_at = self.steps

    # ------------------------------------------------------------ the process

    async def _run(self) -> None:
        try:
            await self._serve()
        except Exception as error:  # noqa: BLE001 - whatever it is, the daemon has fallen over
            if not self.alive:
                return
            self.around.truth.blame("the daemon fell over", f"{error!r} {_inside(error)}")
        self.ended.set()

    @property
    def settings(self) -> JournalSettings:
        """Where its journal is."""
        folder = self.around.folder
        return JournalSettings(state_dir=folder / "state", runtime_dir=folder / "run", reserve_bytes=65_536)

    async def _serve(self) -> None:
        async with open_journal(
            self.settings, clock=self.around.clocks.wall, new_id=self.around.ids, boundary=self._pass
        ) as journal:
            self.journal = journal
            self._begin(*await journal.read(_everything))
            journal.subscribe(self._hear)
            await self._live(journal)
            self.closing = True

    def _begin(self, events: Sequence[StoredEvent], acked_seq: int) -> None:
        self.around.truth.begins(events, acked_seq)

    def _hear(self, events: Sequence[StoredEvent]) -> None:
        self.around.truth.committed(self.number, events)

    async def _live(self, journal: Journal) -> None:
        around = self.around
        posture = self.posture
        provider = ToolProvider(around.tools, self)
        surroundings = Surroundings(
            journal=journal,
            providers={"tools": provider},
            terms=Terms(around.tools.contracts(), {"tools": provider}),
            posture=posture,
            limits=LIMITS,
            scope=SCOPE,
            clock=around.clocks.wall,
            machine=around.clocks.machine,
            boundary=self._pass,
            new_id=around.ids,
        )
        self.engine = engine = Engine(surroundings)
        identity = Identity(
            driver_id="sbx-1",
            boot_id=BootId(around.ids()),
            software="effectd/0",
            inflight_max=3,
            tombstone_days=1,
        )
        self.link = link = Link(
            settings=LinkSettings(url="ws://plane", token_file=around.token, dead_after_s=DEAD_AFTER_S),
            journal=journal,
            desk=engine.control_desk(identity),
            software=identity.software,
            clock=around.clocks.wall,
            boundary=self._pass,
            chance=around.rng.random,
            dial=dialling(around.network, self),
        )
        model = Bold(around.rng)
        supervisor = Supervisor(journal, model, TRIAGE, outside(surroundings))
        await engine.fences.resume()
        async with anyio.create_task_group() as tasks:
            await journal.transact(lambda tx: announce(tx, DriverStarted(software=identity.software)))
            recovered = await engine.recover()
            await tasks.start(provider.run)
            await tasks.start(engine.run, recovered)
            posture.ready = self.ready = True
            tasks.start_soon(link.run)
            if around.keeps_s is not None:
                tasks.start_soon(prune, journal, _kept(around.keeps_s))
            if around.bold:
                tasks.start_soon(supervisor.run)
            await self.told_to_stop.wait()
            posture.draining = True
            await journal.transact(lambda tx: announce(tx, DriverStopping(reason="SIGTERM")))
            await engine.dispatcher.drain()
            if link.statistics().connected:
                with anyio.move_on_after(2.0):
                    statistics = journal.statistics()
                    await link.acknowledged(statistics.last_seq - statistics.base)
            tasks.cancel_scope.cancel()


STOP_S: Final = LIMITS.drain_s + 2 * CANCEL_DRAIN_S + 2.0 + 10.0
"""How long a stop may take: `driver.daemon` asks a service manager for as much."""


async def _asked(question: Callable[[Journal], Awaitable[T]], journal: Journal) -> T:
    return await question(journal)


def _everything(view: View) -> tuple[tuple[StoredEvent, ...], int]:
    return view.events(0, 1_000, 16_000_000), view.acked_seq


def _kept(seconds: float) -> RetentionSettings:
    """Forget what is over after so long; what answers a redelivery in its place stays."""
    return RetentionSettings(
        retention=timedelta(seconds=seconds), retention_unknown=timedelta(seconds=10 * seconds)
    )


async def records(journal: Journal) -> tuple[OperationRecord, ...]:
    """Return every operation that the journal knows."""
    page = await journal.read(lambda view: view.operations(OperationFilter(), None, 200))
    return page.items


async def dead_letters(journal: Journal) -> int:
    """Return how many events were refused for good."""
    return await journal.read(lambda view: view.parked())


def _inside(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    parts = cast("BaseExceptionGroup[BaseException]", error).exceptions
    return [leaf for part in parts for leaf in _inside(part)]


def counting() -> Callable[[], str]:
    """Return identities of 32 hex digits that count up."""
    numbers = count(1)
    return lambda: f"{next(numbers):032x}"
