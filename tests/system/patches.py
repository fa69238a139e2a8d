"""Mechanisms that are taken away, by name, in a daemon that was just forked: for the negative controls.

Each is what somebody could leave out, or get wrong, without any other test of the daemon's parts failing. The
product has no switch for any of them: they reach into its modules from here.
"""

import os
import signal
import socket
import sqlite3
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, cast

import anyio

from driver.core.answers import Repeat
from driver.core.attempts import Report
from driver.core.commands import ToolCallData
from driver.core.conclusion import Attempted
from driver.core.unfencing import Unfenced
from driver.engine.dispatcher import Dispatcher
from driver.engine.intake import Intake
from driver.engine.posture import Posture
from driver.engine.running import Running
from driver.engine.terms import Terms
from driver.gateway.calls import Calls
from driver.gateway.outcomes import Ended
from driver.gateway.waiting import Waits
from driver.log import LogFormat, Output, configure
from driver.providers.mcp.jsonrpc import RequestId
from driver.providers.mcp.provider import McpProvider
from driver.providers.mcp.stdio import StdioWire
from store.batches import Batches
from store.events import Draft, DriverUnfenced, OperationNotExecuted, OperationStarted, OperationSucceeded
from store.records import JournalId, JsonObject, OperationId, Origin
from store.transaction import Transaction
from store.writer import Writer
from tests.faults.notifier import submit


def no_intent_commit() -> None:
    """Let the call go out without its intent in the journal."""
    original = Transaction.append

    def append(self: Transaction, draft: Any) -> Any:  # noqa: ANN401 - whatever the original takes
        is_intent = isinstance(draft.data, OperationStarted)
        return self.event(self.last_seq) if is_intent else original(self, draft)

    Transaction.append = append  # type: ignore[method-assign]


def no_dedupe() -> None:
    """Execute a command again whenever it is delivered again."""
    original = Intake.deliver

    async def deliver(self: Intake, frames: Any, origin: Origin = Origin.PLANE) -> Any:  # noqa: ANN401
        answers = await original(self, frames, origin)
        for frame, answer in zip(frames, answers, strict=True):
            if isinstance(answer, Repeat) and self._dispatcher.slots.take(1):
                offer = self._offers.read(frame)
                data = offer.candidate.data
                assert isinstance(data, ToolCallData)
                assignment = self._assignment(offer, data, origin, None)
                self._dispatcher.run_started(assignment, assignment.deadline(datetime.now(UTC)), 0)
        return answers

    Intake.deliver = deliver  # type: ignore[method-assign]


def answer_uncommitted() -> None:
    """Let an agent have the provider's answer before its outcome is in the journal."""
    original = Waits.answered

    def answered(self: Waits, operation_id: OperationId, report: Report) -> None:
        original(self, operation_id, report)
        wait = self._by_operation.get(operation_id)
        if wait is not None:
            data: JsonObject = {"effect": "occurred"}
            kind = OperationSucceeded.KIND
            self.end(wait, Ended(operation_id=operation_id, kind=kind, data=data, report=report))

    async def end(self: Dispatcher, running: Running, newest: Attempted) -> None:
        await anyio.sleep_forever()  # a commit that takes longer than this process lives

    Waits.answered = answered  # type: ignore[method-assign]
    Dispatcher._end = end  # type: ignore[method-assign]


def no_fsync() -> None:
    """Ask SQLite for no fsync at all."""
    _set_synchronous_off(expected=2)


def no_fsync_unnoticed() -> None:
    """Ask SQLite for no fsync at all, and take away the look at what it made of that, too."""
    _set_synchronous_off(expected=0)


def _set_synchronous_off(expected: int) -> None:
    module: Any = import_module("store.connection")
    settings = (item for item in module._SET if item[0] != "synchronous")
    module._SET = (*settings, ("synchronous", "OFF", expected))


class _Postponing:
    """A connection whose COMMIT comes with the next transaction."""

    def __init__(self, inner: sqlite3.Connection) -> None:
        self._inner = inner

    def execute(self, statement: str, parameters: tuple[object, ...] = ()) -> sqlite3.Cursor:
        if statement == "COMMIT":
            return self._inner.execute("SELECT 1")
        if statement.startswith(("BEGIN", "PRAGMA wal_checkpoint")) and self._inner.in_transaction:
            self._inner.execute("COMMIT")
        return self._inner.execute(statement, parameters)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the connection has
        return getattr(self._inner, name)


def told_before_commit() -> None:
    """Tell everybody what was recorded before it is durable: one commit too early."""
    original = Writer.__init__

    def init(self: Writer, ledger: Batches, *rest: Any, **named: Any) -> None:  # noqa: ANN401
        ledger.connection = cast("sqlite3.Connection", _Postponing(ledger.connection))
        original(self, ledger, *rest, **named)

    Writer.__init__ = init  # type: ignore[method-assign]


def no_confirmation() -> None:
    """Act on what an earlier boot accepted without waiting for the plane's word about this journal."""

    def may_dispatch(self: Posture) -> bool:
        return not self.draining and self.fence is None

    # mypy lets nobody assign to a property
    setattr(Posture, "may_dispatch", property(may_dispatch))  # noqa: B010


def lost_is_not_executed() -> None:
    """Say of a call whose outcome was lost that it never happened."""
    module: Any = import_module("driver.engine.recovery")

    def not_executed(attempt: int) -> Attempted:
        outcome = OperationNotExecuted(reason="cancelled")
        return Attempted(attempt=attempt, phase=None, outcome=outcome)

    module.lost = not_executed


def no_hold() -> None:
    """Act on an intent that the plane does not hold yet."""

    async def hold(self: Dispatcher, running: Running) -> None:
        del self, running

    Dispatcher._hold = hold  # type: ignore[method-assign]


def any_answer_will_do() -> None:
    """Take whatever a server answers for the answer to the call that has waited longest."""
    original = StdioWire._answer

    def answer(self: StdioWire, request_id: RequestId, reply: Any) -> None:  # noqa: ANN401
        known = request_id in self._exchanges or not isinstance(request_id, int) or request_id < 1_000
        original(self, request_id if known else next(iter(self._exchanges), request_id), reply)

    StdioWire._answer = answer  # type: ignore[method-assign]


def no_readoption() -> None:
    """Ask nobody at the start what became of the commands of an earlier life."""

    def nobody(self: Terms, tool: str) -> None:
        del self, tool

    Terms.readopting = nobody  # type: ignore[method-assign]


def nothing_lands() -> None:
    """Take every call that was given up for one that cannot land any more."""

    def closed(self: Terms, tool: str, operation_id: OperationId, attempt: int) -> bool:
        del self, tool, operation_id, attempt
        return True

    Terms.is_closed = closed  # type: ignore[method-assign]
    nobody_parts()


def nobody_parts() -> None:
    """Send a retried call beside whatever a process may still do about an earlier attempt of it."""

    async def parted(self: McpProvider, operation_id: OperationId) -> bool:
        del self, operation_id
        return True

    McpProvider._part = parted  # type: ignore[method-assign]


def commits_hang() -> None:
    """Let no commit through while the file `STALL` is there, as a disk does that hangs."""
    original = Writer.commit

    def commit(self: Writer, units: Any) -> Any:  # noqa: ANN401 - whatever the original takes
        while Path(os.environ["STALL"]).exists():
            time.sleep(0.01)  # in the journal's own thread
        return original(self, units)

    Writer.commit = commit  # type: ignore[method-assign]


def log_in_line() -> None:
    """Write each line when it is logged, and wait for whoever reads it."""
    module = import_module("driver.log")

    @contextmanager
    def in_line(level: str, log_format: LogFormat) -> Generator[Output]:
        yield configure(level, log_format)

    vars(module)["unhindered"] = in_line


def _dies_unfencing(boundary: str) -> None:
    """Die, as by SIGKILL, at this boundary of the commit in which the daemon is unfenced."""
    append, init = Transaction.append, Writer.__init__
    unfences = False

    def appended(self: Transaction, draft: Any) -> Any:  # noqa: ANN401 - whatever the original takes
        nonlocal unfences
        unfences |= isinstance(draft.data, DriverUnfenced)
        return append(self, draft)

    def passed(name: str) -> None:
        if unfences and name == boundary:
            os.kill(os.getpid(), signal.SIGKILL)

    def begin(self: Writer, *rest: Any, **named: Any) -> None:  # noqa: ANN401
        init(self, *rest, **{**named, "boundary": passed})

    Transaction.append = appended  # type: ignore[method-assign]
    Writer.__init__ = begin  # type: ignore[method-assign]


def dies_before_it_is_unfenced() -> None:
    """Die when all is ready for the commit that unfences."""
    _dies_unfencing("journal.before_commit")


def dies_unfenced() -> None:
    """Die when the commit that unfences is durable, and nobody was told."""
    _dies_unfencing("journal.after_commit")


def no_burials() -> None:
    """Bury nobody."""
    vars(import_module("driver.orphans"))["bury"] = anyio.sleep_forever


def a_backup_goes_on() -> None:
    """Let a restored backup that the plane agrees to go on in the history that it was made of."""
    module: Any = import_module("driver.engine.fences")

    def agree(tx: Transaction, new_id: JournalId) -> Any:  # noqa: ANN401 - the module's own
        del new_id
        fence = tx.fence
        assert fence is not None, "the plane agrees to a fenced journal"
        tx.lift_fence()
        tx.append(Draft(data=DriverUnfenced(reason=fence.reason, actor=module.PLANE)))
        return module._Lifted(Unfenced(reason=fence.reason, journal_id=tx.journal_id))

    module._agree = agree


def traced() -> None:
    """Take nothing away: set up an SDK, which writes each span that has ended into the file `SPANS`."""
    from opentelemetry import trace  # noqa: PLC0415 - only where it is asked for
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor  # noqa: PLC0415

    provider = TracerProvider()
    # the daemon's own file, open as long as it lives
    out = Path(os.environ["SPANS"]).open("w", encoding="utf-8")  # noqa: SIM115
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=out)))
    trace.set_tracer_provider(provider)


def leaks_a_descriptor() -> None:
    """Keep a descriptor of each operation that is begun."""
    original = Dispatcher._hold

    async def hold(self: Dispatcher, running: Running) -> Any:  # noqa: ANN401 - whatever the original says
        os.dup(2)
        return await original(self, running)

    Dispatcher._hold = hold  # type: ignore[method-assign]


def asks_about_calls() -> None:
    """Have the kernel ask whoever listens on a socket about each file call (`tests.faults.notifier`).

    Where a file is named for it, each boundary that is passed is written there, too.
    """
    if (notes := os.environ.get("EFFECTD_FAULTS_NOTES")) is not None:
        _note_boundaries(notes)
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(os.environ["EFFECTD_FAULTS_CHANNEL"])
    submit(channel, os.environ["EFFECTD_FAULTS_CALL"])


def _note_boundaries(path: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def noting(_: object) -> Callable[[str], None]:
        return lambda name: (os.write(descriptor, name.encode() + b"\n"), None)[1]

    vars(import_module("driver.faults"))["boundary"] = noting


def impatient() -> None:
    """Wait for the answer of an agent's call hardly longer than it should take."""
    original = Calls.__init__

    def begin(self: Calls, sources: Any, waits: Any, limits: Any, tasks: Any) -> None:  # noqa: ANN401
        original(self, sources, waits, replace(limits, patience_s=0.2), tasks)

    Calls.__init__ = begin  # type: ignore[method-assign]


PATCHES: Final[Mapping[str, Callable[[], None]]] = MappingProxyType(
    {
        patch.__name__: patch
        for patch in (
            no_intent_commit,
            impatient,
            no_dedupe,
            answer_uncommitted,
            no_fsync,
            no_fsync_unnoticed,
            told_before_commit,
            no_confirmation,
            lost_is_not_executed,
            any_answer_will_do,
            no_readoption,
            nothing_lands,
            nobody_parts,
            no_hold,
            log_in_line,
            commits_hang,
            dies_before_it_is_unfenced,
            dies_unfenced,
            no_burials,
            traced,
            a_backup_goes_on,
            leaks_a_descriptor,
            asks_about_calls,
        )
    }
)


def apply(name: str) -> None:
    """Take a mechanism away, in this process."""
    PATCHES[name]()


if __name__ == "__main__":
    apply(sys.argv[1])
    sys.argv = ["effectd", *sys.argv[2:]]
    sys.exit(import_module("driver.cli.main").main())
