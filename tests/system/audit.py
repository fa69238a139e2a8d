"""What must be true of a sandbox once all is quiet: the plane's memory, held against the ledger of effects.

Pure apart from reading the ledger. Returns what is broken rather than raising, so that a negative control can
assert that it is.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Final

from tests.system.history import Json
from tests.system.plane import ScriptedPlane
from tests.system.sandbox import Sandbox

SCOPE: Final = "test"

EXECUTIONS: Final[Mapping[str, tuple[int, ...]]] = {
    "operation.succeeded": (1,),
    "operation.failed": (1,),
    "operation.unknown": (0, 1),
    "operation.not_executed": (0,),
    "command.refused": (0,),
    "command.completed": (0,),
    "command.failed": (0,),
}
"""How often the server may have executed what ended so. Its failures are answers, after the effect."""


def key_of(command: Json) -> str:
    """Return the operation id, which is the idempotency key, that the protocol gives to a `tool.call`."""
    text = f"{SCOPE}\0{command['run_id']}\0{command['command_id']}"
    return "op_" + hashlib.sha256(text.encode()).hexdigest()[:32]


def audit(plane: ScriptedPlane, executions: Counter[str]) -> list[str]:
    """Return every promise that was broken (I1 to I4, and I6 by way of the history's own checks)."""
    broken = [*plane.violations, *(v for history in plane.histories.values() for v in history.violations)]
    events = [event for history in plane.histories.values() for event in history.events()]
    intents = {event["data"]["idempotency_key"] for event in events if event["kind"] == "operation.started"}
    keys = {key_of(order.command): command_id for command_id, order in plane.orders.items()}
    # what the daemon itself may make of a call: the one that takes it back
    undone = {
        key_of({**order.command, "command_id": f"compensate:{key_of(order.command)}"}): command_id
        for command_id, order in plane.orders.items()
    }
    keys |= {
        key: f"compensate:{key_of(plane.orders[command_id].command)}"
        for key, command_id in undone.items()
        if key in intents
    }
    for key, count in executions.items():
        if count > 1:
            broken.append(f"{keys.get(key)} was executed {count} times")
        if key not in keys:
            broken.append(f"somebody executed {key}, which nobody ordered")
        if key not in intents:
            broken.append(f"{keys.get(key)} was executed without an intent in the journal")
    for key, command_id in keys.items():
        receipt = plane.receipt(command_id)
        if receipt is None:
            broken.append(f"{command_id} has no receipt")
        elif executions[key] not in EXECUTIONS[receipt["kind"]]:
            broken.append(f"{command_id} was executed {executions[key]} times: {receipt['kind']}")
    return broken


async def must_hold(sandbox: Sandbox) -> None:
    """Raise AssertionError where a promise is broken, once no provider is left that could still act."""
    assert sandbox.plane is not None
    await sandbox.quiet()
    broken = audit(sandbox.plane, sandbox.executions())
    assert not broken, "\n".join(broken)
