"""What a plane that trusts nobody remembers of one journal: every event's bytes, and every broken rule.

Pure; reads the protocol on its own, and shares no code with the product: the chain is computed here again.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

ENVELOPE: Final = (
    "type",
    "journal_id",
    "seq",
    "kind",
    "at",
    "run_id",
    "command_id",
    "operation_id",
    "origin",
    "terminal",
    "best_effort",
    "data",
    "chain",
)
Json = dict[str, Any]


def chain_after(previous: str, frame: bytes) -> str:
    """Return the chain value that `frame` must end with, after an event with the chain `previous`."""
    head, _, _ = frame.rpartition(b',"chain":"')
    digest = hashlib.sha256(head + b"}").hexdigest()
    return hashlib.sha256((previous + digest).encode()).hexdigest()[:32]


@dataclass(slots=True)
class History:
    """The events of one journal, by seq. `violations` are the rules of the protocol that they broke."""

    journal_id: str
    frames: list[bytes | None] = field(default_factory=list[bytes | None])
    """The bytes of seq 1, 2, …; None where a gap frame stands for the event."""
    chains: list[str] = field(default_factory=list[str])
    acked: int = 0
    receipts: dict[str, int] = field(default_factory=dict[str, int])
    accepted: dict[str, int] = field(default_factory=dict[str, int])
    violations: list[str] = field(default_factory=list[str])

    @property
    def last_seq(self) -> int:
        """The newest event that was seen."""
        return len(self.frames)

    def chain_at(self, seq: int) -> str:
        """Return the chain as of `seq`; of 0, the journal's own id."""
        return self.chains[seq - 1] if seq else self.journal_id

    def events(self) -> Iterator[Json]:
        """Every event, in order, as JSON."""
        return (json.loads(frame) for frame in self.frames if frame is not None)

    def event(self, seq: int) -> Json:
        """Return one event as JSON."""
        frame = self.frames[seq - 1]
        assert frame is not None, f"the event {seq} of {self.journal_id} lies in a gap"
        found: Json = json.loads(frame)
        return found

    def take(self, frame: bytes, event: Json, *, position: int) -> int:
        """Remember an event that came with the stream at `position`; return where the stream is then."""
        seq: int = event["seq"]
        if tuple(event) != ENVELOPE:
            self._blame(seq, f"the members are {list(event)}")
        if seq > position + 1:
            self._blame(seq, f"came after {position}, without a gap")
        if seq <= self.last_seq:
            if frame != self.frames[seq - 1]:
                self._blame(seq, f"came again as other bytes: {self.frames[seq - 1]!r}, then {frame!r}")
        elif seq == self.last_seq + 1:
            self._append(frame, event)
        return max(position, seq)

    def skip(self, gap: Json, *, position: int) -> int:
        """Remember a gap frame; return where the stream stands then."""
        first, last = int(gap["from"]), int(gap["to"])
        if first != position + 1 or last < first:
            self._blame(first, f"a gap to {last} came while the stream stood at {position}")
            return position
        for seq in range(self.last_seq + 1, last + 1):
            self.frames.append(None)
            self.chains.append(gap["chain"] if seq == last else "")
        if self.chains[last - 1] != gap["chain"]:
            self._blame(last, "the chain of a gap is not the one of the events it stands for")
        return last

    def _append(self, frame: bytes, event: Json) -> None:
        seq: int = event["seq"]
        expected = chain_after(self.chain_at(seq - 1), frame)
        if event["chain"] != expected:
            self._blame(seq, f"its chain is {event['chain']}, and must be {expected}")
        self.frames.append(frame)
        self.chains.append(event["chain"])
        command_id = event["command_id"]
        if event["kind"] == "command.accepted":
            self._once(self.accepted, command_id, seq, "acceptance")
        if event["terminal"]:
            self._once(self.receipts, command_id, seq, "receipt")
            if event["kind"] != "command.refused" and command_id not in self.accepted:
                self._blame(seq, "is the receipt of a command that was never accepted")

    def _once(self, known: dict[str, int], command_id: str, seq: int, what: str) -> None:
        if command_id in known:
            self._blame(seq, f"is a second {what} of {command_id}, after {known[command_id]}")
        known.setdefault(command_id, seq)

    def _blame(self, seq: int, what: str) -> None:
        self.violations.append(f"event {seq} of {self.journal_id}: {what}")
