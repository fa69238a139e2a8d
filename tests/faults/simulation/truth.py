"""What really happened in a simulated world, and every promise that was broken in it.

Knows everything: what each tool did, by key; what the journal had told its callers; what the plane was sent.
Each check is one of the invariants of docs/architecture.md, and names it.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from driver.core.probes import is_look
from store.lifecycle import OPEN, Effect, Source, State
from store.records import OperationId, OperationRecord, StoredEvent
from tests.faults.simulation.claims import claim

Json = dict[str, Any]
Say = Callable[[str], None]
"""Told each line of a world's trace, for a person."""

ONCE: Final = "once"
"""The tool whose call is made once in a run, whoever asks for it again, and in whatever way."""
JUDGED: Final = "judged by its records"


class Truth:
    """The omniscient side of one world."""

    def __init__(self, say: Say | None = None) -> None:
        self._say: Final = say
        self.broken: list[str] = []
        self.reached: Counter[str] = Counter()
        self.fired: Counter[str] = Counter()
        self.effects: Counter[str] = Counter()
        """How often the world was changed, by idempotency key."""
        self._by_attempt: Counter[tuple[str, int]] = Counter()
        """The same, by key and attempt."""
        self._none_before: set[str] = set()
        """Operations of which a journal that was rolled back said `none` then, and nothing new since."""
        self.held: set[tuple[str, int]] = set()
        """The intents that the plane holds."""
        self.may_be_erased = False
        """Whether somebody has asked for a run to be erased."""
        self.lied: set[str] = set()
        """Operations whose tool said that nothing happened, and did it afterwards."""
        self.may_be_pruned = False
        """Whether what is over, and acknowledged, may be forgotten."""
        self.children: dict[str, set[str]] = {}
        """The operations that others were delegated to."""
        self.forked = False
        """Whether a journal was lost, or rolled back: an attempt's number may then come again."""
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
        self.superseded: set[str] = set()
        """The processes that the plane has told that another one has taken over."""
        self.cloned = False
        """Whether there has been a copy of the journal that went on by itself."""
        self.accepted_in: dict[str, int] = {}
        """The life that an operation was accepted in."""
        self._guessed: set[str] = set()
        """Operations that a supervisor's verdict has settled."""
        self._begun: dict[str, dict[int, int]] = {}
        """The attempts of each operation that there are intents of, by the seq of these on the wire."""
        self._reads: set[str] = set()
        """Operations that were called, and may change nothing."""
        self._once: dict[str, tuple[str, str]] = {}
        """The run and the arguments of each call that is to be made once in a run."""
        self._denials: dict[tuple[str, int], str] = {}
        """The attempts of which an event has said that they did nothing; in what words, the first time."""
        self._trace = hashlib.blake2b(digest_size=16)

    def note(self, now: float, *words: object) -> None:
        """Let the trace of the world go on."""
        self._trace.update(f"{now!r} {words!r}\n".encode())
        if self._say is not None:
            self._say(f"{now:14.6f} {' '.join(map(str, words))}")

    @property
    def trace(self) -> str:
        """Return what two runs of the same seed share."""
        return self._trace.hexdigest()

    def counts(self) -> tuple[Counter[str], Counter[str]]:
        """Return which faults fired, and what was reached."""
        return +self.fired, +self.reached

    def blame(self, invariant: str, what: str) -> None:
        """Note a broken promise."""
        self.broken.append(f"{invariant}: {what}")

    # ------------------------------------------------------------ the journal's word

    def begins(self, events: Sequence[StoredEvent], acked_seq: int) -> None:
        """A life has opened the journal: what an earlier one told its callers is there, as it was told."""
        found = {event.seq: event.body for event in events}
        for seq, body in self.told.items():
            erased = self.may_be_erased and seq in found and found[seq] is None
            pruned = self.may_be_pruned and seq not in found and seq <= acked_seq
            self.reached["pruned"] += pruned
            if found.get(seq) != body and not (erased or pruned):
                self.blame(
                    "I5", f"event {seq} was told of, and is {found.get(seq)!r} after a start: {body!r}"
                )
        self.told = found

    def committed(self, life: int, events: Sequence[StoredEvent]) -> None:
        """The journal has told its callers of events."""
        self.told |= {event.seq: event.body for event in events}
        self.hears(life, events)

    def hears(self, life: int, events: Sequence[StoredEvent]) -> None:
        """A journal, this one or its copy, has told its callers of events."""
        for event in events:
            frame: Json = json.loads(event.body or b"{}")
            self._hear(life, event, frame)

    def _hear(self, life: int, event: StoredEvent, frame: Json) -> None:
        operation_id, data = event.operation_id or "", frame.get("data", {})
        if event.kind in _NEWS:
            self._none_before.discard(operation_id)
        self._weigh(event.kind, operation_id, data)
        for word in _WORDS.get(event.kind, ()):
            self.reached[word.format(**data)] += 1
        match event.kind:
            case "command.accepted":
                self.accepted_in.setdefault(operation_id, life)
                if data.get("tool") == f"tools/{ONCE}":
                    self._once[operation_id] = (str(event.run_id), data["args_digest"])
                if parent := data.get("parent_operation_id"):
                    self.children.setdefault(parent, set()).add(operation_id)
            case "operation.started":
                self._intends(operation_id, int(frame["seq"]), data)
            case "operation.approval_decided" if data["decision"] == "grant":
                self.granted[data["approval_id"]] = life
            case "operation.approval_requested":
                self.reached["approval asked for again"] += operation_id in self._asked
                self._asked.add(operation_id)
            case "operation.reconciled":
                self._reconciled(operation_id, data)
            case _:
                pass

    def _weigh(self, kind: str, operation_id: str, data: Json) -> None:
        """Hold an event to what has happened by now; and what it denies, to what happens until the end."""
        said = claim(kind, data, self._begun.get(operation_id, {}))
        if said is None:
            return
        self.reached["claim"] += 1
        if said.effect is Effect.NONE:
            for attempt in said.attempts:
                self._denials.setdefault((operation_id, attempt), f"{kind} of {data}")
        elif operation_id not in self._reads and not self._executed(operation_id):
            self.blame("I3", f"{kind} of {operation_id} says {data}, and it has not happened")

    def _intends(self, operation_id: str, seq: int, data: Json) -> None:
        attempt = int(data["attempt"])
        self.intents.add((operation_id, attempt))
        begun = self._begun.setdefault(operation_id, {})
        begun.pop(seq, None)  # of another history: the newest is the last
        begun[seq] = attempt
        self.approved[operation_id, attempt] = data.get("approval_id")
        self.reached["another attempt"] += attempt > 1

    def _reconciled(self, operation_id: str, data: Json) -> None:
        by = str(data["actor"]).partition(":")[0]
        self.reached[f"verdict of {by}"] += 1
        self.reached["verdict of what it was delegated to"] += data["actor"].endswith("delegation")
        if by == "supervisor":
            self._guessed.add(operation_id)
        elif operation_id in self._guessed:
            self.reached["supervisor overruled"] += 1

    def lose(self, kept: dict[int, bytes | None]) -> None:
        """The file is gone, or is an older one that holds `kept`: what came later nobody can know."""
        self.forked = True
        self.told = dict(kept)
        self._none_before = _said_none(kept)

    # ------------------------------------------------------------ the world

    def leaves(
        self,
        life: int,
        operation_id: OperationId,
        attempt: int,
        *,
        approval: bool,
        confirmed: bool,
        held: bool,
        write: bool,
    ) -> None:
        """The first byte of an attempt may have left."""
        if is_look(operation_id):
            return
        key = (operation_id, attempt)
        self.sent[key] += 1
        if not write:
            self._reads.add(operation_id)
        if key not in self.intents:
            self.blame("I1", f"attempt {attempt} of {operation_id} left without its intent")
        may_come_again = self.forked or (self.cloned and not write)
        if self.sent[key] > 1 and not may_come_again:
            self.blame("I2", f"attempt {attempt} of {operation_id} left {self.sent[key]} times")
        if not confirmed and self.accepted_in.get(operation_id, life) != life:
            self.blame("I9", f"{operation_id} of an earlier life left before the plane's welcome")
        if approval:
            self._approved(life, key)
        if held and key not in self.held:
            self.blame("intent_ack", f"attempt {key} left, and the plane does not hold its intent")

    def _approved(self, life: int, key: tuple[str, int]) -> None:
        request = self.approved.get(key)
        if request is None or self.granted.get(request) != life or request in self.used:
            self.blame("approvals", f"attempt {key} left under {request}: granted in {self.granted}, {life=}")
        else:
            self.used.add(request)

    def happens(self, key: str, attempt: int) -> None:
        """The world has changed."""
        self.effects[key] += 1
        self._by_attempt[key, attempt] += 1
        if self.effects[key] > 1 and key not in self.lied:
            self.blame("I2", f"{key} happened {self.effects[key]} times")
        self._happens_once(key)

    def _happens_once(self, key: str) -> None:
        """Of calls that are to be made once in a run, only one does anything, as far as one journal knows."""
        wanted = self._once.get(key)
        if wanted is None or self.forked or self.cloned:
            return
        twins = [each for each, other in self._once.items() if other == wanted and self.effects[each]]
        if len(twins) > 1:
            self.blame("I2", f"{twins} are one call of a tool that makes it once in a run")

    # ------------------------------------------------------------ the end

    def judge(self, records: Sequence[OperationRecord]) -> None:
        """Compare what the journal says in the end with what has happened."""
        self.reached[JUDGED] += 1
        self._judge_denials()
        attempts = {record.operation_id: record.attempt_count for record in records}
        for record in records:
            happened, effect, state = self._denied(record.operation_id, attempts), record.effect, record.state
            said = f"{record.tool} {record.operation_id} is {state}, {effect} by {record.effect_by}"
            if state in OPEN:
                self.blame("I4", f"{said}: it has not ended")
            if not record.write or record.operation_id in self.lied:
                continue
            guessed = record.effect_by is Source.SUPERVISOR
            if happened and ((effect is Effect.NONE and not guessed) or state is State.NOT_EXECUTED):
                self.blame("I3", f"{said}, and it happened")
            if not self._executed(record.operation_id) and (
                (effect is Effect.OCCURRED and not guessed) or state is State.SUCCEEDED
            ):
                self.blame("I3", f"{said}, and it never happened")

    def _judge_denials(self) -> None:
        """No event may have said of an attempt that it did nothing, if it did something, before or after."""
        if self.forked or self.cloned:
            return  # an attempt's number may have come again
        for (operation_id, attempt), words in self._denials.items():
            if self._by_attempt[operation_id, attempt] and operation_id not in self.lied:
                self.blame("I3", f"attempt {attempt} of {operation_id} happened, and there was {words}")

    def _denied(self, operation_id: OperationId, attempts: Mapping[OperationId, int]) -> int:
        """How often an operation happened of which `none` is said: what makes that a lie.

        A receipt from before a rollback stands as it is, and speaks of the attempts until then; of those that
        are lost with what came later nobody can know, and rule R builds on no such `none`.
        """
        if operation_id not in self._none_before:
            return self._happened(operation_id)
        concerned = self.children.get(operation_id, {operation_id})
        return sum(
            times
            for (key, attempt), times in self._by_attempt.items()
            if key in concerned and attempt <= attempts.get(OperationId(key), 0)
        )

    def _happened(self, operation_id: str) -> int:
        """How often an operation did something, or those that it was delegated to."""
        return sum(self.effects[each] for each in self.children.get(operation_id, {operation_id}))

    def _executed(self, operation_id: str) -> bool:
        """Whether it did something; of one that was delegated, whether any of its children was called."""
        children = self.children.get(operation_id, set())
        return self._happened(operation_id) > 0 or any(child in children for child, _ in self.sent)


_NEWS: Final = frozenset({"operation.started", "operation.reconciled", "operation.late_result"})
"""What says something about an operation that its receipt, told once more in another history, did not."""


def _said_none(kept: Mapping[int, bytes | None]) -> set[str]:
    """Return the operations that a journal of these events says ended, and did nothing by its newest word."""
    found: dict[str, bool] = {}
    for _, body in sorted(kept.items()):
        event: Json = json.loads(body or b"{}")
        kind, data = event.get("kind", ""), event.get("data", {})
        if kind in _NEWS or kind in ("operation.failed", "operation.unknown", "operation.succeeded"):
            found[event["operation_id"]] = data.get("effect") == "none"
        elif kind == "operation.not_executed":
            found[event["operation_id"]] = True
    return {operation_id for operation_id, is_none in found.items() if is_none}


_WORDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "operation.approval_requested": ("approval asked for",),
        "operation.unknown": ("unknown", "unknown, {reason}"),
        "operation.late_result": ("late answer",),
        "operation.diverged": ("contradiction",),
        "operation.probed": ("probe: {verdict}",),
        "operation.compensated": ("compensated",),
        "operation.not_executed": ("not executed, {reason}",),
        "command.refused": ("refused, {code}",),
        "driver.fenced": ("fence", "fence, {reason}"),
        "driver.unfenced": ("history begun anew",),
        "driver.recovered": ("recovery",),
    }
)
"""What is reached with an event of a kind."""
