"""Faults that tests and drills ask for on purpose, at the boundaries between two durable steps.

Part of `driver`; imports only the standard library. Off unless the environment says otherwise, and then the
daemon says so in its log and in `status`.

`EFFECTD_KILL_AT=NAME` or `NAME:N` kills the process, as SIGKILL does it, when it passes the boundary NAME
for the N-th time (the first by default). The boundaries are those of `BOUNDARIES`.
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

BOUNDARIES: Final = (
    "journal.before_commit",
    "journal.after_commit",
    "recovery.before",
    "recovery.page",
    "recovery.after",
    "intake.committed",
    "dispatch.prepared",
    "dispatch.intent_committed",
    "dispatch.before_call",
    "dispatch.answered",
    "dispatch.outcome_committed",
    "errand.taken",
    "errand.done",
    "link.welcomed",
    "link.sent",
    "link.acknowledged",
)
"""Every boundary that the daemon passes, in the order of a call's life."""


class UnknownBoundary(Exception):
    """EFFECTD_KILL_AT names no boundary."""

    def __init__(self, value: str) -> None:
        self.value = value
        super().__init__(
            f"{KILL_AT}={value!r} names no boundary; use NAME or NAME:N, with N above 0 and NAME one of: "
            + ", ".join(BOUNDARIES)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KillPoint:
    """Where the process is to die, and at which passing."""

    name: str
    passing: int


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
