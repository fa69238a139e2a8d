"""What daemons are asked during a soak, and how it is seen that they get on with it. Part of `soak`."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import anyio

from tests.faults.kill_points.acts import order
from tests.faults.kill_points.stage import Hung, Stage
from tests.faults.kill_points.tables import shell, shop
from tests.system.audit import key_of
from tests.system.history import Json
from tests.system.plane import Fate, call
from tests.system.sandbox import Sandbox

HANG_S: Final = 10.0
"""Nothing that is asked takes a second, deadlines and windows included: without any progress for so long, it
hangs."""
READ: Final = "shop/find"
"""Nobody is ever asked what became of one."""
ASKED: Final = "shop/asked"
"""Somebody must grant it."""
GRANTED: Final = 0.7
ERASED: Final = "run erased"
REASONED: Final = ("operation.unknown", "operation.not_executed")
"""Events whose reasons are counted, too."""
CALLS: Final = (
    *["shop/order"] * 8, *["counter/count"] * 3, *["counter/slow"] * 2, *["shell/slow"] * 2, "shell/fail",
    "shop/lost", "shop/vain", "shop/keyed", "shop/broken", ASKED, READ,
    "nobody/order",
)  # fmt: skip
PROBED: Final = frozenset({"shop/lost", "shop/vain"})
ARGUMENTS: Final[Mapping[str, Json]] = {"counter/slow": {"seconds": 0.02}, READ: {"marker": "x"}}


def tables(made: Sandbox, port: int) -> Mapping[str, Mapping[str, Any]]:
    """All kinds of providers; what is over is pruned after a second, and forgotten after some more."""
    return {
        **shop(
            port,
            order={"receipt": "result.json.id"},
            asked={"path": "/order", "approval": "required"},
        ),
        **shell(made, port),
        "providers__shop__tools__order__compensate": {"tool": "slow"},
        "providers__shop__tools__order__compensate__arguments": {"of": "=receipt"},
        "journal": {"retention_days": 1.2e-5, "tombstone_days": 1e-4},
        "supervisor": {"min_age_s": 0.5, "interval_s": 0.5},
    }


def _is_erasure(event: Json) -> bool:
    return str(event["command_id"]).startswith("erase-")


@dataclass(slots=True)
class Load:
    """Asks, round after round, and notes what comes back. One for each plane."""

    stage: Stage
    chance: random.Random
    rounds: int = 0
    ended: int = 0
    """How many of their runs have ended."""
    calls: int = 0
    kinds: Counter[str] = field(default_factory=Counter[str])
    """Of events, with their reasons."""
    noted: int = 0
    """The newest event."""
    unknown: dict[str, Json] = field(default_factory=dict[str, Json])
    """Commands whose receipt says that nobody knows, until somebody says so."""
    asked: list[Json] = field(default_factory=list[Json])
    """Requests for an approval that nobody has decided."""

    def __post_init__(self) -> None:
        self.stage.plane.on_event = self._note
        self.stage.plane.validates = False

    def _note(self, event: Json) -> Fate:
        if event["seq"] <= self.noted:
            return "take"  # it came again
        self.noted = event["seq"]
        reason = event["data"].get("reason") if event["kind"] in REASONED else None
        self.kinds[event["kind"] + (f"/{reason}" if reason else "")] += 1
        self.kinds[ERASED] += event["kind"] == "command.completed" and _is_erasure(event)
        if event["kind"] == "operation.approval_requested":
            self.asked.append(event)
        if event["kind"] == "operation.unknown" and self._tool(event["command_id"]) != READ:
            self.unknown[event["command_id"]] = event
        if event["kind"] == "operation.reconciled" and not event["best_effort"]:
            self.unknown = {
                name: told
                for name, told in self.unknown.items()
                if told["operation_id"] != event["operation_id"]
            }
        return "take"

    async def give(self) -> list[str]:
        """Give the commands of one more round, in a run of their own; return their ids."""
        self.rounds += 1
        run_id = f"run-{self.rounds}"
        commands = [self._call(tool, run_id) for tool in self.chance.sample(CALLS, len(CALLS))]
        await self.stage.plane.give(*commands)
        for command in self.chance.sample(commands, 3):
            await self.stage.plane.deliver(command["command_id"])
        return [command["command_id"] for command in commands]

    def _call(self, tool: str, run_id: str) -> Json:
        self.calls += 1
        return call(f"cmd-{self.calls}", tool, run_id=run_id, n=self.calls, **ARGUMENTS.get(tool, {}))

    async def round(self) -> None:
        """Give a round's commands, and bring everything that is open to its end."""
        names = await self.give()
        await self.answered(names)
        taken_back = next(name for name in names if self._tool(name) == "shop/order")
        key = key_of(self.stage.plane.orders[taken_back].command)
        await self.stage.order(order(f"undo-{self.rounds}", "operation.compensate", operation_id=key))
        await self.finish()

    async def finish(self) -> None:
        """Return once all that was ever asked is answered and settled, and its runs have ended."""
        await self.answered(self.stage.plane.unanswered())
        ends = [order(f"end-{n}", "run.end", f"run-{n}") for n in range(self.ended + 1, self.rounds + 1)]
        await self.stage.order(*ends)
        await self.answered([end["command_id"] for end in ends])
        await self.settle()
        await self._erase(range(self.ended + 1, self.rounds + 1))
        self.ended = self.rounds

    async def _erase(self, rounds: Iterable[int]) -> None:
        """Have the content of every other run that is over erased."""
        erasures = [order(f"erase-{n}", "run.erase", f"run-{n}") for n in rounds if n % 2]
        await self.stage.order(*erasures)
        await self.answered([erasure["command_id"] for erasure in erasures])

    async def _decide(self) -> None:
        """Grant or deny what is asked for by now."""
        asked, self.asked = self.asked, []
        await self.stage.order(*map(self._decision, asked))

    def _decision(self, request: Json) -> Json:
        approval_id = request["data"]["approval_id"]
        return order(
            f"decide-{approval_id}",
            "operation.approve",
            operation_id=request["operation_id"],
            approval_id=approval_id,
            decision="grant" if self.chance.random() < GRANTED else "deny",
            approver="ann",
        )

    def _tool(self, name: str) -> str:
        """Return what a command calls; an empty text for one of the daemon's own."""
        found = self.stage.plane.orders.get(name)
        return "" if found is None else str(found.command["data"].get("tool", ""))

    async def settle(self) -> None:
        """Let somebody say what happened where nobody knows, as one who looks would; probes say the rest."""
        executions = self.stage.executions()
        words: list[Json] = []
        for name, told in sorted(self.unknown.items()):
            if self._tool(name) not in PROBED:
                effect = "occurred" if executions[told["operation_id"]] else "none"
                word = {"effect": effect, "actor": "ann", "note": "I looked"}
                words.append(
                    order(f"truth-{name}", "operation.reconcile", operation_id=told["operation_id"], **word)
                )
        await self.stage.order(*words)
        await self.answered([word["command_id"] for word in words])
        await self._progressing(lambda: not self.unknown)

    async def answered(self, names: Sequence[str]) -> None:
        """Return once each of these commands has its receipt. Raises `Hung`."""
        await self._progressing(lambda: all(map(self._has_receipt, names)))

    def _has_receipt(self, name: str) -> bool:
        return any(name in history.receipts for history in self.stage.plane.histories.values())

    async def _progressing(self, reached: Callable[[], bool]) -> None:
        plane = self.stage.plane
        while not reached():
            await self._decide()
            seen = (plane.history.last_seq, len(plane.hellos))
            with anyio.move_on_after(HANG_S):
                await plane.until(
                    lambda: reached() or (plane.history.last_seq, len(plane.hellos)) != seen,  # noqa: B023
                    2 * HANG_S,
                )
                continue
            life = self.stage.made.lives[-1]
            open_now = [*plane.unanswered()[:10], *list(self.unknown)[:10]]
            stories = {name: plane.kinds(name) for name in open_now}
            where = f"open: {stories}; exit code {life.code}: {life.text[-2000:]}"
            raise Hung(f"nothing for {HANG_S:g} s; {where}")
