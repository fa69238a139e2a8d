"""`effectd check --connect --selftest`: whether each probe can tell what happened from what did not.

Part of `driver.cli`; imports `driver.core` and `driver.engine.probing`.

Each probe is asked twice: about an operation that is known to have happened, and about one that cannot exist,
which differs from it in nothing but its key (or, for a probe that knows an operation by its arguments, in one
of these). One that finds both, or neither, would settle what it has not seen. Without an operation that has
happened there is nothing to compare, and the probe stays untested.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal
from uuid import uuid4

from driver.cli.controls import Control
from driver.core.contracts import Contract, Probe
from driver.core.probes import Unclear, count, look_id, question, scope
from driver.core.redaction import MARKER
from driver.core.reports import Redactor
from driver.engine.probing import put
from driver.providers.protocol import Provider
from store.records import JsonObject, OperationId

OTHERS_MAX: Final = 8
"""Arguments that are changed, one at a time, where a probe does not look for the key."""

Status = Literal["passed", "failed", "untested"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """What came of one test. `operation_id` is the operation that was found."""

    status: Status
    detail: str
    operation_id: OperationId | None = None


async def selftest(
    provider: Provider, probe: Probe, read: Contract, controls: Sequence[Control], problem: str | None
) -> Tested:
    """Return whether the probe tells the two apart. `read` is the contract of the tool that it asks.

    `problem` says why there are no controls, where that is known. Takes a few reads, each bounded.
    """
    failed: Tested | None = None
    for control in controls:
        seen = scope(control.operation_id, control.arguments, control.receipt)
        if _is_withheld(probe, seen):
            detail = "the daemon withholds what the probe asks about: test it while the daemon is stopped"
            return Tested(status="untested", detail=detail)
        tested = await _compare(provider, probe, read, control, seen)
        if tested.status == "passed":
            return tested
        failed = failed or tested
    nothing = "nothing is known to have happened yet that it could find: call the tool once, and test again"
    return failed or Tested(status="untested", detail=problem or nothing)


def _is_withheld(probe: Probe, seen: JsonObject) -> bool:
    """Whether the daemon has withheld some of what the probe looks at. Of a file, nothing is."""
    looks_at = json.dumps(probe.arguments.source) + probe.matches.text
    return "arguments" in looks_at and MARKER in json.dumps(seen["arguments"])


async def _compare(
    provider: Provider, probe: Probe, read: Contract, control: Control, seen: JsonObject
) -> Tested:
    there = await _count(provider, probe, read, seen)
    if isinstance(there, Unclear):
        return _failed(f"asked about {control.operation_id}, which succeeded: {there.detail}")
    nobody = scope(f"op_{uuid4().hex}", control.arguments, None)
    absent = await _count(provider, probe, read, nobody)
    if isinstance(absent, Unclear):
        return _failed(f"asked about an operation that cannot exist: {absent.detail}")
    if there and there == absent and question(probe, nobody) == question(probe, seen):
        # it does not ask for the key: then it must know an operation by its arguments
        absent = await _fewest(provider, probe, read, control, absent)
    return _judged(control, there, absent)


async def _fewest(provider: Provider, probe: Probe, read: Contract, control: Control, otherwise: int) -> int:
    """Return 0 where any one other argument leads to no match; `otherwise` where none does."""
    arguments = control.arguments or {}
    names = [name for name, value in arguments.items() if isinstance(value, str)]
    for name in names[:OTHERS_MAX]:
        other = {**arguments, name: uuid4().hex}
        counted = await _count(provider, probe, read, scope(control.operation_id, other, control.receipt))
        if counted == 0:
            return 0
    return otherwise


def _judged(control: Control, there: int, absent: int) -> Tested:
    if there == absent:
        return _failed(
            f"it finds {there} of {control.operation_id}, which succeeded, and {absent} of an operation that "
            "cannot exist: does it look for the key?"
        )
    if absent:
        return _failed(f"it finds {absent} of an operation that cannot exist")
    if there > 1:
        return _failed(f"it finds {there} of {control.operation_id}, which succeeded once")
    detail = f"it finds {control.operation_id}, and nothing of an operation that cannot exist"
    return Tested(status="passed", detail=detail, operation_id=control.operation_id)


async def _count(provider: Provider, probe: Probe, read: Contract, seen: JsonObject) -> int | Unclear:
    asked = question(probe, seen)
    if isinstance(asked, Unclear):
        return asked
    report, phase = await put(
        provider, look_id(uuid4().hex), probe.tool, asked, read.execution_s, may_act=lambda: True
    )
    keeping = None if read.redact is None else Redactor(redaction=read.redact, arguments=asked)
    return count(probe, seen, report, phase, read, keeping)


def _failed(detail: str) -> Tested:
    return Tested(status="failed", detail=detail)
