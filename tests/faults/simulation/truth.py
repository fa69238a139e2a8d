"""What really happened in a simulated world, and every promise that was broken in it.

Knows everything: what each tool did, by key; what the journal had told its callers; what the plane was sent.
Each check is one of the invariants of docs/architecture.md, and names it.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from driver.core.probes import is_look
from store.lifecycle import Effect, Source, State
from store.records import OperationId, OperationRecord, StoredEvent

Json = dict[str, Any]


class Truth:
    """The omniscient side of one world."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        self.reached: Counter[str] = Counter()
        self.fired: Counter[str] = Counter()
        self.effects: Counter[str] = Counter()
        """How often the world was changed, by idempotency key."""
        self.sent: Counter[tuple[str, int]] = Counter()
        """How often an attempt has left."""
        self.intents: set[tuple[str, int]] = set()
        self.approved: dict[tuple[str, int], str | None] = {}
        self.granted: dict[str, int] = {}
        """In which life a grant was recorded, by request."""
        self.used: set[str] = set()
        self._asked: set[str] = set()
        self.told: dict[int, bytes | None] = {}
        """Every event that a caller was told of, by its number in the file."""
        self.accepted_in: dict[str, int] = {}
        """The life that an operation was accepted in."""
        self.unknown: set[str] = set()
        self.guessed: set[str] = set()
        """Operations that a supervisor's verdict has settled."""
        self._trace = hashlib.blake2b(digest_size=16)

    def note(self, now: float, *words: object) -> None:
        """Let the trace of the world go on."""
        self._trace.update(f"{now!r} {words!r}\n".encode())

    @property
    def trace(self) -> str:
        """Return what two runs of the same seed share."""
        return self._trace.hexdigest()

    def blame(self, invariant: str, what: str) -> None:
        """Note a broken promise."""
        self.broken.append(f"{invariant}: {what}")

    # ------------------------------------------------------------ the journal's word

    def begins(self, events: Sequence[StoredEvent]) -> None:
        """A life has opened the journal: what an earlier one told its callers is there, as it was told."""
        found = {event.seq: event.body for event in events}
        for seq, body in self.told.items():
            if found.get(seq) != body:
                self.blame("I5", f"event {seq} was told of, and is {found.get(seq)!r} after a start: {body!r}")
        self.told = found

    def committed(self, life: int, events: Sequence[StoredEvent]) -> None:
        """The journal has told its callers of events."""
        for event in events:
            self.told[event.seq] = event.body
            data: Json = json.loads(event.body or b"{}").get("data", {})
            self._hear(life, event, data)

    def _hear(self, life: int, event: StoredEvent, data: Json) -> None:
        operation_id = event.operation_id or ""
        match event.kind:
            case "command.accepted":
                self.accepted_in.setdefault(operation_id, life)
            case "operation.started":
                attempt = int(data["attempt"])
                self.intents.add((operation_id, attempt))
                self.approved[operation_id, attempt] = data.get("approval_id")
                self.reached["another attempt"] += attempt > 1
            case "operation.approval_decided" if data["decision"] == "grant":
                self.granted[data["approval_id"]] = life
            case "operation.approval_requested":
                self.reached["approval asked for"] += 1
                self.reached["approval asked for again"] += operation_id in self._asked
                self._asked.add(operation_id)
            case "operation.unknown":
                self.unknown.add(operation_id)
                self.reached[f"unknown, {data['reason']}"] += 1
                self.reached["unknown"] += 1
            case "operation.late_result":
                self.reached["late answer"] += 1
            case "operation.diverged":
                self.reached["contradiction"] += 1
            case "operation.probed":
                self.reached[f"probe: {data['verdict']}"] += 1
            case "operation.compensated":
                self.reached["compensated"] += 1
            case "operation.reconciled":
                by = str(data["actor"]).partition(":")[0]
                self.reached[f"verdict of a {by}"] += 1
                if by != "supervisor" and operation_id in self.guessed:
                    self.reached["a supervisor overruled"] += 1
                if by == "supervisor":
                    self.guessed.add(operation_id)
            case "operation.not_executed":
                self.reached[f"not executed, {data['reason']}"] += 1
            case "command.refused":
                self.reached[f"refused, {data['code']}"] += 1
            case "driver.fenced":
                self.reached["fence"] += 1
            case "driver.recovered":
                self.reached["recovery"] += 1
            case _:
                pass

    # ------------------------------------------------------------ the world

    def leaves(self, life: int, operation_id: OperationId, attempt: int, *, approval: bool, confirmed: bool) -> None:
        """The first byte of an attempt may have left."""
        if is_look(operation_id):
            return
        key = (operation_id, attempt)
        self.sent[key] += 1
        if key not in self.intents:
            self.blame("I1", f"attempt {attempt} of {operation_id} left without its intent")
        if self.sent[key] > 1:
            self.blame("I2", f"attempt {attempt} of {operation_id} left {self.sent[key]} times")
        if not confirmed and self.accepted_in.get(operation_id, life) != life:
            self.blame("I9", f"{operation_id} of an earlier life left before the plane's welcome")
        if approval:
            self._approved(life, key)

    def _approved(self, life: int, key: tuple[str, int]) -> None:
        request = self.approved.get(key)
        if request is None or self.granted.get(request) != life or request in self.used:
            self.blame("approvals", f"attempt {key} left under {request}: granted in {self.granted}, {life=}")
        elif request is not None:
            self.used.add(request)

    def happens(self, key: str) -> None:
        """The world has changed."""
        self.effects[key] += 1
        if self.effects[key] > 1:
            self.blame("I2", f"{key} happened {self.effects[key]} times")

    # ------------------------------------------------------------ the end

    def judge(self, records: Sequence[OperationRecord]) -> None:
        """Compare what the journal says in the end with what has happened."""
        for record in records:
            happened = self.effects[record.operation_id]
            said = f"{record.tool} {record.operation_id} is {record.state}, {record.effect} by {record.effect_by}"
            if record.state not in _LAST:
                self.blame("I4", f"{said}: it has not ended")
            if record.effect_by is Source.SUPERVISOR:
                continue
            if not record.write:
                continue
            if happened and record.effect is Effect.NONE:
                self.blame("I3", f"{said}, and it happened")
            if not happened and record.effect is Effect.OCCURRED:
                self.blame("I3", f"{said}, and it never happened")
            if happened and record.state is State.NOT_EXECUTED:
                self.blame("I3", f"{said}, and it happened")
            if not happened and record.state is State.SUCCEEDED:
                self.blame("I3", f"{said}, and it never happened")


_LAST = frozenset({State.SUCCEEDED, State.FAILED, State.NOT_EXECUTED, State.UNKNOWN})
