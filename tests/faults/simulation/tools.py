"""The tools of a simulated world, and the provider through which a daemon calls them.

What a tool does happens in the world, and goes on when the daemon dies; its answer finds whoever still lives.
A contract's promises are kept: nothing lands after its window, or once its transport is closed; the tool that
declares a horizon deduplicates for so long; a look finds what has happened.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextvars import Context
from dataclasses import dataclass, field, replace
from random import Random
from types import MappingProxyType
from typing import Final

import anyio
from anyio.abc import TaskStatus

from driver.core.attempts import Answered, HttpStatus, NotSent, PeerError, Phase, Report, Silence, ToolCall
from driver.core.contracts import Compensation, Contract, Contracts, MetaKey, Probe, ToolName
from driver.core.expressions import Expression
from driver.core.templates import Template
from driver.providers.protocol import Progress
from store.records import OperationId
from tests.faults.simulation.disk import Machine
from tests.faults.simulation.truth import ONCE, Truth

EXECUTION_S: Final = 20.0
LATE_S: Final = 15.0
HORIZON_S: Final = 150.0

PLAIN: Final = Contract(declared=True, execution_s=EXECUTION_S, late_result_s=LATE_S)
SAFE: Final = replace(
    PLAIN,
    idempotent=True,
    dedupe_horizon_s=HORIZON_S,
    key_carrier=MetaKey(),
    retry="same-key",
    retry_attempts=4,
    retry_backoff_s=2.0,
)
FINDING: Final = Probe(
    tool="find",
    arguments=Template({"key": "=key"}),
    matches=Expression("result.count"),
    visible_after_s=2.0,
    attempts=4,
    authoritative_absence=True,
)
CONTRACTS: Final[dict[str, Contract]] = {
    "plain": PLAIN,
    "safe": SAFE,
    "asked": replace(PLAIN, approval="required", approval_expires_s=60.0),
    "probed": replace(
        PLAIN,
        probe=FINDING,
        compensate=Compensation(tool="undo", arguments=Template({"id": "=operation_id"})),
    ),
    "proving": replace(PLAIN, error_means="none"),
    "unsettled": replace(PLAIN, error_means="unsettled"),
    "held": replace(PLAIN, held_s=10.0),
    ONCE: replace(PLAIN, identical="once-per-run"),
    "undo": replace(PLAIN, error_means="none"),
    "handed": PLAIN,
    "read": replace(PLAIN, effect="read"),
    "find": replace(PLAIN, effect="read"),
}
HANDED: Final = "handed"
"""Does nothing itself, and is never heard of again: what other calls do for it is all that it does."""
WRITES: Final = ("plain", "safe", "asked", "probed", "proving", "unsettled", "once", "held")

OK: Final = Answered(result={"content": []})


class Caller(Machine, ABC):
    """A daemon, as the tools see it."""

    @abstractmethod
    def calls(self, call: ToolCall) -> None:
        """It has decided on a call, and hands it over."""

    @abstractmethod
    def leaves(self, call: ToolCall) -> None:
        """The first byte of a call may have left."""

    @abstractmethod
    def late(self, operation_id: OperationId, attempt: int, report: Report) -> None:
        """An answer has come that nobody waits for any more."""


Draw = Callable[[float, float], float]
Moment = Callable[[Draw, float], float]
"""Seconds after a call's arrival: drawn, from how long the daemon waits for it."""


def _soon(draw: Draw, _timeout_s: float) -> float:
    return draw(0.0, 0.25)


def _next(draw: Draw, _timeout_s: float) -> float:
    return draw(0.25, 0.5)


def _early(draw: Draw, timeout_s: float) -> float:
    return draw(0.0, 0.4) * timeout_s


def _in_time(draw: Draw, timeout_s: float) -> float:
    return draw(0.4, 0.95) * timeout_s


def _just_too_late(draw: Draw, timeout_s: float) -> float:
    return timeout_s + draw(0.05, 0.45) * LATE_S


def _too_late(draw: Draw, timeout_s: float) -> float:
    return timeout_s + draw(0.45, 0.9) * LATE_S


def _until_it_is_over(draw: Draw, _timeout_s: float) -> float:
    return draw(0.0, 0.9) * LATE_S


@dataclass(frozen=True, slots=True)
class Deed:
    """What a tool does with a call: when the world changes, and what is answered, if anything is."""

    happens: Moment | None = None
    answers: Moment | None = None
    report: Report | None = None
    """None stands for success."""


LOST: Final = Silence(cause="connection_lost", message="gone")
GARBLED: Final = Silence(cause="protocol_error", message="no JSON")
BUSY: Final = HttpStatus(status=503, result={})
REFUSED: Final = PeerError(code=-32000, message="no")
FAILED: Final = Answered(result={"content": []}, is_error=True)
DEEDS: Final[Mapping[str, Deed]] = MappingProxyType(
    {
        "ok": Deed(_soon, _next),
        "slow": Deed(_early, _in_time),
        "late": Deed(_in_time, _too_late),
        "lands late": Deed(_just_too_late, _too_late),
        "silent, done": Deed(_until_it_is_over),
        "silent": Deed(),
        "lost, done": Deed(_soon, _next, LOST),
        "lost": Deed(None, _next, LOST),
        "refused": Deed(),
        "error": Deed(None, _next, FAILED),
        "error of the protocol": Deed(None, _next, REFUSED),
        "error, taken back": Deed(None, _next, FAILED),
        "error, done": Deed(_soon, _next, FAILED),
        "busy": Deed(None, _next, BUSY),
        "raises, done": Deed(_soon),
        "garbled, done": Deed(_until_it_is_over, _next, GARBLED),
    }
)
HARMLESS: Final = ("ok", "slow", "silent", "lost", "refused", "error", "busy")
"""What a tool may do that only reads."""


@dataclass(eq=False)
class Pending:
    """A call that has left, until nothing of it can happen any more."""

    call: ToolCall
    process: "Caller"
    deed: str
    future: "asyncio.Future[Report]"
    waited: bool = True
    """Whether `dispatch` still waits for the answer."""
    effect: asyncio.TimerHandle | None = None
    done: bool = False
    closed: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Nothing more will be heard of it."""


class Tools:
    """Everything outside."""

    def __init__(self, rng: Random, truth: Truth, context: Context) -> None:
        self.rng = rng
        self.truth = truth
        self.context = context
        self.deeds: tuple[str, ...] = ("ok", *rng.sample(tuple(DEEDS), rng.randint(1, 6)))
        self.calm = False
        self.pending: list[Pending] = []
        self._known: dict[str, float] = {}
        """When the deduplicating tool has done something under a key."""

    def contracts(self) -> Contracts:
        """Return what is configured."""
        return Contracts(tools={ToolName("tools", name): contract for name, contract in CONTRACTS.items()})

    def deed(self, tool: str) -> str:
        """Choose what a tool does with the next call."""
        if tool == HANDED:
            return "lost"
        if self.calm:
            return "ok"
        deed = self.rng.choice(self.deeds)
        if deed == "error, done" and CONTRACTS[tool].error_means == "none":
            deed = "error"
        if deed == "error, taken back" and tool != "proving":
            deed = "error"
        if tool in ("find", "read") and deed not in HARMLESS:
            deed = "ok"
        self.truth.fired[f"tool: {deed}"] += deed != "ok"
        return deed

    def is_pending(self, key: str) -> bool:
        """Whether something may still happen under a key."""
        return any(item.call.operation_id == key and item.effect is not None for item in self.pending)

    def begin(self, call: ToolCall, process: Caller, deed: str) -> Pending:
        """A call has arrived."""
        item = Pending(call, process, deed, asyncio.get_running_loop().create_future())
        self.pending.append(item)
        what, draw = DEEDS[deed], self.rng.uniform
        if what.happens is not None:
            self._happens(item, what.happens(draw, call.timeout_s))
        if what.answers is not None:
            self._answers(item, what.answers(draw, call.timeout_s), what.report)
        return item

    def _happens(self, item: Pending, after_s: float) -> None:
        loop = asyncio.get_running_loop()
        if item.call.tool == "safe" and not self._is_first(item.call.operation_id):
            return
        item.effect = loop.call_later(after_s, self._happen, item, context=self.context)

    def _is_first(self, key: str) -> bool:
        """Whether the deduplicating tool does not know the key (any more). It looks when a call arrives."""
        now = asyncio.get_running_loop().time()
        for item in self.pending:
            if item.call.operation_id == key and item.effect is not None:
                item.effect.cancel()
                self._happen(item)
        if key in self._known and now - self._known[key] < HORIZON_S:
            self.truth.reached["deduplicated by the tool"] += 1
            return False
        return True

    def _happen(self, item: Pending) -> None:
        item.effect = None
        tool, key, now = item.call.tool, item.call.operation_id, asyncio.get_running_loop().time()
        if tool in ("find", "read"):
            return
        self._known[key] = now
        self.truth.note(now, "happens", tool, key)
        self.truth.happens(key, item.call.attempt)

    def _answers(self, item: Pending, after_s: float, report: Report | None = None) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(after_s, self._answer, item, report, context=self.context)

    def _answer(self, item: Pending, report: Report | None) -> None:
        if item.done or not item.process.alive:
            return
        item.done = True
        if report is LOST:
            self.close(item)
        found = report or self._success(item.call)
        if item.waited:
            item.future.set_result(found)
            if item.deed == "error, taken back":
                loop = asyncio.get_running_loop()
                loop.call_later(self.rng.uniform(0.1, 9.0), self._take_back, item, context=self.context)
        elif not isinstance(found, Silence):
            self.truth.fired["late answer"] += 1
            item.process.late(item.call.operation_id, item.call.attempt, found)
        item.over.set()

    def _take_back(self, item: Pending) -> None:
        """Do it after all, where an error had said that nothing happened, and say so, too."""
        if item.process.alive:
            self.truth.fired["a second answer, the opposite"] += 1
            self.truth.lied.add(item.call.operation_id)
            self._happen(item)
            item.process.late(item.call.operation_id, item.call.attempt, OK)

    def _success(self, call: ToolCall) -> Report:
        if call.tool == "find":
            return Answered(result={"count": self.truth.effects[str(call.arguments["key"])]})
        return OK

    def close(self, item: Pending) -> None:
        """The transport of a call is closed: what was on its way has happened by now, or never does."""
        item.closed = True
        if item.effect is not None:
            item.effect.cancel()
            item.effect = None
            if self.rng.random() < 0.5:
                self._happen(item)
        item.over.set()

    def told_to_stop(self, item: Pending) -> None:
        """The daemon withdraws a call: the tool may stop, or finish within the late window."""
        loop = asyncio.get_running_loop()
        if item.effect is not None:
            left = item.effect.when() - loop.time()
            item.effect.cancel()
            item.effect = None
            if self.rng.random() < 0.5:
                self._happens(item, min(left, self.rng.uniform(0.1, 0.9) * LATE_S))
            else:
                item.done = True
                self.truth.fired["stopped by a cancel"] += 1
        loop.call_later(0.95 * LATE_S, item.over.set, context=self.context)

    def process_died(self, process: Caller) -> None:
        """Each connection of a process ends with it."""
        for item in self.pending:
            if item.process is process:
                self.close(item)
        self.pending = [item for item in self.pending if item.process is not process]


class ToolProvider:
    """Keeps the promises of `driver.providers.protocol.Provider`, of `Landing` and of `Listening`."""

    name = "tools"

    def __init__(self, tools: Tools, process: Caller) -> None:
        self._tools = tools
        self._process = process
        self._connected = tools.rng.random() < 0.5
        self._calls: dict[tuple[OperationId, int], Pending] = {}

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await anyio.sleep_forever()

    def ready(self, call: ToolCall) -> bool:
        del call
        return self._connected

    async def prepare(self, call: ToolCall) -> NotSent | None:
        if call.tool not in CONTRACTS:
            return NotSent(reason="unknown_tool", message="no such tool")
        if not self._connected:
            await anyio.sleep(self._tools.rng.uniform(0.0, 2.0))
            if not self._tools.calm and self._tools.rng.random() < 0.1:
                return NotSent(reason="connect_failed", message="refused")
            self._connected = True
        return None

    async def dispatch(self, call: ToolCall, progress: Progress) -> Report:
        tools = self._tools
        self._process.calls(call)
        deed = tools.deed(call.tool)
        progress(Phase.CONNECTING)
        await anyio.sleep(tools.rng.choice((0.0, 0.01)))
        if deed == "refused":
            return NotSent(reason="connect_failed", message="refused")
        progress(Phase.WRITING)
        self._process.leaves(call)
        item = self._calls[call.operation_id, call.attempt] = tools.begin(call, self._process, deed)
        progress(Phase.WRITTEN)
        try:
            with anyio.move_on_after(call.timeout_s):
                if deed == "raises, done":
                    await anyio.sleep(0.3)
                    raise ConnectionError("something that nobody foresaw")
                report = await item.future
                if not isinstance(report, Silence):
                    progress(Phase.ANSWERED)
                return report
        finally:
            item.waited = False
            if not item.done and self._process.alive:
                tools.told_to_stop(item)
        return Silence(cause="deadline", message="no answer in time")

    async def listened(self, operation_id: OperationId, attempt: int) -> None:
        item = self._calls.get((operation_id, attempt))
        if item is not None:
            await item.over.wait()

    def may_land(self, operation_id: OperationId, attempt: int) -> bool:
        item = self._calls.get((operation_id, attempt))
        return item is None or not item.closed

    async def close(self) -> None: ...
