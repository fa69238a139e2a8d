"""Kill after kill on one state folder, while a plane keeps ordering: what the kill tests are made of.

Each life is told where to kill itself, and gets commands until it has. The next life finds what it left, and
is killed somewhere else. At the end comes one calm life, in which every command must get its receipt.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import anyio

from tests.system.audit import must_hold
from tests.system.history import Json
from tests.system.plane import PATIENCE_S, Fate, ScriptedPlane, call
from tests.system.sandbox import Life, Sandbox

KILLED: Final = -9
COMMANDS_MAX: Final = 200
"""Commands of one life: if it has not reached the boundary by then, it never will."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What a life is given to do."""

    name: str
    tools: tuple[str, ...] = ("counter/count",)
    """Called in turn."""
    arguments: Json = field(default_factory=dict[str, object])
    at_once: int = 1
    acks: bool = True
    deliveries: int = 1
    """How often each command is delivered, at once."""
    window: int = 256
    loses_every: int = 0
    """Which events the plane loses, with the socket: every n-th, when it comes for the first time."""


ONE: Final = Workload(name="one call")
EIGHT: Final = Workload(name="eight at once", at_once=8)
READ: Final = Workload(name="a read", tools=("reader/count",), at_once=2)
FAIL: Final = Workload(name="a failing call", tools=("counter/fail",), at_once=2)
SLOW: Final = Workload(name="a slow call", tools=("counter/slow",), arguments={"seconds": 0.05}, at_once=4)
UNACKNOWLEDGED: Final = Workload(name="nothing acknowledged", at_once=4, acks=False)
INSISTENT: Final = Workload(name="delivered three times", at_once=2, deliveries=3)
NARROW: Final = Workload(name="a window of one", at_once=4, window=1)
LOSSY: Final = Workload(name="a plane that loses events", at_once=4, loses_every=5)
MIXED: Final = Workload(
    name="calls that end in every way",
    tools=("counter/count", "counter/explode", "counter/fail", "reader/count", "nobody/count"),
    at_once=5,
)
CALM: Final = Workload(name="nothing new")


@dataclass(slots=True)
class Figures:
    """What was counted over all campaigns of a test run."""

    kills: Counter[str] = field(default_factory=Counter[str])
    """By boundary; `random` where the moment was chance."""
    lives: int = 0
    second_crashes: int = 0
    """Kills during recovery of a life that was killed itself, with work left open."""
    effects: int = 0
    receipts: Counter[str] = field(default_factory=Counter[str])
    redeliveries: int = 0
    inherited_receipts: int = 0
    repeated_receipts: int = 0

    def add(self, sandbox: Sandbox, plane: ScriptedPlane) -> None:
        """Count a sandbox whose campaign is over."""
        self.effects += len(sandbox.effects())
        self.redeliveries += plane.redeliveries
        self.inherited_receipts += plane.inherited_receipts
        self.repeated_receipts += sum(plane.repeats.values())
        for command_id in plane.orders:
            receipt = plane.receipt(command_id)
            if receipt is not None:
                reason = receipt["data"].get("reason")
                self.receipts[receipt["kind"] + (f"/{reason}" if reason else "")] += 1

    def __str__(self) -> str:
        """One line for a report."""
        receipts = ", ".join(f"{count} {kind}" for kind, count in sorted(self.receipts.items()))
        return (
            f"{self.kills.total()} kills in {self.lives} lives ({self.second_crashes} second crashes), "
            f"{self.effects} effects, {self.receipts.total()} receipts ({receipts}), "
            f"{self.redeliveries} redeliveries, {self.inherited_receipts} receipts left to a later life, "
            f"{self.repeated_receipts} receipts repeated byte for byte"
        )


@dataclass(slots=True)
class Campaign:
    """The kills on one sandbox."""

    sandbox: Sandbox
    plane: ScriptedPlane
    figures: Figures
    given: int = 0
    work_left: bool = False

    async def strike(self, kill_at: str, workload: Workload) -> None:
        """Let one life kill itself at a boundary, under a workload. Fails where it did not."""
        self.figures.lives += 1
        life = self.sandbox.start(kill_at=kill_at)
        await self._work(life, workload)
        assert life.code == KILLED, f"{kill_at} missed ({workload.name}): {life.code} {life.text[-4000:]}"
        name = kill_at.partition(":")[0]
        self.figures.kills[name] += 1
        self.figures.second_crashes += name.startswith("recovery.") and self.work_left
        self.work_left = bool(self.plane.unanswered())

    async def strike_after(self, delay_s: float, workload: Workload) -> None:
        """Kill one life, `delay_s` after its fork: the moment is what varies, so it is measured in time."""
        self.figures.lives += 1
        life = self.sandbox.start()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._feed, life, workload)
            await anyio.sleep(delay_s)
            await life.kill()
            tasks.cancel_scope.cancel()
        assert life.code == KILLED, f"it ended by itself: {life.code} {life.text[-4000:]}"
        self.figures.kills["random"] += 1
        self.work_left = bool(self.plane.unanswered())

    async def crowd(self, size: int) -> None:
        """Kill one life once it has accepted more than it can run at once, and nothing has ended."""
        slow = Workload(name="a crowd", tools=("counter/slow",), arguments={"seconds": 60})
        self.figures.lives += 1
        life = self.sandbox.start()
        for _ in range(size):
            await self._order("run-of-a-crowd", slow)
        await self.plane.until(lambda: len(self.plane.history.accepted) >= size)
        await life.kill()
        self.figures.kills["random"] += 1
        self.work_left = True

    async def finish(self) -> None:
        """Let one life live: every command gets its receipt, the same bytes again when asked; all adds up."""
        await self._verify()
        self._instruct(CALM)
        self.figures.lives += 1
        life = self.sandbox.start()
        await self.plane.answered()
        await self.plane.redeliver(*self.plane.orders)
        assert await life.stop() == 0, life.text[-4000:]
        await self._verify()
        await must_hold(self.sandbox)
        self.plane.check()
        self.figures.add(self.sandbox, self.plane)

    async def _verify(self) -> None:
        """Let the journal be checked from outside: chain, continuity, and every projection rebuilt."""
        verified = await self.sandbox.command("verify", "--deep")
        assert verified.code == 0, verified.text

    async def _work(self, life: Life, workload: Workload) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._feed, life, workload)
            with anyio.move_on_after(PATIENCE_S):
                await life.ended.wait()
            tasks.cancel_scope.cancel()

    async def _feed(self, life: Life, workload: Workload) -> None:
        """Keep `at_once` commands open for as long as the life lasts."""
        self._instruct(workload)
        run_id = f"run-{len(self.sandbox.lives)}"
        mine: list[str] = []
        while not life.ended.is_set() and len(mine) < COMMANDS_MAX:
            open_now = len(set(mine) & set(self.plane.unanswered()))
            mine.extend([await self._order(run_id, workload) for _ in range(workload.at_once - open_now)])
            await self.plane.next_receipt()

    def _instruct(self, workload: Workload) -> None:
        """Let the plane behave as the workload says."""
        lost: set[int] = set()

        def fate(event: Json) -> Fate:
            seq: int = event["seq"]
            if not workload.loses_every or seq % workload.loses_every or seq in lost:
                return "take"
            lost.add(seq)
            return "lose"

        self.plane.acks, self.plane.window, self.plane.on_event = workload.acks, workload.window, fate

    async def _order(self, run_id: str, workload: Workload) -> str:
        self.given += 1
        tool = workload.tools[self.given % len(workload.tools)]
        command = call(f"cmd-{self.given}", tool, run_id=run_id, n=self.given, **workload.arguments)
        await self.plane.give(command)
        for _ in range(workload.deliveries - 1):
            await self.plane.deliver(command["command_id"])
        return f"cmd-{self.given}"
