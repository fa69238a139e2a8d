"""What must be true once all is quiet: what plane and journal say, held against what really happened.

Part of `kill points` and of `soak`. Returns what is broken, and by which measure it counts.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread

from driver.gateway.wire import COMMAND_PREFIX
from tests.faults.lane import CONTRADICTING_RECEIPTS, DUPLICATE_EFFECTS, LOST_RECEIPTS, ORPHANS
from tests.system.audit import key_of
from tests.system.history import Json
from tests.system.plane import ScriptedPlane

PARTING_S: Final = 10.0
"""How long a process may take to end that has nothing left to do: on an idle machine, some milliseconds."""
OTHER: Final = "other broken promises"
EFFECTS: Final[Mapping[str, tuple[int, ...]]] = {
    "operation.succeeded": (1,),
    "operation.failed": (0, 1),
    "operation.unknown": (0, 1),
    "operation.not_executed": (0,),
    "command.refused": (0,),
}
"""How often what ended so may have happened, when nothing is learned of it afterwards."""
VERDICTS: Final[Mapping[str, int]] = {"none": 0, "occurred": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A promise that was not kept."""

    measure: str
    what: str

    def __str__(self) -> str:
        return self.what


def audit(plane: ScriptedPlane, effects: Counter[str]) -> Iterator[Broken]:
    """Return every promise that was broken, of I1 to I4 and I6."""
    for violation in violations(plane):
        yield Broken(measure=CONTRADICTING_RECEIPTS, what=violation)
    events = [event for history in plane.histories.values() for event in history.events()]
    keys = _keys(plane, events)
    intents = {event["data"]["idempotency_key"] for event in events if event["kind"] == "operation.started"}
    for key, count in effects.items():
        if count > 1:
            yield Broken(measure=DUPLICATE_EFFECTS, what=f"{keys.get(key, key)} happened {count} times")
        if key not in keys:
            yield Broken(measure=OTHER, what=f"{key} happened, and nobody ordered it")
        elif key not in intents:
            yield Broken(measure=OTHER, what=f"{keys[key]} happened, and no intent was told")
    for command_id in plane.unanswered():
        yield Broken(measure=LOST_RECEIPTS, what=f"{command_id} has no receipt")
    accepted = (event for event in events if event["kind"] == "command.accepted")
    reads = {event["operation_id"] for event in accepted if event["data"].get("write") is False}
    yield from _lies(plane, {key: name for key, name in keys.items() if key not in reads}, effects)
    yield from _words(events, _with_those_of_children(plane, effects))


def violations(plane: ScriptedPlane) -> list[str]:
    """Return the rules of the protocol that were broken: other bytes, a second receipt, a hole."""
    return [*plane.violations, *(v for history in plane.histories.values() for v in history.violations)]


def _keys(plane: ScriptedPlane, events: Iterable[Json]) -> dict[str, str]:
    """Return which command each key belongs to: the plane's, agents', and those that take them back."""
    keys = {key_of(order.command): name for name, order in plane.orders.items() if _is_call(order.command)}
    for event in events:
        command_id = event["command_id"] or ""
        if command_id.startswith(COMMAND_PREFIX) and event["kind"] == "command.accepted":
            keys[event["operation_id"]] = command_id
        if command_id.startswith("compensate:") and command_id.removeprefix("compensate:") in keys:
            keys.setdefault(event["operation_id"], command_id)
    return keys


def _is_call(command: Json) -> bool:
    return bool(command["kind"] == "tool.call")


def _lies(plane: ScriptedPlane, keys: Mapping[str, str], effects: Counter[str]) -> Iterator[Broken]:
    for key, command_id in keys.items():
        receipt = plane.receipt(command_id)
        if receipt is None:
            if command_id not in plane.orders:
                yield Broken(measure=LOST_RECEIPTS, what=f"{command_id} has no receipt")
            continue
        if receipt["kind"] not in EFFECTS:
            yield Broken(measure=OTHER, what=f"{command_id} ended {receipt['kind']}")
        # what did not happen, or nobody knew, may have been done later on somebody's word
        elif effects[key] not in EFFECTS[receipt["kind"]] and not _was_retried(plane, key, receipt):
            what = f"{command_id} happened {effects[key]} times, and {receipt['kind']} was told"
            yield Broken(measure=CONTRADICTING_RECEIPTS, what=what)


def _was_retried(plane: ScriptedPlane, key: str, receipt: Json) -> bool:
    retried = (
        order.command["data"] for order in plane.orders.values() if order.command["kind"] == "operation.retry"
    )
    return receipt["kind"] == "operation.not_executed" and any(
        data["operation_id"] == key for data in retried
    )


def _with_those_of_children(plane: ScriptedPlane, effects: Counter[str]) -> Counter[str]:
    """Return what happened, where a call that others were made for did what those did, and nothing itself."""
    found = Counter(effects)
    made_for: dict[str, list[str]] = {}
    for order in plane.orders.values():
        parent = order.command["data"].get("parent_operation_id")
        if parent is not None:
            made_for.setdefault(parent, []).append(key_of(order.command))
    for parent, children in made_for.items():
        found[parent] = int(any(effects[child] for child in children))
    return found


def _words(events: Iterable[Json], effects: Counter[str]) -> Iterator[Broken]:
    """What evidence said last of each operation must be so; a supervisor may err."""
    last: dict[str, Json] = {}
    for event in events:
        if event["kind"] == "operation.diverged":
            yield Broken(
                measure=OTHER, what=f"evidence of one thing that happened once diverged: {event['data']}"
            )
        if event["kind"] in ("operation.reconciled", "operation.late_result") and not event["best_effort"]:
            last[event["operation_id"]] = event
        if event["kind"] == "operation.started":
            last.pop(event["operation_id"], None)  # what was known of earlier attempts is past
    for key, event in last.items():
        said = event["data"]["effect"]
        if said in VERDICTS and effects[key] != VERDICTS[said]:
            what = f"{key} happened {effects[key]} times, and {event['kind']} says {said}: {event['data']}"
            yield Broken(measure=CONTRADICTING_RECEIPTS, what=what)


def orphans(parent: int, root: Path) -> list[str]:
    """Return the processes of a sandbox that are left, among those that were orphaned to `parent`."""
    found: list[str] = []
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    mark = str(root)
    for pid in children:
        place = Path("/proc") / pid
        try:
            command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            held = [str(link.readlink()) for link in (*(place / "fd").iterdir(), place / "cwd")]
        except OSError:
            continue  # it has ended
        if mark in command or any(mark in path for path in held):
            found.append(f"process {pid}: {command[:200]}")
    return found


async def left_over(parent: int, root: Path) -> list[Broken]:
    """Return what a sandbox whose last daemon has stopped has left: processes, and records of them.

    Whoever is about to end may do so first: that is no event for somebody who is not its parent.
    """
    found: list[Broken] = []
    with anyio.move_on_after(PARTING_S):
        while found := await to_thread.run_sync(_left, parent, root):  # noqa: ASYNC110
            await anyio.sleep(0.02)
    return found


def _left(parent: int, root: Path) -> list[Broken]:
    records = (root / "state" / "spool").glob("*")
    found = [*orphans(parent, root), *(f"a record of a program: {path.name}" for path in records)]
    return [Broken(measure=ORPHANS, what=text) for text in found]
