"""Whoever stands behind the plane of a simulated world: wants calls, cancels them, decides, looks, retries.

An operator tells the truth: that nothing has happened only where that is so, and where it cannot happen any
more.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from tests.faults.simulation.plane import Plane
from tests.faults.simulation.tools import HANDED, WRITES, Tools
from tests.faults.simulation.truth import ONCE, Truth

Json = dict[str, Any]
Later = Callable[..., None]

DELEGATED: Final = ("plain", "probed", "proving", "safe")
"""What is called for another call."""
_WAYS: Final = (
    *(
        "operation.probe",
        "operation.retry",
        "operation.retry",
        "operation.compensate",
        "reconcile",
        "reconcile",
    ),
    *("run.triage", "run.erase", "run.end", "annotate"),
)
"""What a person does about an operation that nobody knows the outcome of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whims:
    """The dice about what is wanted in some worlds only; None: it is not."""

    delegates: Random | None = None
    """About a call that others are made for."""
    goes_on: Random | None = None
    """About another run in its service, later."""
    resends: Random | None = None
    """About a call that was not executed: it is sent again, and tried again."""


class Person:
    """Everybody who wants something."""

    def __init__(
        self,
        rng: Random,
        truth: Truth,
        plane: Plane,
        tools: Tools,
        later: Later,
        only: tuple[str, ...],
        whims: Whims,
    ) -> None:
        self._rng = rng
        self._truth = truth
        self._plane = plane
        self._tools = tools
        self._later = later
        self._only = only
        """The tools to call; none stands for any."""
        self._delegates, self._goes_on, self._resends = whims.delegates, whims.goes_on, whims.resends
        self._calls: list[Json] = []
        self._followed: set[str] = set()
        self._numbers = 0

    def give_orders(self) -> None:
        """Have some calls given, over some time, and some of them withdrawn."""
        rng = self._rng
        tools = self._only or rng.sample(WRITES, rng.randint(1, 4))
        if self._resends is not None and not self._only:
            tools = (ONCE, *tools)
        burst = rng.random() < 0.3
        if self._delegates is not None:
            data = {"tool": f"tools/{HANDED}", "arguments": {"n": -1}}
            handed = {"command_id": HANDED, "run_id": "run-3", "kind": "tool.call", "data": data}
            self._later(self._delegates.uniform(0.0, 10.0), self._plane.give, handed)
        for number in range(rng.choice((1, 1, 2, 2, 3, 4, 6))):
            twin = rng.choice(self._calls) if self._calls and rng.random() < 0.3 else None
            tool = rng.choice(tools) if rng.random() < 0.95 else rng.choice(("read", "nothing"))
            frame: Json = {
                "command_id": f"cmd-{number}",
                "run_id": rng.choice(("run-1", "run-1", "run-2")),
                "kind": "tool.call",
                "data": {"tool": f"tools/{tool}", "arguments": {"n": number}},
            }
            if twin is not None:
                frame["run_id"] = twin["run_id"]
                frame["data"] = dict(twin["data"]) | ({"repeat": True} if rng.random() < 0.3 else {})
            if rng.random() < 0.2:
                frame["expires_in_ms"] = rng.choice((300, 5_000, 30_000))
            self._calls.append(frame)
            after = 0.0 if burst else rng.uniform(0.0, 20.0)
            self._later(after, self._plane.give, frame)
            if rng.random() < 0.15:
                self._later(after + rng.uniform(0.0, 20.0), self._cancel, frame)

    def _cancel(self, call: Json) -> None:
        if self._rng.random() < 0.8:
            self._order("command.cancel", call["run_id"], target_command_id=call["command_id"])
        else:
            self._order("run.cancel", call["run_id"])

    def _order(self, kind: str, run_id: str, **data: object) -> None:
        self._numbers += 1
        name = f"{kind.replace('.', '-')}-{self._numbers}"
        self._plane.give({"command_id": name, "run_id": run_id, "kind": kind, "data": data})

    def react(self, event: Json) -> None:
        """See an event: decide what is asked, and look after what nobody knows."""
        kind, operation = event["kind"], event["operation_id"]
        if event["command_id"] == HANDED:
            if kind == "operation.unknown" and operation not in self._followed:
                self._followed.add(operation)
                self._delegate(operation)
        elif kind == "operation.approval_requested":
            self._decide(event)
        elif kind == "operation.not_executed" and self._resends is not None:
            self._send_again(event, self._resends)
        elif kind in ("operation.unknown", "operation.failed") and operation not in self._followed:
            self._followed.add(operation)
            if self._rng.random() < 0.6:
                self._later(self._rng.uniform(0.0, 60.0), self._follow, event)
        elif kind == "operation.succeeded" and self._rng.random() < 0.1:
            self._later(self._rng.uniform(0.0, 10.0), self._ask_for, "operation.compensate", event)

    def _delegate(self, parent: str) -> None:
        """Have a run of its own do what nobody knows of, and end."""
        rng = self._delegates
        assert rng is not None, "somebody has handed something on"
        for number in range(rng.choice((1, 1, 2))):
            tool, arguments = rng.choice(DELEGATED), {"n": 100 + number}
            frame = {"command_id": f"child-{number}", "run_id": "child", "kind": "tool.call"}
            data = {"tool": f"tools/{tool}", "arguments": arguments, "parent_operation_id": parent}
            self._later(rng.uniform(0.0, 10.0), self._plane.give, {**frame, "data": data})
        self._later(rng.uniform(20.0, 60.0), self._order, "run.end", "child")
        if self._goes_on is not None:
            self._go_on(parent, self._goes_on)

    def _go_on(self, parent: str, rng: Random) -> None:
        """Have one more call made for it, by another run: by then the first run may have ended."""
        after_s = rng.uniform(5.0, 35.0)
        data = {
            "tool": f"tools/{rng.choice(DELEGATED)}",
            "arguments": {"n": 200},
            "parent_operation_id": parent,
        }
        frame = {"command_id": "child-late", "run_id": "child-late", "kind": "tool.call", "data": data}
        self._later(after_s, self._plane.give, frame)
        if rng.random() < 0.7:
            self._later(after_s + rng.uniform(0.0, 30.0), self._order, "run.end", "child-late")

    def _send_again(self, event: Json, rng: Random) -> None:
        """Have an equal call made under another id, and another attempt of the first one, in some order."""
        call = next((each for each in self._calls if each["command_id"] == event["command_id"]), None)
        if call is None or event["operation_id"] in self._followed:
            return
        self._followed.add(event["operation_id"])
        again = {**call, "command_id": f"again-{call['command_id']}"}
        again.pop("expires_in_ms", None)
        self._later(rng.uniform(0.0, 10.0), self._plane.give, again)
        self._later(rng.uniform(0.0, 20.0), self._ask_for, "operation.retry", event)

    def _decide(self, event: Json) -> None:
        rng = self._rng
        if rng.random() < 0.15:
            return
        decision = "grant" if rng.random() < 0.8 else "deny"
        for _ in range(2 if rng.random() < 0.2 else 1):
            self._later(
                rng.choice((0.0, 0.5, 10.0)),
                lambda: self._order(
                    "operation.approve",
                    event["run_id"],
                    operation_id=event["operation_id"],
                    approval_id=event["data"]["approval_id"],
                    decision=decision,
                    approver="operator:1",
                ),
            )

    def _follow(self, event: Json) -> None:
        match self._rng.choice(_WAYS):
            case "operation.probe" | "operation.retry" | "operation.compensate" as kind:
                self._ask_for(kind, event)
            case "reconcile":
                self._reconcile(event)
            case "annotate":
                self._order(
                    "operation.annotate",
                    event["run_id"],
                    operation_id=event["operation_id"],
                    metadata={"id": "7"},
                )
            case way:
                self._truth.may_be_erased |= way == "run.erase"
                self._order(way, event["run_id"])

    def _ask_for(self, kind: str, event: Json) -> None:
        self._order(kind, event["run_id"], operation_id=event["operation_id"])

    def _reconcile(self, event: Json) -> None:
        """An operator says what is true; that nothing happened, only where nothing can happen any more."""
        key = event["operation_id"]
        effect = "occurred" if self._truth.effects[key] else "none"
        if effect == "none" and self._tools.is_pending(key):
            effect = "unknown"
        self._order(
            "operation.reconcile",
            event["run_id"],
            operation_id=key,
            effect=effect,
            actor="operator:1",
            note="looked",
        )
        if self._rng.random() < 0.5:
            self._later(self._rng.uniform(0.0, 20.0), self._ask_for, "operation.retry", event)
