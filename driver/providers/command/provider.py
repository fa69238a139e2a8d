"""Programs as a provider: each call is a program under a shim of its own.

Part of `driver.providers.command`; imports all of it, and `driver.core`.

A call's tree of processes is gone before its report is returned, whatever the report says. Only when this
task itself is cancelled, which means that the daemon gives up without an outcome, programs go on under their
shims, each until its own deadline, and the next life of the daemon readopts them.
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import anyio
import structlog
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from driver.core.attempts import NotSent, Phase, Report, Silence, ToolCall
from driver.providers.command import cgroup
from driver.providers.command.errors import AttemptExists, Refused
from driver.providers.command.findings import conclude
from driver.providers.command.launch import examine, fill, locate
from driver.providers.command.looking import look
from driver.providers.command.settings import CommandSettings, Program
from driver.providers.command.shim.words import KILL_S, TERM_S
from driver.providers.command.spawn import spawn
from driver.providers.command.spool import Spool
from driver.providers.command.tether import Tether
from driver.providers.command.zygote import Zygote
from driver.providers.protocol import Progress
from driver.providers.readoption import Finished, Lost, Readopted
from driver.providers.serving import described
from store.records import JsonObject, JsonValue, OperationId

RECORD_S: Final = 5.0
"""What a slow disk may take over the record, beyond the deadline and the end of the program."""
OVERDUE_S: Final = TERM_S + KILL_S + RECORD_S
"""A shim that is still there so long after its deadline is stopped, or deaf."""
STOP_S: Final = TERM_S + KILL_S + 0.5
"""From a cancel until a shim is killed; within the 5 s that a cancel may take."""
KILLED_S: Final = 2.0
"""From the SIGKILL of a shim until it is given up: then it hangs in the kernel."""

T = TypeVar("T")

log: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


class CommandProvider:
    """A `Provider` of kind `command`, which is `Readopting` and `Serving`."""

    def __init__(self, settings: CommandSettings) -> None:
        self._settings = settings
        self._spool = Spool(settings.spool)
        self._zygote = Zygote()
        self._group: Path | None = None
        self._tethers: set[Tether] = set()
        self._calls = 0
        self._settled: deque[tuple[OperationId, int]] = deque()
        self._changed = anyio.Event()
        self._closing = anyio.Event()
        self._closed = anyio.Event()
        self._running = False
        self._abandoned = False

    @property
    def name(self) -> str:
        """See `Provider.name`."""
        return self._settings.name

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """See `Provider.run`, and the module's docstring for what a cancellation means."""
        self._running = True
        try:
            self._group = await anyio.to_thread.run_sync(cgroup.delegated)
            log.debug("command_provider", provider=self.name, cgroup=self._group is not None)
            task_status.started()
            await _in_thread(self._warm_up)
            while self._calls or not self._closing.is_set():
                self._changed = anyio.Event()
                await self._clean()
                await self._changed.wait()
            await self._clean()
        except anyio.get_cancelled_exc_class():
            self._abandoned = True
            raise
        finally:
            self._closing.set()
            await _in_thread(self._zygote.close)
            self._closed.set()

    async def close(self) -> None:
        """See `Provider.close`."""
        self._closing.set()
        for tether in self._tethers:
            tether.cancel()
        self._changed.set()
        if self._running:
            await self._closed.wait()

    async def definitions(self) -> tuple[JsonObject, ...]:
        """See `Serving.definitions`."""
        return tuple(described(name, _sources(program)) for name, program in self._settings.programs.items())

    def ready(self, call: ToolCall) -> bool:
        """See `Provider.ready`. A tool that names a folder is looked at on the disk first."""
        if self._closing.is_set() or not self._zygote.warm:
            return False
        try:
            return fill(self._settings, call).cwd is None
        except Refused:
            return False

    async def prepare(self, call: ToolCall) -> NotSent | None:
        """See `Provider.prepare`."""
        try:
            filled = fill(self._settings, call)
            launch = await anyio.to_thread.run_sync(locate, self._settings, filled)
            launch.close()
            await anyio.to_thread.run_sync(self._zygote.warm_up)
        except Refused as refused:
            return refused.report
        return None

    async def examine(self) -> Mapping[str, NotSent] | NotSent:
        """Return the tools no call of which can be made, as far as declarations tell; or why none can at all.

        Executes no program.
        """
        found: dict[str, NotSent] = {}
        try:
            await anyio.to_thread.run_sync(self._zygote.warm_up)
        except Refused as refused:
            return refused.report
        for tool, program in self._settings.programs.items():
            try:
                await anyio.to_thread.run_sync(examine, self._settings, program)
            except Refused as refused:
                found[tool] = refused.report
        return found

    def observes(self, tool: str) -> bool:
        """See `driver.providers.observing`."""
        program = self._settings.programs.get(tool)
        return program is not None and program.evidence is not None

    async def observe(self, call: ToolCall) -> str | None:
        """See `driver.providers.observing`."""
        return await look(self._settings, call, self._zygote)

    async def dispatch(self, call: ToolCall, progress: Progress) -> Report:
        """See `Provider.dispatch`.

        A program that was not executed after all is reported with the phase taken back to `connecting`. One
        that ended by itself before a cancel reached it is an answer, and is returned.
        """
        deadline = anyio.current_time() + call.timeout_s
        progress(Phase.CONNECTING)
        with self._busy():
            tether = await _in_thread(partial(self._start, call))
            if isinstance(tether, NotSent):
                return tether
            if isinstance(tether, Silence):
                progress(Phase.WRITING)
                return tether
            with self._held(tether):
                refusal = await self._release(tether, deadline, progress)
                if refusal is not None:
                    return refusal
                found = await self._outcome(tether, progress)
        progress(found.phase)
        return found.report

    async def readopt(self, operation_id: OperationId, attempt: int) -> Readopted:
        """See `Readopting.readopt`."""
        found = await anyio.to_thread.run_sync(self._find, operation_id, attempt)
        return _Readopted(self, found) if isinstance(found, Tether) else found

    def settled(self, operation_id: OperationId, attempt: int) -> None:
        """See `Readopting.settled`."""
        self._settled.append((operation_id, attempt))
        self._changed.set()

    # ------------------------------------------------------------ in worker threads

    def _warm_up(self) -> None:
        """Have the zygote there before the first call. Where that fails, calls will say so. Blocks."""
        with suppress(Refused):
            self._zygote.warm_up()

    def _start(self, call: ToolCall) -> Tether | NotSent | Silence:
        """Start a shim for `call`, or return why there is none. Blocks."""
        try:
            launch = locate(self._settings, fill(self._settings, call))
            try:
                place = self._spool.place(call.operation_id, call.attempt)
                return spawn(place, launch, call, self._zygote, self._group)
            finally:
                launch.close()
        except Refused as refused:
            return refused.report
        except AttemptExists as exists:
            return Silence(cause="internal", message=str(exists))

    def _find(self, operation_id: OperationId, attempt: int) -> Tether | Finished | Lost:
        """Return the shim of an attempt if it lives, else what the attempt came to. Blocks."""
        place = self._spool.place(operation_id, attempt)
        try:
            control = place.open_control()
        except OSError as error:
            return Lost(message=f"whether the program still runs cannot be told: {error}")
        if control is None:
            return conclude(place)
        tether = Tether(place, control)
        started = place.started()
        # without that record it is just ending, unreleased, or it is just being released: see `postponed`
        tether.deadline = started.deadline if started is not None else time.monotonic()
        return tether

    # ------------------------------------------------------------ one attempt

    @contextmanager
    def _busy(self) -> Generator[None]:
        """Keep `close` waiting."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            self._changed.set()

    @contextmanager
    def _held(self, tether: Tether) -> Generator[None]:
        self._tethers.add(tether)
        try:
            yield
        finally:
            self._tethers.discard(tether)
            tether.close()

    async def _release(self, tether: Tether, deadline: float, progress: Progress) -> NotSent | None:
        """Let a shim that is ready execute its program; one that may not do so is gone at the end."""
        try:
            refusal = await tether.ready(deadline) or self._objection(deadline)
            if refusal is None:
                progress(Phase.WRITING)
                tether.release(deadline)
            return refusal
        finally:
            if not tether.released:
                tether.hang_up()
                with anyio.CancelScope(shield=True):
                    if tether.deaf:
                        await _in_thread(self._zygote.close)  # the next call starts another
                    await self._end(tether)

    def _objection(self, deadline: float) -> NotSent | None:
        if self._closing.is_set():
            return NotSent(reason="cancelled", message=f"provider {self.name} is being closed")
        if anyio.current_time() >= deadline:
            return NotSent(reason="deadline", message="the deadline passed before the program was started")
        return None

    async def _outcome(self, tether: Tether, progress: Progress) -> Finished:
        """Wait for the end of a program that was released, and return what it came to."""
        try:
            await _in_thread(tether.place.persist)  # while the program runs
            return await self._wait(tether, progress)
        except Exception:
            with anyio.CancelScope(shield=True):
                await self._end(tether)
            raise
        except anyio.get_cancelled_exc_class():
            if await self._gives_up():
                raise
            found: list[Finished] = []
            with anyio.CancelScope(shield=True):
                found.append(await self._end(tether))
            if isinstance(found[0].report, Silence):
                raise
            return found[0]

    async def _wait(self, tether: Tether, progress: Progress) -> Finished:
        while True:
            with anyio.move_on_at(tether.deadline + OVERDUE_S):
                if await tether.executed():
                    progress(Phase.WRITTEN)
                await tether.gone()
                return await self._conclude(tether)
            if not await _in_thread(tether.postponed):
                break
        log.warning("shim_overdue", provider=self.name, operation_id=tether.place.operation_id)
        found = await self._end(tether)
        if isinstance(found.report, Silence):
            found = replace(found, report=replace(found.report, cause="deadline"))
        return found

    async def _gives_up(self) -> bool:
        """Return whether the whole provider is cancelled: then its task has heard of it one step later."""
        with anyio.CancelScope(shield=True):
            await anyio.lowlevel.checkpoint()
        return self._abandoned

    async def _end(self, tether: Tether) -> Finished:
        """Tell a shim to end its program, kill it if it is deaf, and return what it came to."""
        tether.cancel()
        with anyio.move_on_after(STOP_S):
            await tether.gone()
            return await self._conclude(tether)
        await _in_thread(tether.kill)
        with anyio.move_on_after(KILLED_S):
            await tether.gone()
        return await self._conclude(tether)

    async def _conclude(self, tether: Tether) -> Finished:
        found = await _in_thread(partial(conclude, tether.place))
        if isinstance(found, Lost):
            report = Silence(cause="connection_lost", message=found.message)
            return Finished(report=report, phase=Phase.WRITTEN)
        return found

    async def _clean(self) -> None:
        """Remove the folders of attempts whose outcome is durable."""
        while self._settled:
            await _in_thread(partial(self._spool.remove, *self._settled.popleft()))

    async def finish(self, tether: Tether) -> Finished:
        """Wait for a readopted shim: see `Running.finish`."""
        with self._busy(), self._held(tether):
            return await self._outcome(tether, _unheard)


class _Readopted:
    """A `Running` of this provider."""

    def __init__(self, provider: CommandProvider, tether: Tether) -> None:
        self._provider = provider
        self._tether = tether

    async def finish(self) -> Finished:
        """See `Running.finish`."""
        return await self._provider.finish(self._tether)


async def _in_thread(step: Callable[[], T]) -> T:
    """Return what `step` returns in a worker thread. A cancelled caller waits for it all the same."""
    done: list[T] = []
    with anyio.CancelScope(shield=True):
        done.append(await anyio.to_thread.run_sync(step))
    return done[0]


def _unheard(phase: Phase) -> None:
    """Nobody asks for the phases of a readopted attempt: its last one comes with its end."""
    del phase


def _sources(program: Program) -> tuple[JsonValue, ...]:
    filled = (program.argv, program.cwd, program.stdin)
    return tuple(template.source for template in filled if template is not None)
