"""The wall: the one text about a run that a model is shown, bounded, and the same for the same journal.

Part of `supervisor`, pure: imports `store.records` and its `material` and `quoting`.

Theory of operation
-------------------
A wall is a line of JSON about the run, one for each unsettled operation, oldest first, and one for each
settled neighbour, between two markers that nothing inside can spell (`supervisor.quoting`). It holds no
clock: as long as the journal says the same, it has the same digest.

`bytes_max` bounds all of it. The neighbours get an eighth at most; the operations share the rest evenly, so
that one alone may tell a long story and sixty-four a short one each. Where not all fit, the oldest stay and
the wall says how many it leaves out; it never holds less than one. Within an operation's share what it is
comes first, whole; then what was learned about it, in the order of its worth, each part cut to what is left.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, cast

from store.delegation import Delegation
from store.events import LateResult, OperationProbed
from store.records import Digest, JsonObject, JsonValue, OperationId, OperationRecord, RunId
from supervisor.material import Disclosure, Material, Said, Subject
from supervisor.quoting import TEXT_BYTES_MIN, bounded, dumps, shortened, size

BEGIN, END = "<wall>", "</wall>"
ENTRY_BYTES_MIN: Final = 640
"""What an operation gets at least: who it is takes about 400."""
ENTRY_BYTES_MAX: Final = 12_000
NEIGHBOURS_SHARE: Final = 8
"""The neighbours take no more than this part of a wall."""
TOOL_BYTES_MAX: Final = 130
ATTEMPTS_SHOWN: Final = 3
WORDS_SHOWN: Final = 4
"""Errors, and probes, of one operation that are shown: the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One operation on the wall, and the few facts that rules decide by."""

    operation_id: OperationId
    started_seq: int | None
    attempt_count: int
    reason: str | None
    observed_change: bool | None
    """Whether the reading commands printed something else after the attempt than before; None: not known."""
    shown: JsonObject = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wall:
    """What a model is shown of one run."""

    run_id: RunId
    entries: tuple[Entry, ...]
    neighbours: tuple[JsonObject, ...]
    head: JsonObject
    text: str = field(repr=False)
    digest: Digest

    @property
    def size(self) -> int:
        """How many bytes a model is shown."""
        return len(self.text)

    @property
    def left_out(self) -> int:
        """How many unsettled operations come on the next walls."""
        left = self.head["left_out"]
        assert isinstance(left, int), "it was written here"
        return left

    @property
    def operation_ids(self) -> tuple[OperationId, ...]:
        """The operations that it asks about, oldest first."""
        return tuple(entry.operation_id for entry in self.entries)


def build(material: Material, disclosure: Disclosure, bytes_max: int) -> Wall:
    """Return the wall of a run, of at most `bytes_max` bytes, or of one operation in its shortest form."""
    frame = len(BEGIN) + len(END) + 2 + size(_head(material, len(material.subjects))) + 1
    neighbours = tuple(_fitting(map(_neighbour, material.neighbours), bytes_max // NEIGHBOURS_SHARE))
    room = bytes_max - frame - sum(size(item) + 1 for item in neighbours)
    if material.subjects:
        share = room // len(material.subjects) - 1
        share = max(ENTRY_BYTES_MIN, min(share, ENTRY_BYTES_MAX))
        entries = tuple(_entries(material, disclosure, room, share))
    else:
        entries = ()
    head = _head(material, len(entries))
    lines = (head, *(entry.shown for entry in entries), *neighbours)
    text = "\n".join((BEGIN, *map(dumps, lines), END))
    return Wall(
        run_id=material.run.run_id,
        entries=entries,
        neighbours=neighbours,
        head=head,
        text=text,
        digest=Digest(hashlib.sha256(text.encode("ascii")).hexdigest()),
    )


def _head(material: Material, shown: int) -> JsonObject:
    left_out = material.run.unsettled - material.waiting - shown
    return {
        "run_id": material.run.run_id,
        "run_ended": material.run.ended,
        "unsettled": material.run.unsettled,
        "waiting_for_probes": material.waiting,
        "shown": shown,
        "left_out": left_out,
        **({"split": "oldest first; the others come on the next walls"} if left_out else {}),
    }


def _entries(material: Material, disclosure: Disclosure, room: int, share: int) -> Iterator[Entry]:
    """Yield the oldest entries that fit, at least one."""
    for number, subject in enumerate(material.subjects):
        entry = _entry(subject, disclosure, share)
        room -= size(entry.shown) + 1
        if room < 0 and number:
            return
        yield entry


def _fitting(items: Iterable[JsonObject], room: int) -> list[JsonObject]:
    """Return the newest items that fit, in their order."""
    kept: list[JsonObject] = []
    for item in reversed(list(items)):
        room -= size(item) + 1
        if room < 0:
            break
        kept.append(item)
    return kept[::-1]


def _neighbour(record: OperationRecord) -> JsonObject:
    return {
        "neighbour": record.operation_id,
        "tool": shortened(record.tool, TOOL_BYTES_MAX),
        "write": record.write,
        "state": record.state.value,
        "effect": record.effect.value,
        "effect_by": None if record.effect_by is None else record.effect_by.value,
        "accepted_at": record.accepted_at,
        "ended_at": record.ended_at,
    }


def _entry(subject: Subject, disclosure: Disclosure, share: int) -> Entry:
    record = subject.record
    shown = disclosure(record, subject.data)
    entry = _identity(subject)
    parts: list[tuple[str, JsonValue, int]] = [
        ("errors", shown.cleared(_errors(subject.said)), 4),
        ("probes", shown.cleared(_probes(subject.said)), 2),
        ("observed", shown.cleared(_observed(subject)), 4),
        ("earlier_attempts", _earlier(subject), 1),
        ("receipt", shown.cleared(record.receipt), 1),
        ("arguments", shown.arguments, 5),
        ("annotation", shown.cleared(_annotation(record)), 1),
        ("answer", shown.cleared(_answer(subject.said)), 3),
    ]
    entry |= _children(subject.children)
    _fill(entry, [part for part in parts if part[1] not in (None, [], {})], share)
    return Entry(
        operation_id=record.operation_id,
        started_seq=record.started_seq,
        attempt_count=record.attempt_count,
        reason=record.reason,
        observed_change=_observed_change(subject),
        shown=entry,
    )


def _identity(subject: Subject) -> JsonObject:
    record = subject.record
    newest = subject.attempts[-1] if subject.attempts else None
    return {
        "operation_id": record.operation_id,
        "tool": shortened(record.tool, TOOL_BYTES_MAX),
        "state": record.state.value,
        "reason": record.reason,
        "phase": None if newest is None else newest.phase,
        "attempts": record.attempt_count,
        "started_at": record.started_at,
        "ended_at": record.ended_at,
    }


def _fill(entry: JsonObject, parts: list[tuple[str, JsonValue, int]], share: int) -> None:
    """Give each part its due of what is left of the share; what one does not need, the later ones get."""
    for number, (name, value, weight) in enumerate(parts):
        left = share - size(entry) - len(name) - 4
        room = left * weight // sum(item[2] for item in parts[number:])
        if room < TEXT_BYTES_MIN and size(value) > room:
            entry[name] = "[cut]"
            if size(entry) > share:
                del entry[name]
            continue
        entry[name] = bounded(value, room)


def _earlier(subject: Subject) -> list[JsonValue]:
    """How the attempts before the newest one ended."""
    found: list[JsonValue] = [
        {"attempt": item.attempt, "phase": item.phase, "outcome": item.outcome, "reason": item.reason}
        for item in subject.attempts[:-1]
    ]
    return found[-ATTEMPTS_SHOWN:]


def _errors(said: Iterable[Said]) -> list[JsonValue]:
    """What was said in words about each attempt: by its provider, or by the daemon."""
    found: list[JsonValue] = []
    for item in said:
        error, message = item.data.get("error"), item.data.get("message")
        if error is None and message is None:
            continue
        means = item.data.get("error_means")
        found.append(
            {
                "said": item.kind.removeprefix("operation."),
                **({} if error is None else {"error": error}),
                **({} if message is None else {"message": message}),
                **({} if means is None else {"error_means": means}),
            }
        )
    return found[-WORDS_SHOWN:]


def _probes(said: Iterable[Said]) -> list[JsonValue]:
    found: list[JsonValue] = [
        {"verdict": item.data["verdict"], "matches": item.data["matches"], "detail": item.data["detail"]}
        for item in said
        if item.kind == OperationProbed.KIND
    ]
    return found[-WORDS_SHOWN:]


def _children(found: Delegation | None) -> JsonObject:
    """What the runs did that the operation was delegated to."""
    if found is None:
        return {}
    return {
        "child_run_id": found.run_ids[0],
        "child_runs_ended": found.ended,
        "child_ops_total": found.total,
        "child_ops_unresolved": found.unresolved,
    }


def _observed(subject: Subject) -> JsonValue:
    """What the reading command printed before the newest attempt that it was run for, and after it."""
    if not subject.observed:
        return None
    newest = subject.observed[0].attempt
    sides: JsonObject = {item.side: item.text for item in subject.observed if item.attempt == newest}
    return {"attempt": newest, **sides}


def _observed_change(subject: Subject) -> bool | None:
    """Only where all attempts there were are between the two sides of the one that was observed."""
    sides = {item.side: item.text for item in subject.observed if item.attempt == 1}
    if subject.record.attempt_count != 1 or len(sides) != len(("before", "after")):
        return None
    return sides["before"] != sides["after"]


def _annotation(record: OperationRecord) -> JsonValue:
    return None if record.metadata is None else dict(record.metadata)


def _answer(said: tuple[Said, ...]) -> JsonValue:
    """The newest answer that settles nothing: an error's body, or a late word that left the effect open."""
    for item in reversed(said):
        if item.kind != LateResult.KIND and item.data.get("error") is None:
            continue
        if (result := item.data.get("result")) is not None:
            return cast("JsonValue", result)
    return None
