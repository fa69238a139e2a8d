"""Faults that tests and drills ask for on purpose, at the boundaries between two durable steps.

Part of `driver`; imports only the standard library. Off unless the environment says otherwise, and then the
daemon says so in its log and in `status`.

`EFFECTD_KILL_AT=NAME` or `NAME:N` kills the process, as SIGKILL does it, when it passes the boundary NAME
for the N-th time (the first by default). The boundaries are those of `BOUNDARIES`.

`EFFECTD_FAULT_AFTER_EFFECT=ID` or `PROVIDER/TOOL` lets a call happen for real, and then loses its answer:
the first attempt of that operation, or of the first call of that tool in each run (`driver.engine.loss`).

    FaultError
     ├── UnknownBoundary   EFFECTD_KILL_AT names no boundary
     └── UnknownTarget     EFFECTD_FAULT_AFTER_EFFECT names neither an operation nor a tool
"""

import os
import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

Boundary = Callable[[str], None]
"""Called with a boundary's name each time the daemon passes it."""

KILL_AT: Final = "EFFECTD_KILL_AT"
FAULT_AFTER_EFFECT: Final = "EFFECTD_FAULT_AFTER_EFFECT"

OF_A_CALL: Final = (
    "journal.before_commit",
    "journal.after_commit",
    "recovery.before",
    "recovery.page",
    "recovery.after",
    "intake.committed",
    "dispatch.prepared",
    "dispatch.intent_committed",
    "dispatch.intent_held",
    "dispatch.before_call",
    "dispatch.answered",
    "dispatch.outcome_committed",
    "link.welcomed",
    "link.sent",
    "link.acknowledged",
)
"""The boundaries that every call passes, in the order of its life."""

OF_THE_WAY_BACK: Final = (
    "probe.answered",
    "probe.recorded",
    "errand.taken",
    "errand.done",
    "supervisor.attempt_recorded",
    "supervisor.answered",
    "supervisor.recorded",
)
"""The boundaries of what follows where an outcome is not known, or is taken back."""

BOUNDARIES: Final = (*OF_A_CALL, *OF_THE_WAY_BACK)
"""Every boundary that the daemon passes."""


class FaultError(Exception):
    """A fault was asked for that would never strike: a drill must not look like one that found nothing."""


class UnknownBoundary(FaultError):
    """EFFECTD_KILL_AT names no boundary."""

    def __init__(self, value: str) -> None:
        self.value = value
        super().__init__(
            f"{KILL_AT}={value!r} names no boundary; use NAME or NAME:N, with N above 0 and NAME one of: "
            + ", ".join(BOUNDARIES)
        )


class UnknownTarget(FaultError):
    """EFFECTD_FAULT_AFTER_EFFECT names no operation and no tool."""

    def __init__(self, value: str) -> None:
        self.value = value
        super().__init__(
            f"{FAULT_AFTER_EFFECT}={value!r} names neither an operation (op_ and 32 hex digits) nor a tool "
            "(PROVIDER/TOOL)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KillPoint:
    """Where the process is to die, and at which passing."""

    name: str
    passing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """The faults that were asked for; None where none was."""

    kill: KillPoint | None = None
    lose: str | None = None
    """The operation, or the tool, whose answer is lost after its effect."""

    @property
    def words(self) -> tuple[str, ...]:
        """What is asked for, as the log and `status` say it; empty where nothing is."""
        found: list[str] = []
        if self.kill is not None:
            found.append(f"kill_at={self.kill.name}:{self.kill.passing}")
        if self.lose is not None:
            found.append(f"fault_after_effect={self.lose}")
        return tuple(found)


def drill(environment: Mapping[str, str]) -> Drill:
    """Return the faults that `environment` asks for. Raises `FaultError`."""
    return Drill(kill=kill_point(environment), lose=_target(environment.get(FAULT_AFTER_EFFECT)))


def _target(value: str | None) -> str | None:
    if value is None or re.fullmatch("op_[0-9a-f]{32}|[a-z0-9][a-z0-9-]*/.+", value, re.ASCII):
        return value
    raise UnknownTarget(value)


def kill_point(environment: Mapping[str, str]) -> KillPoint | None:
    """Return the kill point that `environment` asks for, or None. Raises `UnknownBoundary`."""
    value = environment.get(KILL_AT)
    if value is None:
        return None
    name, _, count = value.partition(":")
    passing = int(count) if re.fullmatch("[0-9]{1,18}", count, re.ASCII) else (0 if count else 1)
    if name not in BOUNDARIES or passing < 1:
        raise UnknownBoundary(value)
    return KillPoint(name=name, passing=passing)


def boundary(point: KillPoint | None) -> Boundary:
    """Return what the daemon calls at each boundary: it kills at `point`, or does nothing."""
    if point is None:
        return _pass
    passed = 0

    def strike(name: str) -> None:
        nonlocal passed
        if name != point.name:
            return
        passed += 1
        if passed == point.passing:
            os.kill(os.getpid(), signal.SIGKILL)

    return strike


def _pass(name: str) -> None:
    """No fault was asked for."""
    del name
