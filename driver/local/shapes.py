"""The journal's records as JSON: the members of docs/local-api.md, in its words and its order.

Part of `driver.local`, pure: imports the store's vocabulary, and `driver.core` for what is withheld. A
list's item and the record alone share one function, so that they cannot differ.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from driver.core.redaction import redaction
from driver.core.reports import Redactor
from driver.local.sources import StatusFacts
from store.delegation import Delegation
from store.erasure import RunErasure
from store.findings import Finding, Progress
from store.lifecycle import State
from store.records import (
    COMPENSATION_PREFIX,
    AttemptRecord,
    CommandRecord,
    DeadLetter,
    DeliveryRecord,
    EvidenceRecord,
    Fence,
    JournalId,
    JsonObject,
    JsonValue,
    OperationRecord,
    RunId,
    RunRecord,
    StoredData,
    StoredEvent,
    Timestamp,
    moment,
)
from store.statistics import JournalStatistics
from store.wire import frame_of
from supervisor.prompt import PROMPT_VERSION, SYSTEM
from supervisor.wall import Wall


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """All that the journal holds about one operation; `result` is JSON, None without one."""

    operation: OperationRecord
    command: CommandRecord | None
    data: StoredData | None
    result: bytes | None
    deliveries: Sequence[DeliveryRecord]
    attempts: Sequence[AttemptRecord]
    evidence: Sequence[EvidenceRecord]
    delegation: Delegation | None
    compensation: OperationRecord | None
    """The operation that takes this one back."""
    allowed: Sequence[str]
    """The commands about it that would be taken now."""
    seqs: Sequence[int]
    """Of all its events."""
    telling: Sequence[StoredEvent]
    """Its receipt, and its events of a kind in `TELLING`."""


TELLING: Final = frozenset(
    {
        "operation.approval_requested",
        "operation.approval_decided",
        "operation.late_result",
        "operation.probed",
        "operation.reconciled",
        "operation.annotated",
        "operation.compensated",
        "operation.diverged",
    }
)
"""Kinds whose data no record of the journal holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the journal knows of the daemon, as of one moment."""

    now: datetime
    journal_id: JournalId
    last_seq: int
    acked_seq: int
    counts: Mapping[State, int]
    unsettled: int
    oldest_unsettled: Timestamp | None
    dead_letters: int
    fence: Fence | None
    room: bool


def status(facts: StatusFacts, known: Known, statistics: JournalStatistics) -> JsonObject:
    """Return the daemon's status. Every state has its count, 0 included; ages are in seconds."""
    oldest = known.oldest_unsettled
    return {
        "state": facts.state,
        "driver_id": facts.driver_id,
        "journal_id": known.journal_id,
        "boot_id": facts.boot_id,
        "link": {
            "connected": facts.link.connected,
            "since": facts.link.since,
            "url": facts.link.url,
            "last_error": facts.link.last_error,
        },
        "last_seq": known.last_seq,
        "acked_seq": known.acked_seq if facts.link.acked_seq is None else facts.link.acked_seq,
        "counts": {state.value: known.counts.get(state, 0) for state in State},
        "unsettled": known.unsettled,
        "oldest_unsettled_age_s": None
        if oldest is None
        else max(0.0, round((known.now - moment(oldest)).total_seconds(), 3)),
        "dead_letters": known.dead_letters,
        "incidents": {"diverged": facts.diverged, "duplicated": facts.duplicated},
        "journal": {
            "bytes": statistics.bytes,
            "wal_bytes": statistics.wal_bytes,
            "last_commit_at": statistics.last_commit_at,
            "has_room": known.room,
            "sqlite_version": statistics.sqlite_version,
        },
        "gateway": None
        if facts.gateway is None
        else {"connections": facts.gateway.connections, "listen": facts.gateway.listen},
        "fence": None if known.fence is None else known.fence.reason,
        "integrity": facts.integrity,
        "fault_injection": list(facts.fault_injection),
    }


def operation(record: OperationRecord) -> JsonObject:
    """Return an operation as lists show it."""
    return {
        "operation_id": record.operation_id,
        "command_id": record.command_id,
        "run_id": record.run_id,
        "origin": record.origin,
        "tool": record.tool,
        "args_digest": record.args_digest,
        "state": record.state,
        "effect": record.effect,
        "effect_by": record.effect_by,
        "best_effort": record.best_effort,
        "settled": record.settled,
        "reason": record.reason,
        "receipt": record.receipt,
        "attempt_count": record.attempt_count,
        "metadata": None if record.metadata is None else dict(record.metadata),
        "accepted_at": record.accepted_at,
        "started_at": record.started_at,
        "ended_at": record.ended_at,
        "deadline_at": record.deadline_at,
    }


def story(told: Story, withheld: Iterable[str]) -> bytes:
    """Return an operation alone, as JSON text, its arguments without what lies on the paths `withheld`.

    `result` is spliced in as it is stored: it may be large, and it is JSON already. Takes time in
    proportion to the arguments: call it in a worker thread.
    """
    datas = [(event, data) for event in told.telling if (data := _data(event)) is not None]
    members = {
        **operation(told.operation),
        "arguments": _arguments(told.data, withheld),
        "command": None if told.command is None else command(told.command),
        "deliveries": [delivery(record) for record in told.deliveries],
        "attempts": [attempt(record) for record in told.attempts],
        "evidence": [evidence(record) for record in told.evidence],
        "events": list(told.seqs),
        "approvals": approvals(told.telling),
        "late_results": _told(datas, "operation.late_result", _LATE_RESULT),
        "probes": _told(datas, "operation.probed", _PROBE),
        "verdicts": _told(datas, "operation.reconciled", _VERDICT),
        "divergences": _told(datas, "operation.diverged", _DIVERGENCE),
        "annotations": _told(datas, "operation.annotated", _ANNOTATION),
        "compensation": _compensation(told.compensation, datas),
        "compensates": _compensates(told.operation),
        "parent_operation_id": told.operation.parent_operation_id,
        **_child(told.delegation),
        "allowed": list(told.allowed),
    }
    head = json.dumps(members, separators=(",", ":"), allow_nan=False).encode("ascii")
    return head[:-1] + b',"result":' + (told.result or b"null") + b"}"


def wall(shown: Wall, model: str) -> JsonObject:
    """Return a wall: `text`, under `system`, is exactly what a model sees; the rest says what is in it."""
    return {
        **shown.head,
        "digest": shown.digest,
        "size": shown.size,
        "model": model,
        "prompt_version": PROMPT_VERSION,
        "operations": [entry.shown for entry in shown.entries],
        "neighbours": [*shown.neighbours],
        "system": SYSTEM,
        "text": shown.text,
    }


def approvals(telling: Iterable[StoredEvent]) -> list[JsonValue]:
    """Return what a person was asked about an operation, oldest first, and what was decided."""
    found: dict[JsonValue, JsonObject] = {}
    for event in telling:
        data = _data(event) or {}
        if event.kind == "operation.approval_requested":
            names = ("approval_id", "args_digest", "definition_digest", "expires_at")
            undecided = dict.fromkeys(("decision", "approver", "label", "reason", "decided_at"))
            asked = {name: data.get(name) for name in names}
            found[data["approval_id"]] = {**asked, "requested_at": event.at, **undecided}
        elif event.kind == "operation.approval_decided":
            names = ("decision", "approver", "label", "reason")
            decided = {name: data.get(name) for name in names}
            found[data["approval_id"]] |= {**decided, "decided_at": event.at}
    return [*found.values()]


def command(record: CommandRecord) -> JsonObject:
    """Return a command. `accepted_seq` and `kind` are null where it was refused for good.

    The event that holds a refusal does not say of which kind it was.
    """
    return {
        "command_id": record.command_id,
        "run_id": record.run_id,
        "kind": record.kind or None,
        "origin": record.origin,
        "content_digest": record.content_digest,
        "operation_id": record.operation_id,
        "accepted_seq": record.accepted_seq,
        "accepted_at": record.accepted_at,
        "expires_at": record.expires_at,
        "receipt_seq": record.receipt_seq,
        "receipt_kind": record.receipt_kind,
    }


def delivery(record: DeliveryRecord) -> JsonObject:
    """Return one arrival of a command."""
    return {"at": record.at, "answer": record.answer}


def erasing(walk: RunErasure, left: int) -> JsonObject:
    """Return how far the erasure of a run has come."""
    return {
        "erased": walk.erased,
        "unsettled": walk.unsettled,
        "unacknowledged": walk.unacknowledged,
        "left": left,
    }


def attempt(record: AttemptRecord) -> JsonObject:
    """Return one attempt, with the contract that it was started under and the last phase that it reached."""
    return {
        "attempt": record.attempt,
        "idempotency_key": record.idempotency_key,
        "key_carrier": record.key_carrier,
        "idempotent": record.idempotent,
        "dedupe_horizon_s": record.dedupe_horizon_s,
        "started_seq": record.started_seq,
        "started_at": record.started_at,
        "deadline_at": record.deadline_at,
        "phase": record.phase,
        "outcome": record.outcome,
        "reason": record.reason,
        "ended_at": record.ended_at,
        "duration_ms": record.duration_ms,
    }


def evidence(record: EvidenceRecord) -> JsonObject:
    """Return one thing that was learned about an attempt."""
    return {
        "attempt": record.attempt,
        "seq": record.seq,
        "at": record.at,
        "effect": record.effect,
        "source": record.source,
        "actor": record.actor,
    }


def run(record: RunRecord) -> JsonObject:
    """Return a run as lists show it."""
    return {
        "run_id": record.run_id,
        "ended": record.ended,
        "outcome": record.outcome,
        "operations": record.operations,
        "unsettled": record.unsettled,
        "first_at": record.first_at,
        "last_at": record.last_at,
    }


def run_alone(record: RunRecord, resumes: Iterable[RunId]) -> JsonObject:
    """Return a run with the runs that it continues, directly or through others."""
    return {**run(record), "resumes": list(resumes)}


def dead_letter(record: DeadLetter) -> JsonObject:
    """Return an event that was parked outside the stream."""
    return {
        "seq": record.seq,
        "kind": record.kind,
        "code": record.code,
        "message": record.message,
        "at": record.at,
        "requeued_as": record.requeued_as,
    }


def progress(reached: Progress) -> JsonObject:
    """Return how far a check of the journal is; `total` is null where it is not known."""
    return {"check": reached.check, "done": reached.done, "total": reached.total}


def finding(found: Finding) -> JsonObject:
    """Return one thing that is wrong with the journal."""
    return {"check": found.check, "subject": found.subject, "problem": found.problem}


def ndjson(events: Iterable[StoredEvent]) -> bytes:
    """Return events as lines, each as it goes over the wire; one whose body was erased is left out."""
    return b"".join(event.body + b"\n" for event in events if event.body is not None)


def _data(event: StoredEvent) -> JsonObject | None:
    if event.body is None:
        return None
    data: JsonObject = frame_of(event.body)["data"]
    return data


def _arguments(data: StoredData | None, withheld: Iterable[str]) -> JsonValue:
    """What the contract withheld when the call was accepted stays withheld, whatever it says by now."""
    arguments = None if data is None else data.arguments
    if data is None or arguments is None:
        return None
    hiding = redaction((*data.redact, *withheld))
    return arguments if hiding is None else Redactor(redaction=hiding, arguments=arguments).shown_arguments()


def _compensation(
    found: OperationRecord | None, datas: Iterable[tuple[StoredEvent, Mapping[str, JsonValue]]]
) -> JsonValue:
    """`seq` is the newest event that says what it came to; null before it has ended."""
    if found is None:
        return None
    seqs = [event.seq for event, _ in datas if event.kind == "operation.compensated"]
    return {
        "operation_id": found.operation_id,
        "state": found.state,
        "effect": found.effect,
        "seq": seqs[-1] if seqs else None,
    }


def _compensates(operation: OperationRecord) -> JsonValue:
    """The operation that this one takes back; null for any other."""
    prefix, command_id = COMPENSATION_PREFIX, operation.command_id
    return command_id.removeprefix(prefix) if command_id.startswith(prefix) else None


def _child(found: Delegation | None) -> JsonObject:
    """What the runs that the operation was delegated to have done so far; null where it delegated nothing."""
    return {
        "child_run_id": None if found is None else found.run_ids[0],
        "child_ops_total": None if found is None else found.total,
        "child_ops_unresolved": None if found is None else found.unresolved,
    }


_LATE_RESULT: Final = ("attempt", "effect", "error", "receipt")
_PROBE: Final = ("verdict", "matches", "detail")
_VERDICT: Final = ("effect", "actor", "label", "basis", "note", "evidence", "started_seq")
_DIVERGENCE: Final = ("evidence", "detail")
_ANNOTATION: Final = ("metadata",)


def _told(
    datas: Iterable[tuple[StoredEvent, Mapping[str, JsonValue]]], kind: str, names: Sequence[str]
) -> list[JsonValue]:
    """Return what the events of one kind say, oldest first."""
    return [
        {"seq": event.seq, "at": event.at, **{name: data.get(name) for name in names}}
        for event, data in datas
        if event.kind == kind
    ]
